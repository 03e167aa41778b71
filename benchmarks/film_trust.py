"""Measures what films keep: 25 small ones into every container, read by other programs.

    python -m benchmarks.film_trust [NAME ...]

Makes the films of tests/helpers/films.py, runs `waifu2x video` on each, and compares IN with OUT by
ffprobe, ffmpeg, mediainfo and mkvmerge. Beside it a plain recipe of PyAV, as nunif has it: frames
at a fixed rate by the filter fps, colours by swscale, the first sound, nothing else.
"""

from __future__ import annotations

import html
import json
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
from numpy.typing import NDArray

from tests.helpers import films

CODECS = {"mkv": "ffv1", "mp4": "x264", "mov": "x264", "webm": "vp9"}
POINTS = (
    "frames", "times", "colours", "tags of colour", "shape", "sound", "sound's place", "subtitles",
    "fonts", "covers", "chapters", "tags", "dispositions", "timecode", "HDR10", "second reader",
)  # fmt: skip
LIMIT = 300


def run(*command: str) -> bytes:
    """Returns the output of another program. Raises CalledProcessError."""
    return subprocess.run(command, check=True, capture_output=True, timeout=LIMIT).stdout


class Told:
    """A film as ffprobe and ffmpeg tell of it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        asked = ["-show_streams", "-show_chapters", "-show_format", "-show_packets"]
        asked += ["-show_data_hash", "MD5"]
        self.all = json.loads(run("ffprobe", "-v", "quiet", "-of", "json", *asked, str(path)))
        self.pictures = next(
            one
            for one in self.all["streams"]
            if one.get("codec_type") == "video" and not one["disposition"]["attached_pic"]
        )
        tick = Fraction(self.pictures["time_base"])
        decoder = []
        if self.tags(self.pictures).get("alpha_mode"):  # FFmpeg's own decoder drops transparency
            decoder, self.pictures["pix_fmt"] = ["-c:v", "libvpx-vp9"], "yuva420p"
        frames = json.loads(
            run(
                "ffprobe", "-v", "quiet", "-of", "json", "-select_streams",
                str(self.pictures["index"]), "-show_frames", str(path),
            )
        )["frames"]  # fmt: skip
        self.times: list[Fraction] = [one["best_effort_timestamp"] * tick for one in frames]
        found = json.loads(run("mediainfo", "--Output=JSON", str(path)))["media"]["track"]
        self.tracks = [one for one in found if one["@type"] in ("Video", "Audio", "Text")]
        """As mediainfo has them."""
        shown = next(one for one in self.tracks if one["@type"] == "Video")
        self.hdr = [shown.get(f"MasteringDisplay_{key}") for key in ("Luminance", "ColorPrimaries")]
        self.hdr += [shown.get(key, "").partition(" ")[0] for key in ("MaxCLL", "MaxFALL")]
        self.means = self._means(decoder)

    def _means(self, decoder: Sequence[str]) -> NDArray[np.float64]:
        """The mean of each plane of each frame, in levels of 255."""
        pixels = av.VideoFormat(self.pictures["pix_fmt"], *self.size)
        data = run(
            "ffmpeg", "-v", "quiet", "-noautorotate", *decoder, "-i", str(self.path), "-map",
            f"0:{self.pictures['index']}", "-fps_mode", "passthrough", "-f", "rawvideo",
            "-pix_fmt", pixels.name, "-",
        )  # fmt: skip
        deep = pixels.components[0].bits > 8
        samples = np.frombuffer(data, np.uint16 if deep else np.uint8)
        sizes = [one.width * one.height for one in pixels.components]
        frames = samples.reshape(-1, sum(sizes))
        unit = 1 << (pixels.components[0].bits - 8)
        ends = np.cumsum(sizes)
        return np.stack(
            [frames[:, e - s : e].mean(1) / unit for e, s in zip(ends, sizes, strict=True)], 1
        )

    @property
    def size(self) -> tuple[int, int]:
        """Width and height."""
        return self.pictures["width"], self.pictures["height"]

    @staticmethod
    def tags(stream: dict[str, Any]) -> dict[str, str]:
        """With small letters for keys."""
        return {key.lower(): value for key, value in stream.get("tags", {}).items()}

    def streams(self, kind: str) -> list[dict[str, Any]]:
        """Returns the streams of a kind that are no covers."""
        return [
            one
            for one in self.all["streams"]
            if one.get("codec_type") == kind and not one["disposition"]["attached_pic"]
        ]

    @property
    def covers(self) -> list[str]:
        """Codecs of attached pictures."""
        return [x["codec_name"] for x in self.all["streams"] if x["disposition"]["attached_pic"]]

    def packets(self, stream: dict[str, Any]) -> list[dict[str, Any]]:
        """A stream's packets."""
        return [x for x in self.all["packets"] if x["stream_index"] == stream["index"]]

    def text(self, stream: dict[str, Any]) -> list[tuple[int, int, str]]:
        """Milliseconds from the first picture and plain texts of subtitles, by ffmpeg."""
        command = ("ffmpeg", "-v", "quiet", "-i", str(self.path), "-map", f"0:{stream['index']}")
        found = run(*command, "-f", "srt", "-").decode()
        entries = [entry.split("\n", 2) for entry in found.strip().split("\n\n") if entry]
        begin = round(self.times[0] * 1000)

        def milliseconds(time: str) -> int:
            hours, minutes, seconds = time.replace(",", "").split(":")
            return int(hours) * 3_600_000 + int(minutes) * 60_000 + int(seconds) - begin

        made = []
        for _, times, text in entries:
            start, end = map(milliseconds, times.split(" --> "))
            made.append((start, end, html.unescape(re.sub(r"<.*?>", "", text))))
        return made

    def font(self, stream: dict[str, Any]) -> bytes:
        """An attachment's content, by ffmpeg."""
        with tempfile.NamedTemporaryFile() as file:
            subprocess.run(
                ["ffmpeg", "-v", "quiet", "-y", f"-dump_attachment:{stream['index']}", file.name,
                 "-i", str(self.path)], timeout=LIMIT, check=False,
            )  # fmt: skip
            return Path(file.name).read_bytes()

    def place(self, stream: dict[str, Any]) -> float:
        """Seconds from the first picture to a stream's first packet."""
        begins = [float(x["pts_time"]) for x in self.packets(stream) if "pts_time" in x]
        return min(begins) - float(self.times[0])

    def rotation(self) -> list[Any]:
        """Degrees."""
        side = self.pictures.get("side_data_list", [])
        return [one["rotation"] for one in side if "rotation" in one]


