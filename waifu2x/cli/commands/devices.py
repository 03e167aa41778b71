"""`waifu2x devices`."""

from __future__ import annotations

import json
import shutil
import textwrap

import click

from waifu2x.backends import BACKEND_NAMES, devices_of, list_devices
from waifu2x.cli.command import Command
from waifu2x.cli.output.report import Volume, set_volume, show
from waifu2x.errors import BackendError, printable

_FOR_GPUS = ("cuda", "opencl", "vulkan")


@click.command(cls=Command, short_help="Show every backend and device, and why one cannot be used.")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def devices(as_json: bool) -> None:
    """Show every backend, best first, with its devices, or why it cannot be used and the remedy.

    \b
    waifu2x upscale --backend opencl -g 1 in.png out.png
    """
    set_volume(Volume.VERBOSE)  # devices that are passed over are told of, too
    rows: list[dict[str, object]] = []
    default: str | None = None
    for name in BACKEND_NAMES:
        try:
            found = list_devices(name)
        except BackendError as error:
            rows.append({"backend": name, "usable": False, "reason": str(error)})
            continue
        # Backends for GPUs use other devices only if they are asked for.
        if default is None and (name not in _FOR_GPUS or devices_of(name, gpus_only=True)):
            default = name
        for device in found:
            rows.append(
                {
                    "backend": name,
                    "usable": True,
                    "number": device.number,
                    "device": device.name,
                    "detail": device.detail,
                    "default": name == default and device.number == 0,
                }
            )
    if as_json:
        show(json.dumps(rows, indent=2))
        return
    width = min(100, max(60, shutil.get_terminal_size((100, 24)).columns))
    wide = max(map(len, BACKEND_NAMES))
    for row in rows:
        start = f"{row['backend']:{wide}}  {row.get('number', '-')}  "
        if row["usable"]:
            what = f"{row['device']}: {row['detail']}" + (" (the default)" * bool(row["default"]))
        else:
            why = str(row["reason"]).removeprefix(f"backend {row['backend']} ")
            what = f"not usable: {why}"
        text = textwrap.fill(
            printable(what),
            width,
            initial_indent=start,
            subsequent_indent=" " * len(start),
            break_on_hyphens=False,
        )
        show(text)
