"""Which of several ways to cut a layer's work is fastest on a device: measured once, and kept.

A road asks its `Choose` for each layer. `Kept` answers with what was measured on this device
before, else with the usual way; `tune` tries one candidate after the other and keeps the best.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol, TypeVar

from waifu2x import __version__, cache
from waifu2x.backends import Device
from waifu2x.backends.gpu import source
from waifu2x.backends.gpu.road import Road
from waifu2x.backends.gpu.runtime import OutOfMemoryError
from waifu2x.errors import BackendError
from waifu2x.model import Model

_KIND = "tuning"
_RUNS = 5


class Candidate(Protocol):
    """A way to cut the work; its `repr` says all that makes it what it is."""

    @property
    def stem(self) -> str:
        """Of the file in `kernels/`."""
        ...


Way = TypeVar("Way", bound=Candidate)


class Choose(Protocol):
    """What a road asks how to cut a layer."""

    def __call__(self, layer: int, candidates: Sequence[Way], work: str = "") -> Way:
        """One of the candidates for a layer by its number; the usual one comes first.

        `work` tells apart what a road does differently for layers of the same planes: a precision,
        a class of sizes.
        """
        ...


@dataclass(frozen=True)
class Trial:
    """One candidate, measured."""

    layer: str
    """Its planes, for people."""
    way: str
    seconds: float
    """Of the layer, a median."""


class Kept:
    """See Choose: the best of an earlier `tune`, else the usual one."""

    def __init__(self, device: Device, model: Model) -> None:
        self._device = device
        self._model = model

    def __call__(self, layer: int, candidates: Sequence[Way], work: str = "") -> Way:
        """See Choose."""
        if len(candidates) > 1:
            best = cache.load(_KIND, self.key(layer, candidates, work))
            for candidate in candidates:
                if best == repr(candidate).encode():
                    return candidate
        return candidates[0]

    def keep(self, layer: int, candidates: Sequence[Way], work: str, best: Way) -> None:
        """Remembers the best of the candidates."""
        cache.store(_KIND, self.key(layer, candidates, work), repr(best).encode())

    def key(self, layer: int, candidates: Sequence[Candidate], work: str) -> str:
        """Of the cache's entry: all that the best one depends on."""
        convolution = self._model.convolutions[layer]
        texts = [source.of(stem) for stem in sorted({way.stem for way in candidates})]
        return cache.digest(
            __version__,
            self._device.name,
            self._device.detail,
            f"{convolution.in_planes} > {convolution.out_planes}",
            work,
            *texts,
        )


@dataclass(frozen=True)
class _Asked:
    """What a road asked for."""

    layer: int
    candidates: Sequence[Candidate]
    work: str


class _Fixed:
    """See Choose: a given candidate for one question, for the others what is kept."""

    def __init__(self, kept: Kept, key: str = "", way: Candidate | None = None) -> None:
        self._kept = kept
        self._key = key
        self._way = way
        self.asked: dict[str, list[_Asked]] = {}
        """By the keys of the cache: layers that are alike are measured once."""

    def __call__(self, layer: int, candidates: Sequence[Way], work: str = "") -> Way:
        """See Choose."""
        key = self._kept.key(layer, candidates, work)
        self.asked.setdefault(key, []).append(_Asked(layer, candidates, work))
        if key == self._key:
            return next(way for way in candidates if way == self._way)
        return self._kept(layer, candidates, work)


def tune(
    kept: Kept,
    make: Callable[[Choose], Road],
    measure: Callable[[Road], Sequence[float]],
    model: Model,
) -> Iterator[Trial]:
    """Measures every candidate of every layer of a road, and keeps the best ones for later roads.

    `measure` runs the road once and says the seconds of each of its layers. A candidate that the
    device refuses is passed over. Ways are compared inside the whole network, where caches and
    memory are as warm as they will be.
    """
    survey = _Fixed(kept)
    _time(survey, make, measure)
    for key, questions in survey.asked.items():
        question = questions[0]
        times: list[tuple[float, Candidate]] = []
        for way in question.candidates if len(question.candidates) > 1 else ():
            with suppress(BackendError, OutOfMemoryError):
                seconds = _time(_Fixed(kept, key, way), make, measure)
                times.append((seconds[question.layer], way))
                layer = model.convolutions[question.layer]
                yield Trial(
                    f"{layer.in_planes} > {layer.out_planes}", _words(way), seconds[question.layer]
                )
        if times:
            best = min(times, key=lambda time: time[0])[1]
            kept.keep(question.layer, question.candidates, question.work, best)


def _words(way: Candidate) -> str:
    """Its kernel, and its fields as a dataclass shows them."""
    return f"{way.stem}: {repr(way).partition('(')[2].removesuffix(')')}"


def _time(
    choose: Choose, make: Callable[[Choose], Road], measure: Callable[[Road], Sequence[float]]
) -> list[float]:
    """Seconds of each layer, medians; the first run warms up."""
    road = make(choose)
    try:
        runs = [measure(road) for _ in range(_RUNS + 1)][1:]
    finally:
        road.close()
    return [statistics.median(layer) for layer in zip(*runs, strict=True)]
