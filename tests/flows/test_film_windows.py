"""Networks of several frames get each frame's neighbours in time, however a film is divided."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from numpy.typing import NDArray
from PIL import Image

av = pytest.importorskip("av")

from tests.flows.test_film_enlarging import Kind, check_codes  # noqa: E402
from tests.flows.test_film_streams import pictures_of  # noqa: E402
from tests.helpers import family_weights, obvious_planes, weight_files  # noqa: E402
from tests.helpers.family_weights import filled  # noqa: E402
from tests.networks.test_families import result  # noqa: E402
from waifu2x.cli import cli  # noqa: E402
from waifu2x.flows.film import request  # noqa: E402
from waifu2x.flows.film.frames.frame_device import FrameDevice  # noqa: E402
from waifu2x.flows.film.frames.frame_enlarger import FrameEnlarger  # noqa: E402
from waifu2x.flows.film.frames.frame_windows import is_cut  # noqa: E402
from waifu2x.flows.film.makers.run_maker import MakerHere, RunMaker, make_run  # noqa: E402
from waifu2x.flows.film.making import MadeFilm, make_film  # noqa: E402
from waifu2x.flows.film.parts.part_runs import FilmWork, PartRun, expected_parts  # noqa: E402
from waifu2x.flows.film.reading.client import FilmReader  # noqa: E402
from waifu2x.flows.film.request import FilmJob, prepare  # noqa: E402
from waifu2x.formats.film.description import Cut  # noqa: E402
from waifu2x.formats.film.writing.codecs import Wish  # noqa: E402
from waifu2x.networks.readers import parse_named  # noqa: E402

SIZE = HEIGHT, WIDTH = 32, 48
WEIGHTS = (1, 3, 7, 11, 13)
"""The factors of the frames of a window, in the network of these tests."""
SCENES = (0, 7, 8, 21)
"""Where scenes begin; one has a single frame."""
FRAMES = 30
Frames = Sequence[Sequence[NDArray[Any]]]


@pytest.fixture(autouse=True)
def short_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request, "PART_SECONDS", 0.2)


def drawn(index: int) -> NDArray[np.uint8]:
    """RGB: scenes of other levels, in which a square moves."""
    scene = sum(begin <= index for begin in SCENES)
    picture = np.full((HEIGHT, WIDTH, 3), (50, 200)[scene % 2], np.uint8)
    picture[8:20, index : index + 12] = (90 + 5 * index, 20, 160)
    return picture


def film(
    path: Path, codec: str = "libx264", pixels: str = "yuv420p", step: int = 40, **options: str
) -> list[list[NDArray[Any]]]:
    """Writes the film, and returns its decoded planes."""
    with av.open(str(path), "w") as out:
        video = out.add_stream(codec, rate=Fraction(1000, step), options={"g": "12", **options})
        context = video.codec_context
        context.height, context.width, context.pix_fmt = HEIGHT, WIDTH, pixels
        context.time_base = Fraction(1, 1000)
        for index in range(FRAMES):
            frame = av.VideoFrame.from_ndarray(drawn(index), "rgb24").reformat(format=pixels)
            frame.pts, frame.time_base, frame.duration = index * step, context.time_base, step
            out.mux(video.encode(frame))
        out.mux(video.encode())
    return pictures_of(path)[1]


def mixed(windows: Frames, results: Frames) -> None:
    """The network of these tests: a weighted sum of the frames, its pixels as squares."""
    for planes, made in zip(windows, results, strict=True):
        each = len(planes) // len(WEIGHTS)
        for number, plane in enumerate(made):
            plane[:] = summed(planes[number::each]).repeat(2, 0).repeat(2, 1)


def summed(planes: Sequence[NDArray[Any]]) -> NDArray[np.uint8]:
    total = sum(weight * each.astype(int) for weight, each in zip(WEIGHTS, planes, strict=True))
    return np.asarray(total % 251, np.uint8)


def windows_of(index: int, scenes: Sequence[int] = SCENES) -> list[int]:
    """Frames that the definition gives a frame: those of its scene, the outer ones repeated."""
    first = max(begin for begin in scenes if begin <= index)
    last = min(begin for begin in (*scenes, FRAMES) if begin > index) - 1
    return [min(max(index + away, first), last) for away in range(-2, 3)]


def made_film(job: FilmJob, how: Any = MakerHere, enlarge: Any = mixed) -> MadeFilm:
    with FilmReader(job.source) as reader:
        prepared = prepare(reader, job, 2 * HEIGHT, 2 * WIDTH)
        device = FrameDevice(enlarge, frames=len(WEIGHTS))
        maker: RunMaker = how(reader, device)
        return make_film(maker, reader, job, prepared)


def scattered(reader: FilmReader, device: FrameDevice) -> RunMaker:
    """Makes each part by itself, the last one first, by seeking."""

    def make(runs: Sequence[PartRun], work: FilmWork) -> None:
        for run in runs:
            until = run.until or expected_parts(reader.film, work)
            for number in reversed(range(run.first, until)):
                part = PartRun(number, number + 1, None, run.is_sought)
                make_run(reader, work, part, device)

    return make


def job_of(tmp_path: Path, name: str, **options: Any) -> FilmJob:
    return FilmJob(tmp_path / "film.mkv", tmp_path / name, Wish("ffv1"), **options)


def test_windows_end_at_ends_and_cuts_and_go_over_the_ends_of_parts(tmp_path: Path) -> None:
    planes = film(tmp_path / "film.mkv")
    made_film(whole := job_of(tmp_path, "whole.mkv"))
    found = pictures_of(whole.target)[1]
    assert len(found) == FRAMES
    for index, made in enumerate(found):
        window = windows_of(index)
        for number, plane in enumerate(made):
            expected = summed([planes[each][number] for each in window])
            np.testing.assert_array_equal(plane[::2, ::2], expected, f"frame {index}")


@pytest.mark.parametrize("step", [40, 3000])
def test_parts_made_by_themselves_are_the_same(
    step: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The frames before a part may lie further back than seeking goes by itself."""
    monkeypatch.setattr(request, "PART_SECONDS", 5 * step / 1000)
    codec = "libx264" if step == 40 else "ffv1"
    planes = film(tmp_path / "film.mkv", codec, step=step)
    made_film(whole := job_of(tmp_path, "whole.mkv"))
    made_film(apart := job_of(tmp_path, "apart.mkv"), scattered)
    assert apart.target.read_bytes() == whole.target.read_bytes()
    monkeypatch.setattr(request, "PART_SECONDS", 1000)
    made_film(one := job_of(tmp_path, "one.mkv"))
    for made, other in zip(*(pictures_of(job.target)[1] for job in (one, whole)), strict=True):
        assert all(map(np.array_equal, made, other))
    assert len(planes) == FRAMES


