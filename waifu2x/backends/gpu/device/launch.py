"""Launches of kernels before they are queued: what executors make of a pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from waifu2x.backends.gpu.device.runtime import Argument, Kernel, Macros, ReadyLaunch, Runtime
from waifu2x.lowering.plan.symbols import Symbol, example

Groups = tuple[int, int, int]
NUMBERS = (int, float, np.float32, Symbol)
"""Arguments that are no buffers."""


class Arguments(NamedTuple):
    """A kernel's arguments, in order."""

    codes: str
    """What each is, as module struct says: "P" a buffer or an address, "i", "f", "d"; and at the
    end of a struct of C that has addresses, "0P"."""
    values: Sequence[Any]


class Launch(NamedTuple):
    """A kernel on so many groups."""

    source: Callable[[], tuple[str, Macros]] | None
    """What `Runtime.build` is asked for; None for a kernel that is built."""
    kernel: Callable[[], Kernel]
    """Builds it the first time. Raises BackendError."""
    groups: Groups
    arguments: Callable[[], Arguments]
    """Uploads weights where it must; may raise OutOfMemoryError then."""


LaunchMaker = Callable[[], Launch]
"""Makes a launch from numbers of the pass, or from symbols for them."""


def plain(*arguments: Argument) -> Arguments:
    """Arguments that are no structs."""
    return Arguments("".join(map(_code, arguments)), arguments)


def _code(argument: object) -> str:
    value = example(argument)
    if isinstance(value, int):
        return "i"
    return "f" if isinstance(value, float) else "P"


def packed(runtime: Runtime, arguments: Arguments) -> Any:
    """Arguments as `Runtime.queue` takes them."""
    values = [
        value if isinstance(value, NUMBERS) else runtime.handle(value) for value in arguments.values
    ]
    return runtime.packer(arguments.codes)(*values)


def build(runtime: Runtime, launches: Sequence[Launch]) -> None:
    """Builds the kernels of launches, at the same time where that is faster. Raises
    BackendError."""
    runtime.prepare([launch.source() for launch in launches if launch.source])
    for launch in launches:
        launch.kernel()


def ready(runtime: Runtime, makers: Sequence[LaunchMaker]) -> list[ReadyLaunch]:
    """Launches with their kernels built and their arguments packed. May raise BackendError,
    OutOfMemoryError."""
    launches = [make() for make in makers]
    build(runtime, launches)
    return [
        ReadyLaunch(launch.kernel(), launch.groups, packed(runtime, launch.arguments()))
        for launch in launches
    ]
