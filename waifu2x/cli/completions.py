"""What may stand for an argument or the value of an option, for completion in shells.

All within a tenth of a second: names are listed, no model is read and no device is opened.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from waifu2x.errors import Waifu2xError
from waifu2x.flows.jobs import ARCHIVES
from waifu2x.formats import film
from waifu2x.formats.table import READABLE, WRITABLE

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

Complete = Callable[[click.Context, click.Parameter, str], "list[CompletionItem[str]]"]
"""What click calls for the completions of a parameter."""

_NVIDIA = Path("/proc/driver/nvidia/gpus")
_RENDERERS = Path("/dev/dri")
_PLAIN_WORD = re.compile(r"[\w@%+=:,./-]+")
"""A word that no shell takes for more than itself."""


def files(*suffixes: str) -> Complete:
    """Files with these suffixes, such as `.png`, in any case; none: all files. And folders."""

    def complete(
        context: click.Context, parameter: click.Parameter, incomplete: str
    ) -> list[CompletionItem[str]]:
        return [_item(incomplete, type="file", suffixes=suffixes)]

    return complete


def folders(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem[str]]:
    """Folders."""
    return [_item(incomplete, type="dir")]


pictures = files(*(f".{each}" for each in (*READABLE, *ARCHIVES)))
"""What can be read."""
results = files(*(f".{each}" for each in (*WRITABLE, *ARCHIVES)))
"""What can be written."""
films = files(*(f".{each}" for each in film.READABLE))
"""What `video` reads."""
pictures_and_films = files(*(f".{each}" for each in (*READABLE, *ARCHIVES, *film.READABLE)))
"""What `info` reads."""
films_made = files(*(f".{each}" for each in film.WRITABLE))
"""What it makes."""


def models(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem[str]]:
    """Installed model sets, and files of models where a path is begun."""
    from waifu2x.networks.readers import SUFFIXES

    found = [item for item in _model_sets() if item.value.startswith(incomplete)]
    if found and not incomplete.startswith((".", "/", "~")):
        return found
    return [_item(incomplete, type="file", suffixes=SUFFIXES)]


def model_files(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem[str]]:
    """Files that `models import` reads."""
    from waifu2x.networks.readers import SUFFIXES

    return files(*SUFFIXES, ".zip", ".whl")(context, parameter, incomplete)


def model_lists(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem[str]]:
    """Installed model sets, several with commas between them."""
    return _lists(_model_sets(), incomplete)


def imported_models(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem[str]]:
    """Model sets that are the user's own."""
    from waifu2x.networks import catalogue

    items = [item for item in _model_sets() if catalogue.entry(item.value) is None]
    return [item for item in items if item.value.startswith(incomplete)]


def levels_of_tta(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem[str]]:
    """Numbers of --tta, and what follows where it has none."""
    items = [_item(each) for each in ("2", "4", "8") if each.startswith(incomplete)]
    for argument in context.command.params:
        if isinstance(argument, click.Argument):
            return items + argument.shell_complete(context, incomplete)
    return items


def devices(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem[str]]:
    """Numbers of devices, several with commas between them, and `all`."""
    count = 1 if context.params.get("backend") in ("cpu", "numpy") else _gpu_count()
    found = _lists((_item(str(number)) for number in range(count)), incomplete)
    return [*found, _item("all")] if "all".startswith(incomplete) else found


def _gpu_count() -> int:
    """How many devices there may be, by what the system lists; at least one. To ask the drivers
    takes longer than anybody waits."""
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


def _model_sets() -> list[CompletionItem[str]]:
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
        # Shells insert words as they are: what could be an order to one is not offered.
        if _PLAIN_WORD.fullmatch(each.name):
            items.append(_item(each.name, help=about))
    return items


def _lists(items: Iterable[CompletionItem[str]], incomplete: str) -> list[CompletionItem[str]]:
    """Items as the last of a list that is begun, without those that are in it."""
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
    from click.shell_completion import CompletionItem  # a millisecond, for a TAB alone

    return CompletionItem(value, type, help, suffixes=suffixes)
