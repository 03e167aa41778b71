"""Defines the backend behind `auto`: the best one, or the next one once its device stops."""

from __future__ import annotations

import logging
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from waifu2x.backends import (
    Backend,
    Device,
    Measurement,
    Network,
    Pin,
    Precision,
    Trial,
)
from waifu2x.backends.call import Call, Pictures, closed_network
from waifu2x.errors import BackendError, DeviceError, DeviceMemoryError
from waifu2x.networks.model import Model

if TYPE_CHECKING:
    from waifu2x.lowering.plan.support import Support

_LOG = logging.getLogger(__name__)


class FallbackBackend:
    """Runs networks on the best of several backends; when it stops working, on the next one."""

    def __init__(self, opened: Backend, open_next: Callable[[str], Backend]) -> None:
        """`open_next` takes a backend's name and opens the next best one; it raises BackendError if
        there is none."""
        self.current = opened
        """The backend that computes now."""
        self.name = opened.name
        self.device: Device = opened.device
        self.calls_at_once = opened.calls_at_once
        self._open_next = open_next
        self._lock = threading.Lock()
        self._closed = False
        self._stopped: DeviceError | None = None

    def compile(self, models: Sequence[Model], precision: Precision) -> Network:
        network = FallbackNetwork(self, models, precision)
        network.prepare()
        return network

    def pin(self, memory: NDArray[Any]) -> Pin:
        """Page-locks memory for the current backend; a later one copies through its own."""
        return self.current.pin(memory)

    def measure(self, model: Model, precision: Precision, pixels: NDArray[Any]) -> Measurement:
        return self.current.measure(model, precision, pixels)

    def tune(self, model: Model, precision: Precision, pixels: NDArray[Any]) -> Iterator[Trial]:
        return self.current.tune(model, precision, pixels)

    @property
    def bytes(self) -> int:
        """Bytes that the current backend holds."""
        return self.current.bytes

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self.current.close()

    def replace(self, failed: Backend, error: BackendError, *, compiling: bool = False) -> None:
        """Opens the next backend if the device of `failed` has stopped working, and logs it.

        Does nothing if another thread has replaced it. With `compiling`, a backend that replaced
        another is itself replaced if it cannot compile a network, unless memory is short, since
        other networks can be freed. Raises `error` if the device still works, and the error of the
        last stopped device if there is no other backend.
        """
        with self._lock:
            if self.current is not failed:
                return
            if isinstance(error, DeviceError):
                self._stopped = error
                _forget_arrays(error)
            if self._closed or self._stopped is None:
                raise error
            is_unable = compiling and not isinstance(error, DeviceMemoryError)
            if not (is_unable or error is self._stopped):
                raise error
            try:
                opened = self._open_next(failed.name)
            except BackendError:
                raise self._stopped from None
            fault = self._stopped.problem if error is self._stopped else str(error)
            _LOG.warning("%s: going on with backend %s", fault, opened.name)
            self.current, self.name, self.device = opened, opened.name, opened.device
            self.calls_at_once = opened.calls_at_once
        # Calls that wait for their turn there get an error of a closed backend, and try again.
        failed.close()


def _forget_arrays(error: BaseException) -> None:
    """Clears the frames of an error, which keep a lost device's memory and whole pictures alive."""
    cause: BaseException | None = error
    while cause is not None:
        traceback.clear_frames(cause.__traceback__)
        cause = cause.__cause__


class FallbackNetwork:
    """A network compiled on the current backend, and again on the next one if that fails."""

    def __init__(
        self, backend: FallbackBackend, models: Sequence[Model], precision: Precision
    ) -> None:
        self._backend = backend
        self._models = tuple(models)
        self._precision: Precision = precision
        self._lock = threading.Lock()
        self._compiled: tuple[Backend, Network] | None = None
        self._is_closed = False

    def close(self) -> None:
        """Closes the network on the current backend; stopped backends have closed theirs."""
        with self._lock:
            self._is_closed = True
            compiled, self._compiled = self._compiled, None
        if compiled is not None:
            compiled[1].close()

    @property
    def arithmetic(self) -> str:
        """The arithmetic of the network on the current backend."""
        return self.prepare()[1].arithmetic

    @property
    def support(self) -> Support | None:
        """None: any call may run on another backend than the one before."""
        return None

    def prepare(self) -> tuple[Backend, Network]:
        """Returns the current backend and the network on it. Raises BackendError."""
        with self._lock:
            while True:
                if self._is_closed:
                    raise closed_network()
                backend = self._backend.current
                if self._compiled is not None and self._compiled[0] is backend:
                    return self._compiled
                try:
                    self._compiled = backend, backend.compile(self._models, self._precision)
                except BackendError as error:
                    self._backend.replace(backend, error, compiling=True)

    def run(self, call: Call[Pictures]) -> Pictures:
        """Runs a call on the current backend, and again on the next one if its device stops."""
        attempt = call.attempts()
        while True:
            backend, network = self.prepare()
            try:
                return network.run(attempt())
            except BackendError as error:
                self._backend.replace(backend, error)
