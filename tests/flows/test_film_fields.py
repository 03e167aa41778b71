"""Combs and pulldown in films that do not say they are interlaced: found, named and cured."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

av = pytest.importorskip("av")
films = pytest.importorskip("tests.helpers.films")

from tests.flows.test_film_reading import Found  # noqa: E402
from waifu2x.cli.film import messages  # noqa: E402
from waifu2x.flows.film.reading.client import FilmReader  # noqa: E402
from waifu2x.flows.film.request import FilmJob, PreparedFilm, prepare, settings  # noqa: E402
from waifu2x.formats.film.reading.fields import FieldOrder, Fields  # noqa: E402
from waifu2x.formats.film.reading.selection import Selection  # noqa: E402

pytestmark = pytest.mark.skipif(shutil.which("ffmpeg") is None, reason="needs the program ffmpeg")
SIZE = "96x64"
MOVING = "scroll=horizontal=0.02"


def _made(path: Path, rate: str, filters: str = "null", drawn: str = "mandelbrot") -> None:
    """Writes a film of 4 seconds whose frames say that they are whole."""
    source = f"{drawn}=s={SIZE}:r={rate}"
    command = ["ffmpeg", "-v", "error", "-f", "lavfi", "-i", source, "-t", "4", "-vf"]
    command += [f"format=yuv420p,{MOVING},{filters},setfield=prog", "-c:v", "ffv1", str(path)]
    subprocess.run(command, check=True)


def _idet(path: Path) -> dict[str, int]:
    """Frames by the program ffmpeg's own idet: TFF, BFF, Progressive."""
    command = ["ffmpeg", "-hide_banner", "-i", str(path), "-vf", "idet", "-f", "null", "-"]
    told = subprocess.run(command, check=True, capture_output=True, text=True).stderr
    line = told.rpartition("Multi frame detection:")[2].splitlines()[0]
    return {name: int(count) for name, count in re.findall(r"(\w+): *(\d+)", line)}


def _prepared(source: Path, **options: Any) -> tuple[str, PreparedFilm]:
    """Returns the words about fields, and the film."""
    with FilmReader(source) as reader:
        film = reader.film
        job = FilmJob(source, source.with_name("out.mkv"), **options)
        prepared = prepare(reader, job, 128, 192)
        return " ".join(messages.warnings("film", film, prepared)), prepared


def _luma(path: Path, selection: Selection) -> NDArray[np.int64]:
    return np.stack([planes[0] for planes in Found(path, selection).planes]).astype(int)


@pytest.mark.parametrize(("order", "mode"), [("tff", "top"), ("bff", "bottom")])
def test_combs_that_a_film_does_not_declare(order: FieldOrder, mode: str, tmp_path: Path) -> None:
    source, whole = tmp_path / "film.mkv", tmp_path / "whole.mkv"
    _made(source, "50", f"tinterlace=mode=interleave_{mode}")
    _made(whole, "50")
    found = _idet(source)
    assert found[order.upper()] > 90 > found["Progressive"]
    told, prepared = _prepared(source)
    assert prepared.fields == Fields(order)
    assert told.startswith("film: it has combs, although it does not say that it is interlaced")
    assert told.endswith("use --deinterlace frame to remove them")
    told, prepared = _prepared(source, deinterlacing="frame")
    assert told == ""
    assert settings(FilmJob(source, source), prepared, {})["deinterlace"] == f"frame {order}"
    truth = _luma(whole, Selection())[::2]
    combed, cured = _luma(source, Selection()), _luma(source, prepared.selection)
    assert len(cured) == len(combed) == len(truth) == 100
    errors = [np.abs(one[10:90] - truth[10:90]).mean() for one in (combed, cured)]
    assert errors[1] < 0.6 * errors[0]
    _, prepared = _prepared(source, deinterlacing="field")
    both = _luma(source, prepared.selection)
    moving = np.abs(both[20:180] - _luma(whole, Selection())[20:180]).mean()
    assert moving < 0.8 * errors[0]


def test_pulldown_is_found_and_undone(tmp_path: Path) -> None:
    source, whole = tmp_path / "film.mkv", tmp_path / "whole.mkv"
    _made(source, "24000/1001", "telecine=pattern=23")
    _made(whole, "24000/1001")
    told, prepared = _prepared(source)
    assert prepared.fields == Fields("tff", is_telecined=True)
    assert told == "film: it looks like film with pulldown; use --ivtc to restore its pictures"
    told, prepared = _prepared(source, deinterlacing="ivtc")
    assert told == ""
    truth, cured = _luma(whole, Selection()), _luma(source, prepared.selection)
    assert abs(len(cured) - len(truth)) <= 2
    near = [np.abs(truth - one).mean(axis=(1, 2)).min() for one in cured[5:-5]]
    assert np.median(near) == 0


def test_declared_pulldown_is_named_before_it_is_deinterlaced(tmp_path: Path) -> None:
    source = tmp_path / "film.mkv"
    command = ["ffmpeg", "-v", "error", "-f", "lavfi", "-i", f"mandelbrot=s={SIZE}:r=24000/1001"]
    command += ["-t", "4", "-vf", f"{MOVING},telecine=pattern=23", "-pix_fmt", "yuv420p"]
    subprocess.run([*command, "-c:v", "libx264", "-flags", "+ildct+ilme", str(source)], check=True)
    told, prepared = _prepared(source)
    assert prepared.selection.deinterlacing == "frame"
    assert "use --ivtc to restore its pictures" in told


@pytest.mark.parametrize("drawn", ["mandelbrot", "testsrc2", "rgbtestsrc"])
@pytest.mark.parametrize("rate", ["25", "30000/1001"])
def test_whole_pictures_have_no_combs(drawn: str, rate: str, tmp_path: Path) -> None:
    """Fine patterns look like fields of either order; drawings on twos repeat whole frames."""
    source = tmp_path / "film.mkv"
    _made(source, rate, drawn=drawn)
    told, prepared = _prepared(source)
    assert prepared.fields == Fields()
    assert told == ""


def test_drawings_on_twos_are_no_pulldown(tmp_path: Path) -> None:
    source = tmp_path / "film.mkv"
    _made(source, "30000/1001", "framestep=2,fps=30000/1001")
    assert _prepared(source)[1].fields == Fields()


def test_a_film_that_cannot_be_looked_at_is_still_made(tmp_path: Path) -> None:
    """Its middle has no pictures: nothing is known of its fields."""
    source = tmp_path / "film.ts"
    films.film(source, tick=films.TICK, times=range(0, 600 * 3600, 3600), options={"g": "25"})
    data = bytearray(source.read_bytes())
    first, last = len(data) // 6, len(data) * 5 // 6
    data[first:last] = bytes(last - first)
    source.write_bytes(data)
    told, prepared = _prepared(source)
    assert prepared.fields == Fields()
    assert told == ""
