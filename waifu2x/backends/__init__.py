"""Defines the protocols of backends, the seam between pictures and hardware, and opens backends.

A backend is a module of this package with two functions: `create(device)` opens a device by its
number, and `devices()` lists all devices; if it is made for GPUs, `devices(gpus_only=True)` lists
only those. It is imported when it is first used, since its library may be missing and takes time
to load.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

from waifu2x.errors import (
    BackendError,
    DeviceError,
    NoDeviceError,
    NotInstalledError,
    UnavailableError,
)
from waifu2x.system.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from waifu2x.backends.call import Call, Pictures
    from waifu2x.lowering.plan.support import Support
    from waifu2x.networks.model import Model

_LOG = logging.getLogger(__name__)
_Found = TypeVar("_Found")

Precision = Literal["auto", "fp32", "fp16", "bf16", "int16"]
"""`fp32` keeps 100 dB against float64; `auto` is the fastest mode that keeps 60 dB."""

Progress = Callable[[float], None]
"""Takes the fraction of the work done since its last call; the fractions sum to 1. It may raise to
stop the work."""

OnRecomputed = Callable[[int], None]
"""Takes the index of a picture of a call whose values left the range of the network's arithmetic,
so that it was computed again with wider numbers."""


def scaled(on_progress: Progress, share: float) -> Progress:
    """Returns a Progress for a part of the work that is the fraction `share` of the whole."""
    return lambda part: on_progress(part * share)


@dataclass(frozen=True)
class Device:
    """A device, as its backend describes it."""

    name: str
    detail: str
    """Its size and the instruction set of its code, for display."""
    is_gpu: bool = False
    architecture: str = ""
    """Its instruction set or the like: what the bits of its results may depend on."""


@dataclass(frozen=True)
class DeviceInfo:
    """A device that can compute, as `list_devices` gives it.

    `waifu2x.Engine(info.backend, info.number)` opens it.
    """

    backend: str
    """The name of its backend: "cuda", "opencl", "vulkan", "cpu" or "numpy"."""
    number: int
    """Its number among the devices of the backend."""
    name: str
    """Its maker's name for it."""
    detail: str
    """Its size and the instruction set of its code, for display."""
    is_gpu: bool
    """Whether it is a GPU; otherwise a processor."""


@dataclass(frozen=True)
class LayerTime:
    """The measured time of a layer."""

    name: str
    seconds: float
    """Its share of the time of one picture."""
    multiply_adds: float
    """For one picture, by the definition of convolution; 0 where there are none."""
    peak: float
    """The measured most multiply-adds a second of its unit."""
    share: float = 1.0
    """The fraction of those multiply-adds that is done: Winograd's algorithm needs fewer."""

    @property
    def share_of_peak(self) -> float:
        """The multiply-adds done, as a fraction of the peak in that time, 0 to 1; 0 if no time."""
        done = self.share * self.multiply_adds
        return done / self.seconds / self.peak if self.seconds else 0.0


@dataclass(frozen=True)
class Measurement:
    """The time of a network for one picture."""

    seconds: float
    layers: tuple[LayerTime, ...]


@dataclass(frozen=True)
class Trial:
    """The time of a layer with one of its options, as `tune` measures it."""

    layer: str
    option: str
    seconds: float


def ignore(told: float) -> None:
    """Ignores progress, or the index of a picture."""


class Pin:
    """Memory that is page-locked for a device until `close` or the end of the `with` block."""

    def __init__(self, release: Callable[[], None] = lambda: None) -> None:
        """`release` unlocks the memory."""
        self._release: Callable[[], None] | None = release

    def close(self) -> None:
        """Unlocks the memory; closing again does nothing."""
        release, self._release = self._release, None
        if release is not None:
            release()

    def __enter__(self) -> Pin:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()


