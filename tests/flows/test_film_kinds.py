"""Kinds of films in each container that holds them: what ffprobe finds is kept, or said.

ffmpeg makes the films: rotated, anamorphic, interlaced, of other colours, with much sound and text.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

pytest.importorskip("av")
from tests.helpers.contents import identity_models
from waifu2x.cli import cli

pytestmark = pytest.mark.skipif(
    not (shutil.which("ffmpeg") and shutil.which("ffprobe")), reason="FFmpeg is not installed"
)
PICTURE = "-f lavfi -i testsrc2=s=64x48:r=10:d=0.5"
SOUND = "-f lavfi -i sine=d=0.5"
X264 = "-c:v libx264 -preset ultrafast -pix_fmt yuv420p"
MPEG2 = "-c:v mpeg2video -pix_fmt yuv420p"
TEXT = "1\n00:00:00,100 --> 00:00:00,300\nword\n"
CHAPTERS = ";FFMETADATA1\ntitle=Film\n[CHAPTER]\nTIMEBASE=1/1000\nSTART=0\nEND=200\ntitle=One\n"
CHAPTERS += "[CHAPTER]\nTIMEBASE=1/1000\nSTART=200\nEND=500\ntitle=Two\n"
KINDS: dict[str, tuple[str, str]] = {
    "anamorphic": ("mkv mp4 mov ts", f"{PICTURE} -vf setsar=32/27 {X264}"),
    "full range": ("mkv mp4 mov ts", f"{PICTURE} {X264} -vf scale=out_range=pc -color_range pc"),
    "film colours": (
        "mkv mp4 mov ts",
        f"{PICTURE} {X264} -color_primaries smpte170m -color_trc smpte170m -colorspace smpte170m",
    ),
    "hdr": (
        "mkv mp4 mov ts",
        f"{PICTURE} -c:v libx265 -preset ultrafast -pix_fmt yuv420p10le -x265-params log-level=none"
        " -color_primaries bt2020 -color_trc smpte2084 -colorspace bt2020nc",
    ),
    "interlaced": (
        "mkv mp4 mov ts avi mpg",
        f"{PICTURE} {MPEG2} -vf tinterlace=interleave_top,fieldorder=tff -flags +ilme+ildct",
    ),
    "many streams": (
        "mkv mp4 mov ts",
        f"{PICTURE} {SOUND} {SOUND} -map 0 -map 1 -map 2 {X264} -c:a aac -metadata:s:a:0"
        " language=jpn -metadata:s:a:1 language=fra -disposition:a:1 default",
    ),
    "words": (
        "mkv mp4 mov",
        f"{PICTURE} -i text.srt -i chapters.txt -map 0 -map 1 -map_metadata 2 {X264}",
    ),
    "raw sound": ("mkv mov avi", f"{PICTURE} {SOUND} {X264} -c:a pcm_s16le"),
    "phone sound": ("mp4 mov 3gp", f"{PICTURE} {SOUND} {X264} -c:a aac -ar 8000 -ac 1 -b:a 12k"),
    "wma": ("asf avi", f"{PICTURE} {SOUND} -c:v mpeg4 -c:a wmav2"),
    "transparent": ("mov", f"{PICTURE} -vf format=yuva444p10le -c:v prores_ks -profile:v 4444"),
    "clear": ("webm mkv", f"{PICTURE} -vf format=yuva420p -c:v libvpx-vp9 -deadline realtime"),
    "deep": ("mkv mov", f"{PICTURE} -c:v prores_ks -pix_fmt yuv422p10le"),
    "uneven": (
        "mkv mp4 mov",
        f"{PICTURE} -vf select='not(eq(n\\,2))' -fps_mode vfr {X264} -bf 2",
    ),
    "later": ("mkv mp4 mov ts", f"{PICTURE} {SOUND} {X264} -c:a aac -output_ts_offset 2"),
}
"""Containers by their extensions, and ffmpeg's arguments."""
ALWAYS = {("later", "mkv", "mkv"), ("many streams", "mp4", "mkv"), ("words", "mov", "mov")}
"""Cases that run with every run of the tests."""
CASES = [
    pytest.param(*case, marks=() if case in ALWAYS else pytest.mark.matrix)
    for kind, (sources, _) in KINDS.items()
    for case in dict.fromkeys(
        (kind, source, target)
        for source in sources.split()
        for target in ("mkv", source if source in ("mp4", "mov", "webm") else "mp4")
    )
]
REFUSED = {"mkv": ("wma",), "mp4": ("wma", "clear")}
"""Kinds that a container cannot hold, by its extension."""
FACTS = (
    "sample_aspect_ratio",
    "color_range",
    "color_space",
    "color_transfer",
    "color_primaries",
)
DEEP = re.compile("p10|p12|16")
CLEAR = re.compile("a4|rgba|bgra|argb")


