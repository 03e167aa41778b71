"""Computes fixed pictures by known model sets, and compares the results with those of other
machines, or with exact ones.

`known_results.txt` beside this module is the table of other machines' results. A line has the model
set, a digest of its files, the network, its arithmetic, a digest of the results, and the kinds of
machine that make them. `python benchmarks/known_results.py` adds the lines of a machine.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from waifu2x.api import Upscaler
from waifu2x.backends import Backend, Precision
from waifu2x.backends.accuracy import decibels
from waifu2x.backends.engine.engine import Engine
from waifu2x.networks import model_set
from waifu2x.networks.catalogue import Role
from waifu2x.networks.model_set import ModelSet
from waifu2x.system.lazy_dataclass import dataclass

TABLE = Path(__file__).with_suffix(".txt")
PROMISED: dict[Precision, tuple[float, float]] = {"auto": (60.0, 8.0), "fp32": (100.0, 1.0)}
"""The least PSNR in dB against exact results, and the most that a value may lie off in levels of 8
bits, for modes that promise it. Errors of 60 dB are a quarter of a level on average: one of eight
is no rounding."""
REFERENCE = "numpy"
"""The backend whose results are exact."""

_FINER = 4
"""The factor by which pictures are drawn larger, then averaged down."""

Key = tuple[str, str, str, str]
"""Model set, digest of its files, network and arithmetic."""
KnownResults = dict[Key, dict[str, list[str]]]
"""The kinds of machine that make a result, by its digest."""


@dataclass(frozen=True)
class Distance:
    """The distance of results from exact ones."""

    psnr: float
    """In dB, of results in floats; the worst of the pictures."""
    levels: float
    """The largest difference of a result in integers, in levels of 8 bits. Rounding alone makes
    half a level of them."""


@dataclass(frozen=True)
class Judgement:
    """The results of one network on the fixed pictures, and how they were judged."""

    key: Key
    mode: Precision
    digest: str
    """A digest of the results in integers."""
    same_as: tuple[str, ...]
    """Kinds of machine that make the same bits."""
    is_of_known_kind: bool
    """Whether the table has results of this kind of machine, which may be others."""
    distance: Distance | None = None
    """From exact results; None where the bits are known."""

    @property
    def is_right(self) -> bool:
        """Returns whether the bits are known, or are as near to exact results as the mode
        promises."""
        if self.distance is None:
            return True
        least, most = PROMISED.get(self.mode, (0.0, 255.0))
        return self.distance.psnr >= least and self.distance.levels <= most


def kind_of(backend: Backend) -> str:
    """Returns the kind of machine that a backend computes on: machines of one kind are to make the
    same bits."""
    return f"{backend.name} {backend.device.architecture}".strip()


def networks_of(models: ModelSet, *, every: bool) -> list[Role]:
    """Returns the networks of a set that are computed: `every` one, or of each factor the one that
    removes least noise."""
    roles = sorted(models.files, key=lambda role: (role[1], -1 if role[0] is None else role[0]))
    useful = [role for role in roles if role != (None, 1)]
    if every:
        return useful
    return list({scale: (noise, scale) for noise, scale in reversed(useful)}.values())[::-1]


def judged(
    name: str, engines: Sequence[Engine], known: KnownResults, *, every: bool
) -> Iterator[Judgement]:
    """Computes the fixed pictures by networks of the set of that name on engines of one device,
    each of its own precision, and judges the results. `every` is as for `networks_of`.

    Bits that `known` has are right. Others are compared with exact results, which take a second
    for most networks. Raises ModelError, BackendError.
    """
    models = model_set.find(name)
    files = models.digest()[:8]
    with ExitStack() as held:
        reference = functools.cache(lambda: held.enter_context(Engine(REFERENCE)))
        for noise, scale in networks_of(models, every=every):
            network = f"{scale}x" if noise is None else f"{scale}x-noise{noise}"
            exact: list[NDArray[Any]] = []
            for engine in engines:
                with Upscaler(scale, noise, model=name, engine=engine) as upscaler:
                    arithmetic = upscaler.networks.chains.network(scale, noise).arithmetic
                    # Spaces part the columns of the table.
                    key = models.name, files, network, arithmetic.replace(" ", "-")
                    made = [upscaler(picture) for picture in pictures()]
                    found = known.get(key, {})
                    is_known = any(kind_of(engine.backend) in kinds for kinds in found.values())
                    digest = _digest(made)
                    same, distance = tuple(found.get(digest, ())), None
                    if not same:
                        if not exact:
                            with Upscaler(scale, noise, model=name, engine=reference()) as best:
                                exact = [best(floats) for floats in _in_floats()]
                        distance = _distance(upscaler, made, exact)
                yield Judgement(key, engine.precision, digest, same, is_known, distance)


def _distance(
    upscaler: Upscaler, made: Sequence[NDArray[Any]], exact: Sequence[NDArray[Any]]
) -> Distance:
    """Compares results in floats, and those in integers that were `made`, with exact ones."""
    psnr, levels = [], []
    for floats, result, wanted in zip(_in_floats(), made, exact, strict=True):
        psnr.append(decibels(upscaler(floats), wanted))
        off = abs(result / np.iinfo(result.dtype).max - wanted)
        levels.append(float(off.max() * 255))
    return Distance(min(psnr), max(levels))


def _in_floats() -> list[NDArray[np.float32]]:
    return [(one / np.iinfo(one.dtype).max).astype(np.float32) for one in pictures()]


@functools.cache
def pictures() -> tuple[NDArray[np.uint8], NDArray[np.uint16]]:
    """Makes the pictures by a formula of whole numbers, so that they are equal everywhere: one of
    8 bits (45, 61, 3), and one of 16 bits with transparency (21, 33, 4)."""
    rgb = _drawn(45, 61, 255, planes=3)
    rgba = _drawn(21, 33, 65535, planes=4)
    rgba[..., 3] = (rgba[..., 3] * 2 - 32768).clip(0, 65535)  # clear, half clear and opaque
    return rgb.astype(np.uint8), rgba.astype(np.uint16)


def _drawn(height: int, width: int, peak: int, planes: int) -> NDArray[np.int64]:
    """Draws a disc, a box and two lines with smooth edges on a slope, as drawings have them."""
    y, x = np.mgrid[: height * _FINER, : width * _FINER]
    high, wide = y.shape
    shapes = (
        (y - high // 3) ** 2 + (x - wide // 3) ** 2 < (high // 4) ** 2,
        (abs(y - high * 2 // 3) < high // 6) & (abs(x - wide // 2) < wide // 5),
        abs(y * 2 - x) < 3 * _FINER,
        abs(y + x - wide) < 2 * _FINER,
    )
    drawn = np.empty((high, wide, planes), np.int64)
    for plane in range(planes):
        drawn[..., plane] = (x + y) * peak // (wide + high) * (plane + 1) // (planes + 1)
        for number, shape in enumerate(shapes):
            drawn[shape, plane] = (64 + (number * 97 + plane * 61) % 128) * peak // 255
    cells = drawn.reshape(height, _FINER, width, _FINER, planes)
    return np.asarray(cells.sum((1, 3)) // _FINER**2)


def _digest(results: Sequence[NDArray[Any]]) -> str:
    found = hashlib.blake2b(digest_size=8)
    for result in results:
        found.update(result.astype(result.dtype.newbyteorder("<")).tobytes())
    return found.hexdigest()


def read() -> KnownResults:
    """Reads the table of results of other machines."""
    known: KnownResults = {}
    for line in TABLE.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            models, files, network, arithmetic, digest, kinds = line.split(maxsplit=5)
            found = known.setdefault((models, files, network, arithmetic), {})
            found[digest] = kinds.split("; ")
    return known
