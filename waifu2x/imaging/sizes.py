"""Sizes of results, and how they are reached: by networks, then a resize. Sizes are exact: rounded
once, from fractions, to the nearest whole pixel, halves up, and never 0."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal, get_args

from waifu2x.errors import ImageError
from waifu2x.system.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from waifu2x.imaging.blend import Blend

MOST = 32
"""The largest scale, and the most that a picture may grow in either direction."""
_MOST_EXPONENT = 4
"""The most characters of an exponent, in a scale that is text."""

_ALIGNED = 16
"""Pixels that the left and top edges of a cut are multiples of, so that networks that halve maps
see the same cells as in the whole picture."""
_FILTER = 3
"""Pixels on each side that Lanczos weighs, of the larger of source and result."""
_WORTH = 0.95
"""The largest share of a picture that is cut out; beyond it, a cut saves too little."""

Box = tuple[slice, slice]
"""Rows and columns."""
Fit = Literal["inside", "cover", "exact"]
"""How a width and a height together are meant. inside: the largest result that fits into them.
cover: exactly that size, cropped evenly on both sides if the proportions differ. exact: exactly
that size, stretched if the proportions differ."""


@dataclass(frozen=True)
class Part:
    """A rectangle of a picture in pixels; its edges may lie within pixels."""

    left: Fraction
    top: Fraction
    width: Fraction
    height: Fraction

    @classmethod
    def of(cls, height: int, width: int) -> Part:
        """Returns the rectangle of a whole picture of `height` rows and `width` columns."""
        return cls(Fraction(0), Fraction(0), Fraction(width), Fraction(height))


@dataclass(frozen=True)
class ResizePlan:
    """How a picture gets its size: networks enlarge it, then it is resized to rows and columns."""

    factor: int
    """The scale of the networks: at least the requested one, in both directions."""
    height: int
    width: int
    """Pixels of the result."""
    part: Part | None
    """The rectangle of the source that the result shows; None if the networks' output is the
    result, without a resize."""

    def needed(self, radius: int, height: int, width: int) -> Box | None:
        """Returns the part of a picture that the result depends on; None for all, or nearly all.

        `radius` is the receptive-field radius of the networks, in pixels. Networks that take means
        over a whole picture take them over the part instead.
        """
        part = self.part
        if part is None:
            return None
        # A second pass sees half as far as a first one, a third a quarter: less than twice in all.
        rows = self._span(part.top, part.height, self.height, 2 * radius, height)
        columns = self._span(part.left, part.width, self.width, 2 * radius, width)
        area = (rows.stop - rows.start) * (columns.stop - columns.start)
        return (rows, columns) if area <= _WORTH * height * width else None

    def _span(self, start: Fraction, extent: Fraction, made: int, radius: int, size: int) -> slice:
        """Returns the pixels of one direction: `made` of the result show `extent` from `start`."""
        step = max(extent / made, Fraction(1, self.factor))
        beyond = radius + math.ceil(_FILTER * step) + 1
        first = max(0, math.floor(start) - beyond) // _ALIGNED * _ALIGNED
        return slice(first, min(size, math.ceil(start + extent) + beyond))

    def within(self, box: Box) -> ResizePlan:
        """Returns the plan for a picture that was cut to `box`."""
        assert self.part is not None
        rows, columns = box
        left, top = self.part.left - columns.start, self.part.top - rows.start
        return replace(self, part=replace(self.part, left=left, top=top))


@dataclass(frozen=True)
class Request:
    """The size that a caller asks for, and the share of networks in it.

    One of these gives the size: `scale`, `width` and `height` or one of them, `longer_side`,
    `shorter_side`, or `min_size`.

    Raises ValueError for none or several of these, and if `fit` lacks a width or a height.
    """

    scale: Fraction | None = None
    """Output pixels per input pixel in each direction, above 0, at most 32."""
    width: int | None = None
    height: int | None = None
    """Pixels of the result; with one alone, the other follows from the proportions."""
    fit: Fit = "inside"
    longer_side: int | None = None
    """Pixels of the result's longer side; the proportions stay."""
    shorter_side: int | None = None
    """Pixels of the result's shorter side; the proportions stay."""
    min_size: tuple[int, int] | None = None
    """The least (width, height) of the result in pixels; the proportions stay, and the result is
    never smaller than the picture."""
    only_smaller_than: int | None = None
    """Pictures whose longer side has at least this many pixels stay as they are."""
    blend: Blend | None = None
    """The share of networks in results; None: they are the result."""

    def __post_init__(self) -> None:
        sizes = [self.scale, self.longer_side, self.shorter_side, self.min_size]
        given = [one for one in sizes if one is not None]
        if len(given) + (self.width is not None or self.height is not None) != 1:
            raise ValueError(
                "Expected one of scale, width and height, longer_side, shorter_side, min_size"
            )
        if self.fit not in get_args(Fit):
            raise ValueError(f"Expected a fit of {', '.join(get_args(Fit))}, but got {self.fit!r}")
        if self.fit != "inside" and None in (self.width, self.height):
            raise ValueError(f"A fit of {self.fit} needs a width and a height")

    def __str__(self) -> str:
        """Returns the size in words, such as "scale 1.5" or "1920x1080 cover"."""
        if self.width is not None and self.height is not None:
            size = f"{self.width}x{self.height} {self.fit}"
        elif self.min_size is not None:
            size = "at least {}x{}".format(*self.min_size)
        elif self.scale is not None:
            size = f"scale {float(self.scale):g}"
        else:
            names = ("width", "height", "longer_side", "shorter_side")
            sizes = {name.replace("_", " "): getattr(self, name) for name in names}
            size = next(f"{name} {value}" for name, value in sizes.items() if value is not None)
        if self.only_smaller_than is not None:
            size += f", only smaller than {self.only_smaller_than}"
        return size if self.blend is None else f"{size}, {self.blend}"

    def leaves(self, height: int, width: int) -> bool:
        """Returns whether a picture of that size stays as it is, because of `only_smaller_than`."""
        return self.only_smaller_than is not None and max(height, width) >= self.only_smaller_than

    def plan(self, height: int, width: int, enlargement: Callable[[Fraction], int]) -> ResizePlan:
        """Returns how a picture of `height` rows and `width` columns gets this size.

        `enlargement` returns the scale of the networks for a needed scale: at least that. Raises
        ImageError if the picture would grow more than 32 times.
        """
        down, across = self._factors(height, width)
        rows, columns = rounded(height * down), rounded(width * across)
        part = Part.of(height, width)
        if self.fit == "cover":
            assert self.width is not None
            assert self.height is not None
            rows, columns = self.height, self.width
            shown = Fraction(columns) / across, Fraction(rows) / down
            part = Part((width - shown[0]) / 2, (height - shown[1]) / 2, *shown)
        most = max(down, across)
        if most > MOST:
            raise ImageError(
                f"a picture of {width}x{height} would grow {float(most):.4g} times",
                f"ask for at most {MOST} times",
            )
        factor = enlargement(most)
        whole = part.width == width and part.height == height
        same = whole and (rows, columns) == (height * factor, width * factor)
        return ResizePlan(factor, rows, columns, None if same else part)

    def _factors(self, height: int, width: int) -> tuple[Fraction, Fraction]:
        """Returns the factors by which a picture grows, down and across."""
        if self.width is not None and self.height is not None:
            across, down = Fraction(self.width, width), Fraction(self.height, height)
            if self.fit == "exact":
                return down, across
            factor = min(across, down) if self.fit == "inside" else max(across, down)
        elif self.width is not None:
            factor = Fraction(self.width, width)
        elif self.height is not None:
            factor = Fraction(self.height, height)
        elif self.longer_side is not None:
            factor = Fraction(self.longer_side, max(height, width))
        elif self.shorter_side is not None:
            factor = Fraction(self.shorter_side, min(height, width))
        elif self.min_size is not None:
            least_width, least_height = self.min_size
            factor = max(Fraction(1), Fraction(least_width, width), Fraction(least_height, height))
        else:
            assert self.scale is not None
            factor = self.scale
        return factor, factor