def compare(old: Told, new: Told, said: str) -> dict[str, str]:
    """Returns the outcome of each point: kept, said (lost with a notice) or lost."""
    found: dict[str, str] = {}
    in_matroska = new.path.suffix in (".mkv", ".webm")

    def judge(point: str, kept: bool, there: bool = True, clause: str = "") -> None:
        if there:
            was_said = clause and re.search(clause, said)
            found[point] = "kept" if kept else "said" if was_said else "LOST"

    judge("frames", len(old.times) == len(new.times))
    if len(old.times) == len(new.times):
        moved = old.times[0] - new.times[0]
        from_ts = old.path.suffix == ".ts"
        together = moved if from_ts or (in_matroska and abs(moved) < Fraction(1, 40)) else 0
        most = Fraction(1, 1000) if in_matroska else 0
        pairs = zip(old.times, new.times, strict=True)
        judge("times", all(abs(a - b - together) <= most for a, b in pairs))
        same = old.means.shape == new.means.shape  # or it has lost transparency
        judge("colours", same and bool(abs(old.means - new.means).max() <= 1))
    keys = ["color_space", "color_range", "color_primaries", "color_transfer", "chroma_location"]
    if "444" in old.pictures["pix_fmt"]:
        keys.pop()
    wanted = {key: old.pictures[key] for key in keys if old.pictures.get(key)}
    kept = all(new.pictures.get(key) == value for key, value in wanted.items())
    judge("tags of colour", kept, bool(wanted))
    shape = [one.pictures.get("sample_aspect_ratio", "1:1") for one in (old, new)]
    same_shape = shape[0] == shape[1] and old.rotation() == new.rotation()
    judge("shape", same_shape and new.size == (old.size[0] * 2, old.size[1] * 2))
    _judge_streams(old, new, judge)
    chapters = [
        [(x["start_time"], x["end_time"], x.get("tags")) for x in one.all["chapters"]]
        for one in (old, new)
    ]
    judge("chapters", chapters[0] == chapters[1], bool(chapters[0]))
    tags = [Told.tags(one.all["format"]) for one in (old, new)]
    own = {key: value for key, value in tags[0].items() if key in ("title", "comment")}
    # ffprobe knows no titles of tracks in mp4.
    of_streams = [
        [{n: one[n] for n in ("Language", "Title") if n in one} for one in film.tracks]
        for film in (old, new)
    ]
    same = own == {k: v for k, v in tags[1].items() if k in own}
    same &= all(one in of_streams[1] for one in of_streams[0])
    judge("tags", same, bool(own) or any(of_streams[0]), "is left out")
    time_codes = [
        {Told.tags(x)["timecode"] for x in one.all["streams"] if "timecode" in Told.tags(x)}
        for one in (old, new)
    ]
    judge("timecode", time_codes[0] == time_codes[1], bool(time_codes[0]))
    judge("HDR10", old.hdr == new.hdr, any(old.hdr), "HDR10")
    judge("second reader", _second_reader(new))
    return found


