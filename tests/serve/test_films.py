"""Films through a running server."""

from __future__ import annotations

import io
import time
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
pytest.importorskip("av")
import av

from tests.helpers import films
from tests.helpers.contents import encode, noise
from tests.helpers.servers import Server
from waifu2x.imaging.picture import Picture

SIZE = (32, 48)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("server"), "--max-pixels", "100000") as running:
        yield running


def film_of(count: int, **options: Any) -> bytes:
    """Makes a lossless film of `count` frames, 25 a second."""
    file = io.BytesIO()
    times = tuple(range(0, 40 * count, 40))
    films.film(
        file, **{"container": "matroska", "codec": "ffv1", "times": times, "size": SIZE} | options
    )
    return file.getvalue()


def frames_of(content: bytes) -> list[Any]:
    with av.open(io.BytesIO(content)) as opened:
        return [frame.to_ndarray(format="rgb24") for frame in opened.decode(video=0)]


def test_a_film_comes_back_larger(server: Server) -> None:
    content = film_of(25, sounds=[("flac", 0.0)])
    job = server.send("in.mkv", content)
    assert job["kind"] == "film"
    assert job["source"] == {
        "width": 48, "height": 32, "bytes": len(content), "format": "mkv", "pages": 25
    }  # fmt: skip
    done = server.ended(job["id"])
    assert done["state"] == "done", done
    assert done["result"]["name"] == "in-2x.mkv"
    assert (done["result"]["width"], done["result"]["height"]) == (96, 64)
    assert done["command"] == "waifu2x video -n none -m vgg_7/art in.mkv in-2x.mkv"
    answer = server.ask("GET", f"/api/jobs/{job['id']}/result")
    assert answer.headers["content-type"] == "video/x-matroska"
    made = frames_of(answer.body)
    assert [frame.shape for frame in made] == [(64, 96, 3)] * 25
    with av.open(io.BytesIO(answer.body)) as opened:
        assert [stream.codec_context.name for stream in opened.streams.audio] == ["flac"]
    for frame, source in zip(made, frames_of(content), strict=True):
        plain = np.asarray(Image.fromarray(source).resize((96, 64), Image.Resampling.LANCZOS))
        assert np.abs(plain.astype(int) - frame).mean() < 12
    # Nothing of the work stays: what was sent, and the result.
    assert not list((server.folder / "serve" / "jobs" / job["id"]).glob("*.parts"))


def test_a_transparent_film_takes_a_container_that_keeps_it(server: Server) -> None:
    """Without a codec, the container that was sent, or Matroska, implies one."""
    content = film_of(2, container="mov", codec="png", pixels="rgba")
    done = server.ended(server.send("clear.mp4", content)["id"])
    assert (done["state"], done["result"]["name"]) == ("done", "clear-2x.mkv"), done
    with av.open(io.BytesIO(server.ask("GET", f"/api/jobs/{done['id']}/result").body)) as opened:
        assert len(next(opened.decode(video=0)).format.components) == 4


def test_a_film_has_settings_of_its_own(server: Server) -> None:
    job = server.send(
        "in.mkv", film_of(2), film_model="upconv_7/photo", film_codec="x265", film_crf="31.5"
    )
    done = server.ended(job["id"])
    command = "waifu2x video -n none -m upconv_7/photo -c x265 --crf 31.5 in.mkv in-2x.mkv"
    assert (done["state"], done["command"]) == ("done", command)
    made = server.ask("GET", f"/api/jobs/{done['id']}/result").body
    with av.open(io.BytesIO(made)) as opened:
        assert opened.streams.video[0].codec_context.name == "hevc"
    assert b" crf=31.5 " in made  # as the encoder notes it
    # A model that is given alone is for films, too; what is empty is as usual.
    path = f"/api/jobs/{job['id']}/retry"
    again = server.ask("POST", path, model="vgg_7/art", film_codec="", film_crf="").data
    assert again["command"] == "waifu2x video -n none -m vgg_7/art in.mkv in-2x.mkv"
    server.ask("POST", f"/api/jobs/{job['id']}/cancel")
    for name, wrong in (
        ("codec", "exe"), ("crf", "x"), ("model", "/etc/passwd"), ("deinterlace", "maybe")
    ):  # fmt: skip
        path = f"/api/jobs?name=in.mkv&film_{name}={wrong}"
        assert server.ask("POST", path, b"x").status == 400, path


