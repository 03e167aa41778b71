"""`waifu2x devices`."""

from __future__ import annotations

import json

import click

from waifu2x.backends import BACKEND_NAMES, open_backend
from waifu2x.errors import BackendError


@click.command(short_help="Show every backend and device, and why one cannot be used.")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def devices(as_json: bool) -> None:
    """Show every backend, best first, with its device, or why it cannot be used and the remedy."""
    rows: list[dict[str, object]] = []
    for name in BACKEND_NAMES:
        row: dict[str, object] = {"backend": name}
        try:
            backend = open_backend(name)
        except BackendError as error:
            row |= {"usable": False, "reason": str(error)}
        else:
            row |= {"usable": True, "device": backend.device.name, "detail": backend.device.detail}
            backend.close()
        rows.append(row)
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    for row in rows:
        what = f"{row['device']}: {row['detail']}" if row["usable"] else f"no: {row['reason']}"
        click.echo(f"{row['backend']:8} {what}")
