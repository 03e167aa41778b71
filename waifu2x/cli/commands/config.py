"""`waifu2x config`."""

from __future__ import annotations

import json
import os

import click

from waifu2x.api.settings.kinds import OneOf
from waifu2x.cli.command import Command, Given
from waifu2x.cli.completions import files
from waifu2x.cli.options import settings
from waifu2x.cli.options.option import Choice, Option
from waifu2x.cli.output.report import show, tell
from waifu2x.errors import printable
from waifu2x.system.arguments import nearest


@click.command(cls=Command, short_help="Show the settings in force, and where each comes from.")
@click.argument(
    "name", metavar="[COMMAND]", type=Choice(OneOf(settings.COMMANDS)), default="upscale"
)
@click.option(
    "--config",
    "chosen",
    metavar="FILE",
    shell_complete=files(".toml"),
    help="Show it with this settings file.",
)
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def config(name: str, chosen: str | None, as_json: bool) -> None:
    """Show what the options of COMMAND are without a command line, and where each comes from.

    \b
    The first of these that says something counts:
      1. the command line
      2. variables: WAIFU2X_MODEL, WAIFU2X_LONGER_SIDE, ...
      3. the file's table for the command: [batch]
      4. the file's top level
      5. the built-in default

    Keys are the long names of options: `model = "cunet"`, `skip-existing = true`. A flag that is
    set there is turned off by --no-FLAG. COMMAND is upscale, unless it is given.
    """
    from waifu2x.cli import cli

    root = click.Context(cli)
    path = settings.file_of(chosen)
    document = None if path is None else settings.read(path, asked_for=chosen is not None)
    rows: dict[str, list[dict[str, object]]] = {}
    for each in settings.COMMANDS:  # all of them, to show every mistake
        command = cli.get_command(root, each)
        assert command is not None
        found = settings.settings_of(command, chosen, set())
        rows[each] = [
            _row(key, option, found.get(str(option.name)))
            for key, option in settings.options_of(command).items()
        ]
    known = {settings.variable_of(key) for key in settings.KEYS}
    for variable in sorted(os.environ):
        if variable.startswith(settings.PREFIX) and variable not in known:
            _tell_unknown(variable, sorted(known))
    where = None if path is None else settings.short(path)
    if as_json:
        show(
            json.dumps({"file": where, "exists": document is not None, name: rows[name]}, indent=2)
        )
        return
    state = "" if document is not None else " (not there: none of its settings)"
    show(printable(f"settings file: {where}{state}" if where else "settings file: none"))
    cells = [(str(row["setting"]), _text(row["value"]), str(row["from"])) for row in rows[name]]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for cell in cells:
        line = "  ".join(text.ljust(width) for text, width in zip(cell, widths, strict=True))
        show(printable(line.rstrip()))


def _row(key: str, option: Option, setting: Given | None) -> dict[str, object]:
    if setting is None:
        default = option.setting.default
        usual = False if option.is_flag else default and option.setting.kind.kept(default)
        return {"setting": key, "value": usual, "from": "default"}
    value: object = setting.value
    if option.is_flag:
        value = click.BOOL.convert(value, option, None)
    return {"setting": key, "value": value, "from": setting.origin}


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "-" if value is None else str(value)


def _tell_unknown(variable: str, known: list[str]) -> None:
    if variable in settings.OTHER_VARIABLES:
        return
    key = variable.removeprefix(settings.PREFIX).lower().replace("_", "-")
    if key in settings.ONE_RUN:
        why = f"it has no effect: {settings.ONE_RUN[key]}"
    else:
        near = nearest(variable, [*known, *settings.OTHER_VARIABLES])
        why = f"it has no effect; did you mean {near}?" if near else "it has no effect"
    tell(f"{variable}: {why}")
