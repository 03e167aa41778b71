"""Finds the networks in a checkpoint, and builds the one that is meant.

Training programs wrap weights: in dictionaries, by prefixes of their names, and beside other
networks. A network is found by the names of its weights, whatever stands before them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Generic, TypeVar

from waifu2x.errors import ModelError
from waifu2x.networks.model import Model
from waifu2x.networks.readers import recognised
from waifu2x.networks.readers.tensors import Contents
from waifu2x.system.lazy_dataclass import dataclass

_WRAPPERS = ("model_state_dict", "state_dict", "params_ema", "params-ema", "params", "model", "net")
"""Dictionaries of networks that come before others, in spandrel's order."""
_MARKS = ("pro", "no_norm")
"""Keys that mean something by their presence."""
_AVERAGED = re.compile(r"(?:.*[^a-z])?(?:ema|swa|averaged|shadow)(?:[^a-z].*)?", re.IGNORECASE)
_RIVAL = re.compile(
    r"(?:net|model)?_?d(?:_.*)?|.*disc(?:riminator)?s?(?:_.*)?|critic|(?:.*_)?loss(?:es)?(?:_.*)?"
    r"|criterion|perceptual.*|optimi[sz]ers?(?:_.*)?",
    re.IGNORECASE,
)
"""Names of what is trained or used beside the network that makes pictures."""
_AIDS = re.compile(r"(?:.*_)?(?:vgg|lpips|dists|metrics?|psnr|ssim)(?:[_\d].*)?", re.IGNORECASE)
"""Names of networks that measure results."""
_MOST_LEVELS = 8
"""Dictionaries inside one another, and parts of a prefix."""
_MOST_NETWORKS = 16

_Kind = TypeVar("_Kind")


@dataclass(frozen=True)
class FoundNetwork(Generic[_Kind]):
    """The weights of a network that is known, by the names that it has by itself."""

    where: tuple[str, ...]
    """Keys of the dictionaries around it, and the prefix of its names, if any."""
    weights: dict[str, _Kind]
    marks: frozenset[str]


def find(
    found: Any, kind: type[_Kind], shape: Callable[[_Kind], tuple[int, ...]], name: str
) -> list[FoundNetwork[_Kind]]:
    """Returns the networks in nested dictionaries of tensors of a kind, those to prefer first.

    Values of other kinds beside tensors are ignored. Raises ModelError, which begins with `name`,
    if no network that makes pictures is among them, or more than a checkpoint can need are.
    """
    dictionaries = list(_dictionaries(found, kind, ()))
    if not dictionaries:
        raise ModelError(f"{name}: it holds no weights by name", "save model.state_dict()")
    made: list[FoundNetwork[_Kind]] = []
    for where, weights, marks in dictionaries:
        made += _networks(where, weights, marks, shape) or []
    if not made:
        largest = max((weights for _, weights, _ in dictionaries), key=len)
        raise recognised.unknown(largest.keys(), name)
    pictures = [each for each in made if not any(map(_RIVAL.fullmatch, _words(each.where)))]
    if not pictures:
        raise ModelError(
            f"{name}: it holds a discriminator or a loss, and no network that enlarges"
        )
    if len(pictures) > _MOST_NETWORKS:
        many = f"{name}: it holds {len(pictures)} networks, more than {_MOST_NETWORKS}"
        raise ModelError(f"{many}", "save the one to use by itself")
    return sorted(pictures, key=lambda each: (not _is_averaged(each.where), _place(each.where)))