def probed(path: Path) -> dict[str, Any]:
    """ffprobe's description of a film."""
    command = "ffprobe -v error -of json -show_streams -show_chapters -show_format -count_packets"
    done = subprocess.run([*command.split(), str(path)], capture_output=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def facts(path: Path) -> dict[str, Any]:
    """Facts of a film that are kept or said, by words that a notice of their loss has."""
    found = probed(path)
    video = next(one for one in found["streams"] if one["codec_type"] == "video")
    others = [one for one in found["streams"] if one["codec_type"] in ("audio", "subtitle")]
    told: dict[str, Any] = {name: video.get(name, "unknown") for name in FACTS}
    told["deep"] = bool(DEEP.search(video["pix_fmt"]))
    tags = {name.lower(): value for name, value in video.get("tags", {}).items()}
    alpha = tags.get("alpha_mode") == "1"
    told["transparen"] = alpha or bool(CLEAR.search(video["pix_fmt"]))
    told["pictures"] = int(video["nb_read_packets"])
    languages = [one.get("tags", {}).get("language", "und") for one in others]
    told["streams"] = sorted(zip((one["codec_type"] for one in others), languages, strict=True))
    told["default"] = sorted(
        one.get("tags", {}).get("language", "und")
        for one in others
        if one["codec_type"] == "audio" and one["disposition"]["default"]
    )
    told["chapters"] = [one["tags"].get("title") for one in found["chapters"]]
    return told


@pytest.mark.parametrize(("kind", "source", "target"), CASES)
def test_a_film_keeps_all_or_says_so(kind: str, source: str, target: str, tmp_path: Path) -> None:
    (tmp_path / "text.srt").write_text(TEXT)
    (tmp_path / "chapters.txt").write_text(CHAPTERS)
    identity_models(tmp_path / "identity")
    path, result = tmp_path / f"film.{source}", tmp_path / f"made.{target}"
    text = "" if kind != "words" else f"-c:s {'srt' if source == 'mkv' else 'mov_text'}"
    arguments = f"ffmpeg -v error {KINDS[kind][1]} {text}".split()
    done = subprocess.run(
        [*arguments, path.name], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    before = facts(path)
    codec = ["-c", "ffv1"] if target == "mkv" else []
    model = str(tmp_path / "identity")
    run = CliRunner().invoke(
        cli, ["video", "-m", model, "--backend", "numpy", *codec, str(path), str(result)]
    )
    assert "Traceback" not in run.output, run.output
    if run.exit_code:
        assert not result.exists()
        assert kind in REFUSED.get(target, ()), run.stderr
        assert re.match(r"Error: .*[;:] .*", run.stderr.splitlines()[-1]), run.stderr
        return
    after = facts(result)
    lost = {name: (was, after[name]) for name, was in before.items() if was != after[name]}
    # Facts that a film does not tell are assumed, and written.
    lost = {name: pair for name, pair in lost.items() if pair[0] not in ("unknown", [])}
    silent = {name: pair for name, pair in lost.items() if name[:10] not in run.stderr}
    if kind == "interlaced":
        silent.pop("pictures", None)
        assert "interlaced" in run.stderr
    assert not silent, run.stderr
