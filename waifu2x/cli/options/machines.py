"""Options for work that several machines share."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeVar

import click

from waifu2x.cli.command import IN_AND_OUT, option
from waifu2x.flows.batch.subset import Shard, shard_of

_Command = TypeVar("_Command", bound=Callable[..., Any])

LOCAL = "local"
"""Stands for the address of a cluster: processes of this machine."""
_SCHEDULER = re.compile(r"(tcp|tls|ucx|wss?)://\S+:\d+", re.ASCII)
"""An address of Dask's."""


def _address(context: Any, parameter: Any, value: str | None) -> str | None:
    if value in (None, LOCAL) or _SCHEDULER.fullmatch(value or ""):
        return value
    raise click.BadParameter(f"{value!r}: expected {LOCAL}, or like tcp://host:8786.")


def _shard(context: Any, parameter: Any, value: str | None) -> Shard | None:
    try:
        return None if value is None else shard_of(value)
    except ValueError as error:
        raise click.BadParameter(f"{value!r}: expected a part like 3/16.") from error


def shard_option(whole: str) -> Callable[[_Command], _Command]:
    """`--shard N/PARTS`: `whole` is what is divided."""
    return option(
        "--shard",
        group=IN_AND_OUT,
        callback=_shard,
        metavar="N/PARTS",
        help=f"Only this part of the {whole}, for several machines.",
    )


cluster_option = option(
    "--cluster",
    "address",
    group=IN_AND_OUT,
    callback=_address,
    metavar="tcp://HOST:PORT",
    help="Use the workers of this Dask cluster; local: two processes here.",
)
