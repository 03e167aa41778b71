"""The command line. The only package that prints; one module for each command."""

from __future__ import annotations

import logging
import os
import signal
import sys
import warnings
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from waifu2x import __version__
from waifu2x.cli.command import Group, failures_told
from waifu2x.cli.report import Volume, detail, say, set_volume, tell
from waifu2x.errors import printable
from waifu2x.system.nearest import nearest

COMMANDS = {
    "upscale": "Enlarge and denoise pictures.",
    "batch": "Enlarge and denoise the pictures of a folder.",
    "compare": "Say and show how much pictures, or models, differ.",
    "info": "Say what a picture's file holds, and what of it is kept.",
    "devices": "Show every backend and device, and why one cannot be used.",
    "models": "List, show, import and remove models.",
    "bench": "Measure this machine, layer by layer.",
    "cache": "Show or clear what is kept between runs.",
}
"""Commands and what each does. Each is in the module of its name, imported when it is called."""
DEFAULT = "upscale"
"""The command that is meant where the first argument is none."""

_STANDARD_ERROR = 2
"""The number of its file descriptor; those of input and output are less."""


class _Commands(Group):
    def list_commands(self, context: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        command: click.Command = getattr(import_module(f"waifu2x.cli.{name}"), name)
        return command

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        own = {name for parameter in self.get_params(context) for name in parameter.opts}
        if args and args[0].startswith("-") and args[0].partition("=")[0] not in own:
            args = [DEFAULT, *args]
        return super().parse_args(context, args)

    def resolve_command(
        self, context: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in COMMANDS:
            path = Path(name)
            near = None if path.suffix or path.exists() else nearest(name, list(COMMANDS))
            if near:
                words = " ".join([context.command_path, near, *args[1:]])
                raise click.UsageError(
                    printable(f"There is no command and no file {name!r}: did you mean `{words}`?")
                )
            args = [DEFAULT, *args]
        return super().resolve_command(context, args)

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
@click.version_option(__version__, prog_name="waifu2x")
def cli() -> None:
    """Upscale and denoise pictures with waifu2x networks.

    \b
    waifu2x in.png                          twice as large: in-2x.png
    waifu2x in.png out.png                  the same, under another name
    waifu2x -n 1 -s 4 photo.jpg large.png   remove JPEG noise, then four times as large
    waifu2x *.png -o large/                 several pictures into a folder
    waifu2x batch -r pictures/ large/       a folder with its tree

    Without a command, `upscale` is meant: `waifu2x upscale --help` has its options.

    Exit codes: 0 all done, 1 at least one file failed, 2 the command line is wrong, 130
    interrupted.
    """


class _Told(logging.Handler):
    """Tells log messages as the program's own: they quote names from model files.

    Without the traceback that a library may log with one: whatever fails is told by its message.
    """

    def emit(self, record: logging.LogRecord) -> None:
        level = record.levelno
        tells = tell if level >= logging.WARNING else say if level >= logging.INFO else detail
        tells(record.getMessage())


def main() -> None:
    """Runs the `waifu2x` command and exits."""
    _replace_closed_streams()
    # Libraries' remarks on odd but readable files are not for users.
    warnings.filterwarnings("ignore", module="PIL|tifffile|zipfile")
    logging.basicConfig(handlers=[_Told()])
    logging.getLogger("waifu2x").setLevel(logging.DEBUG)
    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)
        # Unless it is to be ignored, as under nohup: unwind, so that nothing half-made stays.
        if number is not None and signal.getsignal(number) == signal.SIG_DFL:
            signal.signal(number, lambda received, frame: sys.exit(128 + received))
    try:
        code = cli.main(prog_name="waifu2x", standalone_mode=False)
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
        # What could not be written would be tried once more at exit, with a traceback. It has been
        # told: `show` leaves nothing unwritten where all is well.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    sys.exit(code)


def _replace_closed_streams() -> None:
    """Opens something in the place of standard streams that were closed (`2>&-`).

    Otherwise a file that is opened later would get the number of one of them, and with it whatever
    libraries print. For Python, standard input and output stay closed; errors go nowhere.
    """
    while (number := os.open(os.devnull, os.O_RDWR)) <= _STANDARD_ERROR:
        os.set_inheritable(number, True)
    os.close(number)
    if sys.stderr is None:
        sys.stderr = os.fdopen(_STANDARD_ERROR, "w", closefd=False)
