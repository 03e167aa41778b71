"""`waifu2x cache info|clear`."""

from __future__ import annotations

import json

import click

from waifu2x import cache as store
from waifu2x.errors import OutputError
from waifu2x.files import reason


@click.group(invoke_without_command=True, short_help="Show or clear what is kept between runs.")
@click.pass_context
def cache(context: click.Context) -> None:
    """Show or clear what is kept between runs: parsed weights and compiled code."""
    if context.invoked_subcommand is None:
        context.invoke(info)


@cache.command()
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def info(as_json: bool = False) -> None:
    """Where the cache is and what it holds."""
    usage = store.usage()
    if as_json:
        kinds = {kind.kind: {"files": kind.files, "bytes": kind.size} for kind in usage}
        click.echo(json.dumps({"folder": str(store.directory()), "kinds": kinds}, indent=2))
        return
    click.echo(str(store.directory()))
    for kind in usage:
        click.echo(f"{kind.kind:10} {kind.files:4} files {kind.size / 2**20:8.1f} MiB")


@cache.command()
def clear() -> None:
    """Remove everything in the cache; it is made again when it is needed."""
    try:
        store.clear()
    except OSError as error:
        raise OutputError(f"{store.directory()}: cannot clear: {reason(error)}") from error
