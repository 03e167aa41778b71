"""Areas of frames that have changed, and kept results around them, against whole frames."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from waifu2x import Upscaler
from waifu2x.flows.film.frames.changed_areas import AreaFinder, AreaWork
from waifu2x.flows.film.frames.kept_result import AreaMaker, CompletedFrames, ComputedFrame
from waifu2x.formats.film.description import PixelFormat
from waifu2x.lowering.plan.box import Box, scaled
from waifu2x.lowering.plan.support import Support

Planes = Sequence[NDArray[Any]]
UNIT, BEFORE, AFTER = 6, 5, 9
"""The side of a cell of results below, and the pixels that it reads before and behind it."""
SUPPORT = Support(UNIT, BEFORE + UNIT, AFTER + UNIT)
FORMATS = {
    "420": PixelFormat("", 8, 2, 2, 3),
    "422": PixelFormat("", 10, 2, 1, 3),
    "444": PixelFormat("", 8, 1, 1, 3),
    "grey": PixelFormat("", 16, 1, 1, 1),
}


class Adding:
    """Enlarges twice. Each result is the sum of all that its cell may read, and tells its place in
    the cell; chroma is the sum of its pixels and of those around. Counts pixels."""

    def __init__(self, pixels: PixelFormat, too_large: int = 1 << 16) -> None:
        """Frames with `too_large` in luma are computed again: they get other results."""
        self.pixels, self.too_large = pixels, too_large
        self.computed = 0

    def __call__(self, frames: Sequence[Planes], out: Sequence[Planes]) -> Collection[int]:
        found = []
        for number, (frame, made) in enumerate(zip(frames, out, strict=True)):
            height, width = frame[0].shape
            self.computed += height * width
            values = frame[0].astype(np.uint64)
            for plane, (rows, columns) in zip(frame[1:], self.pixels.steps[1:], strict=True):
                # Linear interpolation reads the next sample on both sides.
                wide = np.pad(plane.astype(np.uint64), 1, "edge").repeat(rows, 0).repeat(columns, 1)
                for y in {-rows, 0, rows} if rows > 1 else {0}:
                    for x in {-columns, 0, columns} if columns > 1 else {0}:
                        near = np.roll(wide, (y, x), (0, 1)) * np.uint64(9 + y + 3 * x)
                        values += near[rows : rows + height, columns : columns + width]
            is_wide = bool((frame[0] == self.too_large).any())
            result = windowed(windowed(values).T).T.repeat(2, 0).repeat(2, 1)
            y, x = np.mgrid[: 2 * height, : 2 * width].astype(np.uint64) % np.uint64(2 * UNIT)
            result += y * np.uint64(5) + x * np.uint64(3) + np.uint64(is_wide)
            made[0][:] = result
            around = np.pad(result, 1, "edge")
            for plane, (rows, columns) in zip(made[1:], self.pixels.steps[1:], strict=True):
                more = around[:-2, :-2] + around[1:-1, 1:-1] + around[2:, 2:]
                plane[:] = more[::rows, ::columns]
            found += [number] * is_wide
        return found

    def parts(self, frames: Sequence[Planes], out: Sequence[Planes], inner: Box) -> Collection[int]:
        """Does the same; all but the results of `inner` and around may be undefined."""
        found = self(frames, out)
        top, left, height, width = scaled(inner, 2)
        for made in out:
            for plane, (rows, columns) in zip(made, self.pixels.steps, strict=True):
                kept = np.zeros(plane.shape, bool)
                kept[top // rows : -(-(top + height) // rows)][
                    :, left // columns : -(-(left + width) // columns)
                ] = True
                plane[~kept] = 5
        return found


def windowed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Returns for each row the sum of those that its cell reads."""
    sums = np.concatenate([np.zeros_like(values[:1]), np.cumsum(values, axis=0, dtype=np.uint64)])
    cell = np.arange(len(values)) // UNIT * UNIT
    first = np.maximum(cell - BEFORE, 0)
    made: NDArray[np.uint64] = sums[np.minimum(cell + UNIT + AFTER, len(values))] - sums[first]
    return made


class Placed:
    """As much of a PlacedFrame as matters."""

    def __init__(self, planes: Planes, areas: Any) -> None:
        self.frame: Any = type("Frame", (), {"planes": planes})
        self.planes = planes
        self.areas = areas
        self.is_held = areas == ()


class Results:
    """A sink that takes results."""

    def __init__(self) -> None:
        self.planes: list[Any] = []

    def add(self, made: Any) -> None:
        for frame in made:
            self.planes.append(self.planes[-1] if frame.planes is None else frame.planes)


def film(pixels: PixelFormat, size: tuple[int, int], seed: int) -> list[Planes]:
    """Frames in which little moves, in one plane or another; some repeat, and one is another."""
    rng = np.random.default_rng(seed)

    def drawn() -> Planes:
        return [
            rng.integers(0, 1 << pixels.bits, shape).astype(pixels.dtype)
            for shape in pixels.shapes(*size)
        ]

    frames = [drawn()]
    for number in range(14):
        frame = drawn() if number == 9 else [plane.copy() for plane in frames[-1]]
        for _ in range(number % 4):
            plane = frame[int(rng.integers(len(frame)))]
            y, x = (int(rng.integers(side)) for side in plane.shape)
            plane[y : y + int(rng.integers(1, 12)), x : x + int(rng.integers(1, 30))] ^= 1
        frames.append(frame)
    return frames


