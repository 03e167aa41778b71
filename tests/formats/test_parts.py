"""Parts of files that no result holds are said, and promised by nothing any more."""

from __future__ import annotations

import io
import json
import shutil
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import imagecodecs
import numpy as np
import pytest
import tifffile
from click.testing import CliRunner
from PIL import Image

from tests.formats.test_recognised import psd
from tests.helpers.contents import encoded, noise, ramp
from waifu2x.cli import cli
from waifu2x.formats import table
from waifu2x.formats.headers import heif
from waifu2x.formats.metadata import promises
from waifu2x.formats.read import open_content

IMAGE = Image.fromarray(ramp(3))
CONTAINER = "http://ns.google.com/photos/1.0/container/"
NAMESPACES = {
    "Container": CONTAINER,
    "Item": CONTAINER + "item/",
    "hdrgm": "http://ns.adobe.com/hdr-gain-map/1.0/",
    "GCamera": "http://ns.google.com/photos/1.0/camera/",
    "GDepth": "http://ns.google.com/photos/1.0/depthmap/",
    "GAudio": "http://ns.google.com/photos/1.0/audio/",
    "xmpNote": "http://ns.adobe.com/xmp/note/",
    "dc": "http://purl.org/dc/elements/1.1/",
}
KEPT = 'dc:source="kept"'


def xmp(attributes: str, *items: str) -> bytes:
    declared = " ".join(f'xmlns:{prefix}="{name}"' for prefix, name in NAMESPACES.items())
    listed = "".join(
        f'<rdf:li rdf:parseType="Resource"><Container:Item {item}/></rdf:li>' for item in items
    )
    held = f"<Container:Directory><rdf:Seq>{listed}</rdf:Seq></Container:Directory>"
    return (
        '<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF'
        ' xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">'
        f'<rdf:Description rdf:about="" {declared} {KEPT} {attributes}>{held if items else ""}'
        "</rdf:Description></rdf:RDF></x:xmpmeta>"
    ).encode()


def segment(marker: int, content: bytes) -> bytes:
    return struct.pack(">BBH", 0xFF, marker, len(content) + 2) + content


def jpeg(*segments: bytes, behind: bytes = b"") -> bytes:
    data = encoded(IMAGE, "JPEG", quality=95)
    return data[:2] + b"".join(segments) + data[2:] + behind


def app1(content: bytes) -> bytes:
    return segment(0xE1, b"http://ns.adobe.com/xap/1.0/\0" + content)


FILM = bytes.fromhex("00000018667479706d703432000000006d70343269736f6d")
FURTHER = encoded(Image.fromarray(ramp(1)[..., 0]), "JPEG")
GAIN_MAP = xmp(
    'hdrgm:Version="1.0"', 'Item:Semantic="Primary"',
    f'Item:Semantic="GainMap" Item:Mime="image/jpeg" Item:Length="{len(FURTHER)}"',
)  # fmt: skip
MOTION = xmp(
    'GCamera:MotionPhoto="1" GCamera:MotionPhotoVersion="1"', 'Item:Semantic="Primary"',
    f'Item:Semantic="MotionPhoto" Item:Mime="video/mp4" Item:Length="{len(FILM)}"',
)  # fmt: skip


def extended() -> bytes:
    """XMP in two parts, the second in segments of its own."""
    head = b"http://ns.adobe.com/xmp/extension/\0" + b"A" * 32 + struct.pack(">II", 8, 0)
    promise = 'xmpNote:HasExtendedXMP="' + "A" * 32 + '" GDepth:Mime="image/jpeg"'
    return jpeg(app1(xmp(promise)), segment(0xE1, head + b"<a></a> "))


def mpo(**more: Any) -> bytes:
    return encoded(IMAGE, "MPO", save_all=True, append_images=[IMAGE.rotate(180)], **more)


def with_preview() -> bytes:
    """A camera's JPEG, with a smaller picture of the same behind it (MPF)."""
    data = bytearray(mpo())
    at = data.index(struct.pack("<HH", 0xB002, 7))
    (offset,) = struct.unpack_from("<I", data, at + 8)
    start = data.index(b"MPF\0") + 4
    struct.pack_into("<I", data, start + offset + 16, 0x010002)
    return bytes(data)


def apple() -> bytes:
    """A gain map that MPF alone tells of, as an iPhone writes it."""
    second = FURTHER[:2] + app1(
        b'apdi:AuxiliaryImageType="urn:com:apple:photo:2020:aux:hdrgainmap"'
    )
    data = mpo()
    at = data.rindex(b"\xff\xd8\xff")
    return data[:at] + second + FURTHER[2:]


def heic(count: int) -> bytes:
    pillow_heif = pytest.importorskip("pillow_heif")
    pillow_heif.register_heif_opener()
    return encoded(IMAGE, "HEIF", save_all=True, append_images=[IMAGE] * (count - 1))


def tiff(samples: Any, **more: Any) -> bytes:
    stream = io.BytesIO()
    tifffile.imwrite(stream, samples, photometric="rgb", metadata=None, **more)
    return stream.getvalue()


