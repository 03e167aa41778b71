"""The shape of commands: helps in groups, mistakes in one sentence, settings that options come
from."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from waifu2x.cli.output.report import Volume, message_of, set_volume
from waifu2x.errors import Waifu2xError, printable, shortage
from waifu2x.system.arguments import listed, nearest

if TYPE_CHECKING:
    from waifu2x.api.settings.setting import Setting

CONTEXT: dict[str, Any] = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
"""Settings of click for every command."""
SETTINGS_KEY = "waifu2x.cli.options.settings"
"""The key of the settings in force in a context of click."""
WORDS_KEY = "waifu2x.cli.options.words"
"""The key of the options of the command line, unparsed, in a context of click."""
_TTA = ("-x", "--tta")
_TTA_LEVELS = ("1", "2", "4", "8")


class _Configured(click.Command):
    """A command with the program's settings of click."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.context_settings = {**CONTEXT, **self.context_settings}

    def get_help_option_names(self, context: click.Context) -> list[str]:
        """Returns -h and --help in any context: click keeps the first option it is asked for."""
        return [*CONTEXT["help_option_names"]]


class Command(_Configured):
    """A command whose help shows its options in groups, and whose --tta may lack its number."""

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        """Parses arguments. Raises UsageError, with a sentence."""
        words = list(args)
        try:
            with one_sentence(context):
                _number_tta(self, args)
                return super().parse_args(context, args)
        except click.UsageError as error:
            dashed = next((word for word in words if word[:1] == "-" and Path(word).is_file()), "")
            if not dashed:
                raise
            hint = f"{dashed}: begins as options do; for the file write ./{dashed}"
            raise click.UsageError(printable(hint)) from error

    def invoke(self, context: click.Context) -> Any:
        """Runs the command. Raises UsageError, with a sentence, which also names settings."""
        try:
            with one_sentence(context):
                settle(context)
                return super().invoke(context)
        except (click.UsageError, Waifu2xError) as error:
            usage = isinstance(error, click.UsageError)
            message = error.message if isinstance(error, click.UsageError) else str(error)
            if not (origin := origin_of(message, context)):
                raise
            kind = click.UsageError if usage else click.ClickException
            raise kind(printable(message.rstrip(".") + origin)) from error

    def format_options(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the options, a section for each group; --help is the last. Those for films alone
        are in the help of `video`."""
        from waifu2x.api.settings.setting import (  # late: the list of commands is quick
            HEADINGS,
            USUAL,
        )

        rows: dict[str, list[tuple[str, str]]] = {}
        shown_before = set[str]()
        for parameter in self.params:
            record = parameter.get_help_record(context)
            if record is None or not isinstance(parameter, click.Option):
                continue
            setting = _setting_of(parameter)
            if setting is not None and setting.is_of_films and self.name != "video":
                continue
            if setting is not None and setting.joint is not None:
                other, text = setting.joint
                shown_before.add(other)
                name = parameter.opts[-1]
                record = record[0].replace(name, f"{name}, {other}"), text
            if shown_before.isdisjoint(parameter.opts):
                rows.setdefault(setting.heading if setting else USUAL, []).append(record)
        found = [heading for heading in HEADINGS if heading in rows] or [USUAL]
        help_option = self.get_help_option(context)
        record = help_option.get_help_record(context) if help_option else None
        if record:
            rows.setdefault(found[-1], []).append(record)
        for heading in found:
            with formatter.section(heading):
                formatter.write_dl(rows[heading])


def _setting_of(parameter: click.Parameter) -> Setting | None:
    """Returns the row of the table of settings that an option stands for; None for none."""
    return getattr(parameter, "setting", None)


def settle(context: click.Context) -> None:
    """Sets how much is said, and what other options follow from. Raises UsageError for options that
    exclude each other."""
    found = [setting for each in context.command.params if (setting := _setting_of(each))]
    if found:
        from waifu2x.api.settings.table import conflict

        said = conflict(row for row in found if row.chooses(context.params.get(row.name)))
        if said:
            raise click.UsageError(said)
    for volume in (Volume.VERBOSE, Volume.QUIET):
        if context.params.pop(volume.name.lower(), False):
            set_volume(volume)
    if "best_for" in context.params:
        from waifu2x.cli.options.settings import settle_use

        settle_use(context)


def _number_tta(command: click.Command, args: list[str]) -> None:
    """Gives a bare --tta its number: a file name may follow it."""
    if not any(_TTA[1] in parameter.opts for parameter in command.params):
        return
    end = args.index("--") if "--" in args else len(args)
    for at in range(end):
        following = args[at + 1] if at + 1 < len(args) else ""
        if args[at] in _TTA and following not in _TTA_LEVELS:
            if following.isdecimal() and not Path(following).exists():
                raise click.UsageError(f"--tta takes 2, 4 or 8, not {following}.")
            args[at] = "--tta=8"


class CommandGroup(_Configured, click.Group):
    """Commands by name."""

    command_class = Command

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        """Parses the arguments before the command's name. Raises UsageError, with a sentence."""
        with one_sentence(context):
            return super().parse_args(context, args)

    def resolve_command(
        self, context: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Finds the command that arguments name. Raises UsageError for none."""
        names = self.list_commands(context)
        if args[0] not in names and not context.resilient_parsing:
            near = nearest(args[0], names)
            known = f"did you mean {near}?" if near else f"choose from {listed(names)}."
            raise click.UsageError(f"{context.command_path} has no command {args[0]!r}; {known}")
        return super().resolve_command(context, args)


@contextmanager
def one_sentence(context: click.Context) -> Iterator[None]:
    """Turns usage errors into one sentence, without the usage."""
    try:
        yield
    except click.UsageError as error:
        if isinstance(error, click.exceptions.NoArgsIsHelpError):
            raise  # it shows the help
        raise _worded(error, context) from error


def _worded(error: click.UsageError, context: click.Context) -> click.UsageError:
    """Returns an error without context: click shows nothing but the message."""
    where = error.ctx or context
    if isinstance(error, click.NoSuchOption):
        text = _no_option(error, where)
    elif isinstance(error, click.MissingParameter):
        text = _missing(error, where)
    elif isinstance(error, click.BadParameter):
        parameter = error.param
        name = max(parameter.opts, key=len) if isinstance(parameter, click.Option) else ""
        text = f"{name}: {error.message}" if name else error.message
    elif isinstance(error, click.BadOptionUsage) or error.message.startswith("Got unexpected"):
        text = f"{error.format_message().rstrip('.')}; {_help_of(where)}."
    else:
        text = error.format_message()
    return click.UsageError(printable(text))


def _missing(error: click.MissingParameter, context: click.Context) -> str:
    if not isinstance(error.param, click.Argument):
        return f"{error.format_message().rstrip('.')}; {_help_of(context)}."
    words = [
        each.human_readable_name
        for each in context.command.params
        if isinstance(each, click.Argument)
    ]
    usage = " ".join([context.command_path, *words])
    return f"{error.param.human_readable_name} is missing: `{usage}`."


def _no_option(error: click.NoSuchOption, context: click.Context) -> str:
    name = error.option_name
    known = [each for parameter in context.command.params for each in parameter.opts]
    near = nearest(name, [each for each in known if each.startswith("--")])
    if near:
        return f"There is no option {name}; did you mean {near}?"
    return f"There is no option {name}; {_help_of(context)}."


def _help_of(context: click.Context) -> str:
    return f"`{context.command_path} --help` shows what there is"


@contextmanager
def failures_told() -> Iterator[None]:
    """Turns errors that users can cause into one sentence."""
    try:
        yield
    except BrokenPipeError:
        raise  # standard output was closed, which is not worth a message
    except (Waifu2xError, MemoryError, OSError) as error:
        raise click.ClickException(printable(message_of(error))) from error
    except (RuntimeError, ImportError, EOFError) as error:
        if not (refused := shortage(error)):
            raise
        raise click.ClickException(printable(refused)) from error


class Given(NamedTuple):
    """The value of an option, and its origin."""

    value: str | bool
    """As on the command line."""
    option: str
    """The option's long name, without dashes."""
    key: str
    """Its name at the origin: a variable's name, or a key of the file."""
    origin: str
    """For people: the variable, or the file."""


def in_force(context: click.Context) -> dict[str, Given]:
    """Returns the settings of the running command, by the names of parameters."""
    found: dict[str, Given] = context.meta.get(SETTINGS_KEY, {})
    return found


def origin_of(message: str, context: click.Context) -> str:
    """Returns the settings that an error message names, and their origins, to be appended to it. An
    old setting is easily forgotten. Empty if the message names none."""
    options = {str(each.name): each.opts for each in own_options(context.command)}
    found = []
    for name, setting in in_force(context).items():
        words = "|".join(map(re.escape, (*options.get(name, ()), setting.option)))
        if re.search(rf"(?<![\w-])({words})(?![\w-])", message):
            found.append(f"{setting.option} = {setting.value} comes from {setting.origin}")
    return f" ({'; '.join(found)})" if found else ""


def is_of_settings(name: str) -> bool:
    """Returns whether a parameter of the running command has its value from a setting. Such a value
    is ignored where it does not apply; an option of the command line would be an error."""
    context = click.get_current_context(silent=True)
    return context is not None and name in in_force(context)


def own_options(command: click.Command) -> list[click.Option]:
    """Returns the options of a command, without its arguments."""
    return [each for each in command.params if isinstance(each, click.Option)]
