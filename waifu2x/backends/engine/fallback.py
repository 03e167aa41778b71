"""What `auto` opens: the best backend, and the next one when its device stops working."""

from __future__ import annotations

import logging
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Any

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

_LOG = logging.getLogger(__name__)


class FallbackBackend:
    """Several backends, best first: when one stops working, the next computes its pictures."""

    def __init__(self, opened: Backend, open_next: Callable[[str], Backend]) -> None:
        """`open_next` opens the best backend of those behind one, by its name; it raises
        BackendError if there is none."""
        self.current = opened
        """The backend that is used now."""
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
        """Page-locks memory for the backend of now; the next one copies through its own."""
        return self.current.pin(memory)

    def measure(self, model: Model, precision: Precision, pixels: NDArray[Any]) -> Measurement:
        return self.current.measure(model, precision, pixels)

    def tune(self, model: Model, precision: Precision, pixels: NDArray[Any]) -> Iterator[Trial]:
        return self.current.tune(model, precision, pixels)

    @property
    def bytes(self) -> int:
        """Bytes that the backend of now holds."""
        return self.current.bytes

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self.current.close()

    def replace(self, failed: Backend, error: BackendError, *, compiling: bool = False) -> None:
        """Takes the next backend if the device of one has stopped working, and says so.

        Where another thread has done so, there is nothing to do. One that takes the place of
        another must be able to run the networks, too, unless memory is short, for which others may
        make room. Raises the error if it is another one, and that of the last device if there is no
        other backend.
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
            fault = self._stopped.fault if error is self._stopped else str(error)
            _LOG.warning("%s: going on with backend %s", fault, opened.name)
            self.current, self.name, self.device = opened, opened.name, opened.device
            self.calls_at_once = opened.calls_at_once
        # Its other pictures wait for their turn there: they learn that it is closed, and come back.
        failed.close()


def _forget_arrays(error: BaseException) -> None:
    """Lets go of what the functions held that an error came through: pages of a device that is
    gone, and whole pictures."""
    cause: BaseException | None = error
    while cause is not None:
        traceback.clear_frames(cause.__traceback__)
        cause = cause.__cause__


class FallbackNetwork:
    """A network of the backend of now; where that fails, of the next one."""

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
        """Closes the network on the backend of now; those on stopped devices went with these."""
        with self._lock:
            self._is_closed = True
            compiled, self._compiled = self._compiled, None
        if compiled is not None:
            compiled[1].close()

    @property
    def arithmetic(self) -> str:
        """What it computes in on the backend of now."""
        return self.prepare()[1].arithmetic

    def prepare(self) -> tuple[Backend, Network]:
        """The backend that is used now and the network on it. Raises BackendError."""
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
