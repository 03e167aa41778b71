"""Completions for arguments and values of options, in shells. All take at most a tenth of a second:
names are listed, no model is read and no device is opened."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from waifu2x.errors import Waifu2xError
from waifu2x.flows.jobs import ARCHIVES, ARCHIVES_READ
from waifu2x.formats import film
from waifu2x.formats.table import READABLE, WRITABLE

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    Items = list[CompletionItem[str]]

Complete = Callable[[click.Context, click.Parameter, str], "Items"]
"""The function that click calls for the completions of a parameter."""

_NVIDIA = Path("/proc/driver/nvidia/gpus")
_RENDERERS = Path("/dev/dri")
_PLAIN_WORD = re.compile(r"[\w@%+=:,./-]+")
"""A word that no shell interprets."""


def files(*suffixes: str) -> Complete:
    """Returns a completion by folders, and by files with these suffixes, such as `.png`, in any
    case; none: all files."""

    def complete(context: click.Context, parameter: click.Parameter, incomplete: str) -> Items:
        return [_item(incomplete, type="file", suffixes=suffixes)]

    return complete


def folders(context: click.Context, parameter: click.Parameter, incomplete: str) -> Items:
    return [_item(incomplete, type="dir")]


pictures = files(*(f".{each}" for each in (*READABLE, *ARCHIVES_READ)))
results = files(*(f".{each}" for each in (*WRITABLE, *ARCHIVES)))
"""Files that can be written."""
films = files(*(f".{each}" for each in (*film.READABLE, *film.ANIMATED)))
"""Files that `video` reads."""
pictures_and_films = files(*(f".{each}" for each in (*READABLE, *ARCHIVES_READ, *film.READABLE)))
"""Files that `info` reads."""


def models(context: click.Context, parameter: click.Parameter, incomplete: str) -> Items:
    """Completes installed model sets, and files of models if a path is begun."""
    from waifu2x.networks.readers import SUFFIXES

    found = [item for item in _model_sets() if item.value.startswith(incomplete)]
    if found and not incomplete.startswith((".", "/", "~")):
        return found
    return [_item(incomplete, type="file", suffixes=SUFFIXES)]


def model_files(context: click.Context, parameter: click.Parameter, incomplete: str) -> Items:
    """Completes files that `models import` reads."""
    from waifu2x.networks.readers import SUFFIXES

    return files(*SUFFIXES, ".zip", ".whl")(context, parameter, incomplete)


def model_lists(context: click.Context, parameter: click.Parameter, incomplete: str) -> Items:
    """Completes installed model sets, separated by commas."""
    return _lists(_model_sets(), incomplete)


def imported_models(context: click.Context, parameter: click.Parameter, incomplete: str) -> Items:
    """Completes model sets that the user has imported."""
    from waifu2x.networks import catalogue

    items = [item for item in _model_sets() if catalogue.entry(item.value) is None]
    return [item for item in items if item.value.startswith(incomplete)]


def levels_of_tta(context: click.Context, parameter: click.Parameter, incomplete: str) -> Items:
    """Completes numbers of --tta, and what follows if it has none."""
    items = [_item(each) for each in ("2", "4", "8") if each.startswith(incomplete)]
    for argument in context.command.params:
        if isinstance(argument, click.Argument):
            return items + argument.shell_complete(context, incomplete)
    return items


def devices(context: click.Context, parameter: click.Parameter, incomplete: str) -> Items:
    """Completes numbers of devices, separated by commas, and `all`."""
    count = 1 if context.params.get("backend") in ("cpu", "numpy") else _gpu_count()
    found = _lists((_item(str(number)) for number in range(count)), incomplete)
    return [*found, _item("all")] if "all".startswith(incomplete) else found


def _gpu_count() -> int:
    """Returns how many devices there may be, by what the system lists; at least one. Asking the
    drivers would take too long."""
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen:
        return len(chosen.split(","))
    counts = [1]
    for folder, start in ((_NVIDIA, ""), (_RENDERERS, "renderD")):
        try:
            counts.append(sum(each.name.startswith(start) for each in folder.iterdir()))
        except OSError:
            continue
    return max(counts)


def _model_sets() -> Items:
    from waifu2x.networks import catalogue, model_set

    try:
        sets = model_set.available()
    except Waifu2xError:  # the user's folder of models cannot be read
        return []
    items = []
    for each in sets:
        entry = catalogue.entry(each.name)
        levels = ",".join(map(str, each.noise_levels)) or "none"
        scales = ",".join(f"{scale}x" for scale in each.scales if scale > 1)
        about = f"-n {levels}; {scales}" + (f"; {entry.best_at}" if entry else "")
        # Shells insert words as they are: a name that a shell would interpret is not offered.
        if _PLAIN_WORD.fullmatch(each.name):
            items.append(_item(each.name, help=about))
    return items


def _lists(items: Iterable[CompletionItem[str]], incomplete: str) -> Items:
    """Completes the last item of a list, without the items that are in it."""
    begun, comma, last = incomplete.rpartition(",")
    there = begun.split(",")
    return [
        _item(f"{begun}{comma}{item.value}", help=item.help)
        for item in items
        if item.value.startswith(last) and item.value not in there
    ]


def _item(
    value: str, *, type: str = "plain", help: str | None = None, suffixes: Sequence[str] = ()
) -> CompletionItem[str]:
    from click.shell_completion import CompletionItem  # late: it takes a millisecond

    return CompletionItem(value, type, help, suffixes=suffixes)
