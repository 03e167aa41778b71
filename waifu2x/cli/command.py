"""The shape of commands: helps in groups, mistakes in one sentence, settings that options come
from."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import click

from waifu2x.cli.output.report import message_of
from waifu2x.errors import Waifu2xError, printable, shortage
from waifu2x.system.arguments import nearest

USUAL = "Options"
IN_AND_OUT = "Input and output"
SIZE = "Size (instead of -s)"
FILE = "Result file"
COMPUTING = "Model and device"
MESSAGES = "Messages"
GROUPS = (USUAL, IN_AND_OUT, SIZE, FILE, COMPUTING, MESSAGES)
"""Headings of options in helps and man pages, in order."""
CONTEXT: dict[str, Any] = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
"""Settings of click for every command."""
SETTINGS_KEY = "waifu2x.cli.options.settings"
"""The key of the settings in force in a context of click."""
_TTA = ("-x", "--tta")
_TTA_LEVELS = ("1", "2", "4", "8")


class Option(click.Option):
    """An option that helps show under a heading."""

    def __init__(
        self,
        *arguments: Any,
        group: str = USUAL,
        joint: tuple[str, str] | None = None,
        **settings: Any,
    ) -> None:
        """`group` is one of GROUPS. `joint` is the name of another option that takes the same, and
        the text of both in helps. The rest is as for click."""
        super().__init__(*arguments, **settings)
        self.group = group
        self.joint = joint


def option(
    *names: str, group: str = USUAL, joint: tuple[str, str] | None = None, **settings: Any
) -> Callable[[Any], Any]:
    """Declares an `Option` of a command, with its arguments."""
    return click.option(*names, cls=Option, group=group, joint=joint, **settings)


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
            hint = f"{dashed}: begins as options do: for the file write ./{dashed}"
            raise click.UsageError(printable(hint)) from error

    def invoke(self, context: click.Context) -> Any:
        """Runs the command. Raises UsageError, with a sentence, which also names settings."""
        try:
            with one_sentence(context):
                return super().invoke(context)
        except (click.UsageError, Waifu2xError) as error:
            usage = isinstance(error, click.UsageError)
            message = error.message if isinstance(error, click.UsageError) else str(error)
            if not (origin := origin_of(message, context)):
                raise
            kind = click.UsageError if usage else click.ClickException
            raise kind(printable(message.rstrip(".") + origin)) from error

    def format_options(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the options, a section for each group; --help is the last."""
        rows: dict[str, list[tuple[str, str]]] = {}
        shown_before = set[str]()
        for parameter in self.params:
            record = parameter.get_help_record(context)
            if record is None or not isinstance(parameter, click.Option):
                continue
            if isinstance(parameter, Option) and parameter.joint is not None:
                other, text = parameter.joint
                shown_before.add(other)
                name = parameter.opts[-1]
                record = record[0].replace(name, f"{name}, {other}"), text
            if shown_before.isdisjoint(parameter.opts):
                rows.setdefault(group_of(parameter), []).append(record)
        found = [heading for heading in GROUPS if heading in rows] or [USUAL]
        help_option = self.get_help_option(context)
        record = help_option.get_help_record(context) if help_option else None
        if record:
            rows.setdefault(found[-1], []).append(record)
        for heading in found:
            with formatter.section(heading):
                formatter.write_dl(rows[heading])


def group_of(option: click.Option) -> str:
    """Returns the heading of an option in helps and man pages."""
    return option.group if isinstance(option, Option) else USUAL


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
            raise click.UsageError(f"{context.command_path} has no command {args[0]!r}: {known}")
        return super().resolve_command(context, args)


def listed(names: Sequence[str], last: str = "or") -> str:
    """Joins names in a sentence: a, b or c."""
    *others, end = names
    return f"{', '.join(others)} {last} {end}" if others else end


class Pixels(click.ParamType[int]):
    """A whole number of pixels, from 1 up."""

    name = "pixels"

    def __init__(self, most: int = 1_000_000) -> None:
        self._most = most

    def convert(self, value: Any, parameter: Any, context: Any) -> int:
        """Parses the number. Raises BadParameter."""
        text = str(value)
        if re.fullmatch(r"\d{1,19}", text, re.ASCII) and 1 <= int(text) <= self._most:
            return int(text)
        raise click.BadParameter(
            f"expected a whole number of pixels from 1 to {self._most}, not {text!r}.",
            context,
            parameter,
        )


class Choice(click.Choice[str]):
    """A choice of words, in any case; errors name the nearest word, or all."""

    def __init__(self, choices: Sequence[str], shown: Sequence[str] = ()) -> None:
        """`shown` are the words that messages list, if there are many."""
        super().__init__(choices, case_sensitive=False)
        self._many = bool(shown)
        self._shown = listed(shown or choices)

    def convert(self, value: Any, parameter: Any, context: Any) -> str:
        """Returns the word as it is spelt here. Raises BadParameter."""
        found = next((each for each in self.choices if each.casefold() == value.casefold()), None)
        if found is not None:
            return found
        near = nearest(value, self.choices) if self._many else None
        text = (
            f"{value!r}: did you mean {near}?"
            if near
            else f"expected {self._shown}, not {value!r}."
        )
        raise click.BadParameter(text, context, parameter)


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
        return f"There is no option {name}: did you mean {near}?"
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


class Setting(NamedTuple):
    """The value of an option, and its origin."""

    value: str | bool
    """As on the command line."""
    option: str
    """The option's long name, without dashes."""
    key: str
    """Its name at the origin: a variable's name, or a key of the file."""
    origin: str
    """For people: the variable, or the file."""


def in_force(context: click.Context) -> dict[str, Setting]:
    """Returns the settings of the running command, by the names of parameters."""
    found: dict[str, Setting] = context.meta.get(SETTINGS_KEY, {})
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
