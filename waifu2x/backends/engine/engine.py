"""Defines the engine: devices, and networks compiled on them for any number of requests."""

from __future__ import annotations

import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Literal, NoReturn, TypeVar

from waifu2x.backends import Backend, Network, Precision
from waifu2x.backends.call import Call, Pictures, closed_network
from waifu2x.backends.engine.closing import when_idle
from waifu2x.backends.engine.pool import open_devices
from waifu2x.errors import BackendError, DeviceMemoryError
from waifu2x.networks.model import Model
from waifu2x.system.arguments import integer

if TYPE_CHECKING:
    from waifu2x.lowering.plan.support import Support

_Made = TypeVar("_Made")


class Engine:
    """One device, or several, with the networks that are compiled on them.

    Any number of upscalers and threads may share an engine. A network is compiled when the first
    of them asks for it, and freed when the last has closed it. When memory runs out, idle networks
    make room, least recently used first, and are compiled again when they are called; if all are in
    use by other threads, a call that needs memory waits for one of them.

    Use it as a context manager, or call `close`, to free the devices. It cannot be pickled: make
    one in each process, and start processes with the method "spawn": in a forked one, only "cpu"
    and "numpy" work.

    Args:
        backend: "auto", the best that works here, or a name that `list_devices` shows.
        device: The number of one of the backend's devices, several numbers, or "all": calls are
            divided among them.
        precision: "auto", the fastest that keeps 60 dB against exact arithmetic; "fp32", which
            keeps 100 dB; "fp16", "bf16" or "int16" where the backend has them.
        fallback: Whether "auto" goes on with the next backend where the device stops working.

    Raises:
        BackendError: A device cannot be used: UnavailableError if it is not here.
        ValueError: A number that makes no sense.

    Examples:
        >>> with waifu2x.Engine("cpu") as engine:
        ...     art = waifu2x.Upscaler(scale=2, engine=engine)
        ...     clean = waifu2x.Upscaler(scale=1, noise=1, engine=engine)
        ...     larger, cleaner = art(image), clean(image)
        >>> larger.shape, cleaner.shape
        ((18, 32, 3), (9, 16, 3))
    """

    def __init__(
        self,
        backend: str = "auto",
        device: int | Sequence[int] | Literal["all"] = 0,
        precision: Precision = "auto",
        *,
        fallback: bool = True,
    ) -> None:
        devices = device if device == "all" else _devices(device)
        notices: list[str] = []
        self.backend: Backend = open_devices(backend, devices, notices.append, fallback)
        """The backend; with `auto` another one may take its place when its device stops."""
        self.notices = tuple(notices)
        """Sentences on why `auto` passed over better backends."""
        self.precision: Precision = precision
        """The precision of all its networks."""
        self.clock = WorkClock()
        """Measures work without the time that compiling takes."""
        self._lock = threading.Lock()
        self._room_made = threading.Condition(self._lock)
        self._needing_room = threading.Lock()
        """Held by a call while it frees memory: two would take it from each other."""
        self._shared: OrderedDict[tuple[int, ...], _Shared] = OrderedDict()
        """Networks by the identities of their models, which they hold; oldest use first."""
        self._closing = 0
        """The number of networks without leases that are being freed."""
        self._freed = 0
        """The number of networks that have been freed."""
        self._is_closed = False

    def network(self, models: Sequence[Model]) -> Network:
        """Returns the network of models, one after the other, and compiles it if necessary.

        The caller has to close it. It works until then, or until the engine is closed. Raises
        BackendError if it cannot be compiled.
        """
        key = tuple(map(id, models))
        with self._lock:
            self.check_open()
            shared = self._shared.setdefault(key, _Shared(tuple(models)))
            shared.leases += 1
        lease = _Lease(self, shared)
        try:
            self._run(shared, lambda network: None)
        except BaseException:
            lease.close()
            raise
        return lease

    @property
    def bytes(self) -> int:
        """Bytes that it holds now, on its devices or in the machine's memory if the processor
        computes: weights, maps, and free memory kept for further calls."""
        return self.backend.bytes

    @property
    def open_networks(self) -> dict[tuple[str, ...], int]:
        """The number of users of each compiled network, by the names of its models."""
        with self._lock:
            return {
                tuple(model.name for model in shared.models): shared.leases
                for shared in self._shared.values()
            }

    def close(self) -> None:
        """Frees the devices, once the calls under way are done.

        Calls of its networks that come later, or wait for their turn, raise BackendError. In a
        function for progress it returns at once, and the devices are freed later.
        """
        with self._lock:
            self._is_closed = True
            gone, self._shared = list(self._shared.values()), OrderedDict()

        def free() -> None:
            self.backend.close()
            for shared in gone:
                shared.close()

        when_idle(free)

    def __repr__(self) -> str:
        if self._is_closed:
            return f"<Engine {self.backend.name}, closed>"
        count = len(self.open_networks)
        networks = f"{count} network{'' if count == 1 else 's'}"
        device = self.backend.device.name
        return f"<Engine {self.backend.name}: {device}, {self.precision}, {networks}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("cannot pickle an Engine; make one in each process")

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # For leases and upscalers.

    def check_open(self) -> None:
        """Raises BackendError after `close`."""
        if self._is_closed:
            raise BackendError("this engine is closed", "open a new one")

    def _run(self, shared: _Shared, work: Callable[[Network], _Made]) -> _Made:
        """Calls `work` with the network, compiled if necessary, and returns its result.

        Meanwhile the network is not freed for others. Where memory is short, idle networks are
        freed, and `work` is called again. Raises BackendError.
        """
        with ExitStack() as held:
            is_first = True
            while True:
                freed = self._freed
                try:
                    with self._running(shared) as network:
                        return work(network)
                except DeviceMemoryError:
                    if is_first:
                        held.enter_context(self._needing_room)
                        is_first = False
                    if not self._make_room(shared, freed):
                        raise

    @contextmanager
    def _running(self, shared: _Shared) -> Iterator[Network]:
        thread = threading.get_ident()
        with self._lock:
            self.check_open()
            shared.callers.append(thread)
            if shared.key in self._shared:
                self._shared.move_to_end(shared.key)
        try:
            with shared.lock:
                if shared.is_closed:
                    raise closed_network()
                if shared.network is None:
                    with self.clock.stopped():
                        shared.network = self.backend.compile(shared.models, self.precision)
                network = shared.network
            yield network
        finally:
            with self._lock:
                shared.callers.remove(thread)
                self._room_made.notify_all()

    def _release(self, shared: _Shared) -> None:
        """Ends a lease; the last one frees the network."""
        with self._lock:
            shared.leases -= 1
            if shared.leases or self._shared.get(shared.key) is not shared:
                return
            del self._shared[shared.key]
            self._closing += 1
        try:
            shared.close()
        finally:
            with self._lock:
                self._closing -= 1
                self._freed += 1
                self._room_made.notify_all()

    def _make_room(self, asking: _Shared, freed: int) -> bool:
        """Frees the least recently used idle network, or waits until a call has ended or a network
        is freed. Returns False if there is no other network, nor was one after `freed` of them had
        been freed."""
        with self._lock:
            others = [one for one in self._shared.values() if one is not asking]
            dropped = next((one for one in others if one.network and not one.callers), None)
            if dropped is None and self._freed != freed:
                return True
            if dropped is None:
                callers = [thread for one in others for thread in one.callers]
                # A thread must not wait for a call of its own to another network.
                waits = bool(callers or self._closing) and threading.get_ident() not in callers
                if waits:
                    self._room_made.wait()
                return waits
            network, dropped.network = dropped.network, None
        if network is not None:
            network.close()
            with self._lock:
                self._freed += 1
        return True