def _judge_streams(old: Told, new: Told, judge: Callable[..., None]) -> None:
    heard, made = old.streams("audio"), new.streams("audio")

    def hashes(film: Told, stream: dict[str, Any]) -> Any:
        packets = film.packets(stream)
        if old.path.suffix == ".ts":  # whose packets have a header each
            return len(packets)
        return [one["data_hash"] for one in packets]

    left = r"audio \d+ .*(left out)"
    same = [hashes(old, one) for one in heard] == [hashes(new, one) for one in made]
    judge("sound", same, bool(heard), left)
    if len(heard) == len(made):
        moved = [abs(old.place(a) - new.place(b)) for a, b in zip(heard, made, strict=True)]
        judge("sound's place", max(moved, default=0) < 0.001, bool(heard))
    read, written = old.streams("subtitle"), new.streams("subtitle")
    texts = [
        [entry for one in s for entry in film.text(one)]
        for film, s in ((old, read), (new, written))
    ]
    same = (
        len(read) == len(written)
        and len(texts[0]) == len(texts[1])
        and all(
            a[2].strip() == b[2].strip() and max(abs(a[0] - b[0]), abs(a[1] - b[1])) <= 1
            for a, b in zip(*texts, strict=True)
        )
    )
    judge("subtitles", same, bool(read), r"subtitle \d+ .*(left out|styles)")
    fonts, kept = old.streams("attachment"), new.streams("attachment")
    same = [(Told.tags(x), old.font(x)) for x in fonts] == [
        (Told.tags(x), new.font(x)) for x in kept
    ]
    judge("fonts", same, bool(fonts), r"attachment \d+ .*left out")
    judge("covers", old.covers == new.covers, bool(old.covers), r"cover \d+ .*left out")
    flags = [
        [{k for k, v in x["disposition"].items() if v} for x in one.streams("audio")]
        for one in (old, new)
    ]
    there = any(flags[0])
    judge("dispositions", flags[0] == flags[1], there, left)


def _second_reader(new: Told) -> bool:
    """Whether mediainfo counts as many frames and sounds, and mkvmerge warns of nothing."""
    kinds = Counter(one["@type"] for one in new.tracks)
    pictures = next(one for one in new.tracks if one["@type"] == "Video")
    is_same = kinds["Audio"] == len(new.streams("audio"))
    # It counts the empty beginning of an edit list; of Matroska, it has only length and rate.
    if new.path.suffix in (".mp4", ".mov") and "Source_Duration" not in pictures:
        is_same &= int(pictures.get("FrameCount", len(new.times))) == len(new.times)
    is_same &= (int(pictures["Width"]), int(pictures["Height"])) == new.size
    if new.path.suffix in (".mkv", ".webm"):
        told = json.loads(run("mkvmerge", "-J", str(new.path)))
        is_same &= not told["warnings"] and not told["errors"]
    return is_same


