"""`waifu2x video`: a film's pictures equal those that `upscale` makes of its frames."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from numpy.typing import NDArray
from PIL import Image

pytest.importorskip("av")
films = pytest.importorskip("tests.helpers.films")


from tests.cli.test_cli import tiny  # noqa: E402
from tests.conftest import need  # noqa: E402
from tests.flows.test_film_streams import pictures_of  # noqa: E402
from tests.helpers import obvious_planes  # noqa: E402
from tests.helpers.obvious_planes import Meaning  # noqa: E402
from waifu2x import Upscaler  # noqa: E402
from waifu2x.backends import Precision  # noqa: E402
from waifu2x.cli import cli  # noqa: E402
from waifu2x.cli.film.progress import FilmProgress  # noqa: E402
from waifu2x.flows.film import automatic  # noqa: E402
from waifu2x.flows.film.frames.frame_device import StageTimes  # noqa: E402
from waifu2x.flows.film.reading.client import FilmReader  # noqa: E402
from waifu2x.formats.film.writing.codecs import ENCODERS  # noqa: E402
from waifu2x.networks import catalogue, model_set  # noqa: E402

Run = Callable[..., Result]
SIZE = (22, 34)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Calls the command line in a folder with a film of three frames, and a model."""
    monkeypatch.chdir(tmp_path)
    tiny()
    return lambda *words: CliRunner().invoke(cli, ["video", "-m", "./tiny", *words])


def short(name: str, pixels: str = "yuv420p", **options: Any) -> None:
    """Makes a film of three frames."""
    given = {"codec": "ffv1", "times": (0, 40, 80), "size": SIZE, **options}
    films.film(Path(name), pixels=pixels, **given)


def off(made: list[NDArray[Any]], wanted: list[NDArray[np.float64]], bits: int) -> float:
    """Returns the largest difference of codes from values, beyond that of rounding."""
    return max(
        float((np.abs(codes - values.clip(0, 2**bits - 1))).max()) - 0.5
        for codes, values in zip(made, wanted, strict=True)
    )


FORMATS = {
    "420": ("yuv420p", None, Meaning(8, "420", "bt601", False, "left")),
    "422": ("yuv422p10le", (1, 1, 1, 1), Meaning(10, "422", "bt709", False, "left")),
    "444": ("yuv444p", (9, 2, 9, 1), Meaning(8, "444", "bt2020", True, "left")),
    "12 bits": ("yuv420p12le", (1, 1, 1, 1), Meaning(12, "420", "bt709", False, "left")),
}
SIZES: dict[str, tuple[list[str], dict[str, Any]]] = {
    "network": (["-s", "2"], {"scale": 2}),
    "networks": (["-s", "4"], {"scale": 4}),
    "resized": (["--height", "60"], {"height": 60}),
}
QUICK = {("numpy", "420", "network"), ("cpu", "420", "network"), ("opencl", "422", "network"),
         ("numpy", "444", "resized"), ("numpy", "12 bits", "networks")}  # fmt: skip


def cases() -> list[Any]:
    found = []
    for case in product(("numpy", "cpu", "opencl", "cuda"), FORMATS, SIZES):
        marks = () if case in QUICK else pytest.mark.matrix
        found.append(pytest.param(*case, id="-".join(case), marks=marks))
    return found


@pytest.mark.parametrize(("backend", "form", "size"), cases())
def test_frames_are_those_of_upscale(run: Run, backend: str, form: str, size: str) -> None:
    need(backend)
    pixels, colours, meaning = FORMATS[form]
    words, arguments = SIZES[size]
    short("in.mkv", pixels, colours=colours)
    precision: Precision = "auto" if backend == "numpy" else "fp32"
    how = ["--backend", backend, "--precision", precision, "-n", "none", "-c", "ffv1"]
    result = run(*how, *words, "in.mkv", "out.mkv")
    said = "in.mkv: made 10 bits, not 12: ffv1 has no more here\n" if form == "12 bits" else ""
    assert (result.exit_code, result.output) == (0, said)
    _, sources, _ = pictures_of(Path("in.mkv"))
    _, made, _ = pictures_of(Path("out.mkv"))
    assert len(made) == len(sources) == 3
    # An encoder has 8 bits or 10.
    coded = meaning._replace(bits=min(meaning.bits, 10))
    with Upscaler(model="./tiny", backend=backend, precision=precision, **arguments) as upscaler:
        for frame, planes in zip(made, sources, strict=True):
            rgb = obvious_planes.to_rgb(planes, meaning).clip(0, 1).astype(np.float32)
            wanted = obvious_planes.from_rgb(upscaler(rgb), coded)
            assert off(frame, wanted, coded.bits) < 0.01 * 2 ** (coded.bits - 8)


