"""Settings in force: which options have their values from one, and where that comes from."""

from __future__ import annotations

import re
from typing import NamedTuple

import click

_META = "waifu2x.cli.options.settings"


class Setting(NamedTuple):
    """The value of an option, and who says so."""

    value: str | bool
    """As on the command line."""
    option: str
    """Its option's long name, without dashes."""
    key: str
    """What it is called there: a variable's name, or a key of the file."""
    origin: str
    """For people: the variable, or the file."""


def put_in_force(context: click.Context, found: dict[str, Setting]) -> None:
    """Lets settings hold for the command that runs, by the names of parameters."""
    context.meta[_META] = found


def in_force(context: click.Context) -> dict[str, Setting]:
    """The settings that hold for the command that runs, by the names of parameters."""
    found: dict[str, Setting] = context.meta.get(_META, {})
    return found


def origin_of(message: str, context: click.Context) -> str:
    """What settings an error message speaks of, and where they come from, for the end of it.

    Who set something long ago does not think of it; empty where a message names none.
    """
    options = {str(each.name): each.opts for each in own_options(context.command)}
    found = []
    for name, setting in in_force(context).items():
        words = "|".join(map(re.escape, (*options.get(name, ()), setting.option)))
        if re.search(rf"(?<![\w-])({words})(?![\w-])", message):
            found.append(f"{setting.option} = {setting.value} comes from {setting.origin}")
    return f" ({'; '.join(found)})" if found else ""


def is_of_settings(name: str) -> bool:
    """Whether a parameter of the command that runs has its value from a setting: it then gives way
    where it does not apply, while an option of the command line would be an error."""
    context = click.get_current_context(silent=True)
    return context is not None and name in in_force(context)


def own_options(command: click.Command) -> list[click.Option]:
    """The options of a command, without its arguments."""
    return [each for each in command.params if isinstance(each, click.Option)]
