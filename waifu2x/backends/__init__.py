"""The seam between pictures and hardware: what a backend is, and how one is found.

A backend is a module of this package with two functions, `create(device)`, which opens a device by
its number, and `devices()`, which lists them all; where it is made for GPUs,
`devices(gpus_only=True)` lists only those. It is imported when it is asked for and never before:
its library may be missing, and loading it takes time.
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
    from numpy.typing import DTypeLike, NDArray

    from waifu2x.imaging.planar import PlanarPicture
    from waifu2x.networks.model import Model

_LOG = logging.getLogger(__name__)
_Found = TypeVar("_Found")

Precision = Literal["auto", "fp32", "fp16", "bf16", "int16"]
"""By result: `fp32` keeps 100 dB against float64; `auto` is the fastest mode that keeps 60 dB."""

Progress = Callable[[float], None]
"""Told which further part of the work is done; the parts add up to 1. It may raise to stop it."""

OnRecomputed = Callable[[int], None]
"""Told the number of a picture of a call, from 0, whose values left the range that the network
computes with, so that it was computed again in wider numbers."""


def scaled(on_progress: Progress, share: float) -> Progress:
    """Progress of a part of the work that is `share` of the whole."""
    return lambda part: on_progress(part * share)


@dataclass(frozen=True)
class Device:
    """What `waifu2x devices` shows."""

    name: str
    detail: str
    """Its size and the shape of the code that runs on it, for people."""
    is_gpu: bool = False


@dataclass(frozen=True)
class LayerTime:
    """What `waifu2x bench` shows of a layer."""

    name: str
    seconds: float
    """Its share of the time of one picture."""
    multiply_adds: float
    """For one picture, by the definition of convolution; 0 where there are none."""
    peak: float
    """Multiply-adds a second that the unit it runs on reaches at best, measured."""
    share: float = 1.0
    """How many of those multiply-adds are done: Winograd's algorithm does with fewer."""

    @property
    def share_of_peak(self) -> float:
        """How much of what its unit could do is done in its time, 0 to 1; 0 without a time."""
        done = self.share * self.multiply_adds
        return done / self.seconds / self.peak if self.seconds else 0.0


@dataclass(frozen=True)
class Measurement:
    """How long a network takes for one picture."""

    seconds: float
    layers: tuple[LayerTime, ...]


@dataclass(frozen=True)
class Trial:
    """One option to compute a layer, measured by `tune`."""

    layer: str
    option: str
    seconds: float


def ignore(told: float) -> None:
    """Takes what nobody wants to know, such as progress."""


class Pin:
    """Memory that is page-locked for a device until `close`, or the end of the `with` block."""

    def __init__(self, release: Callable[[], None] = lambda: None) -> None:
        """`release` unlocks it, and is called once."""
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
    """A chain of models, compiled for a device. Any number of threads may call it."""

    @property
    def arithmetic(self) -> str:
        """What its models compute in, `auto` decided: "int16", say. With the name of the backend,
        what tells networks apart whose results differ in more than their speed."""
        ...

    def __call__(
        self,
        pixels: NDArray[Any],
        out_dtype: DTypeLike,
        *,
        out: NDArray[Any] | None = None,
        tile: int | None = None,
        tta: int = 1,
        on_progress: Progress = ignore,
        on_recomputed: OnRecomputed = ignore,
    ) -> NDArray[Any]:
        """Whole pictures through all models.

        `pixels` is one picture, (height, width, planes), or several of one size in front of which
        stands their number, C-contiguous: uint8 and uint16 span their range, float32 spans [0, 1].
        The result has as many dimensions, in `out_dtype`, one of the same three, rounded half to
        even. Between models values are clipped to [0, 1] and stay float. Pictures of one plane are
        grey to models of three: each plane is the picture, and the result is the luma (Rec. 601) of
        what they make, one plane.

        The result is written into `out` and returned, if that is given: a C-contiguous, writable
        array of the result's shape and dtype, with memory of its own. Where the call raises, its
        content is undefined. `tile` is a wish: about so many output pixels, a side, are worked on
        at once. With a `tta` of 2, 4 or 8, each model runs on the picture transformed in so many
        ways (`tta.TRANSFORMS`), and the mean counts. No tile, number of pictures, of cores or of
        devices changes a bit of the result.

        Raises BackendError where memory is short, and after `close`; ValueError for an `out` that
        does not fit. `on_progress` may raise to stop the work. At the end, `on_recomputed` is told
        of each picture that had to be computed again.
        """
        ...

    def run_planes(
        self,
        pictures: Sequence[PlanarPicture],
        out: Sequence[PlanarPicture],
        *,
        tile: int | None = None,
        tta: int = 1,
        on_progress: Progress = ignore,
    ) -> None:
        """Whole pictures as planes through all models, each of three planes in and out.

        `pictures` are of one size and format. The results are written into the planes of as many
        pictures, `out`: their format may be another one, and tells alone how they are written.
        Colours are converted as `imaging.planar` defines it, and clipped to [0, 1] before the
        first model; codes are exact but where a value lies within float32's error of a rounding.
        All else is as of `__call__`, and so are tiles, `tta`, bits, errors and progress.
        """
        ...

    def close(self) -> None:
        """Frees its weights and all else that is its own, once the calls under way are done.

        Calls that come later, or wait for their turn, raise BackendError; closing again does
        nothing. Closing the backend closes its networks.
        """
        ...


