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
from waifu2x.cli.report import Volume, message_of, say, set_volume, tell
from waifu2x.errors import Waifu2xError, printable

_COMMANDS = {
    "upscale": "Enlarge and denoise one picture.",
    "batch": "Enlarge and denoise the pictures of a folder.",
    "compare": "Say and show how much pictures, or models, differ.",
    "info": "Say what a picture's file holds, and what of it is kept.",
    "devices": "Show every backend and device, and why one cannot be used.",
    "models": "List, show and import models.",
    "bench": "Measure this machine, layer by layer.",
    "cache": "Show or clear what is kept between runs.",
}
"""Each in the module of its name, imported when it is called."""

_STANDARD_ERROR = 2
"""The number of its file descriptor; those of input and output are less."""


class _Commands(click.Group):
    def list_commands(self, context: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in _COMMANDS:
            return None
        command: click.Command = getattr(import_module(f"waifu2x.cli.{name}"), name)
        return command

    def resolve_command(
        self, context: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in _COMMANDS and Path(name).exists():
            command = "batch" if Path(name).is_dir() else "upscale"
            raise click.UsageError(
                f"No such command {name!r}. Did you mean `waifu2x {command} {name} OUTPUT`?"
            )
        return super().resolve_command(context, args)

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        # From the table: listing the commands should not import them.
        with formatter.section("Commands"):
            formatter.write_dl(list(_COMMANDS.items()))

    def invoke(self, context: click.Context) -> Any:
        set_volume(Volume.NORMAL)
        try:
            return super().invoke(context)
        except KeyboardInterrupt:
            raise click.Abort from None  # click would begin a new line
        except BrokenPipeError:
            raise  # nobody reads standard output any more, which is no news for anybody
        except (Waifu2xError, MemoryError, OSError) as error:
            raise click.ClickException(printable(message_of(error))) from error


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="waifu2x")
def cli() -> None:
    """Upscale and denoise pictures with waifu2x networks.

    \b
    waifu2x upscale input.png output.png
    waifu2x upscale -n 1 -s 4 photo.jpg large.png
    waifu2x batch -r pictures/ enlarged/

    Exit codes: 0 all done, 1 at least one file failed, 2 the command line is wrong, 130
    interrupted.
    """


class _Told(logging.Handler):
    """Tells log messages as the program's own: they quote names from model files.

    Without the traceback that a library may log with one: whatever fails is told by its message.
    """

    def emit(self, record: logging.LogRecord) -> None:
        (tell if record.levelno >= logging.WARNING else say)(record.getMessage())


def main() -> None:
    """Runs the `waifu2x` command and exits."""
    _replace_closed_streams()
    # Libraries' remarks on odd but readable files are not for users.
    warnings.filterwarnings("ignore", module="PIL|tifffile|zipfile")
    logging.basicConfig(handlers=[_Told()])
    logging.getLogger("waifu2x").setLevel(logging.INFO)
    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)
        # Unless it is to be ignored, as under nohup: unwind, so that nothing half-made stays.
        if number is not None and signal.getsignal(number) == signal.SIG_DFL:
            signal.signal(number, lambda received, frame: sys.exit(128 + received))
    try:
        code = cli.main(standalone_mode=False)
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
