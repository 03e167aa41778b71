"""Remarks about a job: the losses of its result, and what else was decided."""

from __future__ import annotations

import io
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

from tests.helpers.contents import encode, noise
from tests.helpers.queues import added, queue_of
from tests.helpers.servers import Server
from waifu2x.errors import LESS_MEMORY, Sentence
from waifu2x.imaging.picture import Picture
from waifu2x.serve.job_results import JobResults
from waifu2x.serve.jobs import COMMAND_LINE, Remarks, ResultInfo, few, on_page
from waifu2x.serve.spool import Spool
from waifu2x.serve.store import Store

needs_ffmpeg = pytest.mark.skipif(shutil.which("ffmpeg") is None, reason="needs the program ffmpeg")
CLIP = ("-f", "lavfi", "-i", "testsrc=s=48x32:r=10:d=1", "-f", "lavfi", "-i", "sine=d=1")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("server")) as running:
        yield running


def clip(path: Path, *options: str) -> bytes:
    """Makes a film with a sound by FFmpeg."""
    subprocess.run(["ffmpeg", "-v", "error", *CLIP, *options, str(path)], check=True)
    return path.read_bytes()


def sounds_of(server: Server, job: dict[str, Any]) -> list[str]:
    """Returns the codecs of sounds in a result."""
    av = pytest.importorskip("av")
    body = server.ask("GET", f"/api/jobs/{job['id']}/result").body
    with av.open(io.BytesIO(body)) as opened:
        return [stream.codec_context.name for stream in opened.streams.audio]


def test_less_depth_is_told_and_kept_over_a_restart(tmp_path: Path) -> None:
    deep = encode(Picture(noise(9, 11, 3).astype(np.uint16) * 257), "png")
    with Server(tmp_path) as first:
        plain = first.ended(first.send("plain.png", encode(Picture(noise(9, 11, 3)), "png"))["id"])
        assert (plain["lost"], plain["notices"]) == ([], [])
        done = first.ended(first.send("deep.png", deep, format="jpg")["id"])
        assert (done["state"], done["lost"]) == ("done", [])
        (notice,) = done["notices"]
        assert notice.startswith("deep.png: ")
        assert "16" in notice
    with Server(tmp_path) as second:
        assert second.job(done["id"])["notices"] == [notice]
        (_, listed) = second.ask("GET", "/api/jobs").data["jobs"]
        assert listed["notices"] == [notice]
        # Made anew as a PNG, nothing of it is true any more.
        second.ask("POST", f"/api/jobs/{done['id']}/retry", format="png")
        assert second.ended(done["id"])["notices"] == []


@needs_ffmpeg
def test_a_sound_that_mp4_refuses_goes_elsewhere(server: Server, tmp_path: Path) -> None:
    pytest.importorskip("av")
    options = ("-c:v", "libx264", "-pix_fmt", "yuv420p", "-ac", "1", "-ar", "22050")
    cases = {"tta": ("matroska", "mkv"), "adpcm_ima_qt": ("mov", "mov")}
    for codec, (kind, container) in cases.items():
        content = clip(tmp_path / codec, *options, "-c:a", codec, "-f", kind)
        done = server.ended(server.send("in.mp4", content)["id"])
        assert done["state"] == "done", done
        assert (done["result"]["format"], done["lost"]) == (container, [])
        assert f"in.mp4: .mp4 cannot hold all of it: made as .{container}" in done["notices"]
        assert sounds_of(server, done) == [codec]


@needs_ffmpeg
def test_a_film_whose_only_sound_is_lost_says_so(server: Server, tmp_path: Path) -> None:
    """Broadcasts of some countries have such a sound, which no container here holds."""
    pytest.importorskip("av")
    content = clip(
        tmp_path / "in.ts", "-c:v", "libx264", "-pix_fmt", "yuv420p", "-c:a", "aac",
        "-mpegts_flags", "latm",
    )  # fmt: skip
    done = server.ended(server.send("in.ts", content)["id"])
    assert done["state"] == "done", done
    assert done["lost"] == [
        "in.ts: audio 1 aac_latm is left out",
        "in.ts: the result has no sound, since no container here holds it",
    ]
    assert sounds_of(server, done) == []


