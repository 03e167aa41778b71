"""Writes colours into the header of a JPEG XL, whose plugin has no arguments for them.

ISO/IEC 18181-1, annex D.3 (ImageMetadata) and E.2 (ColourEncoding); 18181-2, clause 9 (boxes). The
pixels of such a file have to be coded as they are, and not in the format's own colours (XYB).
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from waifu2x.formats.headers.boxes import boxes
from waifu2x.formats.limits import Budget
from waifu2x.formats.metadata.code_points import PRIMARIES, Chromaticities
from waifu2x.formats.metadata.profiles import Plain

_BARE = b"\xff\x0a"
_HEADER = 64
"""Bytes that hold the header as the plugin writes it."""
_SIDES = (9, 13, 18, 30)
_D65, _CUSTOM, _DCI = 1, 2, 11
_NAMED = {1: 1, 9: 9, 11: 11, 12: 11}
"""Numbers of primaries, by H.273's."""
_CURVES = {1: 1, 6: 1, 14: 1, 15: 1, 8: 8, 13: 13, 16: 16, 17: 17, 18: 18}
"""Numbers of tone curves, by H.273's."""
_GAMMAS = {4: 2.2, 5: 2.8, 11: 2.4, 12: 2.4}
"""H.273's numbers of curves that are powers, or nearly so."""
_BRIGHTNESS = {16: 10_000, 18: 1_000}
"""cd/m² that the brightest sample means, by H.273's numbers of curves."""
_RELATIVE = 1
"""The rendering intent."""


class _Bits:
    """Bits, the first one lowest."""

    def __init__(self, value: int = 0, count: int = 0) -> None:
        self.value = value
        self.count = count

    def take(self, count: int) -> int:
        """Removes the first bits. Raises ValueError where there are none."""
        if count > self.count:
            raise ValueError("its header ends early")
        taken = self.value & ((1 << count) - 1)
        self.value >>= count
        self.count -= count
        return taken

    def add(self, value: int, count: int) -> None:
        """Adds bits behind the last one."""
        self.value |= value << self.count
        self.count += count

    def add_enum(self, value: int) -> None:
        """Adds a number from 0 to 81 as the format writes its lists."""
        if value < 2:
            self.add(value, 2)
        elif value < 18:
            self.add(2 | (value - 2) << 2, 6)
        else:
            self.add(3 | (value - 18) << 2, 8)


def with_colours(content: bytes, plain: Plain) -> bytes:
    """Returns a file whose header says its colours, otherwise unchanged.

    Raises ValueError for a file that is not as the plugin writes it.
    """
    if content.startswith(_BARE):
        return _recoded(content, plain)
    for kind, start, end in boxes(content, 0, len(content), Budget(len(content))):
        stream = start + 4 if kind == b"jxlp" else start  # a part of it begins with its number
        if kind in (b"jxlc", b"jxlp") and content[stream : stream + 2] == _BARE:
            body = content[start:stream] + _recoded(content[stream:end], plain)
            box = struct.pack(">I4s", 8 + len(body), kind) + body
            return content[: start - 8] + box + content[end:]
    raise ValueError("it has no codestream")


