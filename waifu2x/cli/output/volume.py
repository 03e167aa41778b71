"""The options of commands that decide how much standard error says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from waifu2x.cli.command import MESSAGES, option
from waifu2x.cli.output.report import Volume, set_volume, volume

_Command = TypeVar("_Command", bound=Callable[..., Any])


def volume_options(command: _Command) -> _Command:
    """Adds --verbose and --quiet to a command, which need not know of them."""
    flags: dict[str, Any] = {"is_flag": True, "expose_value": False, "callback": _set}
    flags["group"] = MESSAGES
    quiet = option("--quiet", **flags, help="Say nothing but errors.")
    verbose = option("-v", "--verbose", **flags, help="Say what is used, and the seconds.")
    return verbose(quiet(command))  # type: ignore[no-any-return]


def _set(context: Any, parameter: click.Parameter, is_given: bool) -> None:
    if not is_given:
        return
    wanted = Volume.VERBOSE if parameter.name == "verbose" else Volume.QUIET
    if volume() not in (Volume.NORMAL, wanted):
        raise click.UsageError("--verbose and --quiet exclude each other.")
    set_volume(wanted)