def completed(
    frames: Sequence[Planes], pixels: PixelFormat, enlarge: Adding
) -> tuple[list[Any], list[Any]]:
    """Returns the results of frames made by areas, and the areas."""
    height, width = frames[0][0].shape

    def memory() -> Planes:
        shapes = pixels.shapes(2 * height, 2 * width)
        return [np.full(shape, 99, pixels.dtype) for shape in shapes]

    work = AreaWork(enlarge.parts, SUPPORT, 0.0, 1.0)
    find, maker = AreaFinder(pixels, height, width, work), AreaMaker(work, pixels, pixels, 2)
    sink: Any = Results()
    complete = CompletedFrames(sink, enlarge, maker, memory)
    found: list[Any] = [None]
    found += [find(one, other) for one, other in pairwise(frames)]
    for planes, areas in zip(frames, found, strict=True):
        placed: Any = Placed(planes, areas)
        if areas is None:
            whole = memory()
            is_wide = bool(enlarge([planes], [whole]))
            complete.add([ComputedFrame(placed, whole, is_wide)])
        else:
            complete.add([ComputedFrame(placed, None, patches=maker(planes, areas))])
    return sink.planes, found


@pytest.mark.parametrize("size", [(133, 210), (96, 322)])
@pytest.mark.parametrize("name", FORMATS)
def test_areas_and_kept_results_are_the_whole_frame(name: str, size: tuple[int, int]) -> None:
    pixels = FORMATS[name]
    frames = film(pixels, size, seed=len(name) + size[0])
    by_areas, whole = Adding(pixels), Adding(pixels)
    made, areas = completed(frames, pixels, by_areas)
    assert () in areas, "none was held"
    assert sum(found is None for found in areas) >= 2, "another picture is computed whole"
    for planes, result in zip(frames, made, strict=True):
        wanted = [np.empty(shape, pixels.dtype) for shape in pixels.shapes(*(2 * s for s in size))]
        whole([planes], [wanted])
        for plane, other in zip(result, wanted, strict=True):
            np.testing.assert_array_equal(plane, other)
    assert by_areas.computed < 0.7 * whole.computed


def test_values_out_of_range_need_whole_frames_until_one_is_within() -> None:
    """Else the rest of a frame would be of other numbers than its areas."""
    pixels = FORMATS["grey"]
    frames = film(pixels, (133, 210), seed=3)
    for frame in frames[4:8]:
        frame[0][100, 150] = 7777
    enlarge, whole = Adding(pixels, 7777), Adding(pixels, 7777)
    made, _ = completed(frames, pixels, enlarge)
    for planes, (result,) in zip(frames, made, strict=True):
        wanted = np.empty((266, 420), pixels.dtype)
        whole([planes], [[wanted]])
        np.testing.assert_array_equal(result, wanted)


def test_what_lies_apart_is_computed_apart_and_too_much_as_a_whole() -> None:
    pixels = FORMATS["444"]
    work = AreaWork(Adding(pixels).parts, SUPPORT, 0.0, 1.0)
    find = AreaFinder(pixels, 400, 600, work)
    kept = [np.zeros(shape, np.uint8) for shape in pixels.shapes(400, 600)]
    two = [plane.copy() for plane in kept]
    two[0][10:14, 20:24] = two[2][380:384, 570:574] = 1
    areas = find(kept, two)
    assert areas is not None
    assert len(areas) == 2
    assert sum(area.halo.height * area.halo.width for area in areas) < 20_000
    scattered = [plane.copy() for plane in kept]
    scattered[1][::20, ::20] = 1
    assert find(kept, scattered) is None
    # A call that takes as long as many pixels makes one area of two.
    near = [plane.copy() for plane in kept]
    near[0][100, 100] = near[0][100, 200] = 1
    assert len(find(kept, near) or ()) == 2
    find = AreaFinder(pixels, 400, 600, work._replace(call=1e-3))
    find.took(400 * 600 / 20e6, 1)
    assert len(find(kept, near) or ()) == 1


def test_a_film_is_the_same_as_with_every_frame_computed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("av")
    from tests.flows.test_film_streams import pictures_of
    from tests.helpers import films
    from waifu2x.flows.film.frames.frame_enlarger import FrameEnlarger, device_of
    from waifu2x.flows.film.making import make_live
    from waifu2x.flows.film.reading.client import FilmReader
    from waifu2x.flows.film.request import FilmJob, prepare
    from waifu2x.formats.film.writing.codecs import Wish

    source = tmp_path / "in.mkv"
    times = range(0, 8 * 40, 40)
    films.film(source, codec="ffv1", times=times, size=(214, 330))
    computed: dict[str, int] = {}

    def made(how: Any) -> Any:
        computed[how] = 0
        enlarged = FrameEnlarger._network

        def counted(this: FrameEnlarger, frames: Any, out: Any, *inner: Any) -> Any:
            computed[how] += sum(planes[0].size for planes in frames)
            return enlarged(this, frames, out, *inner)

        target = tmp_path / f"{how}.mkv"
        job = FilmJob(source, target, Wish("ffv1"), duplicates=how)
        with (
            monkeypatch.context() as patch,
            FilmReader(source) as reader,
            Upscaler(model="anime4k/s", backend="cpu") as upscaler,
        ):
            patch.setattr(FrameEnlarger, "_network", counted)
            prepared = prepare(reader, job, 428, 660)
            enlarge = FrameEnlarger(upscaler, reader.film.pictures, prepared.shape)
            make_live(reader, job, prepared, device_of(enlarge, reader.film))
        return pictures_of(target)[1]

    for one, other in zip(made("off"), made("exact"), strict=True):
        for plane, wanted in zip(one, other, strict=True):
            np.testing.assert_array_equal(plane, wanted)
    assert computed["exact"] < computed["off"] / 2
