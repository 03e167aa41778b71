"""Specifies kernels and their launches before they are compiled and queued."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from waifu2x.backends.gpu.device.runtime import Argument, Kernel, Macros, ReadyLaunch, Runtime
from waifu2x.lowering.plan.symbols import Symbol, example

Groups = tuple[int, int, int]
NUMBERS = (int, float, np.float32, Symbol)
"""Types of arguments that are not buffers."""


class KernelSpec(NamedTuple):
    """Specifies a kernel to compile."""

    stem: str
    """The name of its file in `kernels/`."""
    macros: Macros
    group: int
    """The work-items of a group."""
    name: str = ""
    """The name of its entry point; empty if it is that of the file."""
    shared: int = 0
    """Bytes of shared memory beyond what the kernel declares."""


class Arguments(NamedTuple):
    """A kernel's arguments, in order."""

    codes: str
    """The type of each, in format characters of module struct: "P" for a buffer or an address, "i",
    "f", "d"; "0P" pads as the end of a C struct that holds addresses."""
    values: Sequence[Any]


class Launch(NamedTuple):
    """A kernel with its arguments and its number of groups."""

    spec: KernelSpec
    kernel: Callable[[], Kernel]
    """Builds the kernel the first time. Raises BackendError."""
    groups: Groups
    arguments: Arguments


LaunchMaker = Callable[[], Launch]
"""Makes a launch from the numbers of a pass, or from symbols for them. Uploads the weights that
the kernel reads; may raise OutOfMemoryError."""


class KernelOwner:
    """Holds the kernels of one task, and builds each when it is first launched."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self._kernels: dict[object, Kernel] = {}

    def kernel(self, spec: KernelSpec) -> Kernel:
        """Returns the kernel of a specification, built at the first call. Raises BackendError."""
        key = (spec.stem, *spec[2:], *spec.macros.items())
        if key not in self._kernels:
            module = self.runtime.build(spec.stem, spec.macros)
            self._kernels[key] = module.kernel(spec.name or spec.stem, spec.group, spec.shared)
        return self._kernels[key]

    def owns(self, kernel: Kernel) -> bool:
        """Returns whether it has built that kernel."""
        return any(own is kernel for own in self._kernels.values())

    def launch_of(self, spec: KernelSpec, groups: Groups, arguments: Arguments) -> Launch:
        """Returns a launch of one of its kernels."""
        return Launch(spec, partial(self.kernel, spec), groups, arguments)


def plain(*arguments: Argument) -> Arguments:
    """Returns the arguments of a kernel without structs: buffers and numbers."""
    return Arguments("".join(map(_code, arguments)), arguments)


def _code(argument: object) -> str:
    value = example(argument)
    if isinstance(value, int):
        return "i"
    return "f" if isinstance(value, float) else "P"


def packed(runtime: Runtime, arguments: Arguments) -> Any:
    """Packs arguments in the form that `Runtime.queue` takes."""
    values = [
        value if isinstance(value, NUMBERS) else runtime.handle(value) for value in arguments.values
    ]
    return runtime.packer(arguments.codes)(*values)


def build(runtime: Runtime, launches: Sequence[Launch]) -> None:
    """Builds the kernels of launches, in parallel where that is faster. Raises BackendError."""
    runtime.prepare([launch.spec[:2] for launch in launches])
    for launch in launches:
        launch.kernel()


def ready(runtime: Runtime, makers: Sequence[LaunchMaker]) -> list[ReadyLaunch]:
    """Calls `makers`, builds the kernels, packs the arguments, and returns the ready launches. May
    raise BackendError, OutOfMemoryError."""
    launches = [make() for make in makers]
    build(runtime, launches)
    return [
        ReadyLaunch(launch.kernel(), launch.groups, packed(runtime, launch.arguments))
        for launch in launches
    ]
