"""`waifu2x devices`."""

from __future__ import annotations

import json

import click

from waifu2x.backends import BACKEND_NAMES
from waifu2x.backends.listing import list_devices
from waifu2x.cli.command import Command
from waifu2x.cli.report import show
from waifu2x.errors import BackendError


@click.command(cls=Command, short_help="Show every backend and device, and why one cannot be used.")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def devices(as_json: bool) -> None:
    """Show every backend, best first, with its devices, or why it cannot be used and the remedy."""
    rows: list[dict[str, object]] = []
    for name in BACKEND_NAMES:
        try:
            found = list_devices(name)
        except BackendError as error:
            rows.append({"backend": name, "usable": False, "reason": str(error)})
            continue
        for device in found:
            rows.append(
                {
                    "backend": name,
                    "usable": True,
                    "number": device.number,
                    "device": device.name,
                    "detail": device.detail,
                }
            )
    if as_json:
        show(json.dumps(rows, indent=2))
        return
    for row in rows:
        if row["usable"]:
            what = f"{row['number']}  {row['device']}: {row['detail']}"
        else:
            what = f"-  no: {row['reason']}"
        show(f"{row['backend']:8} {what}")
