"""Defines a call of a network: its pictures, the memory of its results, and its options."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

from waifu2x.backends import OnRecomputed, Progress, ignore, scaled
from waifu2x.errors import BackendError
from waifu2x.imaging.colour import luma
from waifu2x.imaging.dtypes import from_unit
from waifu2x.networks.model import Model, Surround
from waifu2x.system.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from waifu2x.backends import Network
    from waifu2x.imaging.planar import PlanarPicture
    from waifu2x.lowering.plan.box import Box

Pictures = TypeVar("Pictures", "NDArray[Any]", "Sequence[PlanarPicture]")
"""Pixels, or pictures as planes."""

_BAND_ROWS = 64


@dataclass(frozen=True, eq=False)
class Call(Generic[Pictures]):
    """The arguments of a run of pictures through all models of a network.

    Neither the tile nor the number of pictures, cores or devices changes a bit of the results.
    """

    source: Pictures
    """Pixels, (height, width, planes) or a stack of them, (N, height, width, planes), C-contiguous:
    uint8 and uint16 span their range, float32 spans [0, 1]. Pictures of one plane are grey to
    models of three: each plane is the picture, and the result is the luma (Rec. 601) of theirs.

    Or planes, for models of three planes, in pictures of one size and format. Colours are converted
    as `imaging.planar` defines it, and clipped to [0, 1] before the first model; codes are exact
    unless a value lies within float32's error of a rounding. A model of several frames takes as
    many pictures for each result, the earliest first, and mirrored pixels are added around."""
    out_dtype: DTypeLike | None = None
    """The dtype of resulting pixels, one of the same three, rounded half to even; None is that of
    the source. Between models, values are clipped to [0, 1] and stay float."""
    out: Pictures | None = None
    """Memory for the results, which shares none with `source`; undefined after an error.

    For pixels, a C-contiguous, writable array of the result's shape and dtype; None makes one. For
    planes, as many pictures; their format tells how results are written."""
    tile: int | None = None
    """A hint: the side, in output pixels, of the square tiles that are computed one by one."""
    tta: int = 1
    """1, or 2, 4 or 8: each model runs on that number of transforms of the picture
    (`tta.TRANSFORMS`), and its result is their mean."""
    on_progress: Progress = ignore
    on_recomputed: OnRecomputed = ignore
    inner: Box | None = None
    """A hint: the part of each picture whose results, with one pixel around them, are wanted; all
    others are undefined then."""

    @property
    def count(self) -> int:
        """The number of results."""
        if not isinstance(self.source, np.ndarray):
            return len(self.results)
        return 1 if self.source.ndim == 3 else len(self.source)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of resulting pixels."""
        assert isinstance(self.source, np.ndarray)
        return self.source.dtype if self.out_dtype is None else np.dtype(self.out_dtype)

    @property
    def results(self) -> Pictures:
        """The memory `out` of a call that has it."""
        assert self.out is not None
        return self.out

    def stacked(self) -> Call[Pictures]:
        """Returns the call with pixels as a stack, though it may be of one picture."""
        if not isinstance(self.source, np.ndarray) or self.source.ndim == 4:
            return self
        return replace(self, source=self.source[np.newaxis], out=self.results[np.newaxis])

    def with_pixels(
        self, source: NDArray[Any], out: NDArray[Any] | None = None
    ) -> Call[NDArray[Any]]:
        """Returns the call for pixels in the place of planes; results have their dtype."""
        return Call(
            source,
            None,
            out,
            self.tile,
            self.tta,
            self.on_progress,
            self.on_recomputed,
            self.inner,
        )

    def part(self, first: int, end: int) -> Call[Pictures]:
        """Returns the call for results [first, end) of a stack with an `out`; it reports its share
        of progress, and indices of pictures in the stack."""
        each = len(self.source) // len(self.results)
        return replace(
            self,
            source=self.source[first * each : end * each],
            out=self.results[first:end],
            on_progress=scaled(self.on_progress, (end - first) / len(self.results)),
            on_recomputed=lambda number: self.on_recomputed(first + number),
        )

    def attempts(self) -> Callable[[], Call[Pictures]]:
        """Returns a function that returns the call for the next attempt: all attempts together
        report each fraction of progress once."""
        furthest = 0.0

        def attempt() -> Call[Pictures]:
            done = 0.0

            def report(part: float) -> None:
                nonlocal done, furthest
                done += part
                if done > furthest:
                    part, furthest = done - furthest, done
                    self.on_progress(part)

            return replace(self, on_progress=report)

        return attempt


def result_shape(models: Sequence[Model], shape: tuple[int, ...]) -> tuple[int, ...]:
    """Returns the shape of the result of models, one after the other, for pixels (..., H, W,
    planes)."""
    *rest, height, width, planes = shape
    grey = is_grey(models, shape)
    for model in models:
        height, width, planes = height * model.scale, width * model.scale, model.out_planes
    return (*rest, height, width, 1 if grey else planes)


def is_grey(models: Sequence[Model], shape: tuple[int, ...]) -> bool:
    """Returns whether pixels (..., H, W, planes) are grey, and models read and make three
    planes."""
    return shape[-1] == 1 and bool(models) and models[0].in_planes == 3


def check(call: Call[Pictures], models: Sequence[Model]) -> None:
    """Raises ValueError for an `out` or planes that models cannot write or read."""
    if not isinstance(call.source, np.ndarray):
        _check_planes(models, call.source, call.out or ())
    elif call.out is not None:
        _check_pixels(call, call.out, result_shape(models, call.source.shape))


