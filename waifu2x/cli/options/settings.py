"""Settings: values of options that the command line does not give, from variables and a TOML file.

The command line comes before variables such as WAIFU2X_MODEL, those before the file's table for the
command, such as [batch], that before the file's top level, and all before the built-in defaults.
Keys are the long names of options. click gets the result as its `default_map`, so the options
themselves check the values.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click
import platformdirs
from click.core import ParameterSource

from waifu2x.api.settings import uses
from waifu2x.api.settings.kinds import noise_level, noise_word
from waifu2x.api.settings.setting import Setting
from waifu2x.api.settings.table import TABLE, of_command
from waifu2x.cli.command import SETTINGS_KEY, WORDS_KEY, Given, own_options
from waifu2x.cli.options.option import Option
from waifu2x.cli.output.report import tell
from waifu2x.errors import printable
from waifu2x.system.arguments import nearest
from waifu2x.system.files import open_regular, reason
from waifu2x.system.resources import of_user

_Function = TypeVar("_Function", bound=Callable[..., Any])

COMMANDS = tuple(next(row for row in TABLE if row.key == "config").commands.split())
"""The commands that take settings."""
PREFIX = "WAIFU2X_"
"""The prefix of variables' names."""
FILE_VARIABLE = "WAIFU2X_CONFIG"
"""The variable that names the file; set but empty, there is none."""
OTHER_VARIABLES = {
    "WAIFU2X_CACHE_DIR": "The folder for parsed weights and compiled code.",
    "WAIFU2X_CONFIG": "The settings file, as by --config; empty for none.",
    "WAIFU2X_CPU_ISA": "The widest instruction set that the cpu backend may use.",
    "WAIFU2X_CUDA_UNITS": "The units of a GPU that the cuda backend uses: mma, wgmma or fma.",
    "WAIFU2X_REQUIRE": "For tests: backends whose absence is a failure.",
}
"""Variables of the program that are not for options, and the purpose of each."""
ONE_RUN = {row.key: row.one_run for row in TABLE if row.one_run}
"""Options that no setting may stand for, and why. A setting is made once and forgotten: it must not
decide, a year later, that a file is lost."""
KEYS = tuple(dict.fromkeys(row.key for row in TABLE if not row.one_run))
"""Options that settings may stand for."""

_MOST_BYTES = 1 << 14  # a key of as many dots takes a second to read


class SettingsError(click.UsageError):
    """A settings file or a variable is unusable."""


class ConfigOption(Option):
    """The option --config, which also gives the command's other options their settings."""

    def __init__(self, names: Sequence[str], setting: Setting) -> None:
        super().__init__(names, setting)
        self.is_eager, self.expose_value = True, False

    def add_to_parser(self, parser: Any, context: click.Context) -> None:
        """Adds a hidden --no-FLAG for each flag that a setting may set."""
        super().add_to_parser(parser, context)
        for key, option in options_of(context.command).items():
            if option.is_flag:
                parser.add_option(
                    option, [f"--no-{key}"], option.name, action="store_const", const=False
                )

    def handle_parse_result(
        self, context: click.Context, opts: Mapping[str, Any], args: list[str]
    ) -> tuple[Any, list[str]]:
        """Reads the settings, before any other option of the command gets its value. Raises
        SettingsError."""
        result = super().handle_parse_result(context, opts, args)
        if not context.resilient_parsing:
            found = settings_of(context.command, opts.get(self.name or ""), set(opts))
            context.meta[SETTINGS_KEY], context.meta[WORDS_KEY] = found, dict(opts)
            context.default_map = {name: setting.value for name, setting in found.items()}
        return result


def options_of(command: click.Command) -> dict[str, Option]:
    """Returns the options of a command that settings may stand for, by key."""
    found = [each for each in command.params if isinstance(each, Option)]
    return {each.setting.key: each for each in found if not each.setting.one_run}


def variable_of(key: str) -> str:
    """Returns the variable for an option: WAIFU2X_LONGER_SIDE for longer-side."""
    return PREFIX + key.upper().replace("-", "_")