class Backend(Protocol):
    """A device, or several, ready to run networks."""

    name: str
    device: Device
    calls_at_once: int
    """Calls of its networks, from as many threads, that keep it busy: on a GPU, one picture is sent
    there and one is fetched while one is computed. More do no harm."""

    def compile(self, models: Sequence[Model], precision: Precision) -> Network:
        """The models one after the other.

        Whatever has to be built for them is built here: raises BackendError if it cannot be, for
        memory that is short, and for a precision that the backend lacks.
        """
        ...

    def pin(self, memory: NDArray[Any]) -> Pin:
        """Page-locks memory that pixels are read from or results written into, for faster copies.

        `memory` is a C-contiguous array that has to live until the pin is closed; calls may use any
        part of it. Where a device cannot use such memory, or the system allows no more, this does
        nothing: copies then go through memory of the backend's own. Closing the backend unlocks it.
        """
        ...

    def measure(self, model: Model, precision: Precision, pixels: NDArray[Any]) -> Measurement:
        """How long one picture takes and each layer of it. Raises BackendError as `compile`
        does."""
        ...

    def tune(self, model: Model, precision: Precision, pixels: NDArray[Any]) -> Iterator[Trial]:
        """Measures how each layer is best computed, and keeps what it finds for all later networks.

        Nothing to tune is no trial. Raises BackendError as `compile` does.
        """
        ...

    @property
    def bytes(self) -> int:
        """Bytes that it holds now on its devices, or on the machine where that computes: weights,
        maps, and free memory that it keeps for further calls."""
        ...

    def close(self) -> None:
        """Frees what it holds, when the pictures that are being computed are done.

        Calls of its networks that come later, or wait for their turn, raise BackendError.
        """
        ...


@dataclass(frozen=True)
class Entry:
    """A backend that may or may not work here."""

    name: str
    module: str
    libraries: tuple[str, ...]
    """Packages without which it cannot be imported."""
    install: str
    """The command that brings them."""
    extra: bool = False
    """What it needs comes only on demand, so `auto` says nothing of its absence."""


_BACKENDS = (
    Entry("cuda", "waifu2x.backends.cuda.backend", (), "", extra=True),
    Entry(
        "opencl",
        "waifu2x.backends.opencl",
        ("pyopencl",),
        "pip install 'waifu2x-kernels[opencl]'",
        extra=True,
    ),
    Entry(
        "cpu",
        "waifu2x.backends.cpu.backend",
        ("numba", "llvmlite"),
        "pip install waifu2x-kernels",
    ),
    Entry("numpy", "waifu2x.backends.reference", (), ""),
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
    """The backend of that name on the device of that number, as `devices_of` counts them.

    `auto` is the best backend whose library and device are here; one made for GPUs counts only if
    it has one, since on processors `cpu` is faster. `on_skip` is told why it passes over a better
    one that should work here; with `after`, only those behind the backend of that name count.
    Raises BackendError with the reason, and the remedy where there is one; UnavailableError if
    something is not here, DeviceError if a device does not work.
    """
    if name != "auto":
        backend: Backend = _load(_entry(name)).create(device)
        return backend
    reasons, passed_over = [], []
    for entry in _BACKENDS[BACKEND_NAMES.index(after) + 1 if after else 0 :]:
        try:
            module = _load(entry)
            if entry.extra and not module.devices(gpus_only=True):
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
        raise NoDeviceError(f"there is no device {device}: `waifu2x devices` lists them")
    raise UnavailableError("no backend works here: " + "; ".join(map(str, reasons)))


def devices_of(name: str, *, gpus_only: bool = False) -> list[Device]:
    """Returns the devices of a backend, the default first; with `gpus_only`, of one made for GPUs.

    Raises BackendError as `open_backend` does.
    """
    module = _load(_entry(name))
    found: list[Device] = module.devices(gpus_only=True) if gpus_only else module.devices()
    return found


def device_numbers(name: str) -> list[int]:
    """The numbers of all devices of a backend that are of the kind of the first: GPUs, or
    processors. `auto` is as of `open_backend`. Raises BackendError if there are none."""
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
    """One of the devices of a backend. Raises NoDeviceError for a number that it lacks."""
    if number < len(found):
        return found[number]
    if not found:
        raise UnavailableError(f"backend {name} found no device")
    numbers = "its only one is 0" if len(found) == 1 else f"choose from 0 to {len(found) - 1}"
    raise NoDeviceError(
        f"backend {name} has no device {number}: {numbers}, as `waifu2x devices` shows"
    )


def _entry(name: str) -> Entry:
    for entry in _BACKENDS:
        if entry.name == name:
            return entry
    raise BackendError(f"unknown backend {name!r}: choose one of {', '.join(BACKEND_NAMES)}")


def _load(entry: Entry) -> Any:
    try:
        return importlib.import_module(entry.module)
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in entry.libraries:
            raise
        raise NotInstalledError(
            f"backend {entry.name} needs the package {error.name}: run `{entry.install}`"
        ) from error