def ours(source: Path, target: Path) -> str:
    """`waifu2x video`; what it says."""
    codec, more = CODECS[target.suffix[1:]], []
    if target.suffix == ".webm" and source.name == "hdr10.mkv":
        codec = "av1"  # this VP9 has 8 bits
    if source.name == "alpha.webm" and codec == "vp9":
        more = ["--codec-option", "auto-alt-ref=0"]
    if codec != "ffv1":
        more += ["--crf", "4"]
    command = [sys.executable, "-m", "waifu2x", "video", "-n", "none", "--drop-unsupported"]
    command += ["--backend", "cpu", "-c", codec, *more, str(source), str(target)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)
    return f"{done.stdout}{done.stderr}(exit {done.returncode})"


def plain(source: Path, target: Path) -> str:
    """The plain recipe, with a cheap enlargement; nothing is said."""
    with av.open(str(source)) as read, av.open(str(target), "w") as written:
        pictures = read.streams.video[0]
        rate = pictures.guessed_rate
        graph = av.filter.Graph()
        first, fps = graph.add_buffer(template=pictures), graph.add("fps", f"fps={rate}")
        last = graph.add("buffersink")
        first.link_to(fps)
        fps.link_to(last)
        graph.configure()
        made = written.add_stream("libx264", rate=rate, options={"crf": "4"})
        made.width, made.height = pictures.width * 2, pictures.height * 2
        made.pix_fmt = "yuv420p"
        heard = next(iter(read.streams.audio), None)
        copied = written.add_stream_from_template(heard) if heard else None
        for packet in read.demux([one for one in (pictures, heard) if one]):
            if packet.stream == heard:
                if packet.dts is not None:
                    packet.stream = copied
                    written.mux(packet)
                continue
            try:
                frames = packet.decode()
            except av.error.InvalidDataError:
                continue
            for frame in [*frames, *([] if packet.size else [None])]:
                graph.push(frame)
                while True:
                    try:
                        pulled = graph.pull()
                    except (av.error.BlockingIOError, av.error.EOFError):
                        break
                    pixels = pulled.to_ndarray(format="rgb24").repeat(2, 0).repeat(2, 1)
                    fresh = av.VideoFrame.from_ndarray(pixels, "rgb24").reformat(format="yuv420p")
                    written.mux(made.encode(fresh))
        written.mux(made.encode())
    return ""


def tell(program: Callable[[Path, Path], str], source: Path, target: Path) -> dict[str, str]:
    """Returns the outcome of a film."""
    try:
        said = program(source, target)
    except Exception as error:  # a peer's failure is a result
        return {"ends": f"LOST {type(error).__name__}"}
    if not target.exists():
        lines = [line for line in said.splitlines() if line.startswith("Error: ")]
        return {"ends": f"said: {lines[0][7:]}" if len(lines) == 1 else f"LOST {said}"}
    found = compare(Told(source), Told(target), said)
    if "(exit 1)" in said:
        found["damage"] = "said"
    return found


def main() -> None:
    """Prints the tables."""
    chosen = sys.argv[1:] or list(films.CASES)
    sums: dict[str, Counter[str]] = {}
    print("| film | " + " | ".join(CODECS) + " | plain recipe, mkv | plain recipe, mp4 |")
    print("|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for name in chosen:
            source = Path(folder, name)
            films.CASES[name](source)
            cells = []
            runs = [(ours, suffix) for suffix in CODECS] + [(plain, "mkv"), (plain, "mp4")]
            for program, suffix in runs:
                target = source.with_name(f"{source.stem}-{program.__name__}.{suffix}")
                found = tell(program, source, target)
                for point, what in found.items():
                    sums.setdefault(f"{program.__name__} {point}", Counter())[what[:4]] += 1
                notes = [f"{p}: {w}" for p, w in found.items() if w != "kept"]
                cells.append("; ".join(notes) or "all kept")
            print(f"| {name} | " + " | ".join(cells) + " |", flush=True)
    print("\n| point | waifu2x: kept, said, lost | plain recipe: kept, lost |\n|---|---|---|")
    for point in (*POINTS, "ends"):
        own, other = (sums.get(f"{who} {point}", Counter()) for who in ("ours", "plain"))
        told = ", ".join(str(own[key]) for key in ("kept", "said", "LOST"))
        print(f"| {point} | {told} | {other['kept']}, {other['LOST']} |")


if __name__ == "__main__":
    main()