@pytest.mark.matrix
@pytest.mark.parametrize("pixels", ["gray", "bgr0", "yuva420p"])
def test_frames_that_are_grey_or_rgb_or_transparent(run: Run, pixels: str) -> None:
    """By any path, colours are those of `upscale`, and grey stays grey."""
    short("in.mkv", pixels)
    result = run("--backend", "numpy", "-n", "none", "-c", "ffv1", "in.mkv", "out.mkv")
    assert (result.exit_code, result.output) == (0, "")
    _, sources, _ = pictures_of(Path("in.mkv"))
    _, made, _ = pictures_of(Path("out.mkv"))
    layout = "444" if pixels == "bgr0" else "420"
    meaning = Meaning(8, layout, "bt601", False, "left")
    with Upscaler(model="./tiny", backend="numpy", scale=2) as upscaler:
        for number, (frame, planes) in enumerate(zip(made, sources, strict=True)):
            if pixels == "bgr0":
                image = films.drawing(number, *SIZE) / np.float32(255)
            elif pixels == "gray":
                image = ((planes[0].astype(np.float32) - 16) / 219).clip(0, 1)
            else:
                image = obvious_planes.to_rgb(planes[:3], meaning).clip(0, 1)
                image = np.dstack([image, planes[3] / 255]).astype(np.float32)
            result_of_it = upscaler(image)
            if pixels == "gray":
                assert off(frame[:1], [result_of_it.astype(np.float64) * 219 + 16], 8) < 0.01
                assert {int(code) for plane in frame[1:] for code in plane.flat} == {128}
                continue
            wanted = obvious_planes.from_rgb(result_of_it[..., :3], meaning)
            if pixels == "yuva420p":
                wanted.append(result_of_it[..., 3].astype(np.float64) * 255)
            assert off(frame, wanted, 8) < 0.01


def test_what_is_asked_for_is_made(run: Run) -> None:
    """Options reach the encoder and the muxer; JSON tells what was done."""
    films.film(
        Path("in.mkv"),
        codec="ffv1",
        sounds=[("aac", 0.0)],
        subtitles=["subrip"],
        shown=lambda index: index // 2,
    )
    words = "--backend numpy -n none --audio none --start 0.2 --end 0:00.6 --depth 10 -c x265"
    words += " --preset ultrafast --crf 30 --codec-option g=5 --json --keep-parts"
    result = run(*words.split(), "in.mkv", "out.mkv")
    assert result.exit_code == 0, result.output
    *running, done = map(json.loads, result.stdout.splitlines())
    assert all(each["status"] == "running" for each in running)
    assert (done["status"], done["frames"], done["computed"], done["held"]) == ("done", 10, 6, 4)
    assert (done["width"], done["height"], done["codec"]) == (192, 128, "x265")
    times, _, first = pictures_of(Path("out.mkv"))
    assert first.format.name == "yuv420p10le"
    assert times == [Fraction(40 * number, 1000) for number in range(10)]
    with films.av.open("out.mkv") as made:
        assert [stream.type for stream in made.streams] == ["video", "subtitle"]
        keys = [packet.is_keyframe for packet in made.demux(video=0) if packet.size]
    assert [place for place, is_key in enumerate(keys) if is_key] == [0, 5]
    assert Path("out.mkv.parts").is_dir()
    again = run(*words.split(), "--overwrite", "in.mkv", "out.mkv")
    assert json.loads(again.stdout.splitlines()[-1])["resumed"] == 10
    other = run(*words.split(), "--overwrite", "-x", "2", "in.mkv", "out.mkv")
    assert other.exit_code == 1
    assert "tta was '1' and is '2'" in other.stderr