def animated_jxl() -> bytes:
    pytest.importorskip("pillow_jxl")
    frames = np.stack([ramp(3), ramp(3)[::-1]])
    return bytes(imagecodecs.jpegxl_encode(frames, photometric="rgb"))


LAYERS = (37724, 7, 4, b"8BIM", True)
FILES: dict[str, tuple[str, Callable[[], bytes], dict[str, int]]] = {
    "gain map": ("jpg", lambda: jpeg(app1(GAIN_MAP), behind=FURTHER), {"gain map": 1}),
    "gain map of Apple": ("jpg", apple, {"gain map": 1}),
    "motion photo": ("jpg", lambda: jpeg(app1(MOTION), behind=FILM), {"film": 1}),
    "Samsung's": ("jpg", lambda: jpeg(behind=b"\0MotionPhoto_Data" + FILM), {"film": 1}),
    "extended XMP": ("jpg", extended, {"extended XMP": 1, "depth map": 1}),
    "two views": ("mpo", mpo, {"further pictures": 1}),
    "preview": ("jpg", with_preview, {}),
    "stale promise": ("jpg", lambda: jpeg(app1(MOTION)), {}),
    "plain": ("jpg", jpeg, {}),
    "collection": ("heic", lambda: heic(3), {"further pictures": 2}),
    "one": ("heic", lambda: heic(1), {}),
    "animated": ("jxl", animated_jxl, {"animation": 1}),
    "sizes": ("ico", lambda: encoded(IMAGE, "ICO", sizes=[(16, 16), (24, 24)]),
              {"further sizes": 1}),
    "selection": ("psd", lambda: psd(4), {"further channels": 1}),
    "layers": ("psd", lambda: psd(3, layers=5), {"layers": 5}),
    "clear grey": ("psd", lambda: psd(2, mode=1, layers=-1), {"transparency": 1}),
    "layers in TIFF": ("tif", lambda: tiff(ramp(3), extratags=[LAYERS]), {"layers": 1}),
    "channels in TIFF": ("tif", lambda: tiff(noise(9, 8, 6), extrasamples=[2, 0, 0]),
                         {"further channels": 2}),
    "channel in a deep TIFF": ("tif", lambda: tiff(noise(9, 8, 4, dtype=np.uint16),
                                                   extrasamples=[0]), {"further channels": 1}),
    "alpha in TIFF": ("tif", lambda: tiff(noise(9, 8, 4), extrasamples=[2]), {}),
}  # fmt: skip
"""Extension, content and parts."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", FILES)
def test_parts_are_found(name: str) -> None:
    _, make, parts = FILES[name]
    header = open_content(make(), "p").header
    assert header.parts == parts
    assert not parts or table.name_of({"MPO": "JPEG"}.get(header.format, header.format)) in {
        form for kind in parts for form in table.PARTS[kind].formats
    }


def test_pillow_counts_the_same_pictures() -> None:
    for data in (mpo(), heic(3)):
        with Image.open(io.BytesIO(data)) as image:
            count = getattr(image, "n_frames", 1)
        assert open_content(data, "p").header.parts == {"further pictures": count - 1}


@pytest.mark.parametrize("name", ["gain map", "motion photo", "two views", "selection", "sizes"])
def test_parts_are_said(name: str, folder: Path) -> None:
    """By a run, and by `info`, for any format of the result."""
    extension, make, parts = FILES[name]
    path = folder / f"a.{extension}"
    path.write_bytes(make())
    for target in ("png", "jpg", "tif", "webp"):
        arguments = ["upscale", "-s", "2", "--model", "vgg_7", path.name, f"b.{target}"]
        result = CliRunner().invoke(cli, arguments)
        assert result.exit_code == 0, result.output
        for kind, count in parts.items():
            assert table.left_out(kind, count) in result.stderr
        found = CliRunner().invoke(cli, ["info", "--json", "-f", target, path.name])
        row = json.loads(found.stdout)
        assert row["parts"] == sorted(parts)
        assert set(parts) <= set(row["lost"])


@pytest.mark.parametrize("target", ["png", "jpg", "tif", "webp"])
@pytest.mark.parametrize("name", ["gain map", "motion photo", "extended XMP", "stale promise"])
def test_results_promise_nothing(name: str, target: str, folder: Path) -> None:
    """The rest of XMP stays: exiftool reads it."""
    exiftool = shutil.which("exiftool")
    if not exiftool:
        pytest.skip("needs exiftool")
    extension, make, _ = FILES[name]
    (folder / f"a.{extension}").write_bytes(make())
    arguments = ["upscale", "-s", "2", "--model", "vgg_7", f"a.{extension}", f"b.{target}"]
    result = CliRunner().invoke(cli, arguments)
    assert "its XMP no longer tells of parts that are left out" in result.stderr
    asked = [exiftool, "-j", "-a", "-G1", f"b.{target}"]
    told = subprocess.run(asked, capture_output=True, text=True, check=True).stdout
    (row,) = json.loads(told)
    assert row["XMP-dc:Source"] == "kept"
    promised = ("MPF", "XMP-hdrgm", "XMP-GContainer", "XMP-GCamera", "XMP-GDepth", "XMP-xmpNote")
    assert not [key for key in row if key.startswith(promised)]


@pytest.mark.parametrize("other", [b"", b"<not XML", xmp("", ""), xmp('xmp:Rating="3"')])
def test_other_xmp_is_kept(other: bytes) -> None:
    held = other.replace(b"<Container:Directory>", b"<Other:Directory>").replace(
        b"</Container:Directory>", b"</Other:Directory>"
    ).replace(b"<Container:Item /", b"<Other:Item /")  # fmt: skip
    assert promises.without(held) is held


def test_promises_under_another_prefix() -> None:
    held = (
        b'<a xmlns:q="http://ns.google.com/photos/1.0/camera/"'
        b" q:MicroVideo = '1' q:SpecialTypeID=\"x\"><q:MotionPhoto>1</q:MotionPhoto>"
        b"<q:MotionPhotoVersion/></a>"
    )
    expected = b'<a xmlns:q="http://ns.google.com/photos/1.0/camera/" q:SpecialTypeID="x"></a>'
    assert promises.without(held) == expected


def test_an_element_that_does_not_end() -> None:
    held = b'<a xmlns:q="%s"><q:Directory>' % CONTAINER.encode() + b"<q:Item>" * 50_000
    assert promises.without(held) == held


# HEIF and AVIF, box by box.


def box(kind: bytes, *content: bytes) -> bytes:
    body = b"".join(content)
    return struct.pack(">I4s", len(body) + 8, kind) + body


def items(
    kinds: dict[int, bytes], refers: list[tuple[bytes, int, list[int]]], *aux: bytes
) -> bytes:
    """A file of items without content. ISO/IEC 14496-12, 8.11."""
    entries = [box(b"infe", struct.pack(">IHH", 2 << 24, item, 0), kind, b"\0")
               for item, kind in kinds.items()]  # fmt: skip
    references = [
        box(kind, struct.pack(f">HH{len(to)}H", item, len(to), *to)) for kind, item, to in refers
    ]
    properties = [box(b"auxC", bytes(4), name, b"\0") for name in aux]
    return box(b"ftyp", b"mif1\0\0\0\0mif1avif") + box(
        b"meta", bytes(4),
        box(b"iinf", struct.pack(">IH", 0, len(entries)), *entries),
        box(b"iref", bytes(4), *references),
        box(b"iprp", box(b"ipco", *properties)),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("data", "parts"),
    [
        (items({1: b"av01"}, []), {}),
        (items({1: b"av01", 2: b"av01", 3: b"Exif"}, []), {"further pictures": 1}),
        (items({1: b"grid", 2: b"hvc1", 3: b"hvc1"}, [(b"dimg", 1, [2, 3])]), {}),
        (items({1: b"hvc1", 2: b"hvc1"}, [(b"thmb", 2, [1])]), {}),
        (items({1: b"hvc1", 2: b"hvc1"}, [(b"auxl", 2, [1])], b"urn:mpeg:hevc:2015:auxid:1"), {}),
        (items({1: b"hvc1", 2: b"hvc1"}, [(b"auxl", 2, [1])], b"urn:mpeg:hevc:2015:auxid:2"),
         {"depth map": 1}),
        (items({1: b"hvc1", 2: b"hvc1"}, [(b"auxl", 2, [1])],
               b"urn:com:apple:photo:2020:aux:hdrgainmap"), {"gain map": 1}),
        (items({1: b"hvc1", 2: b"hvc1"}, [(b"auxl", 2, [1])],
               b"urn:com:apple:photo:2018:aux:portraiteffectsmatte"), {"masks": 1}),
        (items({1: b"av01", 2: b"av01", 3: b"tmap"}, [(b"dimg", 3, [1, 2])]), {"gain map": 1}),
        (items({1: b"hvc1"}, []) + box(b"mpvd", FILM), {"film": 1}),
        (items({1: b"av01"}, []) + box(b"moov", box(b"trak", box(b"mdia", box(
            b"hdlr", bytes(8), b"soun", bytes(13))))), {"sound": 1}),
        (items({1: b"av01"}, [])[:-30], {}),
        (box(b"ftyp", b"heic") + box(b"meta", bytes(4), box(b"iinf"), box(b"iref")), {}),
    ],
)  # fmt: skip
def test_items(data: bytes, parts: dict[str, int]) -> None:
    assert heif.parts(data) == parts


def test_each_part_is_made_here() -> None:
    """So that each kind of the table has a test, and each kind that is found its line."""
    made = {kind for _, _, parts in FILES.values() for kind in parts}
    assert made | {"masks", "sound"} == set(table.PARTS)
    assert not set(get_args(table.Kind)) & set(table.PARTS)
