"""A file through a running server, as its page sends it."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import numpy as np
import pytest
from PIL import Image

from tests.helpers.contents import decode, encode, noise
from tests.helpers.servers import Server
from waifu2x.api import Upscaler
from waifu2x.api.settings.uses import USES
from waifu2x.imaging.picture import Picture

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
PICTURE = noise(13, 17, 3)
PNG = encode(Picture(PICTURE), "png")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("server")) as running:
        yield running


def test_a_picture_comes_back_as_an_upscaler_makes_it(server: Server) -> None:
    job = server.send("in.png", PNG)
    assert job["source"] == {
        "width": 17, "height": 13, "bytes": len(PNG), "format": "PNG", "pages": 1
    }  # fmt: skip
    done = server.ended(job["id"])
    assert done["state"] == "done", done
    assert done["progress"] == 1.0
    assert done["result"]["name"] == "in-2x.png"
    answer = server.ask("GET", f"/api/jobs/{job['id']}/result")
    assert answer.headers["content-type"] == "image/png"
    assert answer.headers["content-disposition"].endswith("in-2x.png")
    with Upscaler(2, model="vgg_7/art", backend="numpy") as upscaler:
        np.testing.assert_array_equal(decode(answer.body).pixels, upscaler(PICTURE))


def test_a_script_posts_a_picture_and_gets_a_picture(server: Server) -> None:
    before = server.ask("GET", "/api/jobs").data["total"]
    answer = server.ask(
        "POST", "/api/upscale", PNG, name="a.png", model="vgg_7/art", scale="1.5", format="webp"
    )
    assert answer.status == 200
    assert answer.headers["content-type"] == "image/webp"
    assert Image.open(io.BytesIO(answer.body)).size == (26, 20)
    server.gone(before)  # nothing stays once the answer is sent


def test_views_are_pngs_of_our_own(server: Server) -> None:
    identity = server.ended(server.send("in.png", PNG)["id"])["id"]
    for what, size in {"source": (17, 13), "view": (34, 26)}.items():
        answer = server.ask("GET", f"/api/jobs/{identity}/{what}")
        assert answer.headers["content-type"] == "image/png"
        assert Image.open(io.BytesIO(answer.body)).size == size
    source = server.ask("GET", f"/api/jobs/{identity}/source").body
    np.testing.assert_array_equal(decode(source).pixels, PICTURE)
    small = server.ask("GET", f"/api/jobs/{identity}/thumbnail")
    assert small.headers["content-type"] == "image/jpeg"
    assert Image.open(io.BytesIO(small.body)).size == (17, 13)


@pytest.mark.parametrize("ink", [0, 255])
def test_a_thumbnail_shows_a_drawing_without_ground(ink: int, server: Server) -> None:
    """Black or white, on a page that is light or dark."""
    alpha = np.zeros((32, 32), np.uint8)
    alpha[8:24, 8:24] = 255
    drawing = Picture(np.full((32, 32, 3), ink, np.uint8), alpha)
    identity = server.send("ink.png", encode(drawing, "png"))["id"]
    small = server.ask("GET", f"/api/jobs/{identity}/thumbnail")
    assert small.headers["content-type"] == "image/jpeg"
    seen = np.asarray(Image.open(io.BytesIO(small.body)).convert("L")).astype(int)
    assert abs(seen[12:20, 12:20] - ink).max() < 8
    ground = seen[:6]
    assert abs(ground - ink).min() > 64
    assert ground.max() < 192  # on a dark page, it does not glare


def test_a_crop_is_what_a_model_makes_of_it(server: Server) -> None:
    identity = server.send("in.png", PNG)["id"]
    answer = server.ask(
        "GET", f"/api/jobs/{identity}/crop", x=3, y=2, width=9, height=7, model="upconv_7/art"
    )
    assert answer.headers["content-type"] == "image/png"
    with Upscaler(2, model="upconv_7/art", backend="numpy") as upscaler:
        expected = upscaler(np.ascontiguousarray(PICTURE[2:9, 3:12]))
    np.testing.assert_array_equal(decode(answer.body).pixels, expected)
    outside = server.ask("GET", f"/api/jobs/{identity}/crop", x=10, y=2, width=9, height=7)
    assert outside.status == 422
    assert "17x13" in outside.data["error"]
    assert server.ask("GET", f"/api/jobs/{identity}/crop", x=0, y=0, width=9).status == 400


def test_archives_and_animations(server: Server) -> None:
    pages = io.BytesIO()
    with zipfile.ZipFile(pages, "w") as archive:
        archive.writestr("one.png", PNG)
        archive.writestr("two.png", encode(Picture(noise(5, 4, 1)), "png"))
    book = server.send("book.cbz", pages.getvalue())
    assert (book["kind"], book["source"]["pages"]) == ("archive", 2)
    frames = [Image.fromarray(noise(8, 6, 3, seed=seed)) for seed in range(3)]
    moving = io.BytesIO()
    frames[0].save(moving, "GIF", save_all=True, append_images=frames[1:], duration=40)
    animation = server.send("moving.gif", moving.getvalue())
    assert (animation["kind"], animation["source"]["pages"]) == ("animation", 3)
    assert server.ended(book["id"])["state"] == "done"
    made = server.ask("GET", f"/api/jobs/{book['id']}/result").body
    with zipfile.ZipFile(io.BytesIO(made)) as archive:
        assert [Image.open(archive.open(name)).size for name in archive.namelist()] == [
            (34, 26),
            (8, 10),
        ]
    view = server.ask("GET", f"/api/jobs/{book['id']}/view", page=1)
    assert Image.open(io.BytesIO(view.body)).size == (8, 10)
    assert server.ended(animation["id"])["state"] == "done"
    made = server.ask("GET", f"/api/jobs/{animation['id']}/result").body
    with Image.open(io.BytesIO(made)) as image:
        assert (image.size, getattr(image, "n_frames", 1)) == ((12, 16), 3)


def test_what_is_no_picture_is_a_card_that_says_so(server: Server) -> None:
    job = server.send("page.svg", b"<svg xmlns='http://www.w3.org/2000/svg'/>")
    assert job["state"] == "failed"
    assert job["error"].startswith("page.svg: it is a drawing (SVG)")
    assert server.ask("POST", f"/api/jobs/{job['id']}/retry").status == 409


def test_settings_that_make_no_sense(server: Server) -> None:
    queries: tuple[dict[str, Any], ...] = (
        {"model": "/etc/passwd"},
        {"scale": "33"},
        {"scale": "2", "width": "40"},
        {"noise": "4"},
        {"tta": "3"},
        {"format": "exe"},
        {"format": "png", "quality": "50"},
        {"quality": "101"},
        {"width": "0"},
        {"scale": "1", "noise": "none"},
    )
    for query in queries:
        answer = server.ask("POST", "/api/jobs", PNG, name="a.png", **query)
        assert answer.status == 400, query
        assert answer.data["error"].strip()


def test_tried_again_with_other_settings(server: Server) -> None:
    job = server.ended(server.send("in.png", PNG)["id"])
    again = server.ask("POST", f"/api/jobs/{job['id']}/retry", scale="3", format="bmp").data
    assert (again["id"], again["state"]) == (job["id"], "waiting")
    done = server.ended(job["id"])
    assert done["result"]["name"] == "in-3x.bmp"
    assert (done["result"]["width"], done["result"]["height"]) == (51, 39)
    assert done["settings"]["model"] == "vgg_7/art"
    assert server.ask("DELETE", f"/api/jobs/{job['id']}").status == 204
    assert server.ask("GET", f"/api/jobs/{job['id']}").status == 404
    assert not (server.folder / "serve" / "jobs" / job["id"]).exists()


def test_all_results_in_one_archive(server: Server) -> None:
    ids = [server.ended(server.send("../x/in.png", PNG)["id"])["id"] for _ in range(2)]
    answer = server.ask("GET", "/api/archive", ids=",".join(ids))
    with zipfile.ZipFile(io.BytesIO(answer.body)) as archive:
        assert archive.namelist() == ["001 in-2x.png", "002 in-2x.png"]
        for name in archive.namelist():
            assert Image.open(archive.open(name)).size == (34, 26)
    assert server.ask("GET", "/api/archive", ids="0123456789abcdef").status == 404


def test_a_client_is_told_what_it_has_missed(server: Server) -> None:
    version = server.ask("GET", "/api/jobs").data["version"]
    removed = server.send("in.png", PNG)["id"]
    kept = server.ended(server.send("in.png", PNG)["id"])["id"]
    server.ask("DELETE", f"/api/jobs/{removed}")
    told = server.ask("GET", "/api/jobs", since=version).data
    assert (told["begins"], told["more"], told["removed"]) == (False, False, [removed])
    assert [(job["id"], job["state"]) for job in told["jobs"]] == [(kept, "done")]
    for since in ("-1", "x", str(10**16)):
        assert server.ask("GET", "/api/jobs", since=since).status == 400


def test_ctrl_c_ends_it(tmp_path: Path) -> None:
    with Server(tmp_path) as running:
        code, said = running.stop()
    assert (code, said) == (0, "")


def test_a_use_chooses_model_and_noise_level() -> None:
    from waifu2x.serve.job_settings import JobSettings

    old = next(name for name, use in USES.items() if use.level is not None)
    use = USES[old]
    for query, made in {
        "best_for=speed": (USES["speed"].model, "auto"),
        f"best_for={old}": (use.model, str(use.level)),
        f"best_for={old}&noise=none": (use.model, "none"),
        "best_for=": ("vgg_7/art", "1"),
    }.items():
        asked = dict(parse_qsl(query, keep_blank_values=True))
        found = JobSettings.of(asked, JobSettings("vgg_7/art", "1"))
        assert (found.model, found.noise) == made
    for wrong in ({"best_for": "anime"}, {"best_for": "speed", "model": "vgg_7/art"}):
        with pytest.raises(ValueError, match="best_for"):
            JobSettings.of(wrong)


def test_settings_say_what_there_is(server: Server) -> None:
    found = server.ask("GET", "/api/settings").data
    assert found["defaults"]["scale"] == "2"
    assert [use["name"] for use in found["uses"]] == [*USES]
    names = [one["name"] for one in found["models"]]
    assert {"cunet/art", "vgg_7/art"} <= set(names)
    assert {"PNG", "JPEG", "WebP"} <= {one["name"] for one in found["formats"]}
