"""PNG: what we write, read by others; what others write, read by us; what is damaged."""

from __future__ import annotations

import ctypes
import io
import struct
import sys
import tracemalloc
import types
import zlib
from collections.abc import Iterator
from typing import Any

import imagecodecs
import numpy as np
import pytest
from isal import isal_zlib
from numpy.typing import NDArray
from PIL import Image

from tests.helpers.contents import (
    decode,
    decode_all,
    drawn,
    encode,
    encoded,
    noise,
    opened,
    png_with,
    ramp,
)
from tests.helpers.odd_pictures import PROFILE, apple, png_of
from waifu2x.errors import ImageError
from waifu2x.formats.png import chunks, read, write
from waifu2x.formats.read import extent
from waifu2x.formats.table import Compression, OutputOptions
from waifu2x.formats.write import header_of
from waifu2x.imaging.picture import Metadata, Picture, with_alpha
from waifu2x.imaging.streams import Timed

DTYPES = (np.uint8, np.uint16)
SIZES = ((1, 1), (7, 12), (700, 501))
"""The last has several bands, the last of them not full."""
PLANES = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
"""By colour type."""
KINDS = (
    *((0, depth) for depth in (1, 2, 4, 8, 16)),
    *((3, depth) for depth in (1, 2, 4, 8)),
    *((kind, depth) for kind in (2, 4, 6) for depth in (8, 16)),
)
"""Every colour type and depth there is."""


class Sink(io.BytesIO):
    """A file that drops its content."""

    size = 0

    def write(self, content: Any) -> int:
        self.size += len(content)
        return len(content)


# Files that we write.


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("planes", [1, 3])
@pytest.mark.parametrize("alpha", [False, True])
@pytest.mark.parametrize("size", SIZES)
def test_png_is_what_others_read(
    dtype: Any, planes: int, alpha: bool, size: tuple[int, int]
) -> None:
    picture = drawn(planes, alpha, size, dtype)
    data = encode(picture, "png")
    samples = np.atleast_3d(imagecodecs.png_decode(data))
    assert samples.dtype == dtype
    assert (samples == with_alpha(picture)).all()
    if dtype == np.uint8:
        assert (opened(data) == with_alpha(picture)).all()
    assert (with_alpha(decode(data)) == with_alpha(picture)).all()


@pytest.mark.parametrize("compression", ["fast", "default", "best"])
def test_any_number_of_cores_writes_the_same_file(compression: Compression) -> None:
    rows = np.linspace(0, 3000, 700 * 501).astype(np.uint8).reshape(700, 501, 1)
    pixels = np.concatenate([rows, rows[::-1], rows[:, ::-1]], axis=-1)
    files = {
        encode(Picture(pixels), "png", compression=compression, threads=threads)
        for threads in (1, 2, 5, None)
    }
    (data,) = files
    assert (opened(data) == pixels).all()


def test_best_is_smaller() -> None:
    smooth = np.sin(np.indices((300, 400)) / 9).sum(0)[..., np.newaxis] * 60 + 128
    picture = Picture((smooth + noise(300, 400, 3) / 40).astype(np.uint8))
    usual, best = (len(encode(picture, "png", compression=how)) for how in ("default", "best"))
    assert best < 0.95 * usual
    assert best < len(encoded(Image.fromarray(picture.pixels), optimize=True))


@pytest.mark.parametrize("kind", [(0, 8), (2, 8), (4, 8), (6, 8), (6, 16)])
@pytest.mark.parametrize("each", [write.up, write.sub, write.average, write.paeth])
def test_filters_are_what_libpng_undoes(kind: tuple[int, int], each: write.Filter) -> None:
    pixel = PLANES[kind[0]] * kind[1] // 8
    samples = noise(9, 11 * pixel)
    lines = np.concatenate([np.zeros((1, 11 * pixel), np.uint8), samples])
    filtered = np.empty((9, 11 * pixel + 1), np.uint8)
    each(lines, pixel, filtered)
    data = png_of((11, 9, kind[1], kind[0], 0, 0, 0), zlib.compress(filtered.tobytes()))
    back = imagecodecs.png_decode(data)
    if kind[1] == 16:
        back = back.astype(">u2")
    assert back.tobytes() == samples.tobytes()


