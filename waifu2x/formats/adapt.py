"""Pictures fitted to what their output's format can hold, before the work, and said so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from waifu2x.errors import OutputError
from waifu2x.formats import metadata, profiles
from waifu2x.formats.table import Format
from waifu2x.imaging.dtypes import from_unit, to_unit
from waifu2x.imaging.picture import Colours, Frames, Metadata, Picture
from waifu2x.system.machine import available_memory

Depth = Literal["auto", "8", "16"]
"""Bits a sample of results; auto: as many as the input has, where the format holds them."""
_DTYPES: dict[int, np.dtype[Any]] = {
    8: np.dtype(np.uint8),
    16: np.dtype(np.uint16),
    32: np.dtype(np.float32),
}


@dataclass(frozen=True)
class OutputOptions:
    """What is to become of a picture besides its size."""

    depth: Depth = "auto"
    background: tuple[int, int, int] = (255, 255, 255)
    """8-bit RGB under transparent pixels, where the format has no transparency."""
    strip: bool = False
    """Whether metadata is left out; what the colours mean stays."""


def adapt(frames: Frames, form: Format, options: OutputOptions) -> tuple[Frames, list[str]]:
    """What is to be enlarged for a format, and clauses about what is not kept of the file."""
    frames, notes = _countable(frames, form)
    said, changes = set[str](), dict[str, None]()
    pictures = []
    for picture in frames.pictures:
        if options.strip:
            picture = replace(picture, metadata=Metadata())
        kept, lost = metadata.fitted(picture.metadata, form)
        picture = replace(picture, metadata=kept)
        said |= lost
        for step in (_opaque, _in_colours, _deep):
            picture, note = step(picture, form, options)
            changes |= dict.fromkeys(note)
        pictures.append(picture)
    if said:
        notes.append(f"{form.name} holds no {' and no '.join(sorted(said))}")
    notes += changes
    if form.colours:
        notes.append(f"{form.name} holds {form.colours} colours a picture")
    return replace(frames, pictures=tuple(pictures)), notes


def finish(picture: Picture, form: Format, options: OutputOptions) -> Picture:
    """A result in the depth of its output."""
    dtype = _DTYPES[_bits(picture.pixels.dtype, form, options)]
    alpha = picture.alpha
    return replace(
        picture,
        pixels=_as(picture.pixels, dtype),
        alpha=None if alpha is None else _as(alpha, dtype),
    )


def check_results(
    form: Format, shapes: Sequence[tuple[int, int, int]], itemsize: int, name: str
) -> None:
    """Raises OutputError if the format cannot hold results of those shapes, or memory cannot.

    Better before the work. Shapes are rows, columns and planes, transparency among them; `itemsize`
    is of a sample in bytes.
    """
    needed = 0
    for height, width, planes in shapes:
        size = f"{width}x{height}"
        if max(height, width) > form.largest:
            raise OutputError(
                f"{name}: {form.name} holds at most {form.largest} pixels a side,"
                f" but the result is {size}: choose png or tiff"
            )
        if height * width * planes > form.most_bytes:
            raise OutputError(
                f"{name}: {form.name} holds at most {form.most_bytes / 2**30:.0f} GiB,"
                f" but the result is {size}: choose png or tiff"
            )
        copied = planes * itemsize if planes in (2, 4) else 0  # samples and alpha, side by side
        if form.name in ("PNG", "PNM"):
            copied = 0  # written by bands
        elif form.name != "TIFF":
            copied = 4 if planes > 1 else 1  # Pillow's own
        needed += height * width * (planes * itemsize + copied)
    free = available_memory()
    if free is not None and needed > free:
        height, width, _ = shapes[0]
        one, count = len(shapes) == 1, len(shapes)
        subject, takes = ("result", "takes") if one else (f"{count} results", "take")
        raise OutputError(
            f"{name}: the {subject} of {width}x{height} pixels {takes} {needed / 2**30:.1f} GiB of"
            f" memory, but {free / 2**30:.1f} GiB are free: use a smaller scale"
        )


def _countable(frames: Frames, form: Format) -> tuple[Frames, list[str]]:
    """As many pictures as the format holds."""
    count, kind = len(frames.pictures), "animation" if frames.animated else "pages"
    notes = list(frames.notes)
    if count == 1 or form.frames == kind:
        return frames, notes
    if frames.animated and form.frames == "pages":
        notes.append(f"{form.name} holds no timing: the pictures become pages")
        return replace(frames, durations=()), notes
    notes.append(f"{form.name} holds one picture: only the first of {count} is kept")
    return replace(frames, pictures=frames.pictures[:1], durations=()), notes


def _opaque(picture: Picture, form: Format, options: OutputOptions) -> tuple[Picture, list[str]]:
    """Composed on the background, where the format has no transparency."""
    alpha = picture.alpha
    if alpha is None or form.alpha:
        return picture, []
    if not picture.transparent:
        return replace(picture, alpha=None), []
    background = np.array(options.background, np.float32) / np.float32(255)
    pixels = to_unit(picture.pixels, np.float32)
    colours = picture.colours
    if pixels.shape[-1] == 1 and len(set(options.background)) == 1:
        background = background[:1]
    elif pixels.shape[-1] == 1:
        colours = Colours()  # its profile is for grey
    share = to_unit(alpha, np.float32)[..., np.newaxis]
    composed = from_unit(pixels * share + background * (1 - share), picture.pixels.dtype)
    name = "#{:02x}{:02x}{:02x}".format(*options.background)
    note = f"{form.name} holds no transparency: the picture is composed on {name}"
    return replace(picture, pixels=composed, alpha=None, colours=colours), [note]


def _in_colours(
    picture: Picture, form: Format, options: OutputOptions
) -> tuple[Picture, list[str]]:
    """With what its colours mean in the format's words, or in sRGB where it has none."""
    colours, planes = picture.colours, picture.pixels.shape[-1]
    if form.name == "PNG":
        return picture, []
    notes = []
    if profiles.cannot_be_said(colours):
        notes.append(f"{form.name} cannot say that the picture is HDR")
    profile = profiles.profile_of(colours, planes)
    if profile and "profile" not in form.keeps:
        picture = profiles.to_srgb(replace(picture, colours=Colours(profile)))
        notes.append(f"{form.name} holds no colour profile: converted to sRGB")
        profile = None
    return replace(picture, colours=Colours(profile)), notes


def _deep(picture: Picture, form: Format, options: OutputOptions) -> tuple[Picture, list[str]]:
    """With the depth that is asked for, if it has less: networks keep the depth they are given."""
    has = 8 * picture.pixels.dtype.itemsize
    bits = _bits(picture.pixels.dtype, form, options)
    if bits < has and options.depth == "auto":
        return picture, [f"{form.name} holds {bits} bits a sample, not {has}"]
    if bits <= has:
        return picture, []
    return finish(picture, form, options), []


def _bits(dtype: np.dtype[Any], form: Format, options: OutputOptions) -> int:
    """Bits a sample of the output for a picture of a dtype."""
    if options.depth != "auto":
        return int(options.depth)
    return max(depth for depth in form.depths if depth <= max(8, 8 * dtype.itemsize))


def _as(values: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    if values.dtype == dtype:
        return values
    if values.dtype == np.uint8 and dtype == np.uint16:
        return values.astype(np.uint16) * np.uint16(257)  # 255 becomes 65535: the same in [0, 1]
    return from_unit(to_unit(values, np.float32), dtype)
