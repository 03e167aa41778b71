"""Options of commands, made of rows of the table of settings."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from waifu2x.api.settings import kinds
from waifu2x.api.settings.kinds import Kind
from waifu2x.api.settings.setting import Setting
from waifu2x.cli import completions


class Choice(click.Choice[str]):
    """A choice of words, which shells complete."""

    def __init__(self, kind: Kind) -> None:
        super().__init__(kind.words)
        self._kind = kind

    def convert(self, value: Any, parameter: Any, context: Any) -> Any:
        """Returns what a word means. Raises BadParameter."""
        return _parsed(self._kind, value, parameter, context)


class _Text(click.ParamType[Any]):
    """A text that is parsed."""

    name = "text"

    def __init__(self, kind: Kind) -> None:
        self._kind = kind

    def convert(self, value: Any, parameter: Any, context: Any) -> Any:
        return _parsed(self._kind, value, parameter, context)


def _parsed(kind: Kind, value: Any, parameter: Any, context: Any) -> Any:
    try:
        return kind.parse(value)
    except ValueError as error:
        raise click.BadParameter(str(error), context, parameter) from error


_PATHS: dict[Kind, click.Path] = {
    kinds.PATH: click.Path(path_type=Path),
    kinds.FILE: click.Path(path_type=Path, exists=True, dir_okay=False),
}


class Option(click.Option):
    """The option of a setting."""

    def __init__(self, names: Sequence[str], setting: Setting) -> None:
        """Makes the option that a setting says; click's `names` are not asked for."""
        names = [f"--{setting.key}", setting.name]
        more: dict[str, Any] = {"is_flag": True}
        if not setting.is_flag:
            kind = setting.kind
            more = {
                "type": _PATHS.get(kind) or (Choice if kind.words else _Text)(kind),
                "metavar": setting.metavar,
                "multiple": setting.repeated,
                "show_default": setting.shows_default,
            }
        if setting.default is not None:
            more["default"] = setting.default
        if setting.letter:
            names.insert(0, f"-{setting.letter}")
        if setting.completion:
            own = getattr(completions, setting.completion, None)
            more["shell_complete"] = own or completions.files(setting.completion)
        super().__init__(names, help=setting.help, **more)
        self.setting = setting