def test_a_film_that_is_stopped_goes_on_with_the_same_frames(tmp_path: Path) -> None:
    film(tmp_path / "film.mkv")
    made_film(whole := job_of(tmp_path, "whole.mkv"))
    left = 12

    def stopping(windows: Frames, results: Frames) -> None:
        nonlocal left
        left -= 1
        if not left:
            raise InterruptedError
        mixed(windows, results)

    job = job_of(tmp_path, "stopped.mkv")
    with pytest.raises(InterruptedError):
        made_film(job, enlarge=stopping)
    assert made_film(job).resumed in (5, 10)
    assert job.target.read_bytes() == whole.target.read_bytes()


def test_a_result_is_used_again_where_all_of_its_window_repeats(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request, "PART_SECONDS", 1000)
    monkeypatch.setattr(f"{__name__}.drawn", partial(held, drawn))
    film(tmp_path / "film.mkv", "ffv1")
    once, each = (job_of(tmp_path, f"{how}.mkv", duplicates=how) for how in ("exact", "off"))
    # Windows of frames 12 to 16 are equal.
    assert made_film(once).computed == FRAMES - 4
    assert made_film(each).computed == FRAMES
    assert once.target.read_bytes() == each.target.read_bytes()


def held(draw: Any, index: int) -> Any:
    return draw(10 if 10 < index < 19 else index)


