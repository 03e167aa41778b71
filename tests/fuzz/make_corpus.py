"""Writes the corpus anew: small files for each reader, sound ones and damaged ones.

`python -m tests.fuzz.make_corpus` keeps files whose names begin with `found`, which fuzzing found,
and writes all others. Those named `sound-` must be read; any other may be refused.
"""

from __future__ import annotations

import io
import itertools
import struct
import zipfile
from collections.abc import Iterable, Iterator
from fractions import Fraction
from random import Random

import numpy as np

from tests.flows.test_archive_members import packed, unicode_path
from tests.fuzz.targets import CORPUS
from tests.helpers import (
    containers,
    films,
    json_attacks,
    model_fuzz,
    odd_pictures,
    onnx_attacks,
    weight_files,
)

MOST_BYTES = 4096
"""Bytes of a file; those that come out larger are left out."""
TICK = Fraction(1, 25)
DAMAGED = 6
"""Files with random damage in each folder."""
Files = Iterable[tuple[str, bytes]]


def _onnx() -> Files:
    yield "sound", model_fuzz.onnx_file()
    for kind, attacks in onnx_attacks.KINDS.items():
        if kind != "many nodes":
            for number, attack in enumerate(itertools.islice(attacks(), 0, 20, 10)):
                yield f"{kind}-{number}", attack.content


def _pth() -> Files:
    tensors = weight_files.compact(1, 3, 0)
    yield "sound-zip", weight_files.pth(tensors)
    yield "sound-legacy", weight_files.pth({"params": tensors}, legacy=True)
    yield "program", b"\x80\x02cposix\nsystem\nX\x04\0\0\0true\x85R."


def _pickle() -> Files:
    with zipfile.ZipFile(io.BytesIO(weight_files.pth(weight_files.compact(1, 3, 0)))) as archive:
        yield (
            "sound",
            next(archive.read(name) for name in archive.namelist() if name.endswith("pkl")),
        )
    yield "program", b"\x80\x02cposix\nsystem\nX\x04\0\0\0true\x85R."
    yield "memo", b"\x80\x02}q\0r\xff\xff\xff\xff."
    yield "deep", b"\x80\x02" + b"]" * 2000 + b"a" * 1999 + b"."
    yield "doubled", b"\x80\x02](" + b"2" * 60 + b"e."


def _safetensors() -> Files:
    sound = weight_files.safetensors(weight_files.compact(1, 3, 0))
    yield "sound", sound
    yield "length", b"\xff" * 7 + b"\x7f" + sound[8:]
    yield "twice", struct.pack("<Q", 13) + b'{"a":0,"a":1}'


def _ncnn() -> Files:
    text, weights = weight_files.ncnn_compact()
    yield "sound-compact", text.encode() + b"\0" + weights
    yield "sound-zeros", model_fuzz.PARAM + b"\0" + model_fuzz.BIN
    yield "counts", model_fuzz.PARAM.replace(b"6 7", b"999999999 -1")
    yield "list", model_fuzz.PARAM.replace(b"-23310=1", b"-23310=2147483647")


def _waifu2x_json() -> Files:
    yield "sound", model_fuzz.json_file()
    for kind, attacks in json_attacks.KINDS.items():
        small = (each.content for each in attacks() if len(each.content) <= MOST_BYTES)
        for number, content in enumerate(itertools.islice(small, 0, None, 8)):
            yield f"{kind}-{number}", content


def _chainer() -> Files:
    yield "sound", model_fuzz.npz_file()


def _picture() -> Files:
    generator = np.random.default_rng(0)
    for name, content in odd_pictures.sound(generator, (17, 18)).items():
        yield f"sound-{name}", content
    yield from itertools.islice(odd_pictures.absurd(), 0, None, 4)


def _film() -> Files:
    for container, codec in (
        ("matroska", "ffv1"),
        ("mp4", "mpeg4"),
        ("avi", "mpeg4"),
        ("mpegts", "mpeg2video"),
    ):
        made = io.BytesIO()
        films.film(made, container=container, codec=codec, times=(0, 1), tick=TICK, size=(16, 32))
        yield f"sound-{container}", made.getvalue()
    track = containers.track(1, b"V_UNCOMPRESSED")
    yield "size", containers.matroska(containers.track(1, b"V_VP9", size=(1 << 30, 1 << 30)), [])
    yield "tracks", containers.matroska(track * 50, [])
    yield "y4m", b"YUV4MPEG2 W4 H2 F25:1 Ip A1:1 C420mpeg2\nFRAME\n" + bytes(12)
    yield "y4m-size", b"YUV4MPEG2 W2147483647 H2147483647 F1:0 C420p99\nFRAME\n"
    yield "list", b"#EXTM3U\n#EXTINF:9,\nfile:///etc/passwd\n#EXT-X-ENDLIST\n"
    yield "late-index", containers.box(b"ftyp", b"isom") + b"\0\0\0\0mdat"


