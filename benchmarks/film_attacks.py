"""200 damaged and hostile films: each gives a film that says what was lost, or a sentence.

    python -m benchmarks.film_attacks [SEED] [NAME ...]

Nothing may be read elsewhere (a listening socket and a film beside, whose frames would be seen), no
film may take longer than a limit, no process more memory than another.
"""

from __future__ import annotations

import os
import random
import re
import signal
import socket
import struct
import sys
import tempfile
import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from fractions import Fraction
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from tests.helpers import films
from tests.helpers.containers import EBML, block, box, double, element, matroska, number, track
from tests.helpers.film_making import make_film_here
from waifu2x.errors import FaultError, Waifu2xError
from waifu2x.flows.film.reading.client import FilmReader
from waifu2x.flows.film.request import FilmJob, prepare
from waifu2x.formats.film.writing.codecs import Wish

SECONDS = 150
"""The longest that one may take; the process that reads may be silent for 120."""
MEBIBYTES = 9 << 10
"""The most of the process that reads, whose limit of data is 8 GiB."""
IN_ALL = 200
Attack = Callable[[Path], None]


def png(width: int, height: int) -> bytes:
    """A black picture, as small as it gets."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return len(data).to_bytes(4) + kind + data + zlib.crc32(kind + data).to_bytes(4)

    packer = zlib.compressobj(9)
    row = bytes(1 + width * 3)
    rows = b"".join(packer.compress(row) for _ in range(height)) + packer.flush()
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def still(**options: Any) -> bytes:
    """A film of 5 frames of PNG."""
    tracks = track(1, b"V_MS/VFW/FOURCC", element(0x63A2, fourcc(b"MPNG"))) + options.pop(
        "tracks", b""
    )
    frames = b"".join(block(1, 40 * index, png(16, 16)) for index in range(5))
    return matroska(tracks, options.pop("clusters", [(0, frames)]), **options)


def fourcc(code: bytes, width: int = 16, height: int = 16) -> bytes:
    """BITMAPINFOHEADER."""
    return struct.pack("<IiiHH4sIiiII", 40, width, height, 1, 24, code, 0, 0, 0, 0, 0)


def mp4(
    timescale: int = 1000,
    stts: Sequence[tuple[int, int]] = ((5, 40),),
    samples: int = 5,
    size: tuple[int, int] = (16, 16),
    tracks: int = 1,
    dref: bytes = b"",
    movie: bytes = b"",
) -> bytes:
    """A film of PNG in QuickTime's file, told wrongly as wanted."""
    picture = png(16, 16)
    dref = dref or box(b"url ", b"\0\0\0\1")
    head = struct.pack(">6xH16xHHIIIH32xHh", 1, *size, 0x480000, 0x480000, 0, 1, 24, -1)
    table = box(b"stsd", struct.pack(">II", 0, 1) + box(b"png ", head))
    table += box(
        b"stts", struct.pack(">II", 0, len(stts)) + b"".join(struct.pack(">Ii", *x) for x in stts)
    )
    table += box(b"stsc", struct.pack(">IIIII", 0, 1, 1, samples, 1))
    table += box(b"stsz", struct.pack(">III", 0, len(picture), samples))
    table += box(b"stco", struct.pack(">III", 0, 1, 32))
    media = box(b"mdhd", struct.pack(">IIIIIHH", 0, 0, 0, timescale, 200, 0, 0))
    media += box(b"hdlr", struct.pack(">II4s12x", 0, 0, b"vide") + b"\0")
    media += box(
        b"minf",
        box(b"vmhd", struct.pack(">IHHHH", 1, 0, 0, 0, 0))
        + box(b"dinf", box(b"dref", struct.pack(">II", 0, 1) + dref))
        + box(b"stbl", table),
    )
    whole = b""
    for index in range(tracks):
        told = struct.pack(">IIIIII", 7, 0, 0, index + 1, 0, 200) + bytes(52)
        told += struct.pack(">II", size[0] << 16, size[1] << 16)
        whole += box(b"trak", box(b"tkhd", told) + box(b"mdia", media))
    header = struct.pack(">IIIII", 0, 0, 0, 1000, 200) + bytes(80)
    start = box(b"ftyp", b"qt  \0\0\0\0qt  ")
    data = box(b"mdat", bytes(32 - len(start) - 8) + picture * 5)
    return start + data + box(b"moov", box(b"mvhd", header) + whole + movie)


