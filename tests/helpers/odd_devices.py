"""Processes of devices that fail: `use` puts one into the place of the real one.

Codec workers have to be threads for it: their processes are as they always are.
"""

from __future__ import annotations

import os
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from waifu2x.backends.reference.backend import NumpyBackend
from waifu2x.errors import DeviceError
from waifu2x.flows.batch import device_worker
from waifu2x.flows.batch.session import SessionSettings
from waifu2x.formats.write import FileSink
from waifu2x.imaging.enlarger import Enlarger
from waifu2x.imaging.streams import Header

DEADLY = "deadly.png"
_work = device_worker.work


def use(monkeypatch: pytest.MonkeyPatch, kind: str, marks: Path) -> None:
    """Lets every process of a device be of a kind:

    - `dies` on the picture deadly.png, every time;
    - `dies-after` it has given the result of that picture its name, once: a file in the folder
      `marks` remembers;
    - `broken`: the device that is called first stops working with its first picture, in each of its
      processes, and all others do not;
    - `all-broken`: so does every device;
    - `never-opens`: the process of the device that is called first ends before it is there;
    - `never-open`: all do;
    - `other-backend`: that device is one of another backend.
    """
    monkeypatch.setattr(device_worker, "work", partial(work, kind, marks))


def work(
    kind: str,
    marks: Path,
    connection: Connection,
    lifeline: Connection,
    settings: SessionSettings,
    fallback: bool,
) -> None:
    """A process of that kind."""
    if kind == "never-open" or (kind == "never-opens" and settings.key == "broken"):
        os._exit(1)
    opened, closed = FileSink.open, FileSink.close

    def die(sink: FileSink, header: Header) -> None:
        if sink.path.name == DEADLY:
            os._exit(1)
        opened(sink, header)

    def die_after(sink: FileSink) -> None:
        closed(sink)
        if sink.path.name == DEADLY and not (marks / "died").exists():
            (marks / "died").touch()
            os._exit(1)

    def broken(self: Enlarger, *rest: Any, **named: Any) -> Any:
        raise DeviceError("the device fell off the bus")

    if kind == "other-backend" and settings.key == "broken":
        NumpyBackend.name = "other"
    elif kind == "dies":
        FileSink.open = die  # type: ignore[method-assign, assignment]
    elif kind == "dies-after":
        FileSink.close = die_after  # type: ignore[method-assign, assignment]
    elif kind == "all-broken" or settings.key == "broken":
        Enlarger.picture = broken  # type: ignore[method-assign]
    _work(connection, lifeline, settings, fallback)
