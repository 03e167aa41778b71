"""The command line. The only package that prints; one module for each command."""

from __future__ import annotations

import logging
import os
import re
import signal
import sys
import warnings
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from waifu2x import __version__
from waifu2x.cli.command import CommandGroup, failures_told
from waifu2x.cli.output.report import Volume, detail, say, set_volume, show, tell
from waifu2x.errors import printable
from waifu2x.system.arguments import nearest

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

COMMANDS = {
    "upscale": "Enlarge and denoise pictures.",
    "batch": "Enlarge and denoise the pictures and films of a folder.",
    "video": "Enlarge and denoise a film.",
    "serve": "Open a page on this machine to drop pictures on.",
    "compare": "Say and show how much pictures, or models, differ.",
    "info": "Say what a picture's file holds, and what of it is kept.",
    "devices": "Show every backend and device, and why one cannot be used.",
    "models": "List, show, import and remove models.",
    "bench": "Measure this machine, layer by layer.",
    "cache": "Show or clear what is kept between runs.",
    "config": "Show the settings in force, and where each comes from.",
    "completion": "Print a script that makes a shell complete waifu2x.",
}
"""The commands and their summaries. Each is in the module of its name, imported when it is
called."""
DEFAULT = "upscale"
"""The command that runs if the first argument is none."""

_VERSION, _VERBOSE = "--version", {"-v", "--verbose"}
_COMPLETE_VARIABLE = "_WAIFU2X_COMPLETE"
"""Set by the scripts of `waifu2x completion`; shell completions go there."""
_STANDARD_ERROR = 2
"""The number of its file descriptor; those of input and output are less."""


class _Commands(CommandGroup):
    def list_commands(self, context: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        command: click.Command = getattr(import_module(f"waifu2x.cli.commands.{name}"), name)
        return command

    def make_context(self, *arguments: Any, **settings: Any) -> click.Context:
        with failures_told():  # those of this group's own options
            return super().make_context(*arguments, **settings)

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        if _VERSION in args and set(args) & _VERBOSE and {_VERSION, *_VERBOSE}.issuperset(args):
            from waifu2x.cli.version import report

            for line in report():
                show(line)
            context.exit()
        own = {name for parameter in self.get_params(context) for name in parameter.opts}
        if args and args[0].startswith("-") and args[0].partition("=")[0] not in own:
            args = [DEFAULT, *args]
        return super().parse_args(context, args)

    def resolve_command(
        self, context: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in COMMANDS:
            if not context.resilient_parsing:
                _refuse_mistyped(context, args)
            args = [DEFAULT, *args]
        return super().resolve_command(context, args)

    def shell_complete(self, context: click.Context, incomplete: str) -> list[CompletionItem[str]]:
        """Completes commands, options of this group, and arguments of the default command."""
        from click.shell_completion import CompletionItem

        items = [
            CompletionItem(name, help=text)
            for name, text in COMMANDS.items()
            if name.startswith(incomplete)
        ]
        items += click.Command.shell_complete(self, context, incomplete)
        default = self.get_command(context, DEFAULT)
        assert default is not None
        with default.make_context(DEFAULT, [], parent=context, resilient_parsing=True) as inner:
            arguments = (each for each in default.params if isinstance(each, click.Argument))
            asked = default if incomplete.startswith("-") else next(arguments)
            items += asked.shell_complete(inner, incomplete)
        return list({item.value: item for item in items}.values())

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        # From the table: listing the commands should not import them.
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def invoke(self, context: click.Context) -> Any:
        set_volume(Volume.NORMAL)
        try:
            with failures_told():
                return super().invoke(context)
        except KeyboardInterrupt:
            raise click.Abort from None  # click would begin a new line


@click.group("waifu2x", cls=_Commands)
@click.version_option(
    __version__, prog_name="waifu2x", help="Show the version; with -v what a report needs."
)
def cli() -> None:
    """Upscale and denoise pictures with waifu2x networks.

    \b
    waifu2x in.png                        twice as large: in-2x.png
    waifu2x in.png out.png                the same, under another name
    waifu2x -s 4 photo.jpg large.png      four times as large, without JPEG noise
    waifu2x *.png -o large/               several pictures into a folder
    waifu2x batch -r pictures/ large/     a folder with its tree

    Without a command, `upscale` is meant: `waifu2x upscale --help` has its options.

    Exit codes: 0 all done, 1 at least one file failed, 2 the command line is wrong, 130
    interrupted.
    """


def _refuse_mistyped(context: click.Context, args: list[str]) -> None:
    """Raises UsageError for a first argument that is a plain word and names nothing."""
    name = args[0]
    if not re.fullmatch(r"\w+", name) or Path(name).exists():
        return
    near = "--help" if name == "help" else nearest(name, list(COMMANDS))
    words = " ".join([context.command_path, near or "", *args[1:]])
    hint = f"; did you mean `{words}`?" if near else "; `waifu2x --help` lists the commands."
    raise click.UsageError(printable(f"There is no command and no file {name!r}{hint}"))


class _LogTeller(logging.Handler):
    """Tells log messages as the program's own, without tracebacks: they quote names from model
    files."""

    def emit(self, record: logging.LogRecord) -> None:
        level = record.levelno
        tells = tell if level >= logging.WARNING else say if level >= logging.INFO else detail
        tells(record.getMessage())


def main() -> None:
    """Runs the `waifu2x` command and exits."""
    _replace_closed_streams()
    # Libraries warn of odd but readable files, which is not for users.
    warnings.filterwarnings("ignore", module="PIL|tifffile|zipfile")
    logging.basicConfig(handlers=[_LogTeller()])
    logging.getLogger("waifu2x").setLevel(logging.DEBUG)
    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)
        # Unwinds, so that nothing half-made stays, unless it is ignored, as under nohup.
        if number is not None and signal.getsignal(number) == signal.SIG_DFL:
            signal.signal(number, lambda received, frame: sys.exit(128 + received))
    if _COMPLETE_VARIABLE in os.environ:
        from waifu2x.cli.commands import completion

        completion.register()
    try:
        code = cli.main(prog_name="waifu2x", complete_var=_COMPLETE_VARIABLE, standalone_mode=False)
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except click.Abort:
        raise KeyboardInterrupt from None
    except BrokenPipeError:
        code = 1
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        # Python would try again at exit, with a traceback. The error has been told: `show` leaves
        # nothing unwritten otherwise.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    sys.exit(code)


def _replace_closed_streams() -> None:
    """Opens something in the place of standard streams that were closed (`2>&-`).

    Otherwise a file that is opened later would get the number of one of them, and everything that
    libraries print. For Python, standard input and output stay closed; errors go nowhere.
    """
    while (number := os.open(os.devnull, os.O_RDWR)) <= _STANDARD_ERROR:
        os.set_inheritable(number, True)
    os.close(number)
    if sys.stderr is None:
        sys.stderr = os.fdopen(_STANDARD_ERROR, "w", closefd=False)