def test_what_is_lost_is_said_and_counts_as_a_failure(run: Run) -> None:
    films.film(Path("whole.mkv"), times=range(0, 4000, 40))
    data = Path("whole.mkv").read_bytes()
    Path("in.mkv").write_bytes(data[: len(data) // 2])
    result = run("--backend", "numpy", "-n", "none", "--json", "in.mkv", "out.mkv")
    assert result.exit_code == 1
    times, _, _ = pictures_of(Path("out.mkv"))
    found = f"in.mkv: the input ends early ({len(times)} frames, {float(times[-1]) + 0.04:.2f} s"
    assert found in result.stderr
    assert json.loads(result.stdout.splitlines()[-1])["status"] == "damaged"


def test_a_size_that_the_encoder_cannot_code_is_rounded_and_said(run: Run) -> None:
    short("in.mkv")
    result = run("--backend", "numpy", "-n", "none", "-s", "1.5", "in.mkv", "out.mkv")
    assert result.exit_code == 0
    assert result.stderr == (
        "out.mkv: this encoder needs even sides, so it is made 50x32, not 51x33\n"
    )
    assert pictures_of(Path("out.mkv"))[1][0][0].shape == (32, 50)


def test_a_preview_shows_one_frame(run: Run) -> None:
    films.film(Path("in.mkv"), codec="ffv1")
    result = run("--backend", "numpy", "--preview", "0.5", "in.mkv", "look.png")
    assert (result.exit_code, result.output) == (0, "")
    with Image.open("look.png") as sheet:
        assert sheet.format == "PNG"
        crop = np.asarray(sheet.convert("RGB"))[52:308, 304:560]
    # The thirteenth drawing, in the column of plain enlargement: its square is there.
    square = (13 * 40) % 256, 30, 220
    assert (np.abs(crop.astype(int) - square).max(axis=-1) < 30).sum() > 1000


MISTAKES = [
    ("in.mkv out.avi", 1,
     "out.avi: a film is written as .mkv, .mp4, .mov, .webm, .gif or .y4m, or as frames such as"
     " frames/%06d.png; choose one"),
    ("in.mkv there.mkv", 1, "there.mkv: it exists already; use --overwrite, or another name"),
    ("in.mkv in.mkv", 1, "in.mkv: it is an input itself; choose another output"),
    ("in.mkv nowhere/out.mkv", 1, "nowhere: no such folder; make it first"),
    ("new.mkv there.mkv", 1,
     "new.mkv: cannot read: no such file or directory, but there.mkv is there: the input comes"
     " before the output"),
    ("--start 3 --end 2 in.mkv out.mkv", 2, "--end must be later than --start."),
    ("--start soon in.mkv out.mkv", 2,
     "--start: 'soon': expected seconds, or a time like 1:02.5."),
    ("--ivtc --deinterlace off in.mkv out.mkv", 2, "--deinterlace and --ivtc exclude each other."),
    ("--crf good in.mkv out.mkv", 2,
     "--crf: 'good': expected a number such as 18: less is better."),
    ("--codec-option slow in.mkv out.mkv", 2, "--codec-option: 'slow': expected KEY=VALUE."),
    ("-c x266 in.mkv out.mkv", 2, "--codec: 'x266'; did you mean x265?"),
    ("--preview 1 in.mkv out.mkv", 2, "out.mkv: --preview makes a picture; end it in .png."),
    ("-m nowhere in.mkv out.mkv", 1,
     "nowhere: no such model and no such folder; see `waifu2x models list`"),
    ("text.mkv out.mkv", 1,
     "text.mkv: it is not a film that can be read (mkv, mp4, mov, webm, ts, ...)"),
    ("-c x264 --codec-option speed=9 in.mkv out.mkv", 1, "x264 has no option speed"),
    ("-c hevc_amf in.mkv out.mkv", 1,
     "this machine has no encoder hevc_amf; use --codec auto, or x264"),
    ("-s 1 -n none in.mkv out.mkv", 2,
     "Nothing to do; give --noise, a --scale above 1, or both."),
    ("-s 1 in.mkv out.mkv", 1, "in.mkv: nothing to do; give --noise, a --scale above 1, or both"),
    ("-c vp9 in.mkv out.mov", 1, ".mov cannot hold vp9; use .mkv"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("words", "code", "sentence"), MISTAKES, ids=[words for words, *_ in MISTAKES]
)
def test_a_mistake_ends_in_one_sentence(
    run: Run, film: Path, words: str, code: int, sentence: str
) -> None:
    shutil.copy(film, "in.mkv")
    Path("there.mkv").write_bytes(b"precious")
    Path("text.mkv").write_text("just text")
    before = sorted(Path().iterdir())
    result = run("--backend", "numpy", *words.split())
    assert (result.exit_code, result.stderr) == (code, f"Error: {sentence}\n")
    assert sorted(Path().iterdir()) == before
    assert Path("there.mkv").read_bytes() == b"precious"


@pytest.fixture(scope="session")
def film(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Makes a film of three frames, coded without loss."""
    path = tmp_path_factory.mktemp("film") / "in.mkv"
    films.film(path, codec="ffv1", times=(0, 40, 80), size=SIZE)
    return path


def test_upscale_says_what_films_are_made_with(run: Run, film: Path) -> None:
    shutil.copy(film, "in.mkv")
    result = CliRunner().invoke(cli, ["upscale", "in.mkv", "out.png"])
    message = "Error: in.mkv: it is a film; use `waifu2x video in.mkv OUT`.\n"
    assert (result.exit_code, result.stderr) == (2, message)


@pytest.mark.parametrize(
    ("codec", "model", "level"),
    [("h264", "upconv_7", 0), ("ffv1", "upconv_7", None), ("h264", "span/photo", None)],
)
def test_the_noise_level_is_that_of_the_film(
    film: Path, codec: str, model: str, level: int | None
) -> None:
    with FilmReader(film) as reader:
        pictures = replace(reader.film.pictures, codec=codec)
    entry = catalogue.entry(model)
    if entry is not None and entry.folder is None:
        pytest.skip(entry.install)
    assert automatic.noise_level(pictures, model_set.find(model)) == level


def test_progress_counts_frames_and_names_the_slowest_stage() -> None:
    times = [StageTimes(0, 0, 0, 0)]
    progress = FilmProgress("in.mkv", 40, lambda: times[-1])
    assert progress.figures().stage == "preparing"
    progress.resume(10)
    progress.add(8, 6)
    progress.add(2, 2)
    times.append(StageTimes(4, 0.5, 1, 3))
    found = progress.document()
    wanted = {"frames": 20, "of": 40, "computed": 8, "held": 2, "resumed": 10}
    assert {key: found[key] for key in wanted} == wanted
    assert found["slowest"] == "encoding"
    assert found["left"] == pytest.approx(20 / found["rate"], rel=0.1, abs=0.1)
    figures = progress.figures()
    assert (figures.part, figures.counted) == (0.5, "20/40 (2 held)")
    assert figures.stage == "slowest: encoding"


def test_info_says_what_each_container_keeps(run: Run) -> None:
    films.film(
        Path("in.mkv"), times=(0, 40, 80), sounds=[("aac", 0.0)], subtitles=["ass"], fonts=True
    )
    result = CliRunner().invoke(cli, ["info", "in.mkv"])
    assert result.exit_code == 0, result.output
    assert "in.mkv: matroska, h264 96x64, 8-bit 4:2:0, 25 frames a second" in result.stdout
    assert "audio 1 aac (jpn), subtitle 2 ssa (eng), attachment 3" in result.stdout
    assert "as mkv: everything is kept" in result.stdout
    assert "as mp4: attachment 3 application/x-truetype-font is left out" in result.stdout
    assert "measured on 96x64 pixels), without decoding and encoding" in result.stdout
    found = json.loads(CliRunner().invoke(cli, ["info", "--json", "in.mkv"]).stdout)
    assert found["enlarged"] == [192, 128]
    assert found["containers"]["webm"]["codec"] == "av1"


@pytest.mark.matrix
@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_an_interrupt_says_how_to_go_on(run: Run) -> None:
    films.film(Path("in.mkv"), times=range(0, 24_000, 40))
    words = ["video", "-m", "./tiny", "--backend", "numpy", "-n", "none", "-x", "2"]
    words += ["--preset", "ultrafast", "in.mkv", "out.mkv"]
    command = [sys.executable, "-m", "waifu2x", *words]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
    deadline = time.monotonic() + 120
    while not list(Path("out.mkv.parts").glob("part-*.json")):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130 or process.returncode == -signal.SIGINT
    assert f"go on by `{shlex.join(['waifu2x', *words])}`" in errors
    assert not Path("out.mkv").exists()
    result = CliRunner().invoke(cli, [*words, "--json"])
    assert result.exit_code == 0
    done = json.loads(result.stdout.splitlines()[-1])
    assert done["frames"] == 600
    assert done["resumed"] >= 250


def test_an_encoder_that_takes_packed_samples_gets_the_same(
    run: Run, film: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Encoders in hardware do; here x264, without loss, stands for one."""
    packed = replace(ENCODERS["x264"], repacked=(("yuv420p", "nv12"),))
    monkeypatch.setitem(ENCODERS, "x264", packed)
    for codec, words in (("x264", ["--crf", "0"]), ("ffv1", [])):
        result = run("--backend", "numpy", "-c", codec, *words, str(film), f"{codec}.mkv")
        assert (result.exit_code, result.output) == (0, "")
    (_, one, _), (_, other, _) = (pictures_of(Path(f"{codec}.mkv")) for codec in ("x264", "ffv1"))
    for frame, wanted in zip(one, other, strict=True):
        for plane, same in zip(frame, wanted, strict=True):
            np.testing.assert_array_equal(plane, same)


@pytest.mark.matrix
@pytest.mark.parametrize(
    "words", [["video", "in.mkv", "out.mkv"], ["info", "in.mkv"], ["batch", ".", "out"]]
)
def test_without_pyav_a_sentence_says_what_to_install(
    film: Path, tmp_path: Path, words: list[str]
) -> None:
    shutil.copy(film, tmp_path / "in.mkv")
    (tmp_path / "missing" / "av").mkdir(parents=True)
    (tmp_path / "missing" / "av" / "__init__.py").write_text("raise ImportError")
    folders = [str(tmp_path / "missing"), str(Path(__file__).parents[2])]
    done = subprocess.run(
        [sys.executable, "-m", "waifu2x", *words],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(folders)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    message = "films need PyAV; install it with `pip install 'waifu2x-kernels[video]'`\n"
    assert done.returncode == 1
    assert done.stderr.endswith(message)


def test_a_run_that_ends_at_once_leaves_nothing(run: Run, film: Path) -> None:
    shutil.copy(film, "in.mkv")
    before = sorted(Path().iterdir())
    for words in (["--start", "9"], ["--start", "0.2", "--end", "0.3"]):
        result = run("--backend", "numpy", *words, "in.mkv", "out.mkv")
        told = "in.mkv: it has no frames in that stretch, and ends at 0.12 s"
        message = f"Error: {told}; choose another --start or --end\n"
        assert (result.exit_code, result.stderr) == (1, message)
        assert sorted(Path().iterdir()) == before
    assert run("--backend", "numpy", "in.mkv", "out.mkv").exit_code == 0


def test_settings_without_parts_bind_no_other_run(run: Run, film: Path) -> None:
    """A run that is killed before its first part is complete leaves them."""
    shutil.copy(film, "in.mkv")
    words = ["--backend", "numpy", "--keep-parts", "--overwrite"]
    assert run(*words, "in.mkv", "out.mkv").exit_code == 0
    refused = run(*words, "-x", "2", "in.mkv", "out.mkv")
    assert refused.exit_code == 1
    assert "--restart" in refused.stderr
    for path in Path("out.mkv.parts").glob("part-*.json"):
        path.unlink()
    again = run(*words, "-x", "2", "--json", "in.mkv", "out.mkv")
    assert again.exit_code == 0, again.stderr
    assert json.loads(again.stdout.splitlines()[-1])["resumed"] == 0


INTERLACED = {
    "codec": "libx264", "size": (24, 34),
    "options": {"flags": "+ildct+ilme", "x264-params": "tff=1"},
}  # fmt: skip
SAID: dict[str, tuple[dict[str, Any], list[str], str]] = {
    "interlaced": (
        INTERLACED, [],
        "in.mkv: it is interlaced, and is deinterlaced; use --deinterlace off to keep it",
    ),
    "combs": (
        INTERLACED, ["--deinterlace", "off"],
        "in.mkv: it is interlaced, and its combs are kept; use --deinterlace frame to remove them",
    ),
    "hdr": (
        {"colours": (9, 1, 9, 16), "pixels": "yuv420p10le"}, [],
        "in.mkv: HDR is kept, although the models were trained on SDR; look at a frame first, with"
        " --preview, or use --to sdr",
    ),
    "untold": (
        {}, ["-v"],
        "colours: BT.601, limited range, chroma left (assumed from the height: the file does not"
        " say)",
    ),
    "partly told": (
        {"colours": (1, 1, 2, 2)}, ["-v"],
        "colours: BT.709, limited range; chroma left (assumed: the file does not say)",
    ),
    "samples": ({"pixels": "yuv422p10le"}, ["-v"], "10-bit 4:2:2, 25 frames a second"),
    "even": ({}, ["-s", "1.5"], "out.mkv: this encoder needs even sides, so it is made 50x32,"),
    "bits": (
        {"pixels": "yuv420p12le"}, [], "in.mkv: made 10 bits, not 12: x265 has no more here"
    ),
    "chroma": (
        {"pixels": "yuv444p"}, ["-c", "av1"], "in.mkv: made 4:2:0, not 4:4:4: av1 has no more here"
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", SAID)
def test_what_is_said_before_the_work(run: Run, case: str) -> None:
    options, words, sentence = SAID[case]
    short("in.mkv", **options)
    result = run("--backend", "numpy", "-n", "none", *words, "in.mkv", "out.mkv")
    assert result.exit_code == 0, result.stderr
    assert any(sentence in line for line in result.stderr.splitlines()), result.stderr


def test_going_on_is_announced(run: Run) -> None:
    films.film(Path("in.mkv"), codec="ffv1", times=range(0, 24_000, 40), size=(8, 8))
    words = ["--backend", "numpy", "-n", "none", "-c", "ffv1", "--keep-parts"]
    assert run(*words, "in.mkv", "out.mkv").exit_code == 0
    parts = sorted(Path("out.mkv.parts").glob("part-*.json"))
    parts[1].unlink()
    Path("out.mkv").unlink()
    result = run(*words, "in.mkv", "out.mkv")
    assert result.exit_code == 0
    told = "out.mkv: going on with 350 of 600 frames in out.mkv.parts; use --restart to begin"
    told += " anew\n"
    assert result.stderr == told


@pytest.mark.parametrize(
    ("words", "size"),
    [
        ("--longer-side 80", (52, 80)),
        ("--shorter-side 33", (32, 50)),
        ("--min-size 60x60", (60, 92)),
        ("--max-height 30", (30, 46)),
        ("--max-height 100", (44, 68)),
        ("-s 3 --max-height 50", (50, 76)),
        ("--longer-side 80 --max-height 40", (40, 62)),
    ],
)
def test_sizes_are_those_of_pictures(run: Run, film: Path, words: str, size: Any) -> None:
    """In even sides of the nearest whole size below, as x264 needs them."""
    given = ["--backend", "numpy", "-n", "none", *words.split()]
    shutil.copy(film, "in.mkv")
    result = run(*given, "in.mkv", "out.mkv")
    assert result.exit_code == 0, result.stderr
    assert pictures_of(Path("out.mkv"))[1][0][0].shape == size
