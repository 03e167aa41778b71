"""Weights by name: what they are wrapped in, and what their names begin with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from waifu2x.errors import ModelError

_WRAPPERS = ("model_state_dict", "state_dict", "params_ema", "params-ema", "params", "model", "net")
"""Keys under which the weights stand, the first one that is there; as spandrel takes them."""
_PREFIXES = ("module.", "netG.")
"""What training programs put before every name."""
MARKS = ("pro", "no_norm")
"""Keys that say something by being there, whatever their value."""
_DEPTH = 4

_Kind = TypeVar("_Kind")


def unwrapped(found: Any, kind: type[_Kind], name: str) -> tuple[dict[str, _Kind], frozenset[str]]:
    """The weights by name, without what is wrapped around them; and the marks that are there.

    Raises ModelError if there are none, or anything stands among them that is none.
    """
    for _ in range(_DEPTH):
        inner = _inner(found)
        if inner is None:
            break
        found = inner
    if not isinstance(found, Mapping) or not found:
        raise ModelError(f"{name}: holds no weights by name")
    if not all(isinstance(key, str) for key in found):
        raise ModelError(f"{name}: holds weights without names")
    marks = frozenset(key for key in MARKS if key in found)
    weights = {key: value for key, value in found.items() if key not in marks}
    if weights and not any(isinstance(value, kind) for value in weights.values()):
        raise ModelError(f"{name}: no weights found: a state_dict is needed")
    for key, value in weights.items():
        if not isinstance(value, kind):
            raise ModelError(f"{name}: {key[:60]!r} is no tensor: save model.state_dict() alone")
    return stripped(weights), marks


def stripped(weights: dict[str, _Kind]) -> dict[str, _Kind]:
    """The weights without a prefix that all of their names have."""
    for prefix in _PREFIXES:
        if all(key.startswith(prefix) for key in weights):
            weights = {key.removeprefix(prefix): value for key, value in weights.items()}
    return weights


def _inner(found: Any) -> Any:
    """What a dictionary wraps, if it does."""
    if not isinstance(found, Mapping):
        return None
    for key in _WRAPPERS:
        if isinstance(found.get(key), Mapping):
            return found[key]
    if len(found) == 1:
        (only,) = found.values()
        return only if isinstance(only, Mapping) else None
    return None