def test_a_damaged_film_says_so(server: Server, tmp_path: Path) -> None:
    av = pytest.importorskip("av")
    from tests.helpers import films

    films.film(tmp_path / "in.mkv", size=(16, 24))
    content = (tmp_path / "in.mkv").read_bytes()
    done = server.ended(server.send("in.mkv", content[: len(content) * 6 // 10])["id"])
    assert done["state"] == "done", done
    (told,) = done["lost"]
    found = re.fullmatch(r"in\.mkv: 1 place is damaged \((\d+) frames, .* could be read\)", told)
    assert found, told
    with av.open(io.BytesIO(server.ask("GET", f"/api/jobs/{done['id']}/result").body)) as opened:
        assert len(list(opened.decode(video=0))) == int(found[1])
    assert "source" not in " ".join(done["lost"] + done["notices"])


def test_remarks_outlive_the_work_and_end_with_a_retry(tmp_path: Path) -> None:
    store = Store(tmp_path / "queue.sqlite", print)
    queue = queue_of(tmp_path, store)
    identity = added(queue, tmp_path, b"1")
    record = queue.take(0.0)
    assert record is not None
    known = Remarks(["a: its sound"], ["a: other"])
    queue.remark(record, known)
    store.close()
    store = Store(tmp_path / "queue.sqlite", print)
    queue = queue_of(tmp_path, store)
    record = queue.take(0.0)
    assert record is not None
    assert record.remarks == known
    queue.finish(record, ResultInfo("a", 1, 1, 1, "png", 1.0), Remarks(known.lost))
    done = queue.retry(identity, record.settings)
    assert (done["lost"], done["notices"]) == ([], [])
    # A job that is no longer wanted gets none.
    queue.remark(record, known)
    assert queue.get(identity).remarks is None
    store.close()


def test_an_error_names_the_file_that_was_sent(tmp_path: Path) -> None:
    """Whichever file of the job it is about: a film may become one of another container."""
    queue, spool = queue_of(tmp_path), Spool(tmp_path)
    results = JobResults(queue, spool, None)
    for name in ("source", "result-0.mkv", "result-0.mov.parts/part-0.mkv", "result-0.png.parts"):
        identity = added(queue, tmp_path, b"1")
        record = queue.take(0.0)
        assert record is not None
        results.fail(record, f"{spool.of(identity) / name}: cannot be written: no space left")
        assert queue.get(identity).error == "x.png: cannot be written: no space left"


@pytest.mark.parametrize(
    ("remedy", "on_a_card", "in_an_error"),
    [
        ("look at a frame first, with --preview, or use --to sdr", "", COMMAND_LINE),
        ("use -s 1 -n 0", "", COMMAND_LINE),
        ("use `waifu2x video`", "", COMMAND_LINE),
        ("save it as a 16-bit PNG", "save it as a 16-bit PNG", "save it as a 16-bit PNG"),
        (LESS_MEMORY, LESS_MEMORY, LESS_MEMORY),
        ("", "", ""),
    ],
)
def test_no_remedy_names_an_option_that_the_page_lacks(
    remedy: str, on_a_card: str, in_an_error: str
) -> None:
    """The problem stays as it is, whatever a file is called."""
    problem = "title--b; use -x.png: 90 pixels are more than --max-pixels 9 allows"
    told = Sentence(problem, remedy)
    assert on_page(told) == "; ".join(filter(None, (problem, on_a_card)))
    assert on_page(told, COMMAND_LINE) == "; ".join(filter(None, (problem, in_an_error)))


def test_a_file_cannot_fill_the_card_with_notices() -> None:
    found = few([f"a: stream {number} is left out" for number in range(1000)] * 2)
    assert len(found) == 21
    assert found[-1] == "There are 980 more notices."
    (long,) = few(["a" * 100_000])
    assert len(long) < 1000
