"""Measures which division of a step's work is fastest on a device, and stores the answer.

An executor asks its `Choose` for each step. `StoredChoices` answers with the best measured on this
device, else with the default; `tune` tries one candidate after the other and stores the best.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Protocol, TypeVar

from waifu2x import __version__
from waifu2x.backends import Device, Trial
from waifu2x.backends.gpu.device import source
from waifu2x.backends.gpu.device.runtime import OutOfMemoryError
from waifu2x.backends.gpu.executor import Executor
from waifu2x.errors import BackendError
from waifu2x.system import cache
from waifu2x.system.lazy_dataclass import dataclass

_KIND = "tuning"


class Candidate(Protocol):
    """A division of a step's work; its `repr` identifies it."""

    @property
    def stem(self) -> str:
        """The name of the file in `kernels/`."""


Option = TypeVar("Option", bound=Candidate)


class Choose(Protocol):
    """Chooses the division of each step's work."""

    def __call__(self, step: int, candidates: Sequence[Option], work: str) -> Option:
        """Returns one of the candidates for the step of that number; the default comes first.

        `work` tells apart the work that must not share an answer: by planes, taps, precision or
        class of sizes.
        """


class StoredChoices:
    """Chooses the best candidate of an earlier `tune`, else the default."""

    def __init__(self, device: Device) -> None:
        self._device = device

    def __call__(self, step: int, candidates: Sequence[Option], work: str) -> Option:
        if len(candidates) > 1:
            best = cache.load(_KIND, self.key(candidates, work))
            for candidate in candidates:
                if best == repr(candidate).encode():
                    return candidate
        return candidates[0]

    def keep(self, candidates: Sequence[Option], work: str, best: Option) -> None:
        """Stores the best of the candidates."""
        cache.store(_KIND, self.key(candidates, work), repr(best).encode())

    def key(self, candidates: Sequence[Candidate], work: str) -> str:
        """Returns the cache key, made of everything that the best candidate depends on."""
        sources = [source.digest(stem) for stem in sorted({option.stem for option in candidates})]
        return cache.digest(__version__, self._device.name, self._device.detail, work, *sources)


@dataclass(frozen=True)
class _Asked:
    """A choice that an executor has asked for."""

    step: int
    candidates: Sequence[Candidate]
    work: str


class _Fixed:
    """Chooses a given candidate for one key, and the stored ones for all others."""

    def __init__(self, kept: StoredChoices, key: str = "", option: Candidate | None = None) -> None:
        self._kept = kept
        self._key = key
        self._option = option
        self.asked: dict[str, _Asked] = {}
        """The choices asked for, by cache key: equal steps are measured once."""

    def __call__(self, step: int, candidates: Sequence[Option], work: str) -> Option:
        key = self._kept.key(candidates, work)
        self.asked.setdefault(key, _Asked(step, candidates, work))
        if key == self._key:
            return next(option for option in candidates if option == self._option)
        return self._kept(step, candidates, work)


def tune(
    kept: StoredChoices,
    make: Callable[[Choose], Executor],
    measure: Callable[[Executor], Sequence[float]],
    names: Sequence[str],
) -> Iterator[Trial]:
    """Measures every candidate of every step, and keeps the best ones for later executors.

    `measure` returns the seconds of each step; `names` are the steps' display names. A candidate
    that the device refuses is skipped. Candidates run inside the whole network, where the state of
    caches and memory is that of real calls.
    """
    survey = _Fixed(kept)
    _time(survey, make, measure)
    for key, question in survey.asked.items():
        times: list[tuple[float, Candidate]] = []
        for option in question.candidates if len(question.candidates) > 1 else ():
            with suppress(BackendError, OutOfMemoryError):
                seconds = _time(_Fixed(kept, key, option), make, measure)[question.step]
                times.append((seconds, option))
                yield Trial(names[question.step], _words(option), seconds)
        if times:
            best = min(times, key=lambda time: time[0])[1]
            kept.keep(question.candidates, question.work, best)


def _words(option: Candidate) -> str:
    """Returns a candidate's text for display: its kernel, and its fields as in its `repr`."""
    return f"{option.stem}: {repr(option).partition('(')[2].removesuffix(')')}"


def _time(
    choose: Choose,
    make: Callable[[Choose], Executor],
    measure: Callable[[Executor], Sequence[float]],
) -> Sequence[float]:
    executor = make(choose)
    try:
        return measure(executor)
    finally:
        executor.close()