class Network(Protocol):
    """A chain of models, compiled for a device. Threads may share it."""

    @property
    def arithmetic(self) -> str:
        """The kind of numbers that its models compute with, such as "int16"; never "auto". Networks
        of one backend and arithmetic make the same results."""

    @property
    def support(self) -> Support | None:
        """How far results depend on pixels: a part of a picture that has these around it, run as a
        picture, makes the same bits. None if only whole pictures do."""

    def run(self, call: Call[Pictures]) -> Pictures:
        """Computes whole pictures, into `call.out` where there is one; returns the results.

        Raises BackendError where memory is short, and after `close`; ValueError for an `out` that
        does not fit; and what `call.on_progress` raises to stop the work. At the end,
        `call.on_recomputed` is told of each picture that had to be computed again.
        """

    def close(self) -> None:
        """Frees its weights and other memory, once the calls under way are done.

        Calls that come later, or wait for their turn, raise BackendError; closing again does
        nothing. Closing the backend closes its networks.
        """


class Backend(Protocol):
    """A device, or several, ready to run networks."""

    name: str
    device: Device
    calls_at_once: int
    """The number of concurrent calls of its networks that keep it busy: a GPU computes one picture
    while one is sent and one is fetched. More calls do no harm."""

    def compile(self, models: Sequence[Model], precision: Precision) -> Network:
        """Returns the network of models, one after the other, with all of its code built.

        Raises BackendError if that cannot be built, where memory is short, and for a precision that
        the backend lacks.
        """

    def pin(self, memory: NDArray[Any]) -> Pin:
        """Page-locks memory of pictures or results, for faster copies to and from the device.

        `memory` is a C-contiguous array that must outlive the pin; calls may use any part of it.
        Does nothing where a device cannot use such memory, or the system allows no more: copies
        then go through the backend's own memory. Closing the backend unlocks it.
        """

    def measure(self, model: Model, precision: Precision, pixels: NDArray[Any]) -> Measurement:
        """Measures the time of one picture and of each layer. Raises BackendError as `compile`
        does."""

    def tune(self, model: Model, precision: Precision, pixels: NDArray[Any]) -> Iterator[Trial]:
        """Measures the options of each layer, and stores the best for all later networks.

        Yields nothing if there are no options. Raises BackendError as `compile` does.
        """

    @property
    def bytes(self) -> int:
        """The bytes that it holds now, on its devices or in the machine's memory if the processor
        computes: weights, maps, and free memory kept for further calls."""

    def close(self) -> None:
        """Frees its memory, once the calls under way are done.

        Calls of its networks that come later, or wait for their turn, raise BackendError.
        """


@dataclass(frozen=True)
class Entry:
    """A backend that may or may not work here."""

    name: str
    module: str
    libraries: tuple[str, ...]
    """The packages that it imports."""
    install: str
    """The command that installs them."""
    extra: bool = False
    """Whether they are optional, so that `auto` does not report that they are missing."""
    mixed: bool = False
    """Whether its devices may be processors, too, which `auto` leaves to the backend `cpu`."""


_BACKENDS = (
    Entry("cuda", "waifu2x.backends.cuda.backend", (), "", extra=True),
    Entry(
        "opencl",
        "waifu2x.backends.opencl",
        ("pyopencl",),
        "pip install 'waifu2x-kernels[opencl]'",
        extra=True,
        mixed=True,
    ),
    Entry("vulkan", "waifu2x.backends.vulkan", (), "", extra=True, mixed=True),
    Entry(
        "cpu",
        "waifu2x.backends.cpu.backend",
        ("numba", "llvmlite"),
        "pip install waifu2x-kernels",
    ),
    Entry("numpy", "waifu2x.backends.reference.backend", (), ""),
)
"""Best first: `auto` takes the first that works."""

BACKEND_NAMES = tuple(entry.name for entry in _BACKENDS)