def environment_without() -> dict[str, str]:
    """Returns the environment without variables for options, for a child process."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(PREFIX) or name in OTHER_VARIABLES
    }


def settings_of(command: click.Command, chosen: str | None, given: set[str]) -> dict[str, Given]:
    """Returns the checked settings in force for a command, by the names of its parameters.

    `chosen` is the file of --config; `given` are the parameters of the command line. Raises
    SettingsError for an unreadable file, for unknown keys, and for bad values.
    """
    options = options_of(command)
    layers = [_of_variables(options)]
    path = file_of(chosen)
    document = None if path is None else read(path, asked_for=chosen is not None)
    if path is not None and document is not None:
        layers += _of_file(command, options, document, short(path))
    found = _merged(command, layers, given)
    for name, setting in found.items():
        _check(command, name, setting)
    return found


def file_of(chosen: str | None) -> Path | None:
    """Returns the settings file of --config, of WAIFU2X_CONFIG, or the platform's, which may not
    exist; None for no file."""
    name = chosen if chosen is not None else os.environ.get(FILE_VARIABLE)
    if name is not None:
        return Path(name) if name else None
    folder = of_user(platformdirs.user_config_path)
    return folder / "config.toml" if folder else None


def read(path: Path, *, asked_for: bool) -> dict[str, Any] | None:
    """Returns the content of a settings file; None if it is missing and was not asked for. Raises
    SettingsError."""
    asked_for = asked_for or FILE_VARIABLE in os.environ
    where = short(path)
    try:
        with open_regular(path) as file:
            data = file.read(_MOST_BYTES + 1)
    except OSError as error:
        if not asked_for and isinstance(error, FileNotFoundError | NotADirectoryError):
            return None
        if not asked_for and isinstance(error, PermissionError):
            # The home folder may be another user's, which must not stop the program.
            tell(f"{where}: cannot read the settings: {reason(error)}")
            return None
        raise SettingsError(f"{where}: cannot read the settings: {reason(error)}") from error
    except ValueError as error:  # a null character in the name
        raise SettingsError(f"{where}: cannot read the settings: {error}") from error
    if len(data) > _MOST_BYTES:
        raise SettingsError(f"{where}: too large for settings: more than {_MOST_BYTES >> 10} KiB")
    import tomllib  # late: it takes milliseconds

    try:
        return tomllib.loads(data.decode())
    except UnicodeDecodeError as error:
        raise SettingsError(f"{where}: not a TOML file: its text is not UTF-8") from error
    except RecursionError as error:
        raise SettingsError(f"{where}: not a TOML file: its values are nested too deep") from error
    except ValueError as error:  # TOML's own, and Python's for a number with thousands of digits
        raise SettingsError(f"{where}: not a TOML file: {error}") from error


def _of_variables(options: Mapping[str, click.Option]) -> dict[str, Given]:
    found = {}
    for key, option in options.items():
        variable = variable_of(key)
        value = os.environ.get(variable)
        if value:
            found[str(option.name)] = Given(value, key, variable, variable)
    return found


def _of_file(
    command: click.Command, options: Mapping[str, click.Option], document: Any, where: str
) -> list[dict[str, Given]]:
    """Returns the layers of a file for a command, the stronger one first."""
    own: dict[str, Given] = {}
    top: dict[str, Given] = {}
    for key, value in document.items():
        if isinstance(value, dict):
            if key == command.name:
                for inner, each in value.items():
                    if inner not in options:
                        raise _unknown(inner, where, f"{command.name}.", options)
                    own[str(options[inner].name)] = _setting(
                        inner, each, options[inner], where, f"{command.name}."
                    )
            elif key not in COMMANDS:
                raise _unknown(key, where, "", COMMANDS)
        elif key in COMMANDS:
            raise SettingsError(f"{where}: {key}: expected a table, [{key}]")
        elif key in options:
            top[str(options[key].name)] = _setting(key, value, options[key], where, "")
        elif key not in KEYS:
            raise _unknown(key, where, "", [*KEYS, *COMMANDS])
    return [own, top]


def _setting(key: str, value: object, option: click.Option, where: str, table: str) -> Given:
    """Converts a value of the file to one of the command line. Raises SettingsError for a wrong
    type."""
    name = f"{table}{key}"
    if isinstance(value, bool) == option.is_flag and isinstance(value, str | int | float):
        return Given(value if isinstance(value, bool) else str(value), key, name, where)
    expected = "true or false" if option.is_flag else "a string or a number"
    raise SettingsError(printable(f"{where}: {name}: expected {expected}, but got {_kind(value)}"))


def _kind(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, dict):
        return "a table"
    return repr(value) if isinstance(value, str | int | float) else "a date or time"


def _unknown(
    key: str, where: str, table: str, known: Sequence[str] | Mapping[str, Any]
) -> SettingsError:
    if key in ONE_RUN:
        text = f"{where}: {table}{key} cannot be set here: {ONE_RUN[key]}"
    else:
        near = nearest(key.replace("_", "-"), list(known))
        hint = f"did you mean {near}?" if near else "see `waifu2x config`"
        text = f"{where}: there is no setting {table}{key}; {hint}"
    return SettingsError(printable(text))


def _merged(
    command: click.Command, layers: Sequence[Mapping[str, Given]], given: set[str]
) -> dict[str, Given]:
    """Returns the settings of layers, the strongest first, that the command line leaves valid."""
    rows = {option.name: option.setting for option in command.params if isinstance(option, Option)}
    found: dict[str, Given] = {}
    taken = set(given)
    for layer in layers:
        groups = {rows[name].group for name in taken if name in rows} - {""}
        found |= {
            name: setting
            for name, setting in layer.items()
            if name not in taken and groups.isdisjoint((rows[name].group, rows[name].void_by))
        }
        taken |= layer.keys()
    return found


def _check(command: click.Command, name: str, setting: Given) -> None:
    option = next(each for each in own_options(command) if each.name == name)
    try:
        if option.is_flag:  # its callback may act at once, before void settings are known
            option.type_cast_value(click.Context(command), setting.value)
        else:
            option.process_value(click.Context(command), setting.value)
    except click.BadParameter as error:
        where = setting.key if setting.key == setting.origin else f"{setting.origin}: {setting.key}"
        said = f"expected true or false, not {setting.value!r}" if option.is_flag else error.message
        raise SettingsError(printable(f"{where}: {said}")) from error


def home_folder() -> Path | None:
    """Returns the user's home; None without one, or if it is the root of the file system."""
    try:
        home = Path.home()
    except RuntimeError:
        return None
    return None if home == Path(home.anchor) else home


def short(path: Path) -> str:
    """Returns a path for people: `~` for the home folder, whose name is the user's."""
    home = home_folder()
    if home is not None and path.is_relative_to(home):
        return str(Path("~") / path.relative_to(home))
    return str(path)


def takes_settings(command: str) -> Callable[[_Function], _Function]:
    """Gives the function of a command its options, by the table of settings."""

    def add(function: _Function) -> _Function:
        for row in reversed(of_command(command)):
            kind = ConfigOption if row.key == "config" else Option
            function = click.option(cls=kind, setting=row)(function)
        return function

    return add


def settle_use(context: click.Context) -> None:
    """Puts what --best-for chooses into the parameters of a command: its functions need not know
    of it."""
    params = context.params
    best_for = params.pop("best_for", None)
    if best_for is None:
        return
    is_given = context.get_parameter_source("model") is not ParameterSource.DEFAULT
    chosen = uses.choose(
        best_for,
        params["model"] if is_given else None,
        noise_level(params["noise"]),
        is_film=context.command.name == "video",
    )
    if chosen.notice:
        tell(chosen.notice)
    params["model"] = chosen.model
    params["noise"] = noise_word(chosen.noise)
