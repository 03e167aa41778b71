"""Fits pictures to the format of their output before the work, and says what is lost."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from waifu2x.errors import OutputError
from waifu2x.formats.metadata import code_points, profiles, promises, transfer
from waifu2x.formats.table import Format, Kind, OutputOptions, Quality, left_out
from waifu2x.imaging.dtypes import from_unit, to_unit
from waifu2x.imaging.picture import Colours, Metadata, Picture
from waifu2x.imaging.streams import Header
from waifu2x.system.machine import available_memory

_SMALL = 1 << 24
"""Bytes of a result below which free memory is not looked up, which takes 0.7 ms."""
_DTYPES: dict[int, np.dtype[Any]] = {
    8: np.dtype(np.uint8),
    10: np.dtype(np.uint16),
    12: np.dtype(np.uint16),
    16: np.dtype(np.uint16),
    32: np.dtype(np.float32),
}
_LOSSLESS = Quality()


class Adapter:
    """Fits the pictures of one file to a format, and keeps account of what is lost."""

    def __init__(self, form: Format, options: OutputOptions, quality: Quality = _LOSSLESS) -> None:
        self._form = form
        self._options = options
        self._quality = quality
        self._lost: set[Kind] = set()
        self._told: set[str] = set()
        self._animated = False
        self._is_same = False
        """Whether the file is of that format itself."""

    def header(self, header: Header) -> tuple[Header, list[str]]:
        """Returns the header reduced to as many pictures as the format holds, and notices of the
        others.

        Of several, the first is kept where the format holds one.
        """
        form = self._form
        notices = [left_out(kind, count) for kind, count in sorted(header.parts.items())]
        self._is_same = header.format == form.name
        kind = "animation" if header.animated else "pages"
        if header.count == 1 or form.frames == kind:
            self._animated = header.animated
            return header, notices
        if header.animated and form.frames == "pages":
            notices.append(f"{form.name} holds no timing: the pictures become pages")
            return replace(header, animated=False), notices
        of = "" if header.count is None else f" of {header.count}"
        holds = "no pages" if form.frames else "one picture"
        notices.append(f"{form.name} holds {holds}: only the first{of} is kept")
        return replace(header, extents=header.extents[:1], count=1, animated=False), notices

    def picture(self, picture: Picture) -> tuple[Picture, list[str]]:
        """Returns a picture as the format can hold it, and notices of what is lost.

        A loss that was told for an earlier picture is not told again.
        """
        form, options = self._form, self._options
        if options.strip:
            picture = replace(picture, metadata=Metadata())
        if options.to == "sdr" and code_points.is_hdr(picture.colours.code_points):
            picture = profiles.to_srgb(picture)
        kept, lost = transfer.fitted(picture.metadata, form)
        picture = replace(picture, metadata=kept)
        lost -= self._lost
        self._lost |= lost
        notices = [f"{form.name} holds no {' and no '.join(sorted(lost))}"] if lost else []
        xmp = picture.metadata.xmp
        if xmp and (held := promises.without(xmp)) is not xmp:
            picture = replace(picture, metadata=replace(picture.metadata, xmp=held))
            notices.append("its XMP no longer tells of parts that are left out")
        if self._animated and form.name != "PNG" and picture.colours.hdr:
            picture = replace(picture, colours=replace(picture.colours, hdr=None))
            notices.append(f"{form.name} holds no metadata of HDR10 in an animation")
        for step in (_opaque, _in_colours):
            picture, said = step(picture, form, options)
            notices += said
        picture, said = self._deep(picture)
        notices += said
        picture = self._with_words(picture)
        if form.colours and not self._is_same:  # the user has such a file already
            notices.append(f"{form.name} holds {form.colours} colours a picture")
            if _translucent(picture):
                notices.append(f"{form.name} holds pixels that are opaque or clear, none between")
        return picture, self.untold(notices)

    def _deep(self, picture: Picture) -> tuple[Picture, list[str]]:
        """Says the depth of the result, and gives the picture its dtype if that is wider: networks
        keep their input's."""
        form, wanted = self._form, self._options.depth
        bits = form.depth_for(picture.depth) if wanted == "auto" else int(wanted)
        where = ""
        if self._animated and bits > 8:
            where = " in an animation"
        elif form.name == "JPEG XL" and bits > 8 and self._quality.has_losses:
            where = " with losses"
        bits = 8 if where else bits
        notices = []
        if bits < (picture.depth if wanted == "auto" else int(wanted)):
            asked = picture.depth if wanted == "auto" else wanted
            notices = [f"{form.name} holds {bits} bits a sample{where}, not {asked}"]
        picture = replace(picture, bits=bits)
        is_wider = _DTYPES[bits].itemsize > picture.pixels.dtype.itemsize
        return finish(picture) if is_wider else picture, notices

    def _with_words(self, picture: Picture) -> Picture:
        """Adds a profile for programs that know no other words of a PNG, unless its source is one.

        EXIF says sRGB where nothing else says otherwise.
        """
        colours, block = picture.colours, picture.metadata.exif
        if self._form.name == "PNG" and not self._is_same and not colours.icc_profile:
            profile = profiles.profile_of(colours, picture.pixels.shape[-1])
            picture = replace(picture, colours=replace(colours, icc_profile=profile))
        if block and picture.colours == Colours():
            from waifu2x.formats.metadata import exif

            said = replace(picture.metadata, exif=exif.as_srgb(block))
            picture = replace(picture, metadata=said)
        return picture

    def untold(self, notices: Iterable[str]) -> list[str]:
        """Returns the notices that have not been given yet."""
        new = [notice for notice in dict.fromkeys(notices) if notice not in self._told]
        self._told.update(new)
        return new


