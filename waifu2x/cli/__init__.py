"""The command line. The only package that prints; one module for each command."""

from __future__ import annotations

import logging
import os
import signal
import sys
import warnings
from importlib import import_module
from typing import Any

import click

from waifu2x import __version__
from waifu2x.cli.report import printable
from waifu2x.errors import Waifu2xError
from waifu2x.system.files import reason

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

INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells have it: 128 and the number of the signal."""


class _Commands(click.Group):
    def list_commands(self, context: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in _COMMANDS:
            return None
        command: click.Command = getattr(import_module(f"waifu2x.cli.{name}"), name)
        return command

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        # From the table: listing the commands should not import them.
        with formatter.section("Commands"):
            formatter.write_dl(list(_COMMANDS.items()))

    def invoke(self, context: click.Context) -> Any:
        try:
            return super().invoke(context)
        except Waifu2xError as error:
            message = str(error)
        except MemoryError:
            message = "not enough memory for this picture: use a smaller scale"
        except OSError as error:
            if error.filename is None:
                raise  # not about a file: about stdout, which is for `main`
            message = f"{error.filename}: {reason(error)}"
        raise click.ClickException(printable(message))


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


def main() -> None:
    """The `waifu2x` command."""
    # Pillow's remarks on odd but readable files are not for users.
    warnings.filterwarnings("ignore", module="PIL")
    logging.basicConfig(format="%(message)s")
    logging.getLogger("waifu2x").setLevel(logging.INFO)
    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)
        # Unless it is to be ignored, as under nohup: unwind, so that nothing half-made stays.
        if number is not None and signal.getsignal(number) == signal.SIG_DFL:
            signal.signal(number, lambda received, frame: sys.exit(128 + received))
    try:
        code = cli.main(standalone_mode=False)
        if sys.stdout is not None:
            sys.stdout.flush()
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except click.Abort:
        click.echo("Interrupted.", err=True)
        code = INTERRUPTED
    except OSError as error:
        # What could not be written would be tried once more at exit, with a traceback.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        if not isinstance(error, BrokenPipeError):
            click.echo(f"Error: standard output: cannot write: {reason(error)}", err=True)
        code = 1
    sys.exit(code)