def build(networks: list[Contents], name: str) -> Model:
    """Returns the first of the networks that enlarges; the first of all if none does.

    Those that cannot be built are passed over if another can be: names of other networks may look
    like those of known ones. Raises ModelError, that of the first, if none can be.
    """
    errors: list[ModelError] = []
    made: list[tuple[Model, Contents]] = []
    for each in networks:
        try:
            made.append((recognised.build(each, name), each))
        except ModelError as error:
            errors.append(error)
            continue
        if made[-1][0].scale > 1:
            break
    if not made:
        raise errors[0]
    enlarges = made[-1][0].scale > 1
    model, taken = made[-1] if enlarges else made[0]
    if not taken.where and len(networks) == 1:
        return model
    if len(networks) == 1:
        why = "the only network found that makes pictures"
    elif not enlarges:
        why = "the first of those that can be used; none enlarges"
    elif len(made) > 1:
        why = "the first that enlarges"
    elif errors:
        why = f"the first that can be used ({str(errors[0]).removeprefix(f'{name}: ')})"
    else:
        why = "averaged weights (EMA) come first" if _is_averaged(taken.where) else "the first"
    others = ", ".join(_shown(each.where) for each in networks if each is not taken)
    network = f"{_shown(taken.where)}: {why}" + (f"; not taken: {others}" if others else "")
    return replace(model, taken=network, inferred=model.shapes)


def _dictionaries(
    found: Any, kind: type[_Kind], where: tuple[str, ...], seen: set[int] | None = None
) -> Iterator[tuple[tuple[str, ...], dict[str, _Kind], frozenset[str]]]:
    """Yields each dictionary that has tensors, once: where it stands, its tensors and marks."""
    # A small file can name one dictionary again and again.
    seen = set() if seen is None else seen
    if not isinstance(found, Mapping) or id(found) in seen or len(where) > _MOST_LEVELS:
        return
    seen.add(id(found))
    named = {key: value for key, value in found.items() if isinstance(key, str)}
    marks = frozenset(key for key in _MARKS if key in named)
    weights = {k: v for k, v in named.items() if isinstance(v, kind) and k not in marks}
    if weights:
        yield where, weights, marks
    for key, value in named.items():
        yield from _dictionaries(value, kind, (*where, key), seen)


def _networks(
    where: tuple[str, ...],
    weights: dict[str, _Kind],
    marks: frozenset[str],
    shape: Callable[[_Kind], tuple[int, ...]],
    level: int = 0,
) -> list[FoundNetwork[_Kind]] | None:
    """Returns the networks in one dictionary, by prefixes of their names.

    None if it holds weights of something unknown: it may be part of one network with the others.
    """
    if recognised.is_known(weights.keys()):
        return [FoundNetwork(where, weights, marks)]
    groups: dict[str, dict[str, _Kind]] = {}
    for key, value in weights.items():
        first, dot, rest = key.partition(".")
        # Counters stand beside the weights.
        if not dot and math.prod(shape(value)) > 1:
            return None
        if dot:
            groups.setdefault(first, {})[rest] = value
    if level == _MOST_LEVELS:
        return None
    made: list[FoundNetwork[_Kind]] = []
    for first, group in groups.items():
        own = frozenset(key for key in _MARKS if key in group)
        named = {key: value for key, value in group.items() if key not in own}
        prefix = (*where[:-1], where[-1] + first + ".") if level else (*where, first + ".")
        inner = _networks(prefix, named, marks | own, shape, level + 1)
        beside = _RIVAL.fullmatch(first) or _AIDS.fullmatch(first) or _AVERAGED.fullmatch(first)
        if inner is None and not beside:
            return None
        made += inner or []
    return made


def _words(where: tuple[str, ...]) -> list[str]:
    return [word for part in where for word in part.split(".")]


def _is_averaged(where: tuple[str, ...]) -> bool:
    return any(map(_AVERAGED.fullmatch, _words(where)))


def _place(where: tuple[str, ...]) -> int:
    """Returns the place of a dictionary among those of a file; of equals, the first comes first."""
    return _WRAPPERS.index(where[0]) if where and where[0] in _WRAPPERS else len(_WRAPPERS)


def _shown(where: tuple[str, ...]) -> str:
    return " > ".join(part[-60:] for part in where) or "the outermost"
