"""Small films of every kind, made here: none is copied from anywhere."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
from numpy.typing import NDArray
from PIL import Image

WIDTH, HEIGHT = 96, 64
ASS_HEADER = b"""[Script Info]
ScriptType: v4.00+
PlayResX: 96
PlayResY: 64

[V4+ Styles]
Format: Name, Fontname, Fontsize, PrimaryColour, Alignment, MarginL, MarginR, MarginV, Encoding
Style: Default,Arial,10,&H00FFFFFF,2,10,10,10,1

[Events]
Format: Layer, Start, End, Style, Name, MarginL, MarginR, MarginV, Effect, Text
"""
FONT = bytes(range(256)) * 40


def drawing(index: int, height: int = HEIGHT, width: int = WIDTH) -> NDArray[np.uint8]:
    """A picture with a sharp coloured square that moves, as RGB."""
    y, x = np.mgrid[:height, :width]
    picture = np.stack([x * 2 % 256, y * 3 % 256, (x + y) % 256], -1).astype(np.uint8)
    left = (index * 5) % max(1, width - 16)
    picture[8:24, left : left + 16] = ((index * 40) % 256, 30, 220)
    return picture


def frame(index: int, pixels: str, height: int = HEIGHT, width: int = WIDTH) -> Any:
    """The same as a frame of a pixel format."""
    made = av.VideoFrame.from_ndarray(drawing(index, height, width), "rgb24")
    return made.reformat(format=pixels)


def film(
    path: Path | io.BytesIO,
    *,
    container: str | None = None,
    codec: str = "libx264",
    pixels: str = "yuv420p",
    times: Sequence[int] = tuple(range(0, 24 * 40, 40)),
    durations: Sequence[int] | None = None,
    tick: Fraction = Fraction(1, 1000),
    rate: Fraction = Fraction(25),
    size: tuple[int, int] = (HEIGHT, WIDTH),
    shown: Callable[[int], int] = lambda index: index,
    options: dict[str, str] | None = None,
    colours: tuple[int, int, int, int] | None = None,
    aspect: Fraction | None = None,
    rotation: int = 0,
    interlaced: bool = False,
    video_tags: dict[str, str] | None = None,
    sounds: Sequence[tuple[str, float]] = (),
    subtitles: Sequence[str] = (),
    fonts: bool = False,
    cover: bool = False,
    chapters: bool = False,
    tags: dict[str, str] | None = None,
) -> None:
    """Writes a film. `sounds` are codecs and where they begin, in seconds; `colours` are matrix,
    range (1 or 2), primaries and transfer."""
    target = path if isinstance(path, io.BytesIO) else str(path)
    with av.open(target, "w", format=container) as out:
        video = out.add_stream(codec, rate=rate, options={"g": "12", **(options or {})})
        context = video.codec_context
        context.height, context.width = size
        context.pix_fmt = pixels
        context.time_base = tick
        context.framerate = rate
        if aspect is not None:
            context.sample_aspect_ratio = aspect
        if colours is not None:
            (
                context.colorspace,
                context.color_range,
                context.color_primaries,
                context.color_trc,
            ) = colours
        if rotation:
            video.set_display_rotation(rotation)
        video.metadata.update(video_tags or {})
        out.metadata.update(tags or {})
        heard = [_sound(out, codec, begin) for codec, begin in sounds]
        for number, (stream, _) in enumerate(heard):
            stream.metadata["language"] = ("jpn", "eng")[number % 2]
            stream.metadata["title"] = f"Sound {number}"
            if not number:
                stream.disposition = av.stream.Disposition.default
        texts = [_subtitles(out, codec) for codec in subtitles]
        for stream, _ in texts:
            stream.metadata["language"] = "eng"
        name = out.format.name
        if fonts:
            out.add_attachment("Drawn Font.ttf", "application/x-truetype-font", FONT)
        picture = _picture()
        attached = None
        if cover and name == "matroska":
            out.add_attachment("cover.jpg", "image/jpeg", picture)
        elif cover:
            with av.open(io.BytesIO(picture)) as still:
                attached = out.add_stream_from_template(still.streams[0])
            attached.disposition = av.stream.Disposition.attached_pic
        if chapters:
            out.set_chapters(
                [
                    {
                        "id": number + 1,
                        "start": start,
                        "end": end,
                        "time_base": Fraction(1, 1000),
                        "metadata": {"title": f"Part {number}"},
                    }
                    for number, (start, end) in enumerate([(0, 400), (400, 960)])
                ]
            )
        packets: list[Any] = []
        for index, pts in enumerate(times):
            made = frame(shown(index), pixels, *size)
            made.pts, made.time_base = pts, tick
            made.duration = durations[index] if durations else _gap(times, index)
            packets += video.encode(made)
        packets += video.encode()
        for _, own in (*heard, *texts):
            packets += own
        if attached is not None:
            packet = av.Packet(picture)
            packet.stream, packet.pts, packet.dts = attached, 0, 0
            packet.time_base = Fraction(1, 90000)
            packets.insert(0, packet)
        packets.sort(key=lambda one: float((one.dts or 0) * one.time_base))
        for packet in packets:
            out.mux(packet)


def _gap(times: Sequence[int], index: int) -> int:
    if index + 1 < len(times):
        return times[index + 1] - times[index]
    return times[-1] - times[-2] if len(times) > 1 else 40


def _picture() -> bytes:
    data = io.BytesIO()
    Image.fromarray(drawing(3, 32, 32)).save(data, "JPEG")
    return data.getvalue()


def _sound(out: Any, codec: str, begin: float) -> tuple[Any, list[Any]]:
    rate = 48000
    stream = out.add_stream(codec, rate=rate)
    stream.codec_context.layout = "stereo"
    tone = (np.sin(np.arange(rate) * 0.05) * 9000).astype(np.int16)
    packets = []
    resampler = av.AudioResampler(
        stream.codec_context.format, "stereo", rate, stream.codec_context.frame_size or 1024
    )
    made = av.AudioFrame.from_ndarray(np.repeat(tone, 2)[None], format="s16", layout="stereo")
    made.sample_rate, made.pts, made.time_base = rate, 0, Fraction(1, rate)
    for part in (*resampler.resample(made), *resampler.resample(None)):
        part.pts = (part.pts or 0) + round(begin * rate)
        packets += stream.encode(part)
    return stream, packets + stream.encode()


def _subtitles(out: Any, codec: str) -> tuple[Any, list[Any]]:
    if codec == "ass":
        text = ASS_HEADER + b"".join(
            b"Dialogue: 0,0:00:0%d.%d0,0:00:0%d.%d0,Default,,0,0,0,,{\\i1}Line{\\i0} %d\n"
            % (begin // 1000, begin // 100 % 10, end // 1000, end // 100 % 10, number)
            for number, (begin, end) in enumerate([(100, 400), (500, 700)])
        )
        with av.open(io.BytesIO(text), format="ass") as script:
            stream = out.add_stream_from_template(script.streams[0])
            packets = [packet for packet in script.demux() if packet.size]
        for packet in packets:
            packet.stream = stream
        return stream, packets
    stream = out.add_mux_stream(codec)
    packets = []
    for number, (begin, length) in enumerate([(100, 300), (500, 250)]):
        text = f"<i>Line</i> {number} & more".encode()
        if codec == "mov_text":
            text = len(b"Line 0").to_bytes(2) + f"Line {number}".encode()
        packet = av.Packet(text)
        packet.stream, packet.time_base = stream, Fraction(1, 1000)
        packet.pts = packet.dts = begin
        packet.duration = length
        packets.append(packet)
    return stream, packets


def _nudged(count: int, step: int) -> list[int]:
    """Times that are not evenly spaced, with a gap."""
    return [
        index * step + (index * index) % 7 + (step * 3 if index > 12 else 0)
        for index in range(count)
    ]


def _truncated(path: Path) -> None:
    film(path, sounds=[("aac", 0.0)])
    data = path.read_bytes()
    path.write_bytes(data[: len(data) * 6 // 10])


def _damaged(path: Path) -> None:
    film(path, options={"g": "4"})
    data = bytearray(path.read_bytes())
    middle = len(data) // 2
    data[middle : middle + 60] = bytes(60)
    path.write_bytes(data)


def _alpha(path: Path) -> None:
    film(
        path,
        codec="libvpx-vp9",
        pixels="yuva420p",
        options={"auto-alt-ref": "0", "b": "300k"},
        video_tags={"alpha_mode": "1"},
    )


MASTERING = "G(13250,34500)B(7500,3000)R(34000,16000)WP(15635,16450)L(10000000,50)"
TICK = Fraction(1, 90000)
CASES: dict[str, Callable[[Path], None]] = {
    "variable.mkv": lambda path: film(path, times=_nudged(40, 41)),
    "reordered.mp4": lambda path: film(
        path, tick=TICK, times=_nudged(40, 3003), options={"bf": "3"}, sounds=[("aac", 0.0)]
    ),
    "sounds.mkv": lambda path: film(
        path, sounds=[("aac", 0.437), ("flac", 0.0), ("libopus", 0.1)], codec="libx264"
    ),
    "ass.mkv": lambda path: film(path, subtitles=["ass"], fonts=True),
    "srt.mkv": lambda path: film(path, subtitles=["subrip", "subrip"]),
    "everything.mkv": lambda path: film(
        path, sounds=[("ac3", 0.2)], subtitles=["ass", "subrip"], fonts=True, cover=True,
        chapters=True, tags={"title": "A film", "comment": "\u65e5\u672c\u8a9e"},
        video_tags={"title": "Pictures", "language": "jpn"}, aspect=Fraction(8, 9),
    ),
    "texts.mp4": lambda path: film(
        path, tick=TICK, times=range(0, 24 * 3600, 3600), sounds=[("aac", 0.0)],
        subtitles=["mov_text"], chapters=True,
    ),
    "hdr10.mkv": lambda path: film(
        path, codec="libx265", pixels="yuv420p10le", colours=(9, 1, 9, 16),
        options={
            "x265-params": "log-level=none:hdr10=1:repeat-headers=1:"
            f"master-display={MASTERING}:max-cll=1000,400"
        },
    ),
    "full601.mp4": lambda path: film(path, colours=(5, 2, 5, 6)),
    "topleft.mkv": lambda path: film(
        path, colours=(1, 1, 1, 1), options={"chroma_sample_location": "topleft"}
    ),
    "center.mkv": lambda path: film(
        path, codec="ffv1", colours=(1, 1, 1, 1), options={"chroma_sample_location": "center"}
    ),
    "aspect.mkv": lambda path: film(path, aspect=Fraction(32, 27)),
    "turned.mp4": lambda path: film(path, rotation=270),
    "interlaced.mkv": lambda path: film(
        path, options={"flags": "+ildct+ilme", "x264-params": "tff=1"}
    ),
    "odd.webm": lambda path: film(path, codec="libvpx-vp9", size=(61, 93), sounds=[("libopus", 0)]),
    "twos.mkv": lambda path: film(path, codec="ffv1", shown=lambda index: index // 2),
    "alpha.webm": _alpha,
    "truncated.mkv": _truncated,
    "damaged.mkv": _damaged,
    "late.mkv": lambda path: film(
        path, times=range(600, 1560, 40), sounds=[("aac", 0.0)]
    ),
    "cover.mp4": lambda path: film(path, cover=True, sounds=[("aac", 0.0)]),
    "timecode.mov": lambda path: film(path, video_tags={"timecode": "01:02:03:04"}),
    "hour.ts": lambda path: film(
        path, tick=TICK, times=[3601 * 90000 + index * 3600 for index in range(24)],
        sounds=[("aac", 3601.0)],
    ),
    "silent444.mkv": lambda path: film(path, codec="ffv1", pixels="yuv444p10le"),
    "one.mp4": lambda path: film(path, times=[0], sounds=[("aac", 0.0)]),
}  # fmt: skip
"""Films by name: each is written to a path whose extension is its container."""