@pytest.mark.matrix
def test_frames_are_seen(server: Server) -> None:
    content = film_of(5)
    identity = server.ended(server.send("in.mkv", content)["id"])["id"]
    sources = frames_of(content)
    for page in (0, 4):
        for kind, size in (("source", (48, 32)), ("view", (96, 64))):
            answer = server.ask("GET", f"/api/jobs/{identity}/{kind}", page=page)
            assert answer.headers["content-type"] == "image/png"
            seen = Image.open(io.BytesIO(answer.body)).convert("RGB")
            assert seen.size == size
            small = np.asarray(seen.resize((48, 32), Image.Resampling.BOX)).astype(int)
            assert np.abs(small - sources[page]).mean() < 12
    answer = server.ask("GET", f"/api/jobs/{identity}/thumbnail")
    assert Image.open(io.BytesIO(answer.body)).format == "JPEG"
    answer = server.ask(
        "GET", f"/api/jobs/{identity}/crop", page=2, x=3, y=5, width=11, height=9, scale=3
    )
    assert Image.open(io.BytesIO(answer.body)).size == (33, 27)
    assert server.ask("GET", f"/api/jobs/{identity}/source", page=900).status == 422


def test_films_that_cannot_be_made(server: Server) -> None:
    cases = {
        "in.mp4": (b"no film", "in.mp4: "),
        "large.mkv": (film_of(1, size=(400, 300)), "large.mkv: its pictures have 300x400 pixels"),
        "long.mkv": (film_of(2, times=(0, 13 * 3600 * 1000)), "long.mkv: it lasts 13 hours"),
    }
    for name, (content, told) in cases.items():
        failed = server.send(name, content)
        assert failed["state"] == "failed"
        assert failed["error"].startswith(told)
        assert "source." not in failed["error"]
    assert server.ask("GET", "/api/settings").data["video"] is True


@pytest.mark.matrix
def test_pictures_pass_a_film_which_is_cancelled(server: Server) -> None:
    slow = server.send("slow.mkv", film_of(250, size=(16, 16)), tta=8)["id"]
    after = server.send("next.mkv", film_of(2))["id"]
    server.until(slow, "working")
    picture = server.send("in.png", encode(Picture(noise(13, 17, 3)), "png"))["id"]
    assert server.ended(picture)["state"] == "done"
    assert server.job(slow)["state"] == "working"
    assert server.job(after)["state"] == "waiting"
    assert server.ask("POST", f"/api/jobs/{slow}/cancel").data["state"] == "cancelled"
    assert server.ended(after)["state"] == "done"
    folder = server.folder / "serve" / "jobs" / slow
    assert not list(folder.glob("result*"))


@pytest.mark.matrix
def test_a_film_goes_on_after_a_kill(tmp_path: Path) -> None:
    """Parts that were complete are not made again."""
    # Three parts.
    content = film_of(24, times=range(0, 24_000, 1000), rate=Fraction(1), size=(16, 16))
    with Server(tmp_path) as first:
        identity = first.send("in.mkv", content, tta=2)["id"]
        parts = tmp_path / "serve" / "jobs" / identity / "result-0.mkv.parts"
        end = time.monotonic() + 60
        while not (found := list(parts.glob("part-*.json")) if parts.exists() else []):
            assert time.monotonic() < end
            time.sleep(0.01)
        first.kill()
    assert found
    with Server(tmp_path) as second:
        while not (job := second.job(identity))["progress"]:
            assert job["state"] in ("waiting", "working")
            assert time.monotonic() < end
            time.sleep(0.01)
        assert job["progress"] > 10 / 24
        done = second.ended(identity)
        assert done["state"] == "done", done
        body = second.ask("GET", f"/api/jobs/{identity}/result").body
    assert len(frames_of(body)) == 24
