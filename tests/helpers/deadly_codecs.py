"""Codec processes that kill themselves where the name of their file says so: `encode-2.png` kills
two, while the file or the page of an archive is encoded."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from waifu2x.flows import archive, upscaling
from waifu2x.flows.batch import worker
from waifu2x.formats import read
from waifu2x.formats.write import ContentSink
from waifu2x.system import files

STAGES = ("decode", "network", "encode", "named")
"""While the file is decoded; when its picture is offered; before the file is complete; when it has
got its name."""


def dies_once(mark: Path) -> str:
    """Kills its process, unless a file says that it has."""
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return "made"


class _Deaths:
    """The deaths of a process by one file after the other."""

    def __init__(self) -> None:
        self.name = ""

    def die(self, stage: str) -> None:
        found = re.fullmatch(r"(.*)/in/.*\b(\w+)-(\d)\.\w+", self.name)
        if found is None or found[2] != stage:
            return
        marks = Path(found[1]) / "deaths"
        marks.mkdir(exist_ok=True)
        died = len(list(marks.glob(f"{stage}-{found[3]}.*")))
        if died < int(found[3]):
            (marks / f"{stage}-{found[3]}.{died}").touch()
            os.kill(os.getpid(), signal.SIGKILL)


def work(connection: Connection) -> None:
    """Runs a codec process, in the place of that of `worker`."""
    deaths = _Deaths()

    def deadly(stage: str, function: Callable[..., Any]) -> Any:
        def call(*arguments: Any, **named: Any) -> Any:
            made = function(*arguments, **named)
            deaths.die(stage)
            return made

        return call

    opened = read.open_content

    def open_content(content: bytes, name: str, *rest: Any) -> Any:
        deaths.name = name
        return deadly("decode", opened)(content, name, *rest)

    for module in (archive, upscaling):
        module.open_content = open_content  # type: ignore[attr-defined]
    worker._offer = deadly("network", worker._offer)
    ContentSink.add = deadly("encode", ContentSink.add)  # type: ignore[method-assign]
    files._rename = deadly("named", files._rename)
    worker.work(connection)
