"""Several devices on one film, each with a process of its own: what they make, what is lost."""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
import sys
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("av")
films = pytest.importorskip("tests.helpers.films")

from tests.cli.test_cli import tiny  # noqa: E402
from tests.flows.test_film_streams import enlarge, pictures_of  # noqa: E402
from tests.helpers.film_devices import Squares, fleet_of  # noqa: E402
from waifu2x.errors import BackendError, ImageError  # noqa: E402
from waifu2x.flows.film import request  # noqa: E402
from waifu2x.flows.film.makers.by_fleet import MakerByFleet  # noqa: E402
from waifu2x.flows.film.making import MadeFilm, make_film  # noqa: E402
from waifu2x.flows.film.parts.part_files import parts_folder  # noqa: E402
from waifu2x.flows.film.reading.client import FilmReader  # noqa: E402
from waifu2x.flows.film.request import FilmJob, prepare  # noqa: E402
from waifu2x.flows.fleet.supervisor import Hooks  # noqa: E402
from waifu2x.formats.film.description import Cut  # noqa: E402
from waifu2x.formats.film.writing.codecs import Wish  # noqa: E402

FFV1 = Wish("ffv1")


@pytest.fixture(autouse=True)
def short_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request, "PART_SECONDS", 0.4)


class Run:
    """A film made by two devices that are one."""

    def __init__(self, *devices: Squares) -> None:
        self.devices = devices
        self.news: list[str] = []
        self.opened: list[str] = []
        self.frames = self.computed = 0

    def make(self, job: FilmJob, **options: Any) -> MadeFilm:
        def count(frames: int, computed: int) -> None:
            self.frames += frames
            self.computed += computed

        with FilmReader(job.source) as reader:
            pictures = reader.film.pictures
            prepared = prepare(reader, job, pictures.height * 2, pictures.width * 2)
            hooks = Hooks(
                on_opened=lambda name, opened: self.opened.append(f"{name}: {opened.described}"),
                on_news=self.news.append,
            )
            with fleet_of(reader, prepared, *self.devices, hooks=hooks) as self.fleet:
                maker = MakerByFleet(reader, self.fleet, count)
                return make_film(maker, reader, job, prepared, **options)


def _film(folder: Path, name: str = "film.mkv", **options: Any) -> tuple[FilmJob, bytes]:
    """A film to make, and what one device makes of it."""
    source = folder / name
    films.film(source, **{"times": range(0, 120 * 40, 40), "sounds": [("aac", 0.1)], **options})
    whole = FilmJob(source, folder / "whole.mkv", FFV1)
    enlarge(whole)
    return FilmJob(source, folder / "out.mkv", FFV1), whole.target.read_bytes()


def test_two_devices_make_what_one_does(tmp_path: Path) -> None:
    """The film has open groups of pictures and times that are not evenly spaced."""
    times = [index * 41 + index * index % 7 + (900 if index > 50 else 0) for index in range(120)]
    options = {"g": "30", "bf": "3", "x264-params": "open-gop=1"}
    job, whole = _film(tmp_path, times=times, options=options)
    run = Run(Squares(), Squares())
    made = run.make(job)
    # Nothing is left to the collector.
    workers: Any = run.fleet.workers
    assert [(one._child, one._thread) for one in workers] == [(None, None)] * 2
    assert job.target.read_bytes() == whole
    assert (made.frames, made.computed, run.frames, run.computed) == (120, 120, 120, 120)
    assert sorted(run.opened) == ["device 0: squares", "device 1: squares"]
    assert run.news == []
    assert not parts_folder(job.target).exists()


def test_a_process_that_is_killed_loses_at_most_a_part(tmp_path: Path) -> None:
    job, whole = _film(tmp_path)
    run = Run(Squares("dies", 14, tmp_path / "died"), Squares())
    made = run.make(job)
    assert job.target.read_bytes() == whole
    assert made.frames == 120
    assert run.frames == run.computed == 120
    assert run.news == ["device 0: its process was killed (SIGKILL): goes on in another process"]


@pytest.mark.matrix
def test_a_device_that_stops_working_gets_no_more(tmp_path: Path) -> None:
    job, whole = _film(tmp_path)
    run = Run(Squares("broken", 3, tmp_path / "broken"), Squares())
    run.make(job)
    assert job.target.read_bytes() == whole
    assert run.news[0] == (
        "device 0: the device fell off the bus; use another backend: goes on in another process"
    )


@pytest.mark.matrix
def test_where_all_stop_working_parts_stay(tmp_path: Path) -> None:
    job, whole = _film(tmp_path)
    run = Run(Squares("broken", 25, tmp_path / "0"), Squares("broken", 3, tmp_path / "1"))
    with pytest.raises(BackendError, match="the parts that are complete stay"):
        run.make(job)
    assert list(parts_folder(job.target).glob("part-*.json"))
    made = Run(Squares(), Squares()).make(job)
    assert made.resumed >= 10
    assert job.target.read_bytes() == whole