def avi(rate: int, scale: int, claimed: int, width: int = 16) -> bytes:
    """A film of PNG in AVI, told wrongly as wanted."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return kind + struct.pack("<I", len(data)) + data + b"\0" * (len(data) % 2)

    main = struct.pack("<14I", 40_000, 0, 0, 0x10, claimed, 0, 1, 0, width, 16, 0, 0, 0, 0)
    stream = b"vidsMPNG" + struct.pack(
        "<IHHIIIIIIII4h", 0, 0, 0, 0, scale, rate, 0, claimed, 0, 0, 0, 0, 0, 16, 16
    )
    lists = chunk(b"avih", main) + chunk(
        b"LIST", b"strl" + chunk(b"strh", stream) + chunk(b"strf", fourcc(b"MPNG", width))
    )
    movie = b"".join(chunk(b"00dc", png(16, 16)) for _ in range(5))
    return (
        b"RIFF"
        + struct.pack("<I", 0xFFFFFFF)
        + b"AVI "
        + chunk(b"LIST", b"hdrl" + lists)
        + chunk(b"LIST", b"movi" + movie)
    )


def y4m(header: str, frames: int = 3, size: int = 384) -> bytes:
    """Raw frames of 16x16."""
    return f"YUV4MPEG2 {header}\n".encode() + (b"FRAME\n" + b"\x80" * size) * frames


def written(data: bytes | Callable[[], bytes]) -> Attack:
    """An attack of these bytes."""

    def write(path: Path) -> None:
        path.write_bytes(data if isinstance(data, bytes) else data())

    return write


def by_hand(address: str, beside: Path) -> Iterator[tuple[str, Attack]]:
    """Yields files made byte by byte; all may name the address and the film beside."""
    lists = {
        "m3u8": "#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXTINF:9,\n{0}\n#EXT-X-ENDLIST\n",
        "ffconcat": "ffconcat version 1.0\nfile '{0}'\n",
        "sdp": "v=0\no=- 0 0 IN IP4 127.0.0.1\nc=IN IP4 127.0.0.1\nm=video 5004 RTP/AVP 96\n"
        "a=control:{0}\n",
        "mpd": "<?xml version='1.0'?><MPD type='static'><Period>"
        "<AdaptationSet><Representation><BaseURL>{0}</BaseURL></Representation></AdaptationSet>"
        "</Period></MPD>",
        "asx": "<asx version='3.0'><entry><ref href='{0}'/></entry></asx>",
        "imf": "<?xml version='1.0'?><CompositionPlaylist><Id>{0}</Id></CompositionPlaylist>",
        "smil": "<smil><body><video src='{0}'/></body></smil>",
        "pls": "[playlist]\nFile1={0}\nNumberOfEntries=1\n",
        "rtsp": "RTSPtext\r\n{0}\r\n",
    }  # fmt: skip
    for kind, text in lists.items():
        for where in (address, str(beside), f"file:{beside}"):
            yield f"list-{kind}.mkv", written(text.format(where).encode())
    # QuickTime's references to other files.
    for where in (address, f"file://{beside}"):
        yield "mov-url.mov", written(mp4(dref=box(b"url ", b"\0\0\0\0" + where.encode() + b"\0")))
        redirected = box(
            b"rmra",
            box(b"rmda", box(b"rdrf", b"\0\0\0\0url " + len(where).to_bytes(4) + where.encode())),
        )
        yield "mov-redirected.mov", written(mp4(movie=redirected))
    alias = (
        bytes(10)
        + bytes([7])
        + b"/" * 131
        + struct.pack(">hhI", 0, 2, len(str(beside)))
        + str(beside).encode()
    )
    yield "mov-alias.mov", written(mp4(dref=box(b"alis", b"\0\0\0\0" + alias)))
    # Numbers of streams.
    plain = b"".join(track(17, b"S_TEXT/UTF8", which=n + 2) for n in range(10_000))
    yield "10000-streams.mkv", written(lambda: still(tracks=plain))
    yield "10000-streams.mov", written(lambda: mp4(tracks=10_000))
    one = element(
        0x61A7,
        element(0x466E, b"a.ttf")
        + element(0x4660, b"font/ttf")
        + element(0x465C, b"x")
        + number(0x46AE, 5),
    )
    yield "10000-fonts.mkv", written(lambda: still(more=element(0x1941A469, one * 10_000)))
    chapters = b"".join(
        element(0xB6, number(0x73C4, n + 1) + number(0x91, 0) + number(0x92, 10**9))
        for n in range(100_000)
    )
    yield (
        "100000-chapters.mkv",
        written(lambda: still(more=element(0x1043A770, element(0x45B9, chapters)))),
    )
    tag = element(
        0x7373,
        element(0x63C0, b"") + element(0x67C8, element(0x45A3, b"k") + element(0x4487, b"v")),
    )
    yield "100000-tags.mkv", written(lambda: still(more=element(0x1254C367, tag * 100_000)))
    huge = element(
        0x7373,
        element(0x63C0, b"")
        + element(0x67C8, element(0x45A3, b"k") + element(0x4487, b"v" * (60 << 20))),
    )
    yield "60-megabytes-of-tag.mkv", written(lambda: still(more=element(0x1254C367, huge)))
    texts = track(17, b"S_TEXT/UTF8", which=2)
    lines = b"".join(block(2, index % 30_000, b"x") for index in range(1_000_000))
    yield (
        "million-subtitles.mkv",
        written(lambda: still(tracks=texts, clusters=[(0, block(1, 0, png(16, 16)) + lines)])),
    )
    font = (
        b"\x61\xa7\x01"
        + (300 << 20).to_bytes(7)
        + element(0x466E, b"a")
        + b"\x46\x5c\x01"
        + (299 << 20).to_bytes(7)
    )
    yield "claims-a-large-font.mkv", written(still(more=element(0x1941A469, font)))
    # Sizes.
    for size in ((65535, 65535), (0, 0), (1, 1), (16384, 16384), (65535, 16)):
        yield f"claims-{size[0]}x{size[1]}.mov", written(mp4(size=size))
        ffv1 = track(1, b"V_FFV1", size=size)
        yield (
            f"claims-{size[0]}x{size[1]}.mkv",
            written(matroska(ffv1, [(0, block(1, 0, bytes(99)))])),
        )
    bomb = track(
        1, b"V_MS/VFW/FOURCC", element(0x63A2, fourcc(b"MPNG", 16000, 16000)), size=(16000, 16000)
    )
    yield "16000x16000.mkv", written(lambda: matroska(bomb, [(0, block(1, 0, png(16000, 16000)))]))
    packed = element(0x6D80, element(0x6240, element(0x5034, number(0x4254, 0))))
    zipped = track(1, b"V_MS/VFW/FOURCC", element(0x63A2, fourcc(b"MPNG")) + packed)
    yield (
        "packed-twice.mkv",
        written(lambda: matroska(zipped, [(0, block(1, 0, zlib.compress(bytes(1 << 30), 9)))])),
    )
    changing = b"".join(block(1, 40 * n, png(16 + 2 * n, 16)) for n in range(5))
    yield "changes-size.mkv", written(still(clusters=[(0, changing)]))
    # Times and rates.
    for value in (float("nan"), float("inf"), -1.0, 1e300):
        yield f"lasts-{value}.mkv", written(still(info=double(0x4489, value)))
        sound = track(2, b"A_PCM/INT/LIT", element(0xE1, double(0xB5, value) + number(0x9F, 2)), 2)
        yield f"sounds-at-{value}.mkv", written(still(tracks=sound))
    for value in (0, 1, 2**63, 2**64 - 1):
        yield (
            f"each-{value}-ns.mkv",
            written(
                matroska(
                    track(
                        1,
                        b"V_MS/VFW/FOURCC",
                        element(0x63A2, fourcc(b"MPNG")) + number(0x23E383, value),
                    ),
                    [(0, block(1, 0, png(16, 16)) * 3)],
                )
            ),
        )
        yield f"ticks-of-{value}.mkv", written(still(scale=value))
    back = [(1000 * (9 - n), block(1, 0, png(16, 16))) for n in range(10)]
    yield "times-go-back.mkv", written(still(clusters=back))
    leaps = [(time, block(1, 0, png(16, 16))) for time in (0, 40, 2**40, 80, 2**62, 120)]
    yield "times-leap.mkv", written(still(clusters=leaps))
    for value in (0, 1, 2**32 - 1):
        yield f"timescale-{value}.mov", written(mp4(timescale=value))
    yield "billion-frames.mov", written(mp4(stts=((10**9, 40),), samples=10**9))
    yield "billion-frames-in-little.mov", written(mp4(stts=((10**9, 1),), samples=5))
    yield "frames-go-back.mov", written(mp4(stts=((2, 40), (2, -70), (1, 40))))
    yield "no-time-passes.mov", written(mp4(stts=((5, 0),)))
    for rate, scale in ((0, 0), (0, 1), (2**32 - 1, 1), (1, 2**32 - 1)):
        yield f"rate-{rate}-{scale}.avi", written(avi(rate, scale, 5))
    yield "billion-frames.avi", written(avi(25, 1, 2**32 - 1))
    yield "wide.avi", written(avi(25, 1, 5, 2**31 - 1))
    for header in (
        "W16 H16 F0:0",
        "W16 H16 F-1:1",
        "W16 H16 F1:0",
        "W0 H0 F25:1",
        "W999999999 H999999999 F25:1",
        "W-16 H16 F25:1",
        "W16 H16 F1000000000:1",
        "W16 H16 F25:1 Cnone",
        "W16 H16 F25:1 A0:0",
        "W16 H16 F25:1 C420p16",
    ):
        yield f"{header.replace(' ', '-').replace(':', '_')}.y4m", written(y4m(header))
    yield "endless-header.y4m", written(b"YUV4MPEG2 " + b"X" * 10_000_000)
    # Shapes of files.
    deep = b""
    for _ in range(3000):
        deep = element(0x18538067, deep)
    yield "deep.mkv", written(EBML + deep)
    nested = b""
    for _ in range(3000):
        nested = box(b"moov", nested)
    yield "deep.mov", written(box(b"ftyp", b"qt  \0\0\0\0qt  ") + nested)
    cmov = box(
        b"cmov",
        box(b"dcom", b"zlib")
        + box(b"cmvd", (2**31 - 1).to_bytes(4) + zlib.compress(bytes(1 << 28), 9)),
    )
    yield (
        "packed-header.mov",
        written(lambda: box(b"ftyp", b"qt  \0\0\0\0qt  ") + box(b"moov", cmov)),
    )
    yield (
        "endless-element.mkv",
        written(EBML + b"\x18\x53\x80\x67\x01" + b"\xff" * 7 + bytes(5_000_000)),
    )
    yield (
        "laces.mkv",
        written(still(clusters=[(0, element(0xA3, b"\x81\0\0\x06\xff" + bytes(300)) * 2000)])),
    )
    yield "nothing.mkv", written(b"")
    yield "signature.mkv", written(b"\x1a\x45\xdf\xa3")
    yield "pipe.mkv", lambda path: os.mkfifo(path)
    yield "zero.mkv", lambda path: path.symlink_to("/dev/zero")
    yield "folder.mkv", lambda path: path.mkdir()
    yield "loop.mkv", lambda path: path.symlink_to(path)


def damaged(folder: Path, chance: random.Random, count: int) -> Iterator[tuple[str, Attack]]:
    """Sound films with wrong bytes."""
    sound: list[tuple[str, bytes]] = []
    for name in ("everything.mkv", "texts.mp4", "hour.ts", "odd.webm", "timecode.mov", "hdr10.mkv"):
        films.CASES[name](folder / name)
        sound.append((name, (folder / name).read_bytes()))
    tick = Fraction(1, 25)
    for name, codec, audio in (
        ("a.avi", "mpeg4", "mp2"),
        ("b.flv", "flv", "mp3"),
        ("c.mpg", "mpeg2video", "mp2"),
        ("d.ogv", "libvpx", "libvorbis"),
        ("e.nut", "ffv1", "flac"),
    ):
        with suppress(Exception):  # a codec may be missing here
            films.film(
                folder / name, codec=codec, times=range(24), tick=tick, sounds=[(audio, 0.0)]
            )
            sound.append((name, (folder / name).read_bytes()))
    for index in range(count):
        name, whole = sound[index % len(sound)]
        data = bytearray(whole)
        kind = chance.choice(("bits", "header", "cut", "zeros", "noise", "missing", "twice"))
        at = chance.randrange(len(data))
        length = chance.randrange(1, 1 + len(data) // 10)
        if kind in ("bits", "header"):
            for _ in range(chance.choice((1, 5, 50))):
                place = chance.randrange(2000 if kind == "header" else len(data))
                data[place % len(data)] ^= 1 << chance.randrange(8)
        elif kind == "cut":
            del data[at:]
        elif kind == "missing":
            del data[at : at + length]
        elif kind == "twice":
            data[at:at] = data[at : at + length]
        else:
            data[at : at + length] = bytes(length) if kind == "zeros" else chance.randbytes(length)
        yield f"{kind}-{index}-{name}", written(bytes(data))


class WatchedReader(FilmReader):
    """A reader whose process's memory is known when it has ended."""

    mebibytes = 0

    def close(self) -> None:
        """Looks at it first."""
        with suppress(OSError, AttributeError):
            status = Path(f"/proc/{self._child.pid}/status").read_text()
            if found := re.search(r"VmHWM:\s+(\d+)", status):
                type(self).mebibytes = int(found[1]) >> 10
        super().close()