def _recoded(stream: bytes, plain: Plain) -> bytes:
    """Returns a codestream with other colours in its header."""
    head = stream[2 : 2 + _HEADER]
    bits = _Bits(int.from_bytes(head, "little"), 8 * len(head))
    before = bits.count
    written = _Bits()

    def copy(count: int) -> int:
        value = bits.take(count)
        written.add(value, count)
        return value

    _copy_size(copy)
    if copy(1):
        raise ValueError("its header says nothing of its colours")
    if bits.take(1):
        raise ValueError("its header has fields that its encoder did not use to write")
    luminance = _BRIGHTNESS.get(plain.transfer or 0)
    written.add(luminance is not None, 1)  # further fields
    if luminance is not None:
        written.add(0, 3 + 3)  # upright; no intrinsic size, preview, animation
    _copy_depth(copy)
    copy(1)  # whether 16 bits are enough for its buffers
    channels = copy(2)
    if channels > 1:
        raise ValueError("its header has channels that its encoder did not use to write")
    if channels and not copy(1):
        _copy_opacity(copy)
    if copy(1):
        raise ValueError("it is coded in other colours")
    _add_colours(written, plain, is_grey=_skip_colours(bits))
    if luminance is not None:
        written.add(0, 1)  # not all as usual
        (half,) = struct.unpack("<H", struct.pack("<e", luminance))
        written.add(half, 16)
        written.add(0, 16 + 1 + 16)  # black at 0
    # No extensions; upsampling as usual.
    if copy(2) or not copy(1):
        raise ValueError("its header has extensions that its encoder did not use to write")
    end = 2 + (before - bits.count + 7) // 8
    header = written.value.to_bytes((written.count + 7) // 8, "little")
    return stream[:2] + header + stream[end:]


def _copy_size(copy: Callable[[int], int]) -> None:
    small = copy(1)
    copy(5 if small else _SIDES[copy(2)])
    if copy(3) == 0:  # no known ratio
        copy(5 if small else _SIDES[copy(2)])


def _copy_depth(copy: Callable[[int], int]) -> None:
    if copy(1):
        raise ValueError("its samples are floats")
    if copy(2) == 3:
        copy(6)


def _copy_opacity(copy: Callable[[int], int]) -> None:
    """Copies the words on a channel of transparency that has more than 8 bits. Annex D.3.6."""
    if copy(2) != 0:
        raise ValueError("its header has channels that its encoder did not use to write")
    _copy_depth(copy)
    if copy(2) or copy(2):
        raise ValueError("its transparency is smaller, or has a name")
    copy(1)  # whether colours are multiplied by it


def _skip_colours(bits: _Bits) -> bool:
    """Removes the colours that the plugin writes; returns whether they are of grey."""
    if bits.take(1):
        return False
    if bits.take(1):
        raise ValueError("it has a profile")
    is_grey = _take_enum(bits) == 1
    others = (_D65, _D65)[: 2 - is_grey]
    if tuple(_take_enum(bits) for _ in others) != others:
        raise ValueError("its colours are not sRGB")
    if bits.take(1):
        raise ValueError("its colours have a gamma")
    _take_enum(bits)
    _take_enum(bits)
    return is_grey


def _take_enum(bits: _Bits) -> int:
    kind = bits.take(2)
    return kind if kind < 2 else 2 + bits.take(4) if kind == 2 else 18 + bits.take(6)


def _add_colours(bits: _Bits, plain: Plain, is_grey: bool) -> None:
    bits.add(0, 2)  # not all as usual; no profile
    bits.add_enum(is_grey)
    number = next((key for key in _NAMED if PRIMARIES[key] == plain.primaries), None)
    white = _CUSTOM if number is None else _DCI if number == 11 else _D65
    bits.add_enum(white)
    if white == _CUSTOM:
        _add_place(bits, plain.primaries[:2])
    if not is_grey:
        bits.add_enum(_CUSTOM if number is None else _NAMED[number])
        if number is None:
            for at in (2, 4, 6):
                _add_place(bits, plain.primaries[at : at + 2])
    curve = _CURVES.get(plain.transfer or 0)
    bits.add(curve is None, 1)
    if curve is None:
        gamma = _GAMMAS.get(plain.transfer or 0, plain.gamma)
        bits.add(round(10_000_000 / gamma), 24)
    else:
        bits.add_enum(curve)
    bits.add_enum(_RELATIVE)


def _add_place(bits: _Bits, place: Chromaticities) -> None:
    """Adds x and y, in millionths, as signed numbers."""
    for value in place:
        number = round(value * 1_000_000)
        coded = 2 * number if number >= 0 else -2 * number - 1
        for selector, (count, offset) in enumerate(
            ((19, 0), (19, 1 << 19), (20, 1 << 20), (21, 1 << 21))
        ):
            if coded - offset < 1 << count:
                bits.add(selector, 2)
                bits.add(coded - offset, count)
                break