def with_out(call: Call[Pictures], models: Sequence[Model]) -> Call[Pictures]:
    """Returns the call with an `out`: its own, or new pixels. Raises ValueError as `check` does."""
    check(call, models)
    if call.out is not None or not isinstance(call.source, np.ndarray):
        return call
    return replace(call, out=np.empty(result_shape(models, call.source.shape), call.dtype))


def _check_pixels(call: Call[NDArray[Any]], out: NDArray[Any], shape: tuple[int, ...]) -> None:
    if out.shape != shape or out.dtype != call.dtype:
        raise ValueError(
            f"Expected out of shape {shape} and dtype {call.dtype},"
            f" but got {out.shape} and {out.dtype}"
        )
    if not out.flags.c_contiguous or not out.flags.writeable:
        fault = "read-only" if out.flags.c_contiguous else "not C-contiguous"
        raise ValueError(f"Expected out to be writable and C-contiguous, but it is {fault}")
    if np.may_share_memory(out, call.source):
        raise ValueError("Expected out to have memory of its own, but it shares that of the pixels")


def _check_planes(
    models: Sequence[Model], pictures: Sequence[PlanarPicture], out: Sequence[PlanarPicture]
) -> None:
    frames = models[0].frames if models else 1
    planes = [(model.in_planes, model.out_planes) for model in models]
    if planes[:1] not in ([], [(3 * frames, 3)]) or any(each != (3, 3) for each in planes[1:]):
        raise ValueError("Expected a network of three planes, for pictures as planes of films")
    if len(pictures) != len(out) * frames:
        raise ValueError(f"Expected {len(pictures) // frames} results, but got {len(out)}")
    if not pictures:
        return
    scale = math.prod(model.scale for model in models)
    height, width = pictures[0].size
    for name, some, size in (
        ("pictures", pictures, (height, width)),
        ("results", out, (height * scale, width * scale)),
    ):
        for one in some:
            if one.size != size or one.format != some[0].format:
                raise ValueError(
                    f"Expected {name} of {size[1]}x{size[0]} pixels and one format,"
                    f" but got {one.size[1]}x{one.size[0]} and {one.format}"
                )
    if not all(plane.flags.writeable for made in out for plane in made.planes):
        raise ValueError("Expected planes of results to be writable")
    if _share_memory(pictures, out):
        raise ValueError(
            "Expected results to have memory of their own, but they share that of the pictures"
        )


def _share_memory(pictures: Sequence[PlanarPicture], out: Sequence[PlanarPicture]) -> bool:
    """Returns whether a plane of a result overlaps one of a picture in memory."""
    spans = [(*span, 0) for one in pictures for span in one.spans]
    spans += [(*span, 1) for one in out for span in one.spans]
    furthest = [0, 0]
    for start, end, kind in sorted(spans):
        if start < min(end, furthest[1 - kind]):
            return True
        furthest[kind] = max(end, furthest[kind])
    return False


def run_grey(network: Network, call: Call[NDArray[Any]]) -> NDArray[Any]:
    """Runs a call of grey pixels, which has an `out`, on three equal planes, for networks whose
    kernels read and write three planes only."""
    planes = call.source.repeat(3, axis=-1)
    made = network.run(replace(call, source=planes, out_dtype=np.float32, out=None))
    many = made.ndim == 4
    for rgb, result in zip(made, call.results, strict=True) if many else [(made, call.results)]:
        for top in range(0, len(rgb), _BAND_ROWS):
            rows = slice(top, top + _BAND_ROWS)
            result[rows] = from_unit(luma(rgb[rows]), result.dtype)
    return call.results


def run_windows(
    network: Network,
    call: Call[Sequence[PlanarPicture]],
    model: Model,
    read: Callable[[PlanarPicture], NDArray[np.float32]],
    write: Callable[[NDArray[np.float32], PlanarPicture], None],
) -> None:
    """Runs windows of frames as planes on their pixels (H, W, 3), which `read` makes and `write`
    writes."""
    for number in range(call.count):
        one = call.part(number, number + 1)
        window = np.concatenate([read(picture) for picture in one.source], axis=-1)
        pixels = mirrored(window[np.newaxis], model.surround)
        made = network.run(one.with_pixels(pixels))
        write(inner(made, model, one.source[0].size)[0], one.results[0])


def mirrored(pictures: NDArray[Any], surround: Surround | None) -> NDArray[Any]:
    """Returns pictures (N, H, W, planes) with mirrored pixels around them; the edge pixels are not
    repeated, except of a single row or column."""
    if surround is None:
        return pictures
    sides = [
        (surround.before(length), surround.added(length) - surround.before(length))
        for length in pictures.shape[1:3]
    ]
    return np.pad(pictures, [(0, 0), *sides, (0, 0)], "reflect")


def inner(results: NDArray[Any], model: Model, size: tuple[int, int]) -> NDArray[Any]:
    """Returns the results (N, H, W, planes) for pictures of that size, without what a model makes
    of the mirrored pixels around them."""
    if model.surround is None:
        return results
    rows, columns = (
        slice(
            model.scale * model.surround.before(length),
            model.scale * (model.surround.before(length) + length),
        )
        for length in size
    )
    return results[:, rows, columns]


def closed_network() -> BackendError:
    """Returns the error of a call of a closed network."""
    return BackendError("this network is closed: compile its models again")
