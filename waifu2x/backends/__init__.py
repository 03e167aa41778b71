"""The seam between pictures and hardware: what a backend is, and how one is found.

A backend is a module of this package with a `create()` function, imported when it is asked for and
never before: its library may be missing, and loading it takes time.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from numpy.typing import DTypeLike, NDArray

from waifu2x.errors import BackendError, UnavailableError
from waifu2x.model import Model
from waifu2x.tiling import Box

Precision = Literal["auto", "fp32", "fp16", "bf16"]
"""By result: `fp32` keeps 100 dB against float64; `auto` is the fastest mode that keeps 60 dB."""

Progress = Callable[[float], None]
"""Told which further part of the work is done; the parts add up to 1. It may raise to stop it."""


def scaled(on_progress: Progress, share: float) -> Progress:
    """Progress of a part of the work that is `share` of the whole."""
    return lambda part: on_progress(part * share)


@dataclass(frozen=True)
class Device:
    """What `waifu2x devices` shows."""

    name: str
    detail: str
    """Its size and the shape of the code that runs on it, for people."""


@dataclass(frozen=True)
class LayerTime:
    """What `waifu2x bench` shows of a layer."""

    name: str
    seconds: float
    """Its share of the time of one picture."""
    multiply_adds: float
    """For one picture, by the definition of convolution; 0 for the conversion of pixels."""
    peak: float
    """Multiply-adds a second that the unit it runs on reaches at best, measured."""


class Network(Protocol):
    """A chain of models, compiled for a device."""

    def __call__(
        self, pixels: NDArray[Any], box: Box, out_dtype: DTypeLike, on_progress: Progress
    ) -> NDArray[Any]:
        """One box of the output picture.

        `pixels` is the whole input picture, C-contiguous (height, width, planes): uint8 and uint16
        span their range, float32 spans [0, 1]. The result is (box.height, box.width, planes) in
        `out_dtype`, one of the same three, rounded half to even. Pixels beyond the edges count as
        the nearest one inside; between models the values are clipped to [0, 1] and stay float.
        Any box gives the same bits as the same place of the whole picture.
        """
        ...


class Backend(Protocol):
    """One device, ready to run networks."""

    name: str
    device: Device

    def compile(self, models: Sequence[Model], precision: Precision) -> Network:
        """The models one after the other; raises BackendError for a precision it lacks."""
        ...

    def close(self) -> None:
        """Frees what it holds."""
        ...


@dataclass(frozen=True)
class Entry:
    """A backend that may or may not work here."""

    name: str
    module: str
    libraries: tuple[str, ...]
    """Packages whose absence is explained by a missing extra, not by a defect."""
    install: str
    """The command that brings them."""


_BACKENDS = (
    Entry("cpu", "waifu2x.backends.cpu", ("numba", "llvmlite"), "pip install waifu2x-kernels"),
    Entry("numpy", "waifu2x.backends.reference", (), ""),
)
"""Best first: `auto` takes the first that works."""

BACKEND_NAMES = tuple(entry.name for entry in _BACKENDS)


def open_backend(
    name: str = "auto", on_skip: Callable[[str], None] = lambda reason: None
) -> Backend:
    """The backend of that name, or with `auto` the best one whose library and device are here.

    `on_skip` is told why `auto` passes over a better one. Raises BackendError with the reason, and
    the remedy where there is one; UnavailableError if something is not here.
    """
    if name == "auto":
        reasons = []
        for candidate in BACKEND_NAMES:
            try:
                return open_backend(candidate)
            # Any other BackendError is a wrong setting, which another backend would only hide.
            except UnavailableError as error:
                reasons.append(str(error))
                on_skip(str(error))
        raise UnavailableError("no backend works here: " + "; ".join(reasons))
    entry = next((entry for entry in _BACKENDS if entry.name == name), None)
    if entry is None:
        raise BackendError(f"unknown backend {name!r}: choose one of {', '.join(BACKEND_NAMES)}")
    try:
        backend: Backend = importlib.import_module(entry.module).create()
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in entry.libraries:
            raise
        raise UnavailableError(
            f"backend {name} needs the package {error.name}: run `{entry.install}`"
        ) from error
    return backend