def open_backend(
    name: str = "auto",
    device: int = 0,
    on_skip: Callable[[str], None] = lambda reason: None,
    *,
    after: str = "",
) -> Backend:
    """Opens the named backend on a device, by its number in `devices_of`.

    `auto` opens the best backend whose library and device are here; one made for GPUs counts only
    if it finds a GPU, since on processors `cpu` is faster. `on_skip` takes the reason if `auto`
    passes over a better one that should work here; with `after`, only backends behind that one
    count. Raises BackendError with the reason, and the remedy if there is one: UnavailableError if
    something is missing, DeviceError if a device does not work.
    """
    if name != "auto":
        backend: Backend = _load(_entry(name)).create(device)
        return backend
    reasons, passed_over = [], []
    for entry in _BACKENDS[BACKEND_NAMES.index(after) + 1 if after else 0 :]:
        try:
            module = _load(entry)
            if entry.mixed and not module.devices(gpus_only=True):
                continue
            best: Backend = module.create(device)
        # Any other BackendError is a wrong setting, which another backend would only hide.
        except (UnavailableError, DeviceError) as error:
            reasons.append(error)
            if entry.extra and isinstance(error, UnavailableError):
                _LOG.debug("%s", error)  # most machines lack it
            else:
                passed_over.append(str(error))
        else:
            for reason in passed_over:
                on_skip(reason)
            return best
    if any(isinstance(error, NoDeviceError) for error in reasons):
        raise NoDeviceError(f"there is no device {device}", "see `waifu2x devices`")
    raise UnavailableError("no backend works here: " + "; ".join(map(str, reasons)))


def devices_of(name: str, *, gpus_only: bool = False) -> list[Device]:
    """Returns the devices of a backend, the default first; `gpus_only` lists only GPUs, for one
    made for those.

    Raises BackendError as `open_backend` does.
    """
    module = _load(_entry(name))
    found: list[Device] = module.devices(gpus_only=True) if gpus_only else module.devices()
    return found


def list_devices(backend: str | None = None) -> list[DeviceInfo]:
    """Lists the devices that can compute here, by backend, in the order in which "auto" tries them.

    These are the facts that `waifu2x devices` shows. Nothing is opened for work.

    Args:
        backend: The name of one backend, to have only its devices.

    Raises:
        BackendError: The named backend cannot be used here, or there is none of that name; the
            message says what to do. Without a name, such backends are left out.

    Examples:
        >>> [device.number for device in waifu2x.list_devices("cpu")]
        [0]
        >>> waifu2x.list_devices()[-1].backend
        'numpy'
    """
    if backend is not None:
        return [
            DeviceInfo(backend, number, found.name, found.detail, found.is_gpu)
            for number, found in enumerate(devices_of(backend))
        ]
    devices: list[DeviceInfo] = []
    for name in BACKEND_NAMES:
        try:
            devices += list_devices(name)
        except BackendError:
            continue
    return devices


def device_numbers(name: str) -> list[int]:
    """Returns the numbers of a backend's devices of the same kind as the first: GPUs, or
    processors. `auto` is as in `open_backend`. Raises BackendError if there are none."""
    reasons = []
    for entry in _BACKENDS if name == "auto" else [_entry(name)]:
        try:
            found = devices_of(entry.name, gpus_only=name == "auto" and entry.extra)
        except (UnavailableError, DeviceError) as error:
            reasons.append(str(error))
            continue
        if found:
            return [n for n, device in enumerate(found) if device.is_gpu == found[0].is_gpu]
    raise UnavailableError("no backend works here: " + "; ".join(reasons))


def pick_device(name: str, found: Sequence[_Found], number: int) -> _Found:
    """Returns a device of a backend by its number. Raises NoDeviceError if it lacks that."""
    if number < len(found):
        return found[number]
    if not found:
        raise UnavailableError(f"backend {name} found no device")
    there = "use 0" if len(found) == 1 else f"choose from 0 to {len(found) - 1}"
    raise NoDeviceError(
        f"backend {name} has no device {number}", f"{there}, as `waifu2x devices` shows"
    )


def _entry(name: str) -> Entry:
    for entry in _BACKENDS:
        if entry.name == name:
            return entry
    raise BackendError(f"unknown backend {name!r}", f"choose one of {', '.join(BACKEND_NAMES)}")


def _load(entry: Entry) -> Any:
    try:
        return importlib.import_module(entry.module)
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in entry.libraries:
            raise
        raise NotInstalledError(
            f"backend {entry.name} needs the package {error.name}", f"run `{entry.install}`"
        ) from error
