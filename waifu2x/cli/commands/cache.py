"""`waifu2x cache info|clear`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

import click

from waifu2x.cli.command import CommandGroup
from waifu2x.cli.output.report import show, tell
from waifu2x.errors import OutputError, Sentence
from waifu2x.system import cache as store
from waifu2x.system.files import reason

_NONE = f"No cache: there is no home directory to keep it in; set {store.DIRECTORY_VARIABLE}."


@click.group(
    cls=CommandGroup,
    invoke_without_command=True,
    short_help="Show or clear what is kept between runs.",
)
@click.pass_context
def cache(context: click.Context) -> None:
    """Show or clear what is kept between runs: parsed weights and compiled code."""
    if context.invoked_subcommand is None:
        context.invoke(info)


@cache.command()
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def info(as_json: bool = False) -> None:
    """Where the cache is and what it holds."""
    folder = store.directory()
    with _one_line("read"):
        usage = store.usage()
    for distrusted in store.distrusted():
        told = f"{distrusted}: it is not used, since others can write there"
        tell(Sentence(told, "remove it, and it is made anew"))
    if as_json:
        kinds = {kind.kind: {"files": kind.files, "bytes": kind.size} for kind in usage}
        where = None if folder is None else str(folder)
        show(json.dumps({"folder": where, "kinds": kinds}, indent=2))
        return
    show(_NONE if folder is None else str(folder))
    for kind in usage:
        files = "file " if kind.files == 1 else "files"
        show(f"{kind.kind:10} {kind.files:4} {files} {_mib(kind.size):>12}")


@cache.command()
def clear() -> None:
    """Remove what the cache holds; it is made again when it is needed."""
    with _one_line("clear"):
        removed = store.clear()
    files, size = sum(kind.files for kind in removed), sum(kind.size for kind in removed)
    folder = store.directory()
    if folder is None:
        show(_NONE)
    elif not files:
        show(f"{folder}: nothing to remove")
    else:
        show(f"{folder}: {files} {'file' if files == 1 else 'files'} removed, {_mib(size)}")


def _mib(size: int) -> str:
    return f"{size / 2**20:.1f} MiB"


@contextmanager
def _one_line(action: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        place = error.filename or store.directory()
        raise OutputError(
            f"{place}: cannot {action} the cache: {reason(error)}",
            f"check who may use this folder, or set {store.DIRECTORY_VARIABLE} to another",
        ) from error