@pytest.mark.matrix
def test_a_part_that_ends_its_processes_is_named(tmp_path: Path) -> None:
    source = tmp_path / "film.mkv"
    films.film(source, codec="ffv1", times=range(0, 30 * 40, 40))
    job = FilmJob(source, tmp_path / "out.mkv", FFV1)
    _, planes, _ = pictures_of(source)
    deadly = Squares("deadly", int(planes[15][0].sum()))
    with pytest.raises(
        ImageError,
        match=r"what comes after 0\.4 s crashed 3 worker processes in a row: its process ended",
    ):
        Run(deadly, deadly, deadly).make(job)
    assert (parts_folder(job.target) / "part-000000.json").exists()


@pytest.mark.matrix
def test_devices_that_do_not_go_together(tmp_path: Path) -> None:
    source = tmp_path / "film.mkv"
    films.film(source)
    job = FilmJob(source, tmp_path / "out.mkv", FFV1)
    with pytest.raises(BackendError, match=r"computes in .* as others do; choose by"):
        Run(Squares(), Squares("other")).make(job)


@pytest.mark.matrix
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("refresh.mkv", {"options": {"g": "500", "x264-params": "intra-refresh=1"}}),
        ("stream.ts", {"times": range(90000 * 40, 90000 * 40 + 120 * 3600, 3600)}),
        ("avi.avi", {"times": range(120), "options": {"bf": "3"}, "sounds": []}),
        ("late.mkv", {"times": range(3000, 3000 + 120 * 40, 40)}),
        ("interlaced.mkv", {"options": {"flags": "+ildct+ilme", "x264-params": "tff=1"}}),
        ("cut.mkv", {"codec": "ffv1"}),
        ("vp9.webm", {"codec": "libvpx-vp9", "options": {"g": "50"}, "sounds": []}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_devices_find_their_parts_in_every_kind(
    tmp_path: Path, name: str, options: dict[str, Any]
) -> None:
    """Also where decoding cannot begin in the middle, or times begin anywhere."""
    ticks = {"stream.ts": films.TICK, "avi.avi": Fraction(1, 25)}
    if name in ticks:
        options = {**options, "tick": ticks[name]}
    job, whole = _film(tmp_path, name, **options)
    run = Run(Squares(), Squares())
    if name == "cut.mkv":
        job = replace(job, cut=Cut(Fraction(7, 10), Fraction(41, 10)))
        cut = replace(job, target=tmp_path / "cut-whole.mkv")
        assert enlarge(cut).frames == 85
        whole = cut.target.read_bytes()
    run.make(job)
    assert job.target.read_bytes() == whole


@pytest.mark.matrix
def test_the_program_on_two_devices(
    tmp_path: Path, opencl_device: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PoCL has as many devices as it is told to. An interrupted run leaves parts and no process."""
    if "Portable" not in opencl_device.platform.name:
        pytest.skip("PoCL is not the default OpenCL platform")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("POCL_DEVICES", "pthread pthread")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    tiny()
    films.film(Path("film.mkv"), codec="ffv1", times=range(0, 60000, 100), size=(16, 24))
    command = [sys.executable, "-m", "waifu2x", "video", "--backend", "opencl", "-m", "./tiny"]
    command += ["-v", "--json", "-n", "none", "-c", "ffv1"]
    made = {}
    for device in ("0", "0,1"):
        words = ["-g", device, "film.mkv", f"{device}.mkv"]
        done = subprocess.run([*command, *words], capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        assert ("device 1: opencl: " in done.stderr) == (device != "0")
        assert json.loads(done.stdout.splitlines()[-1])["computed"] == 600
        made[device] = Path(f"{device}.mkv").read_bytes()
    assert made["0"] == made["0,1"]
    program = subprocess.Popen(
        [*command, "-g", "0,1", "film.mkv", "again.mkv"],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
    )
    while not list(Path("again.mkv.parts").glob("part-*.json")):
        assert program.poll() is None
    program.send_signal(signal.SIGTERM)
    _, errors = program.communicate(timeout=60)  # when no process holds its standard error
    assert program.returncode == 128 + signal.SIGTERM
    again = shlex.join(["waifu2x", *command[3:], "-g", "0,1", "film.mkv", "again.mkv"])
    assert f"again.mkv.parts: what is done is kept; go on by `{again}`" in errors.decode()
    done = subprocess.run(
        [*command, "-g", "0,1", "film.mkv", "again.mkv"], capture_output=True, text=True
    )
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["resumed"] >= 100
    assert told["resumed"] + told["computed"] == 600
    assert Path("again.mkv").read_bytes() == made["0"]