def test_a_stretch_of_a_film_is_a_film(tmp_path: Path) -> None:
    """Nothing beyond --start and --end shows."""
    planes = film(tmp_path / "film.mkv")
    cut = Cut(Fraction(10, 25), Fraction(17, 25))
    made_film(job := job_of(tmp_path, "out.mkv", cut=cut))
    found = pictures_of(job.target)[1]
    assert len(found) == 7
    for index, made in enumerate(found, 10):
        window = [min(max(each, 10), 16) for each in windows_of(index)]
        expected = summed([planes[each][0] for each in window])
        np.testing.assert_array_equal(made[0][::2, ::2], expected)


def test_films_against_the_definition(tmp_path: Path) -> None:
    """In parts, and in one go as pictures."""
    planes = film(tmp_path / "film.mkv", "ffv1", "yuv444p")
    (tmp_path / "frames").mkdir()
    (tmp_path / "t.pth").write_bytes(weights())
    words = ["video", "-m", str(tmp_path / "t.pth"), "--precision", "fp32", "--backend", "cpu"]
    for codec, target in (["-c", "ffv1"], "out.mkv"), ([], "frames/%06d.png"):
        paths = str(tmp_path / "film.mkv"), str(tmp_path / target)
        done = CliRunner().invoke(cli, [*words, *codec, "--end", "0.4", *paths])
        assert done.exit_code == 0, done.stderr
    kind = Kind(8, "444", "bt601")
    model = parse_named(weights(), "t.pth")
    found = pictures_of(tmp_path / "out.mkv")[1]
    assert len(found) == len(list((tmp_path / "frames").glob("*.png"))) == 10
    for index, made in enumerate(found):
        window = [min(each, 9) for each in windows_of(index)]
        rgb = [obvious_planes.to_rgb(planes[each], kind.meaning).clip(0, 1) for each in window]
        expected = result(model, np.dstack(rgb)).clip(0, 1)
        check_codes(list(made), expected, kind, 0.02)
        with Image.open(tmp_path / "frames" / f"{index + 1:06}.png") as image:
            assert np.abs(np.asarray(image) - expected * 255).max() < 0.52


def test_a_preview_sees_what_the_film_sees(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planes = film(tmp_path / "film.mkv", "ffv1", "yuv444p")
    (tmp_path / "t.pth").write_bytes(weights())
    seen: list[Any] = []
    enlarged = FrameEnlarger.enlarged

    def noted(self: FrameEnlarger, window: Sequence[NDArray[Any]]) -> Any:
        seen.append([plane.copy() for plane in window[::3]])
        return enlarged(self, window)

    monkeypatch.setattr(FrameEnlarger, "enlarged", noted)
    words = ["video", "-m", str(tmp_path / "t.pth"), "--backend", "numpy", "--preview", "0.88"]
    paths = str(tmp_path / "film.mkv"), str(tmp_path / "look.png")
    done = CliRunner().invoke(cli, [*words, *paths])
    assert done.exit_code == 0, done.stderr
    expected = [planes[each][0] for each in windows_of(22)]
    np.testing.assert_array_equal(seen, [expected])


def weights() -> bytes:
    return weight_files.pth(filled(family_weights.tspan(planes=8, history=4), factor=0.7))


@pytest.mark.parametrize(("bits", "most"), [(8, 25), (10, 102)])
def test_a_cut_is_a_mean_of_more_than_a_tenth(bits: int, most: int) -> None:
    dtype = np.uint8 if bits == 8 else np.uint16
    dark = SimpleNamespace(planes=[np.full((9, 7), 3, dtype)])
    near, far = (
        SimpleNamespace(planes=[dark.planes[0] + dtype(each)]) for each in (most, most + 1)
    )
    frames: Any = dark, near, far
    assert not is_cut(frames[0], frames[1], bits)
    assert is_cut(frames[0], frames[2], bits)
    assert is_cut(frames[2], frames[0], bits)