def scale_of(value: Any) -> Fraction:
    """Returns a scale from a number of any kind, or from text such as 2, 1.5 or 4/3. A float means
    the decimal number that it is printed as: 1.15 is 23/20. Raises ValueError."""
    try:
        text = str(value)
        # Writing out 1e999999999 would take hours.
        is_short = len(text.lower().partition("e")[2]) <= _MOST_EXPONENT
        scale = Fraction(text) if is_short and not isinstance(value, bool) else None
    except (ValueError, ZeroDivisionError):
        scale = None
    if scale is None or not 0 < scale <= MOST:
        raise ValueError(f"Expected a scale above 0, at most {MOST}, but got {value!r}")
    return scale


def request(scale: Any = None, *, fit: Fit = "inside", **sizes: Any) -> Request:
    """Returns a `Request` made of its fields with values of any type; a scale of 2 without a size.
    Raises ValueError."""
    given = {name: value for name, value in sizes.items() if value is not None}
    if scale is None and not given.keys() - {"only_smaller_than"}:
        scale = 2
    least = given.pop("min_size", None)
    checked: dict[str, Any] = {name: _pixels(value, name) for name, value in given.items()}
    if least is not None:
        try:
            width, height = least
        except (TypeError, ValueError):
            message = f"Expected a min_size of (width, height), but got {least!r}"
            raise ValueError(message) from None
        checked["min_size"] = _pixels(width, "min_size"), _pixels(height, "min_size")
    return Request(None if scale is None else scale_of(scale), fit=fit, **checked)


def _pixels(value: Any, name: str) -> int:
    """Returns a number of pixels, a whole one of at least 1. Raises ValueError."""
    try:
        pixels = 0 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        pixels = 0
    if pixels < 1:
        raise ValueError(f"Expected a {name} of at least 1 pixel, but got {value!r}")
    return pixels


def rounded(size: Fraction) -> int:
    """Returns the nearest whole number of pixels, halves up, never 0."""
    return max(1, math.floor(size + Fraction(1, 2)))