def twice(
    pictures: Sequence[Sequence[NDArray[Any]]], results: Sequence[Sequence[NDArray[Any]]]
) -> None:
    """A cheap enlargement."""
    for planes, result in zip(pictures, results, strict=True):
        for plane, made in zip(planes, result, strict=False):
            made[:] = plane.repeat(2, 0).repeat(2, 1)[: made.shape[0], : made.shape[1]]


def outcome(source: Path, target: Path) -> tuple[str, str]:
    """Returns the outcome of a film: a word and the message."""
    job = FilmJob(source, target, Wish("ffv1"), drop_unsupported=True)
    try:
        with WatchedReader(source) as reader:
            pictures = reader.film.pictures
            prepared = prepare(reader, job, pictures.height * 2, pictures.width * 2)
            made = make_film_here(reader, job, prepared, twice)
    except FaultError as error:
        return "FAULT", str(error)
    except Waifu2xError as error:
        text = str(error)
        named = (str(source), str(target), "cannot be opened for")  # the film, or the encoder
        if "\n" in text or not any(name in text for name in named):
            return "FAULT", f"no sentence: {text}"
        return "sentence", text.replace(str(source), "FILM").replace(str(target), "OUT")
    ending = made.ending
    lost = [f"{made.frames} frames"]
    lost += [f"{ending.damaged} damaged"] * bool(ending.damaged)
    lost += ["ends early"] * ending.is_short + [f"{ending.moved} moved"] * bool(ending.moved)
    return "film", ", ".join([*lost, *made.lost])