def _archive() -> Files:
    made = io.BytesIO()
    pixel = odd_pictures.interlaced()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a/1.png", pixel)
        archive.writestr("ComicInfo.xml", dict(_comic_info())["sound"])
    yield "sound", made.getvalue()
    outside = (b"../1.png", b"/1.png", b"C:\\1.png", b"..\\..\\1.bmp")
    named = (*outside, b"1.png\0.txt", b"\x82\xff.png", b"")
    yield "names", packed(*((name, pixel, 0, b"") for name in named))
    yield "twice", packed((b"1.bmp", pixel, 0, b""), (b"1.bmp", b"", 0, b""))
    yield "locked", packed((b"1.png", pixel, 1, b""))
    yield "size", packed((b"1.png", pixel, 0, b""), declared={b"1.png": 0xFFFFFFFE})
    yield "path", packed((b"1.png", pixel, 0, unicode_path(b"1.png", "../../2.png")))
    yield "extra", packed((b"1.png", pixel, 0, b"\x75\x70\xff\xff\x01"))
    yield "utf8", packed((b"\xff\xfe.png", pixel, 0x800, b""))


def _comic_info() -> Files:
    page = b'<Page Image="0" ImageSize="9" ImageWidth=\'5\' Key="&lt;"/>'
    yield "sound", b"<ComicInfo><Title>A &amp; B</Title><Pages>" + page + b"</Pages></ComicInfo>"
    entity = b'<!DOCTYPE ComicInfo [<!ENTITY a "' + b"x" * 99 + b'">]>'
    yield "entity", entity + b"<ComicInfo><Title>" + b"&a;" * 99 + b"</Title></ComicInfo>"
    yield "namespace", b'<ComicInfo xmlns:a="b"><a:Title a:c="d"/><Title>x</Title></ComicInfo>'
    yield "encoding", b'<?xml version="1.0" encoding="utf-7"?><ComicInfo/>'
    yield "deep", b"<ComicInfo>" + b"<a>" * 1000


def _query() -> Files:
    yield "sound", b"scale=2&noise=1&name=a.png&format=webp&quality=90&tta=2&depth=8"
    yield "sound-size", b"width=100&height=50&name=%E7%94%BB.jpg&model=anime4k%2Fs"
    yield "scale", b"scale=1e999999999"
    yield "ratio", b"scale=1/0"
    yield "digits", b"width=%D9%A1&quality=%C2%B2"
    yield "name", b"name=..%2F..%5Ccon.png%00%0A&scale=4%2F3"


def _body() -> Files:
    yield "sound-all", b'{"all": true}'
    yield "sound", b'{"ids": ["aB-_9", "b", "b"]}'
    yield "deep", b"[" * 4000
    yield "ids", b'{"ids": ["../../etc/passwd"]}'
    yield "kinds", b'{"ids": [0, null, {}]}'
    yield "surrogate", b'{"ids": ["\\ud800"]}'
    yield "digits", b'{"all": ' + b"9" * 4000 + b"}"
    yield "utf16", '{"all": true}'.encode("utf-16")


def _headers() -> Files:
    yield "sound", b"jobs\nHost: n\nAuthorization: Bearer x\nOrigin: http://n"
    yield "twice", b"jobs\nHost: n\nAuthorization: Bearer x\nAuthorization: Bearer y"
    yield "letters", b"../jobs\nHost: N\nAuthorization: bearer \xff\xfe\nSec-Fetch-Site: none"


_SOURCES = {
    "onnx": _onnx,
    "pth": _pth,
    "pickle": _pickle,
    "safetensors": _safetensors,
    "ncnn": _ncnn,
    "waifu2x_json": _waifu2x_json,
    "chainer": _chainer,
    "picture": _picture,
    "film": _film,
    "archive": _archive,
    "comic_info": _comic_info,
    "query": _query,
    "body": _body,
    "headers": _headers,
}


def files_of(folder: str) -> Iterator[tuple[str, bytes]]:
    """Yields the files of a folder: those of its source, and some of them with random damage."""
    made = [pair for pair in _SOURCES[folder]() if len(pair[1]) <= MOST_BYTES]
    yield from made
    sound = [content for name, content in made if name.startswith("sound")]
    for number in range(DAMAGED):
        rng = Random(f"{folder} {number}")
        yield f"damaged-{number}", model_fuzz.changed(rng.choice(sound), rng)[:MOST_BYTES]


def main() -> None:
    for kind in _SOURCES:
        folder = CORPUS / kind
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.iterdir():
            if not old.name.startswith("found"):
                old.unlink()
        for name, content in files_of(kind):
            (folder / name.replace(" ", "-")).write_bytes(content)


if __name__ == "__main__":
    main()