def test_checksums_join() -> None:
    whole = noise(100_000).tobytes() + b"\xff" * 70_000
    for at in (0, 1, 5552, 99_999, len(whole)):
        parts = whole[:at], whole[at:]
        one, other = map(zlib.adler32, parts)
        joined = write.adler_of_both(one, other, len(parts[1]))
        assert joined == zlib.adler32(whole)


def test_png_without_isal(monkeypatch: pytest.MonkeyPatch) -> None:
    picture = drawn(3, True, (70, 50))
    for compression in ("default", "best"):
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, "isal", None)
            chunks.fast_zlib.cache_clear()
            data = encode(picture, "png", compression=compression)
            assert (with_alpha(decode(data)) == with_alpha(picture)).all()
        chunks.fast_zlib.cache_clear()
        assert (imagecodecs.png_decode(data) == with_alpha(picture)).all()


def test_an_isal_that_cannot_be_loaded_is_no_other_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    """With zlib in its place, the same pixels would become other bytes."""

    class Broken(types.ModuleType):
        def __getattr__(self, name: str) -> None:
            raise ImportError("libisal.so: cannot allocate memory")

    chunks.fast_zlib.cache_clear()
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "isal", Broken("isal"))
        with pytest.raises(ImportError, match="cannot allocate"):
            chunks.fast_zlib()
    assert chunks.fast_zlib() is not zlib


def test_bytes_do_not_depend_on_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    """On x86, ISA-L files position 2 of its input under a hash of its state's address. The data is
    made for one state, so that this place is that of position 0, whose repetition it then misses.
    """
    states = [isal_zlib.compressobj(1, zlib.DEFLATED, -15) for _ in range(20)]
    slots = [_crc32c(_address(state) >> 16 & 0xFFFFFFFF) & 0x1FFF for state in states]
    results = {}
    for wanted in set(slots):
        heads = (head for head in range(1 << 20) if _crc32c(head) & 0x1FFF == wanted)
        head = next(heads).to_bytes(4, "little")
        rest = np.random.default_rng(wanted).integers(100, 116, 700).astype(np.uint8).tobytes()
        data = np.frombuffer(head + rest + head + rest[:9], np.uint8)
        state = states[slots.index(wanted)]
        with monkeypatch.context() as patch:
            given = types.SimpleNamespace(compressobj=lambda *_, state=state: state)
            patch.setattr(write, "fast_zlib", lambda given=given: given)
            results[wanted] = b"".join(write.quickly_deflated(data))
        assert zlib.decompressobj(-15).decompress(results[wanted]) == data.tobytes()
        assert results[wanted] == b"".join(write.quickly_deflated(data))


def _address(state: Any) -> int:
    """Returns the address of ISA-L's stream in an object: there, at 48, is the address of its
    tables, which the object has first."""
    words = (ctypes.c_uint64 * 40).from_address(id(state))
    found = [at for at in range(9, 40) if words[at] == words[2] and words[2]]
    if not found:
        pytest.skip("isal's objects have another shape")
    return id(state) + 8 * found[0] - 48


def _crc32c(value: int) -> int:
    """Returns what the instruction crc32 makes of 0 and 32 bits."""
    for _ in range(32):
        value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
    return value


@pytest.mark.parametrize("alpha", [False, True])
def test_large_png_is_written_in_little_memory(alpha: bool) -> None:
    """120 megapixels that take no room, since they are one row."""
    row = noise(1, 12_000, 3)
    pixels = np.broadcast_to(row, (10_000, 12_000, 3))
    opacity = np.broadcast_to(row[..., 0], pixels.shape[:2]) if alpha else None
    file, picture = Sink(), Picture(pixels, opacity)
    tracemalloc.start()
    writer = write.PngWriter(header_of(picture), file, threads=2)
    writer.add(Timed(picture))
    writer.finish()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert file.size > row.size
    assert peak < 16 << 20


def test_a_full_disk_ends_it() -> None:
    class Full(io.BytesIO):
        def write(self, content: Any) -> int:
            if self.tell() > 1 << 20:
                raise OSError(28, "No space left on device")
            return super().write(content)

    picture = drawn(3, False, (2000, 1000))
    writer = write.PngWriter(header_of(picture), Full(), threads=3)
    with pytest.raises(OSError, match="No space left"):
        writer.add(Timed(picture))