def _devices(device: int | Sequence[int]) -> list[int]:
    """Returns the numbers of devices as a list. Raises ValueError, also for a repeated number."""
    numbers = [
        integer(number, range(sys.maxsize), "a device number from 0 up")
        for number in (device if isinstance(device, Sequence) else [device])
    ]
    if not numbers or len(set(numbers)) < len(numbers):
        raise ValueError(f"Expected different device numbers, but got {device!r}")
    return numbers


class WorkClock:
    """A clock of seconds that stands still while any network is compiled. Threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stops = 0
        """The number of networks that are being compiled."""
        self._since = 0.0
        """When it stopped."""
        self._stood = 0.0
        """How long it has stood still before."""

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Stops it for the length of the context."""
        with self._lock:
            if not self._stops:
                self._since = time.monotonic()
            self._stops += 1
        try:
            yield
        finally:
            with self._lock:
                self._stops -= 1
                if not self._stops:
                    self._stood += time.monotonic() - self._since

    def standing(self) -> float | None:
        """Returns for how many seconds it has stood still now; None if it runs."""
        with self._lock:
            return time.monotonic() - self._since if self._stops else None

    def __call__(self) -> float:
        with self._lock:
            return (self._since if self._stops else time.monotonic()) - self._stood


class _Shared:
    """A network that several leases share."""

    def __init__(self, models: tuple[Model, ...]) -> None:
        self.models = models
        self.key = tuple(map(id, models))
        self.leases = 0
        self.callers: list[int] = []
        """The threads of the calls under way."""
        self.lock = threading.Lock()
        """Held by the thread that compiles it, while others wait for the result."""
        self.network: Network | None = None
        """None before it is compiled, and after it was freed for another."""
        self.is_closed = False

    def close(self) -> None:
        """Frees it, once its calls are done."""
        with self.lock:
            self.is_closed = True
            network, self.network = self.network, None
        if network is not None:
            network.close()


class _Lease:
    """A user's share of an engine's network."""

    def __init__(self, engine: Engine, shared: _Shared) -> None:
        self._engine = engine
        self._shared = shared
        self._lock = threading.Lock()
        self._is_closed = False

    @property
    def arithmetic(self) -> str:
        """The arithmetic of the network on the current backend."""
        return self._engine._run(self._open(), lambda network: network.arithmetic)

    @property
    def support(self) -> Support | None:
        """The support of the network on the current backend."""
        return self._engine._run(self._open(), lambda network: network.support)

    def run(self, call: Call[Pictures]) -> Pictures:
        """Runs a call; where memory is short for it, idle networks are freed."""
        attempt = call.attempts()
        return self._engine._run(self._open(), lambda network: network.run(attempt()))

    def close(self) -> None:
        """Gives the network back; the last lease frees it."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
        self._engine._release(self._shared)

    def _open(self) -> _Shared:
        if self._is_closed:
            raise closed_network()
        return self._shared