def _translucent(picture: Picture) -> bool:
    if picture.alpha is None:
        return False
    opaque = np.iinfo(picture.alpha.dtype).max if picture.alpha.dtype.kind == "u" else 1
    return bool(((picture.alpha > 0) & (picture.alpha < opaque)).any())


def finish(picture: Picture) -> Picture:
    """Returns a result in the dtype that holds the depth of its output."""
    dtype = _DTYPES[picture.depth]
    alpha = picture.alpha
    return replace(
        picture,
        pixels=_as(picture.pixels, dtype),
        alpha=None if alpha is None else _as(alpha, dtype),
    )


def check_sides(form: Format, height: int, width: int, name: str) -> None:
    """Raises OutputError if the format cannot hold `height` or `width` pixels a side."""
    if max(height, width) > form.largest:
        raise OutputError(
            f"{name}: {form.name} holds at most {form.largest} pixels a side, but the result is "
            f"{width}x{height}",
            "choose png or tiff",
        )


def check_result(
    form: Format, shape: tuple[int, int, int], itemsize: int, name: str, at_once: int = 1
) -> None:
    """Raises OutputError if the format or the memory cannot hold a result.

    `shape` is rows, columns and planes, transparency among them; `itemsize` is bytes of a sample;
    `at_once` is how many such results are in memory together.
    """
    height, width, planes = shape
    size = f"{width}x{height}"
    check_sides(form, height, width, name)
    if height * width * planes > form.most_bytes:
        raise OutputError(
            f"{name}: {form.name} holds at most {form.most_bytes / 2**30:.0f} GiB, but the "
            f"result is {size}",
            "choose png or tiff",
        )
    copied = planes * itemsize if planes in (2, 4) else 0  # samples and alpha, side by side
    if form.name in ("PNG", "PNM"):
        copied = 0  # written by bands
    elif form.name != "TIFF":
        copied = (4 if planes > 1 else 1) * min(itemsize, 2)  # the encoder's own
    needed = height * width * (at_once * planes * itemsize + copied)
    if needed < _SMALL:
        return
    free = available_memory()
    if free is not None and needed > free:
        subject, takes = ("result", "takes") if at_once == 1 else (f"{at_once} results", "take")
        raise OutputError(
            f"{name}: the {subject} of {size} pixels {takes} {needed / 2**30:.1f} GiB of "
            f"memory, but {free / 2**30:.1f} GiB are free",
            "use a smaller scale",
        )


