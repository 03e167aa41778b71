"""A process that reads, prepares and writes pictures, while the networks stay where they are.

Codecs let go of Python's lock, but what surrounds them does not: in threads, sixteen cores of
codecs hold a GPU up that makes a picture in two milliseconds. Both ends of the connection between
the two processes are here. What the process cannot do itself it asks for: a network's result, and
room in memory.
"""

from __future__ import annotations

import multiprocessing
import signal
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from waifu2x.backends import Network, Progress, ignore
from waifu2x.backends.results import check_out
from waifu2x.flows.batch.room import Room, needed_bytes
from waifu2x.flows.batch.segments import Attached, Segments, Shared
from waifu2x.flows.jobs import Job, OnNotice, Output
from waifu2x.flows.outcome import Outcome, Status, run_one
from waifu2x.imaging.enlarger import Enlarger
from waifu2x.imaging.sizes import Request
from waifu2x.networks.chains import ChainFacts, Chains
from waifu2x.system import allocator


@dataclass(frozen=True)
class Task:
    """What is the same for all files: a worker is told once."""

    request: Request
    noise: int | None
    tta: int
    tile: int | None
    output: Output
    max_pixels: int
    unasked: int
    """Bytes of memory that a worker may take without asking: most pictures need no more."""

    @classmethod
    def of(cls, enlarger: Enlarger, output: Output, max_pixels: int, unasked: int) -> Task:
        """What a worker is to do in the place of an enlarger."""
        told = enlarger.request, enlarger.noise, enlarger.tta, enlarger.tile
        return cls(*told, output, max_pixels, unasked)


# What a worker says to the process that it belongs to, and asks of it. An answer is (True, what was
# asked for) or (False, the exception that it raises).


class Named(NamedTuple):
    """Asks for the name of the chains."""


class Factors(NamedTuple):
    """Asks for `Chains.factors`."""

    scale: Fraction
    noise: int | None


class Opened(NamedTuple):
    """Asks for `Chains.facts`."""

    factor: int
    noise: int | None


class Computed(NamedTuple):
    """Asks for a result, in the array that is given for it."""

    factor: int
    noise: int | None
    pixels: Shared
    result: Shared
    tile: int | None
    tta: int
    dropped: list[int]
    """Segments that are gone."""


class Taken(NamedTuple):
    """Asks for memory."""

    size: int


class GivenBack(NamedTuple):
    """The memory that was asked for last is free again. No answer."""


class Said(NamedTuple):
    """A note about the file. No answer."""

    note: str


class Ended(NamedTuple):
    """How the file ended: an Outcome without its job, which need not come back."""

    status: Status
    seconds: float
    height: int
    width: int
    error: str
    spent: Mapping[str, float]
    device_failed: bool
    disk_full: bool
    previews: tuple[bytes, ...]

    @classmethod
    def of(cls, outcome: Outcome) -> Ended:
        """What an outcome says besides its job."""
        return cls(*(getattr(outcome, name) for name in cls._fields))


class DiedError(Exception):
    """A worker has ended before its file was done."""


class Worker:
    """A process, as the one that it works for sees it: for one thread."""

    def __init__(self, task: Task, chains: Chains, room: Room) -> None:
        """Raises OSError or EOFError where no process can be started."""
        self._chains = chains
        self._room = room
        context = _context()
        self._connection, others = context.Pipe()
        self._process = context.Process(
            target=work, args=(others, task), name="waifu2x-worker", daemon=True
        )
        with others:
            try:
                self._process.start()
            except BaseException:
                self._connection.close()
                raise
        self._attached = Attached(self._connection)

    def run(self, job: Job, on_progress: Progress, on_notice: OnNotice) -> Outcome:
        """What becomes of a file. `on_progress` is told of a network's work alone, and raises to
        stop it. Raises DiedError."""
        ended = self._serve(job, on_progress, on_notice)
        if isinstance(ended, Exception):
            raise ended
        return Outcome(job, *ended)

    def _serve(self, job: Job, on_progress: Progress, on_notice: OnNotice) -> Ended | Exception:
        """Hands a file over and answers what the worker asks, until it is done."""
        self._tell(job)
        with ExitStack() as held:
            while True:
                said = self._hear()
                if isinstance(said, Ended | Exception):
                    return said
                if isinstance(said, Said):
                    on_notice(job, said.note)
                elif isinstance(said, GivenBack):
                    held.close()
                else:
                    self._answer(said, held, on_progress)

    def close(self) -> None:
        """Ends it, when what it is at is done."""
        with suppress(OSError):
            self._connection.send(None)
        self._connection.close()
        self._process.join()

    def _tell(self, message: object) -> None:
        """Raises DiedError."""
        try:
            self._connection.send(message)
        except OSError as error:
            raise self._died() from error

    def _hear(self) -> Any:
        """Raises DiedError."""
        try:
            return self._connection.recv()
        except (EOFError, OSError) as error:
            raise self._died() from error

    def _died(self) -> DiedError:
        self._connection.close()
        self._process.join()
        return DiedError(_end(self._process.exitcode))

    def _answer(self, said: Any, held: ExitStack, on_progress: Progress) -> None:
        answer: Any = None
        try:
            if isinstance(said, Named):
                answer = self._chains.name
            elif isinstance(said, Factors):
                answer = self._chains.factors(*said)
            elif isinstance(said, Opened):
                answer = self._chains.facts(*said)
            elif isinstance(said, Taken):
                held.enter_context(self._room.taken(said.size))
            else:
                self._compute(said, on_progress)
        except DiedError:
            raise
        except Exception as error:
            self._tell((False, error))
        else:
            self._tell((True, answer))

    def _compute(self, said: Computed, on_progress: Progress) -> None:
        self._attached.drop(said.dropped)
        try:
            pixels, result = self._attached.receive(said.pixels, said.result)
        except (EOFError, ConnectionError) as error:
            raise self._died() from error
        except Exception as error:
            # What it sent besides is still on its way: nobody could tell it from the next message.
            self.close()
            raise DiedError(f"cannot share its memory: {error}") from error
        network = self._chains.network(said.factor, said.noise)
        network(
            pixels,
            result.dtype,
            out=result,
            tile=said.tile,
            tta=said.tta,
            on_progress=on_progress,
        )