# Files that others write.


def filtered_noise(kind: int, depth: int, size: tuple[int, int]) -> NDArray[np.uint8]:
    """Rows of any bytes, each by any filter: they mean some picture."""
    height, width = size
    stride = -(-width * PLANES[kind] * depth // 8)
    rows = noise(height, stride + 1, seed=depth)
    rows[:, 0] %= 5
    return rows


def obvious(rows: NDArray[np.uint8], kind: int, depth: int, width: int) -> NDArray[Any]:
    """(H, W, planes) samples of filtered rows, by the definition, byte by byte."""
    pixel = max(1, PLANES[kind] * depth // 8)
    before = [0] * (rows.shape[1] - 1 + pixel)
    lines = []
    for row in rows.tolist():
        line = [0] * pixel
        for at, value in enumerate(row[1:], pixel):
            left, above, corner = line[at - pixel], before[at], before[at - pixel]
            guess = left + above - corner
            nearest = min((left, above, corner), key=lambda byte: abs(guess - byte))
            predicted = (0, left, above, (left + above) // 2, nearest)[row[0]]
            line.append((value + predicted) % 256)
        lines.append(line[pixel:])
        before = line
    bits = np.unpackbits(np.array(lines, np.uint8), axis=1)
    samples = bits[:, : width * PLANES[kind] * depth].reshape(len(lines), width, -1, depth)
    return samples @ (1 << np.arange(depth)[::-1])


@pytest.mark.parametrize(("kind", "depth"), KINDS)
@pytest.mark.parametrize("interlaced", [False, True])
def test_every_kind_of_png_is_what_its_definition_says(
    kind: int, depth: int, interlaced: bool
) -> None:
    height, width = 21, 27
    whole = ((0, 0, 1, 1),)
    adam7 = (
        (0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2),
        (1, 0, 2, 1),
    )  # fmt: skip
    expected = np.empty((height, width, PLANES[kind]), int)
    content = b""
    for y, x, down, across in adam7 if interlaced else whole:
        part = expected[y::down, x::across]
        rows = filtered_noise(kind, depth, part.shape[:2])
        part[...] = obvious(rows, kind, depth, part.shape[1])
        content += rows.tobytes()
    more = []
    if kind == 3:
        palette = noise(2**depth, 3)
        more.append((b"PLTE", palette.tobytes()))
        expected = palette[expected[..., 0]]
    elif depth < 8:
        expected = expected * (255 // (2**depth - 1))
    header = (width, height, depth, kind, 0, 0, int(interlaced))
    back = with_alpha(decode(png_of(header, zlib.compress(content), *more)))
    assert back.dtype == (np.uint16 if depth == 16 else np.uint8)
    assert back.shape == expected.shape
    assert (back == expected).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("planes", [1, 3])
def test_transparent_colour(planes: int, dtype: Any) -> None:
    pixels = noise(5, 6, planes, dtype=dtype)
    key = struct.pack(f">{planes}H", *map(int, pixels[2, 3]))
    back = decode(png_with(pixels, (b"tRNS", key)))
    assert (back.pixels == pixels).all()
    assert back.alpha is not None
    shown = np.where((pixels == pixels[2, 3]).all(-1), 0, np.iinfo(dtype).max)
    assert (back.alpha == shown).all()


def split(data: bytes, length: int) -> bytes:
    """With its pixels in chunks of that length, some with nothing in them."""
    pieces: list[bytes | memoryview] = [data[: len(chunks.SIGNATURE)]]
    for kind, start, end in chunks.places(data):
        step = length if kind == b"IDAT" else max(1, end - start)
        for at in range(start, max(end, start + 1), step):
            pieces += chunks.chunk(kind, data[at : min(at + step, end)])
            if kind == b"IDAT":
                pieces += chunks.chunk(kind)
    return b"".join(pieces)


def test_pixels_in_many_pieces() -> None:
    pixels = noise(12, 9, 3)
    assert (decode(split(encode(Picture(pixels), "png"), 7)).pixels == pixels).all()


@pytest.fixture(params=[1, 2], ids=["one core", "two cores"])
def small_bands(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two rows of `filtered_noise` of 37 pixels of RGB are a band."""
    monkeypatch.setattr(read, "_BAND", 2 * (1 + 37 * 3))
    monkeypatch.setattr(read, "core_count", lambda: request.param)


@pytest.mark.parametrize("kind", [0, 2, 6])
@pytest.mark.parametrize("length", [1, 50, 1 << 20])
@pytest.mark.usefixtures("small_bands")
def test_every_filter_is_undone_where_bands_meet(kind: int, length: int) -> None:
    height, width = 201, 37
    rows = filtered_noise(kind, 8, (height, width))
    deflated = memoryview(zlib.compress(rows.tobytes()))
    parts = [deflated[at : at + length] for at in range(0, len(deflated), length)]
    samples = np.empty((height, width, PLANES[kind])[: 2 + (PLANES[kind] > 1)], np.uint8)
    assert read.decode_bands([memoryview(b""), *parts], kind, samples)
    assert (samples.reshape(height, width, -1) == obvious(rows, kind, 8, width)).all()


def test_rows_take_little_memory_besides_the_pixels() -> None:
    height, width = 2500, 4000
    data = png_of((width, height, 8, 2, 0, 0, 0), zlib.compress(bytes(height * (1 + 3 * width)), 1))
    tracemalloc.start()
    back: NDArray[Any] = decode(data).pixels
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert not back.any()
    assert peak < back.nbytes + (8 << 20)


def test_metadata_is_what_pillow_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    exif = Image.Exif()
    exif[0x010F], exif[0x0112] = "Maker", 6
    data = encoded(
        Image.fromarray(ramp(3)), exif=exif, icc_profile=PROFILE, dpi=(300, 150), title="A title"
    )
    ours = decode(data)
    monkeypatch.setattr("waifu2x.formats.png.read.open_content", lambda *arguments: None)
    theirs = decode(data)
    assert ours.metadata == theirs.metadata
    assert ours.metadata.dpi is not None
    assert ours.colours == theirs.colours
    assert (ours.pixels == theirs.pixels).all()
    assert ours.pixels.shape == (33, 24, 3)


# Damaged files.


def damaged(data: bytes) -> Iterator[tuple[str, bytes]]:
    """A bit wrong in each chunk, and its kind."""
    for kind, start, end in chunks.places(data):
        for place in {start, (start + end) // 2, end + 3}:
            content = bytearray(data)
            content[place] ^= 16
            yield kind.decode(), bytes(content)


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_checksum_is_looked_at(dtype: Any) -> None:
    pixels = noise(9, 8, 3, dtype=dtype)
    text = (b"tEXt", b"Title\0A title"), (b"pHYs", struct.pack(">IIB", 5000, 5000, 1))
    for kind, content in damaged(png_with(pixels, chunks.profile_chunk(PROFILE), *text)):
        if kind in ("IHDR", "IDAT", "IEND"):
            with pytest.raises(ImageError, match=f"^p: damaged: the checksum of its {kind} is wro"):
                decode(content)
        else:
            frames = decode_all(content, "p")
            assert f"its {kind} is damaged and left out" in frames.notices
            assert (frames.pictures[0].pixels == pixels).all()
            kept = frames.pictures[0]
            assert (kept.colours.icc_profile is None) == (kind == "iCCP")
            assert (kept.metadata.chunks == ()) == (kind == "tEXt")
            assert (kept.metadata.dpi is None) == (kind == "pHYs")


def test_rows_that_are_not_all_there() -> None:
    rows = b"".join(b"\0" + noise(30).tobytes() for _ in range(9))
    header = (10, 10, 8, 2, 0, 0, 0)
    with pytest.raises(ImageError, match=r"^p: damaged or cut off: "):
        decode(png_of(header, zlib.compress(rows)))


def wrong_rows() -> dict[str, bytes]:
    """The content of IDAT of 41 rows of 37 pixels of RGB, in which something is wrong."""
    rows = filtered_noise(2, 8, (41, 37))
    stride = rows.shape[1]
    whole = zlib.compress(rows.tobytes())
    wrong = {f"without its last {less} bytes": whole[:-less] for less in (1, 4, 5, 2000)}
    wrong["another checksum"] = whole[:-1] + bytes([whole[-1] ^ 1])
    wrong["no rows"] = b""
    for less in (1, stride, stride + 1, 20 * stride):
        wrong[f"{less} bytes missing"] = zlib.compress(rows.tobytes()[:-less])
    for more in (1, stride, 20 * stride):
        wrong[f"{more} bytes too many"] = zlib.compress(rows.tobytes() + bytes(more))
    for row in (0, 1, 2, 3, 40):
        other = rows.copy()
        other[row, 0] = 5
        wrong[f"a filter that there is not, row {row}"] = zlib.compress(other.tobytes())
    # A block of a kind that there is not, behind 21 rows.
    part = zlib.compressobj()
    start = part.compress(rows[:21].tobytes()) + part.flush(zlib.Z_SYNC_FLUSH)
    wrong["damaged in the middle"] = start + b"\x07" + bytes(9)
    return wrong


ACCEPTED = (
    "without its last 1 bytes",
    "without its last 4 bytes",
    *(f"{more} bytes too many" for more in (1, 112, 2240)),
)
"""All rows are there."""


@pytest.mark.parametrize("what", wrong_rows())
@pytest.mark.usefixtures("small_bands")
def test_wrong_rows_are_what_the_decoder_says_of_the_file(what: str) -> None:
    data = png_of((37, 41, 8, 2, 0, 0, 0), wrong_rows()[what])
    if what in ACCEPTED:
        assert (decode(data).pixels == imagecodecs.spng_decode(data)).all()
        return
    with pytest.raises(imagecodecs.SpngError) as theirs:
        imagecodecs.spng_decode(data)
    with pytest.raises(ImageError) as ours:
        decode_all(data, "p")
    assert str(ours.value) == f"p: damaged or cut off: {theirs.value}"


def test_rows_beyond_the_last_take_no_memory() -> None:
    rows = bytes(31 * 10)
    data = png_of((10, 10, 8, 2, 0, 0, 0), zlib.compress(rows + bytes(1 << 28), 9))
    tracemalloc.start()
    back: NDArray[Any] = decode(data).pixels
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert not back.any()
    assert peak < 8 << 20


@pytest.mark.parametrize(
    ("mode", "chunk", "expected"),
    [
        ("RGB", struct.pack(">3H", 1, 2, 255), (1, 2, 255)),
        ("L", struct.pack(">H", 200), (200,)),
        ("P", b"\1", (255, 0, 9)),
        ("1", struct.pack(">H", 1), (255,)),
    ],
)
def test_the_background_goes_along(mode: str, chunk: bytes, expected: tuple[int, ...]) -> None:
    """Fitted to the samples of the result."""
    image = Image.new(mode, (3, 2))
    if mode == "P":
        image.putpalette([0, 0, 0, 255, 0, 9])
    plain = encoded(image)
    at = plain.index(b"IDAT") - 4
    data = plain[:at] + b"".join(chunks.chunk(b"bKGD", chunk)) + plain[at:]
    picture = decode(data)
    for bits in (8, 16):
        options = OutputOptions(depth="16" if bits == 16 else "8")
        found = dict(chunks.contents(encode(picture, "png", options=options)))
        scale = 257 if bits == 16 else 1
        levels = [level * scale for level in expected]
        assert found[b"bKGD"] == struct.pack(f">{len(levels)}H", *levels)


def test_a_background_that_the_result_has_not_is_left_out() -> None:
    said = Metadata(chunks=((b"bKGD", struct.pack(">3H", 1000, 2000, 3000)),))
    assert b"bKGD" not in encode(Picture(ramp(1), metadata=said), "png")
    for body in (b"", b"\0", b"\0\1\0", struct.pack(">H", 300)):
        plain = encoded(Image.new("L", (3, 2)))
        at = plain.index(b"IDAT") - 4
        data = plain[:at] + b"".join(chunks.chunk(b"bKGD", body)) + plain[at:]
        assert decode(data).metadata.chunks == ()


def damaged_animations() -> dict[str, bytes]:
    """APNGs whose first picture is well."""
    frames = [Image.fromarray(noise(6, 5, 3, seed=seed)) for seed in range(3)]
    data = encoded(frames[0], save_all=True, append_images=frames[1:], duration=50)
    whole = [(kind, data[start:end]) for kind, start, end in chunks.places(data)]
    controls = [index for index, (kind, _) in enumerate(whole) if kind == b"fcTL"]
    found: dict[str, list[tuple[bytes, bytes]]] = {
        "a frame less": [one for one in whole if one != whole[controls[1]]],
        "a frame twice": [*whole[: controls[1]], whole[controls[1]], *whole[controls[1] :]],
        "without data": [one for one in whole if one[0] != b"fdAT"],
        "none": [(k, bytes(8) if k == b"acTL" else b) for k, b in whole],
        "many": [(k, struct.pack(">II", 99, 0) if k == b"acTL" else b) for k, b in whole],
        "cut off": whole[: controls[2] + 1],
        "another order": [*whole[: controls[1]], *whole[controls[2] :], *whole[controls[1] :]],
    }
    number, body = controls[1], whole[controls[1]][1]
    for name, control in {
        "beyond": body[:4] + struct.pack(">4I", 5, 6, 1, 0) + body[20:],
        "empty": body[:4] + struct.pack(">4I", 0, 0, 0, 0) + body[20:],
        "short": body[:20],
        "number": struct.pack(">I", 77) + body[4:],
    }.items():
        found[name] = [*whole[:number], (b"fcTL", control), *whole[number + 1 :]]
    made = {
        name: chunks.SIGNATURE + b"".join(b"".join(chunks.chunk(*one)) for one in parts)
        for name, parts in found.items()
    }
    wrong = bytearray(data)
    wrong[data.index(b"fcTL", data.index(b"IDAT")) + 6] ^= 1
    return made | {"checksum": bytes(wrong)}


@pytest.mark.parametrize("name", damaged_animations())
def test_a_damaged_animation_shows_its_first_picture(name: str) -> None:
    found = decode_all(damaged_animations()[name])
    (picture,) = found.pictures
    assert (picture.pixels == noise(6, 5, 3)).all()
    assert found.notices == ("its animation is damaged: only its first picture is read",)
    assert not found.durations


def test_texts_that_unpack_to_much() -> None:
    """They go along as they are; a picture with a palette is read with them, too."""
    bomb = b"Comment\0\0" + zlib.compress(bytes(8 << 20), 9)
    image = Image.fromarray(noise(6, 5, 3)).quantize(8)
    plain = encoded(image)
    at = plain.index(b"IDAT") - 4
    texts = b"".join(b"".join(chunks.chunk(b"zTXt", bomb)) for _ in range(100))
    data = plain[:at] + texts + plain[at:]
    tracemalloc.start()
    try:
        picture = decode(data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (picture.pixels == np.asarray(image.convert("RGB"))).all()
    assert len(picture.metadata.chunks) == 100
    assert peak < 32 << 20


def test_chunks_are_within_a_budget() -> None:
    data = encoded(Image.fromarray(noise(6, 5, 3)))
    at = data.index(b"IDAT") - 4
    data = data[:at] + b"".join(chunks.chunk(b"teSt")) * 400_000 + data[at:]
    with pytest.raises(ImageError, match="more entries than a file of its size"):
        decode(data)
    assert extent(data) is None


# Apple's variant.


def test_apples_variant() -> None:
    samples = noise(7, 10, 4)
    samples[..., 3] |= 128  # below, few levels of colours are left
    samples[0, 0] = 0
    (picture,) = decode_all(apple(samples)).pictures
    assert picture.alpha is not None
    assert (picture.alpha == samples[..., 3]).all()
    assert abs(picture.pixels.astype(int) - samples[..., :3]).max() <= 1
    opaque = noise(7, 10, 3)
    (picture,) = decode_all(apple(opaque)).pictures
    assert (picture.pixels == opaque).all()


def test_apples_variant_that_is_damaged() -> None:
    data = apple(noise(7, 10, 4))
    at = data.index(b"IDAT")
    taller = data.replace(struct.pack(">II", 10, 7), struct.pack(">II", 10, 9))
    for bad in (data[: at + 20], taller, data[:24], data[:at] + b"IDAX" + data[at + 4 :]):
        with pytest.raises(ImageError, match=r"^p: damaged"):
            decode_all(bad)
    with pytest.raises(
        ImageError, match=r"^p: it is Apple's variant of PNG in a rare form, .* sips"
    ):
        decode_all(data.replace(b"\x08\x06\0\0\0", b"\x08\x06\0\0\1", 1))
    with pytest.raises(ImageError, match="max-pixels"):
        decode_all(data, max_pixels=69)