def _opaque(picture: Picture, form: Format, options: OutputOptions) -> tuple[Picture, list[str]]:
    """Composes a picture on the background, where the format has no transparency."""
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
    notice = f"{form.name} holds no transparency: the picture is composed on {name}"
    return replace(picture, pixels=composed, alpha=None, colours=colours), [notice]


def _in_colours(
    picture: Picture, form: Format, options: OutputOptions
) -> tuple[Picture, list[str]]:
    """Says what the colours mean in the format's terms; converts to sRGB where it has none."""
    if form.name == "PNG":
        return picture, []
    notices, hdr = [], picture.colours.hdr
    if hdr is not None and "HDR10" not in form.keeps:
        notices.append(f"{form.name} holds no metadata of HDR10")
        hdr = None
    for hold in (_coded, _profiled, _converted):
        found = hold(picture, form)
        if found is not None:
            held, said = found
            kept = replace(held.colours, hdr=hdr)
            return replace(held, colours=kept), notices + said
    points = picture.colours.code_points
    name = f" ({code_points.name_of(points)})" if points else ""
    notices.append(f"{form.name} cannot say its colours{name}")
    return replace(picture, colours=Colours()), notices


def keeps_colours(picture: Picture, form: Format) -> bool:
    """Returns whether a format can say the colours of a picture, so that they are not converted."""
    colours = replace(picture.colours, hdr=None)
    pixel = replace(picture, pixels=picture.pixels[:1, :1], alpha=None, colours=colours)
    held, notices = _in_colours(pixel, form, OutputOptions())
    return held.colours != Colours() or not notices


_Held = tuple[Picture, list[str]] | None
"""A picture whose colours a format holds, and notices; None where it does not hold them so."""


def _coded(picture: Picture, form: Format) -> _Held:
    """Says the colours by code points or, in JPEG XL, by primaries and a curve."""
    colours, planes = picture.colours, picture.pixels.shape[-1]
    if "code points" not in form.keeps:
        return None
    if "profile" not in form.keeps:
        return None if profiles.plain_of(colours, planes) is None else profiles.full_range(picture)
    if not code_points.is_known(colours.code_points):
        return None
    picture, said = profiles.full_range(picture)
    return replace(picture, colours=Colours(None, picture.colours.code_points)), said


def _profiled(picture: Picture, form: Format) -> _Held:
    """Says the colours by a profile, made where there is none."""
    colours, planes = picture.colours, picture.pixels.shape[-1]
    profile = profiles.profile_of(colours, planes)
    if profile is None:
        is_srgb = profiles.plain_of(colours, planes) is not None
        return (replace(picture, colours=Colours()), []) if is_srgb else None
    if planes == 1 and not form.grey:
        profile = profiles.for_rgb(colours)
    if "profile" not in form.keeps or profile is None:
        return None
    said = []
    if code_points.is_hdr(colours.code_points):
        said = [f"{form.name} says that the picture is HDR in its colour profile alone"]
    return replace(picture, colours=Colours(icc_profile=profile)), said


def _converted(picture: Picture, form: Format) -> _Held:
    """Converts the colours to sRGB."""
    found = profiles.converted(picture)
    if found is None:
        return None
    if profiles.is_srgb(picture.colours, picture.pixels.shape[-1]):
        return found, []
    is_hdr = code_points.is_hdr(picture.colours.code_points)
    what = "HDR" if is_hdr else "such profile" if "profile" in form.keeps else "colour profile"
    return found, [f"{form.name} holds no {what}: converted to sRGB"]


def _as(values: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    if values.dtype == dtype:
        return values
    if values.dtype == np.uint8 and dtype == np.uint16:
        return values.astype(np.uint16) * np.uint16(257)  # 255 becomes 65535: the same in [0, 1]
    return from_unit(to_unit(values, np.float32), dtype)
