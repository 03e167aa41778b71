"""Workers of a cluster that fail: `dask worker --preload tests.helpers.odd_workers`.

`ODD_WORKER` says what:

- `dies-once:FOLDER` on the picture deadly.png, when all others of FOLDER are finished; what it saw
  of them goes into the file FOLDER/../seen, after which it lives;
- `dies` on that picture, every time;
- `broken`: the device stops working with the first picture.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from waifu2x.errors import DeviceError
from waifu2x.formats.write import FileSink
from waifu2x.imaging.enlarger import Enlarger
from waifu2x.imaging.streams import Header

DEADLY = "deadly.png"


def dask_setup(worker: object) -> None:
    """Dask calls this when the worker starts."""
    kind, _, folder = os.environ["ODD_WORKER"].partition(":")
    if kind == "broken":
        Enlarger.picture = _broken  # type: ignore[method-assign]
        return

    opened = FileSink.open

    def die(sink: FileSink, header: Header) -> None:
        if sink.path.name == DEADLY:
            if kind == "dies":
                os._exit(1)
            seen = Path(folder).parent / "seen"
            if not seen.exists():
                _wait_for_others(Path(folder), seen)
                os._exit(1)
        opened(sink, header)

    FileSink.open = die  # type: ignore[method-assign, assignment]


def _broken(self: Enlarger, *rest: Any, **named: Any) -> Any:
    raise DeviceError("the device fell off the bus")


def _wait_for_others(folder: Path, seen: Path) -> None:
    wanted = {path.name for path in (folder.parent / "in").iterdir()} - {DEADLY}
    while not all((folder / name).exists() for name in wanted):
        pass
    seen.write_text("\n".join(f"{name} {(folder / name).stat().st_ino}" for name in wanted))