def prepare() -> None:
    """Begins to load all modules in the process that starts others, so that the first of those need
    not wait for it: half a second beside whatever else is done."""
    if sys.platform != "win32":
        from multiprocessing import forkserver

        _context()
        forkserver.ensure_running()


def _context() -> Any:
    """How processes are started: where that can be, by one that has loaded all modules."""
    if sys.platform == "win32":
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    return context


def _end(code: int | None) -> str:
    """How a process has ended, for people."""
    if code is not None and code < 0:
        with suppress(ValueError):
            return f"was killed ({signal.Signals(-code).name})"
    return f"ended (exit code {code})"


def work(connection: Connection, task: Task) -> None:
    """The process: files, one after the other, until there are no more or nobody wants them."""
    warnings.filterwarnings("ignore")  # of codecs, on odd but readable files
    allocator.keep_freed()
    # Signals that end a group of processes are for the one that it belongs to, which then sends no
    # more.
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    link = _Link(connection)
    enlarger: Enlarger | None = None
    try:
        while (job := connection.recv()) is not None:
            if enlarger is None:
                chains = _RemoteChains(link)
                enlarger = Enlarger(chains, task.request, task.noise, task.tta, task.tile)
            try:
                outcome = run_one(
                    job,
                    enlarger,
                    task.output,
                    max_pixels=task.max_pixels,
                    reserve=partial(_room, link, enlarger, task.unasked),
                    on_notice=lambda job, note: connection.send(Said(note)),
                )
            except (EOFError, OSError):
                raise
            except Exception as error:
                # The work was stopped, or this is a defect: whoever asked shall know.
                connection.send(error)
            else:
                connection.send(Ended.of(outcome))
    except (EOFError, OSError):
        return  # nobody wants them


@contextmanager
def _room(link: _Link, enlarger: Enlarger, unasked: int, content: bytes) -> Iterator[None]:
    """Room for a file with that content."""
    needed = needed_bytes(content, enlarger)
    if needed <= unasked:
        yield
        return
    link.ask(Taken(needed))
    try:
        yield
    finally:
        link.connection.send(GivenBack())


class _Link:
    """Questions and answers, from the worker's side."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.segments = Segments(connection)

    def ask(self, question: object, *arrays: Shared) -> Any:
        """The answer; raises what it raises there."""
        self.connection.send(question)
        self.segments.send(*arrays)
        worked, answer = self.connection.recv()
        if not worked:
            raise answer
        return answer


class _RemoteChains:
    """See Chains: those of the other process."""

    def __init__(self, link: _Link) -> None:
        self.name: str = link.ask(Named())
        self._link = link
        self._factors: dict[Factors, tuple[int, ...]] = {}
        self._facts: dict[Opened, ChainFacts] = {}

    def factors(self, scale: Fraction, noise: int | None) -> tuple[int, ...]:
        """Asks once for each scale."""
        question = Factors(scale, noise)
        if question not in self._factors:
            self._factors[question] = self._link.ask(question)
        return self._factors[question]

    def facts(self, factor: int, noise: int | None) -> ChainFacts:
        """Asks once for each chain."""
        question = Opened(factor, noise)
        if question not in self._facts:
            self._facts[question] = self._link.ask(question)
        return self._facts[question]

    def network(self, factor: int, noise: int | None) -> Network:
        """One of the other process."""
        scale = self.facts(factor, noise).scale
        return _RemoteNetwork(self._link, Opened(factor, noise), scale)


class _RemoteNetwork:
    """See Network: one of the other process."""

    def __init__(self, link: _Link, chain: Opened, scale: int) -> None:
        self._link = link
        self._chain = chain
        self._scale = scale

    def __call__(
        self,
        pixels: NDArray[Any],
        out_dtype: DTypeLike,
        *,
        out: NDArray[Any] | None = None,
        tile: int | None = None,
        tta: int = 1,
        on_progress: Progress = ignore,
    ) -> NDArray[Any]:
        """Runs pictures in the other process, by way of shared memory."""
        segments = self._link.segments
        height, width, planes = pixels.shape[-3:]
        shape = (*pixels.shape[:-3], height * self._scale, width * self._scale, planes)
        check_out(out, shape, out_dtype, pixels)
        source, told = segments.array(pixels.shape, pixels.dtype)
        np.copyto(source, pixels)
        result, to_be = segments.array(shape, out_dtype)
        question = Computed(*self._chain, told, to_be, tile, tta, segments.dropped())
        self._link.ask(question, told, to_be)
        on_progress(1.0)
        if out is None:
            return result
        np.copyto(out, result)
        return out

    def close(self) -> None:
        """Does nothing: it belongs to the other process."""