def main() -> None:
    """Prints a table of all."""
    seed = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    chosen = sys.argv[2:]
    server = socket.create_server(("127.0.0.1", 0))
    visits: list[Any] = []

    def listen() -> None:
        with suppress(OSError):
            while True:
                visits.append(server.accept())

    threading.Thread(target=listen, daemon=True).start()

    def late(*_: Any) -> None:
        raise TimeoutError

    signal.signal(signal.SIGALRM, late)
    words: Counter[str] = Counter()
    longest = most = 0.0
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        beside = folder / "beside.mkv"
        films.film(beside, times=range(0, 7 * 40, 40))
        address = f"http://127.0.0.1:{server.getsockname()[1]}/film.mkv"
        attacks = list(by_hand(address, beside))
        attacks += damaged(folder, random.Random(seed), IN_ALL - len(attacks))
        print("| film | seconds | MiB | what became of it |\n|---|---|---|---|")
        for index, (name, attack) in enumerate(attacks):
            if chosen and not any(one in name for one in chosen):
                continue
            own = folder / str(index)
            own.mkdir()
            source, target = own / name, own / "out.mkv"
            attack(source)
            WatchedReader.mebibytes = 0
            begin = time.monotonic()
            signal.alarm(SECONDS)
            try:
                word, text = outcome(source, target)
            except TimeoutError:
                word, text = "FAULT", "hangs"
            except Exception as error:  # which is the fault that is looked for
                word, text = "FAULT", repr(error)
            signal.alarm(0)
            seconds = time.monotonic() - begin
            if word != "film" and target.exists():
                word, text = "FAULT", f"left a film: {text}"
            if WatchedReader.mebibytes > MEBIBYTES or (
                word == "film" and text.startswith("7 f") and "list" in name
            ):
                word = "FAULT"
            words[word] += 1
            longest, most = max(longest, seconds), max(most, WatchedReader.mebibytes)
            print(
                f"| {name} | {seconds:.1f} | {WatchedReader.mebibytes} | {word}: {text} |",
                flush=True,
            )
            if source.is_file() and not source.is_symlink():
                source.unlink()
    print(
        f"\n{sum(words.values())} films: {dict(words)}; at most {longest:.0f} s and "
        f"{most:.0f} MiB; "
        f"{len(visits)} connections"
    )


if __name__ == "__main__":
    main()
