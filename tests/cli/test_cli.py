"""The program as its users call it: results, messages, exit codes, and nothing lost."""

from __future__ import annotations

import io
import json
import logging
import os
import re
import signal
import subprocess
import sys
import time
import types
import warnings
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result
from PIL import Image

import waifu2x
from tests.conftest import PRESENT
from tests.helpers.limits import limit_files
from waifu2x import backends
from waifu2x.cli import cli
from waifu2x.errors import BackendError, DeviceError, UnavailableError
from waifu2x.networks.readers.architectures import Layer
from waifu2x.networks.readers.waifu2x_json import NetworkWeights, dump

Run = Callable[..., Result]

NOT_KEPT = (
    "compiling for this processor, some seconds in each run: nothing can be kept in"
    " file/numba (file exists); set WAIFU2X_CACHE_DIR to a folder that can be written\n"
)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Calls the command line in a folder with one good picture, a.png of 12 x 8."""
    monkeypatch.chdir(tmp_path)
    pixels = np.random.default_rng(0).integers(0, 256, (8, 12, 3), np.uint8)
    Image.fromarray(pixels).save("a.png")

    def call(*arguments: str, stdin: bytes | None = None) -> Result:
        return CliRunner().invoke(cli, arguments, input=stdin)

    return call


def load(path: str | Path | io.BytesIO) -> Image.Image:
    """Loads a whole picture, and closes its file."""
    with Image.open(path) as image:
        image.load()
        return image


def assert_one_line_error(result: Result, message: str, code: int = 1) -> None:
    """Asserts one line that says what is wrong, the exit code, and no traceback."""
    assert result.exit_code == code, result.output
    lines = result.stderr.strip().splitlines()
    # A usage error repeats the usage first.
    assert lines[-1].startswith("Error: "), result.stderr
    assert message in lines[-1]
    assert code == 2 or len(lines) == 1
    assert "Traceback" not in result.output


def leftovers(folder: Path) -> list[str]:
    return [path.name for path in folder.rglob("*.part")]


@pytest.mark.parametrize(
    ("arguments", "size"),
    [
        ([], (24, 16)),
        (["-s", "4"], (48, 32)),
        (["-s", "1", "-n", "0"], (12, 8)),
        (["-n", "3", "--scale", "2", "-t", "16"], (24, 16)),
        (["--backend", "numpy"], (24, 16)),
    ],
)
def test_upscale(run: Run, arguments: list[str], size: tuple[int, int]) -> None:
    result = run("upscale", *arguments, "a.png", "b.png")
    assert (result.exit_code, result.output) == (0, "")
    assert load("b.png").size == size
    assert not leftovers(Path())


@pytest.mark.parametrize(
    ("arguments", "size"),
    [
        (["-s", "1.5"], (18, 12)),
        (["-s", "4/3"], (16, 11)),  # 10.67 rows
        (["--scale", "0.5"], (6, 4)),
        (["--width", "20"], (20, 13)),
        (["--height", "20"], (30, 20)),
        (["--width", "20", "--height", "20"], (20, 13)),
        (["--width", "20", "--height", "20", "--fit", "cover"], (20, 20)),
        (["--width", "20", "--height", "20", "--fit", "exact"], (20, 20)),
        (["--longer-side", "30"], (30, 20)),
        (["--shorter-side", "10"], (15, 10)),
        (["--min-size", "20"], (30, 20)),
        (["--min-size", "20x4"], (20, 13)),
        (["--tta", "2"], (24, 16)),
    ],
)
def test_any_size(run: Run, arguments: list[str], size: tuple[int, int]) -> None:
    result = run("upscale", "-m", tiny(), "--json", *arguments, "a.png", "b.png")
    assert result.exit_code == 0, result.output
    row = json.loads(result.stdout)
    assert (row["width"], row["height"]) == load("b.png").size == size


def test_tta_with_and_without_its_number(run: Run) -> None:
    expected = waifu2x.upscale(np.asarray(load("a.png")), tta=8, model=tiny())
    for number, options in enumerate((["-x"], ["--tta"], ["-x", "8"], ["-x8"], ["--tta=8"])):
        assert run("upscale", "-m", tiny(), *options, "a.png", f"{number}.png").exit_code == 0
        np.testing.assert_array_equal(np.asarray(load(f"{number}.png")), expected)
    assert run("upscale", "-m", tiny(), "a.png", "b.png", "-x").exit_code == 0
    assert run("upscale", "-m", tiny(), "--overwrite", "--", "a.png", "b.png").exit_code == 0
    assert (np.asarray(load("b.png")) != expected).any()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-s", "1e3"], "expected a number above 0, at most 32, such as 2, 1.5 or 4/3"),
        (["-s", "x"], "expected a number"),
        (["-s", "2", "--width", "20"], "Give one size: --scale or --width and --height."),
        (["--longer-side", "2", "--min-size", "20"], "Give one size: --longer-side or --min-size."),
        (["--fit", "cover", "--width", "9"], "--fit needs --width and --height."),
        (["--min-size", "20x"], "expected pixels, like 2000, or 3840x2160."),
        (["--width", "0"], "--width: expected a whole number of pixels from 1 to 1000000"),
        (["-x3"], "--tta: expected 1, 2, 4 or 8, not '3'."),
        (["-x", "3"], "--tta takes 2, 4 or 8, not 3."),
    ],
)
def test_sizes_that_make_no_sense(run: Run, arguments: list[str], message: str) -> None:
    assert_one_line_error(run("upscale", *arguments, "a.png", "b.png"), message, 2)


def test_a_picture_that_would_grow_too_much(run: Run) -> None:
    result = run("upscale", "-m", tiny(), "--width", "400", "a.png", "b.png")
    assert_one_line_error(result, "a.png: a picture of 12x8 would grow 33.33 times; ask for at")
    assert not Path("b.png").exists()


def test_large_pictures_keep_their_files(run: Run) -> None:
    Path("in").mkdir()
    load("a.png").save("in/small.png")
    load("a.png").resize((30, 10)).save("in/large.png", compress_level=9)
    load("a.png").resize((30, 10)).save("in/other.jpg")
    result = run("batch", "-m", tiny(), "--only-smaller-than", "30", "--json", "-v", "in", "out")
    assert result.exit_code == 0
    assert "2 done, 1 copied, 0 skipped, 0 failed" in result.stderr
    rows = {Path(row["output"]).name: row for row in map(json.loads, result.stdout.splitlines())}
    assert {name: row["status"] for name, row in rows.items()} == {
        "small.png": "done",
        "large.png": "copied",
        "other.png": "done",
    }
    assert (rows["large.png"]["width"], rows["large.png"]["height"]) == (30, 10)
    assert Path("out/large.png").read_bytes() == Path("in/large.png").read_bytes()
    assert load("out/small.png").size == (24, 16)
    # Another format takes the same pixels.
    np.testing.assert_array_equal(
        np.asarray(load("out/other.png")), np.asarray(load("in/other.jpg"))
    )
    result = run("upscale", "-m", tiny(), "--min-size", "5", "in/large.png", "out/large.png")
    assert_one_line_error(result, "out/large.png: it exists already")
    result = run(
        "upscale", "-m", tiny(), "--min-size", "5", "--overwrite", "in/large.png", "out/small.png"
    )
    assert "copied   in/large.png -> out/small.png (30x10, as it is)" in result.stderr
    assert Path("out/small.png").read_bytes() == Path("in/large.png").read_bytes()


def test_batch_says_what_its_seconds_went_into(run: Run) -> None:
    Path("in").mkdir()
    for name in ("x", "y"):
        load("a.png").save(f"in/{name}.png")
    result = run("batch", "-m", tiny(), "-v", "-s", "1.5", "in", "out")
    lines = result.stderr[result.stderr.index("where the time went: ") :].splitlines()
    rows = [line for line in lines[1:] if line.endswith(" ms a picture")]
    stages = {"read", "wait", "decode", "prepare", "network", "resize", "encode", "write"}
    assert {row.split()[0] for row in rows} == stages
    shares = [int(row.partition("%")[0].split()[-1]) for row in rows]
    assert sum(shares) == pytest.approx(100, abs=4)


def test_upscale_is_what_python_gets(run: Run) -> None:
    run("upscale", "-n", "1", "a.png", "b.png")
    expected = waifu2x.upscale(np.asarray(load("a.png")), noise=1)
    np.testing.assert_array_equal(np.asarray(load("b.png")), expected)


@pytest.mark.parametrize("name", ["b.jpg", "b.jpeg", "b.webp", "b.bmp", "b.tif", "b.TIFF", "b.PNG"])
def test_the_file_name_decides_the_format(run: Run, name: str) -> None:
    assert run("upscale", "a.png", name).exit_code == 0
    forms = {"jpg": "JPEG", "jpeg": "JPEG", "tif": "TIFF"}
    extension = name[2:].lower()
    assert load(name).format == forms.get(extension, extension.upper())


def test_quality_and_format(run: Run) -> None:
    for quality in ("20", "95"):
        assert run("upscale", "-q", quality, "a.png", f"{quality}.jpg").exit_code == 0
    assert Path("20.jpg").stat().st_size < Path("95.jpg").stat().st_size
    assert run("upscale", "-f", "webp", "a.png", "no_suffix").exit_code == 0
    assert run("upscale", "-q", "like", "95.jpg", "like.jpg").exit_code == 0
    for quality, name in (("like", "b.webp"), ("0", "b.jpg"), ("good", "b.jpg"), ("like", "b.png")):
        assert run("upscale", "-q", quality, "a.png", name).exit_code == 2
    assert load("no_suffix").format == "WEBP"


def test_compression(run: Run) -> None:
    for compression in ("default", "best"):
        command = ("upscale", "--compression", compression, "a.png", f"{compression}.png")
        assert run(*command).exit_code == 0
    assert load("best.png").tobytes() == load("default.png").tobytes()
    assert Path("best.png").stat().st_size < Path("default.png").stat().st_size
    result = run("upscale", "--compression", "best", "a.png", "b.jpg")
    assert result.exit_code == 2
    assert "--compression is for png, apng, webp, tif, tiff, jxl" in result.stderr


def test_pipes(run: Run) -> None:
    result = run("upscale", "-", "-", stdin=Path("a.png").read_bytes())
    assert result.exit_code == 0
    run("upscale", "a.png", "b.png")
    piped = load(io.BytesIO(result.stdout_bytes))
    np.testing.assert_array_equal(np.asarray(piped), np.asarray(load("b.png")))


def test_json_and_verbose(run: Run) -> None:
    result = run("upscale", "--json", "-v", "a.png", "b.png")
    row = json.loads(result.stdout)
    assert (row["status"], row["width"], row["height"]) == ("done", 24, 16)
    assert "cpu: " in result.stderr
    assert re.search(r"read .* s, prepare .* s, network .* s, write .* s", result.stderr)


def test_pictures_with_transparency_keep_it(run: Run) -> None:
    Image.new("RGBA", (6, 5), (255, 0, 0, 128)).save("t.png")
    assert run("upscale", "t.png", "u.png").exit_code == 0
    result = load("u.png")
    assert (result.mode, result.size) == ("RGBA", (12, 10))
    assert np.ptp(np.asarray(result)[..., 3]) == 0


@pytest.mark.parametrize(
    ("command", "made"),
    [
        (["upscale", "in/t.png", "t.jpg"], "t.jpg"),
        (["upscale", "in/t.png", "t.bmp"], "t.bmp"),
        (["batch", "-f", "jpg", "in", "out"], "out/t.jpg"),
    ],
)
def test_pictures_with_transparency_are_white_there_without(
    run: Run, command: list[str], made: str
) -> None:
    Path("in").mkdir()
    Image.new("RGBA", (6, 5), (255, 0, 0, 0)).save("in/t.png")
    result = run(*command)
    assert result.exit_code == 0, result.output
    assert "holds no transparency: the picture is composed on #ffffff" in result.stderr
    picture = load(made)
    assert (picture.mode, picture.size) == ("RGB", (12, 10))
    assert np.asarray(picture).min() == 255


def break_file(kind: str) -> str:
    """Makes a bad input and gives its name."""
    if kind == "text":
        Path("bad.png").write_text("hello")
    elif kind == "empty":
        Path("bad.png").touch()
    elif kind == "folder":
        Path("bad.png").mkdir()
    elif kind == "cut off":
        Path("bad.png").write_bytes(Path("a.png").read_bytes()[:-60])
    return "bad.png"


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("missing", "bad.png: cannot read: no such file"),
        ("text", "bad.png: not a picture of a known format (PNG, JPEG, "),
        ("empty", "bad.png: the file is empty"),
        ("folder", "bad.png: it is a folder; try `waifu2x batch bad.png OUTPUT_DIR`"),
        ("cut off", "bad.png: damaged or cut off"),
    ],
)
def test_bad_pictures(run: Run, kind: str, message: str) -> None:
    assert_one_line_error(run("upscale", break_file(kind), "b.png"), message)
    assert not Path("b.png").exists()
    assert not leftovers(Path())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["a.png", "nowhere/b.png"], "nowhere: no such folder; make it first"),
        (["a.png", "a.png", "--overwrite"], "a.png: it is an input itself"),
        (["a.png", "there.png"], "there.png: it exists already; use --overwrite"),
        (["-m", "nothing", "a.png", "b.png"], "nothing: no such model"),
        (["-m", "a.png", "a.png", "b.png"], "a.png: not a model file: expected"),
        (["-m", "folder.png", "a.png", "b.png"], "folder.png: no model files here"),
        (["--precision", "fp16", "a.png", "b.png"], "has no precision fp16"),
        (["-s", "32", "wide.png", "b.jpg"], "JPEG holds at most 65500 pixels a side"),
    ],
)
def test_what_cannot_be_done(run: Run, arguments: list[str], message: str) -> None:
    Path("folder.png").mkdir()
    Path("there.png").write_bytes(b"precious")
    Image.new("RGB", (2050, 1)).save("wide.png")
    assert_one_line_error(run("upscale", *arguments), message)
    assert Path("there.png").read_bytes() == b"precious"
    assert not Path("b.png").exists()
    assert not leftovers(Path())


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["a.png", "b.xyz"],
        ["a.png", "b"],
        ["-s", "33", "a.png", "b.png"],
        ["-n", "none", "-s", "1", "a.png", "b.png"],
        ["-n", "4", "a.png", "b.png"],
        ["-t", "8", "a.png", "b.png"],
        ["-t", "²0", "a.png", "b.png"],
        ["-q", "101", "a.png", "b.jpg"],
        ["-q", "50", "a.png", "b.png"],
        ["-f", "jpg", "a.png", "b.png"],
        ["--backend", "metal", "a.png", "b.png"],
        ["--overwrite", "--skip-existing", "a.png", "b.png"],
        ["--json", "a.png", "-"],
    ],
)
def test_wrong_command_lines(run: Run, arguments: list[str]) -> None:
    result = run("upscale", *arguments)
    assert result.exit_code == 2
    assert not Path("b.png").exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "not valid JSON"),
        ('[{"weight": [[[[1,0,0],[0,1,0],[0,0,NaN]]]], "bias": [0]}]', "layer 1: weight holds"),
        ('[{"weight": [[[[1,0,0],[0,1,0],[0,0,1]]]], "bias": [0, 1]}]', "layer 1: bias has 2"),
    ],
)
def test_bad_models(run: Run, content: str, message: str) -> None:
    Path("models").mkdir()
    Path("models/scale2.0x_model.json").write_text(content)
    result = run("upscale", "-m", "models", "a.png", "b.png")
    assert_one_line_error(result, f"scale2.0x_model.json: {message}")


def test_skip_and_overwrite(run: Run) -> None:
    Path("b.png").write_bytes(b"precious")
    result = run("upscale", "--skip-existing", "a.png", "b.png")
    assert (result.exit_code, Path("b.png").read_bytes()) == (0, b"precious")
    assert run("upscale", "--overwrite", "a.png", "b.png").exit_code == 0
    assert load("b.png").size == (24, 16)


def program(*arguments: str, preexec: Callable[[], None] | None = None) -> subprocess.Popen[str]:
    """Runs the program as a process."""
    return subprocess.Popen(
        [sys.executable, "-m", "waifu2x", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=preexec,
    )


def tiny() -> str:
    """Makes a model set of one layer."""
    weight = np.random.default_rng(0).normal(0, 0.2, (3, 3, 3, 3)).astype(np.float32)
    layer = Layer("convolution", weight, np.full(3, 0.5, np.float32))
    Path("tiny").mkdir(exist_ok=True)
    Path("tiny/scale2.0x_model.json").write_bytes(dump(NetworkWeights("vgg_1", [layer])))
    return "./tiny"


def test_a_full_disk_loses_nothing(run: Run) -> None:
    """A limit on file sizes stands for the disk: writing fails half way."""
    Path("b.png").write_bytes(b"precious")
    process = program("upscale", "--overwrite", "a.png", "b.png", preexec=partial(limit_files, 500))
    _, errors = process.communicate()
    assert process.returncode == 1
    assert errors == "Error: b.png: cannot write: file too large\n"
    assert Path("b.png").read_bytes() == b"precious"
    assert not leftovers(Path())


def test_a_limit_on_files_cuts_no_bytecode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes of tests share a folder of bytecode."""
    monkeypatch.setenv("PYTHONPYCACHEPREFIX", str(tmp_path / "bytecode"))
    (tmp_path / "module.py").write_text(f"print({'x' * 1000!r})")
    command = [sys.executable, "-c", "import module"]
    for limit, written in ((partial(limit_files, 500), 0), (None, 1)):
        done = subprocess.run(command, cwd=tmp_path, preexec_fn=limit, capture_output=True)
        assert (done.returncode, len(done.stdout)) == (0, 1001)
        assert len(list(tmp_path.rglob("bytecode/**/module.*.pyc"))) == written


def test_stdout_that_cannot_be_written(run: Run) -> None:
    with Path("/dev/full").open("wb") as full:
        process = subprocess.run(
            [sys.executable, "-m", "waifu2x", "upscale", "a.png", "-"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert process.returncode == 1
    assert process.stderr == "Error: standard output: cannot write: no space left on device\n"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written(run: Run) -> None:
    Path("locked").mkdir(mode=0o500)
    result = run("upscale", "a.png", "locked/b.png")
    assert_one_line_error(result, "locked: cannot write to this folder: permission denied")


def test_output_in_a_folder_that_is_a_file(run: Run) -> None:
    result = run("upscale", "a.png", "a.png/b.png")
    assert_one_line_error(result, "a.png: no such folder")


def test_batch(run: Run) -> None:
    for name in ("in/x.jpg", "in/sub/y.webp", "in/z.png"):
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        load("a.png").save(name)
    Path("in/broken.png").write_text("hello")
    Path("in/.DS_Store").touch()
    result = run("batch", "-r", "-j", "2:1:2", "in", "out/deep")
    assert result.exit_code == 1
    made = sorted(path.relative_to("out/deep").as_posix() for path in Path("out").rglob("*.*"))
    assert made == ["sub/y.png", "x.png", "z.png"]
    assert "3 done, 0 skipped, 1 failed" in result.stderr
    # Failures are listed once more at the end.
    assert result.stderr.splitlines()[-1].startswith("failed   in/broken.png: not a picture")
    Path("in/broken.png").unlink()
    result = run("batch", "-r", "--skip-existing", "--json", "in", "out/deep")
    assert result.exit_code == 0
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert [row["status"] for row in rows] == ["skipped"] * 3


@pytest.mark.parametrize(
    "arguments",
    [
        ["nowhere", "out"],
        ["a.png", "out"],
        [".", "."],
        ["-j", "0:1:1", ".", "out"],
        ["-j", "2", ".", "out"],
    ],
)
def test_wrong_batches(run: Run, arguments: list[str]) -> None:
    Path("empty").mkdir()
    assert run("batch", *arguments).exit_code == 2
    assert not Path("out").exists()


def test_batch_of_nothing(run: Run) -> None:
    Path("in/sub").mkdir(parents=True)
    Image.new("RGB", (3, 3)).save("in/sub/b.png")
    Path("in/notes.txt").touch()
    result = run("batch", "in", "out")
    assert (result.exit_code, result.stderr) == (
        0,
        "in: no pictures and no films here; for folders in it give --recursive\n",
    )
    assert (
        "1 done, 0 skipped, 0 failed; skipped 1 file that is no picture and no film;"
        in run("batch", "-r", "-v", "in", "out").stderr
    )


def test_names_with_line_ends_stay_one_line(run: Run) -> None:
    Path("new\nline\x1b[31m.png").write_text("hello")
    assert_one_line_error(
        run("upscale", "new\nline\x1b[31m.png", "b.png"), r"new\nline\x1b[31m.png: not a picture"
    )


def test_names_as_long_as_they_may_be(run: Run) -> None:
    name = "漢" * 83 + ".png"
    assert len(name.encode()) == 253
    assert run("upscale", "a.png", name).exit_code == 0
    assert load(name).size == (24, 16)


def test_overwriting_keeps_the_mode(run: Run) -> None:
    run("upscale", "a.png", "b.png")
    Path("b.png").chmod(0o600)
    assert run("upscale", "--overwrite", "a.png", "b.png").exit_code == 0
    assert Path("b.png").stat().st_mode & 0o777 == 0o600


def test_closed_streams(run: Run) -> None:
    for arguments, redirection, message in (
        ("a.png -", ">&-", "standard output: it is closed"),
        ("- b.png", "<&-", "standard input: it is closed"),
    ):
        command = f"{sys.executable} -m waifu2x upscale {arguments} {redirection}"
        done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (1, f"Error: {message}\n")


@pytest.mark.parametrize(
    ("words", "place"),
    [("models list", "standard output: cannot write: "), ("--version", ""), ("--help", "")],
)
def test_a_full_disk_under_standard_output(words: str, place: str) -> None:
    with Path("/dev/full").open("w") as full:
        process = subprocess.run(
            [sys.executable, "-m", "waifu2x", *words.split()],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert process.returncode == 1
    assert process.stderr == f"Error: {place}no space left on device\n"


def test_a_closed_stderr_says_nothing_and_spoils_nothing(run: Run) -> None:
    Path("in").mkdir()
    for name in ("x", "y"):
        load("a.png").save(f"in/{name}.png")
    Path("bad.png").write_text("hello")
    for arguments, code in (
        (f"upscale -v -m {tiny()} a.png b.png", 0),
        (f"upscale -m {tiny()} bad.png c.png", 1),
        (f"upscale -m {tiny()} a.png d.xyz", 2),
        (f"batch -v -m {tiny()} in out", 0),
    ):
        command = f"{sys.executable} -m waifu2x {arguments} 2>&-"
        done = subprocess.run(command, shell=True, capture_output=True, check=False)
        assert (done.returncode, done.stdout) == (code, b"")
    assert Path("b.png").read_bytes() == Path("out/x.png").read_bytes()
    assert load("b.png").size == (24, 16)


def test_no_file_gets_the_number_of_a_closed_stream(run: Run) -> None:
    """Otherwise libraries would print into it."""
    code = (
        "import os, sys; from waifu2x import cli; sys.argv[1:] = ['--help']\n"
        "try:\n cli.main()\n"
        "except SystemExit: print(os.open('a.png', os.O_RDONLY), file=open('number', 'w'))"
    )
    subprocess.run(f'{sys.executable} -c "{code}" <&- >&- 2>&-', shell=True, check=True)
    assert int(Path("number").read_text()) > 2


def test_stdin_that_cannot_be_read(run: Run) -> None:
    command = f"{sys.executable} -m waifu2x upscale - b.png 0>x"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    message = "Error: standard input: cannot read: bad file descriptor\n"
    assert (done.returncode, done.stderr) == (1, message)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["bad.png", "b.png"], "bad.png: not a picture of a known format"),
        (["gone.png", "b.png"], "gone.png: cannot read: no such file or directory"),
        (["a.png", "nowhere/b.png"], "nowhere: no such folder"),
        (["-m", "nothing", "a.png", "b.png"], "nothing: no such model"),
    ],
)
def test_json_of_a_failure(run: Run, arguments: list[str], message: str) -> None:
    Path("bad.png").write_text("hello")
    result = run("upscale", "--json", *arguments)
    assert_one_line_error(result, message)
    (line,) = result.stdout.splitlines()
    row = json.loads(line)
    assert (row["input"], row["output"]) == (arguments[-2], arguments[-1])
    assert row["status"] == "failed"
    assert row["error"].startswith(message)


LOGGED = r"""
import logging

from waifu2x import cli

def log(**_):
    try:
        raise ValueError
    except ValueError:
        logging.getLogger("waifu2x.readers").warning("%s: %d", "a\n\x1b[2J", 1, exc_info=True)

cli.cli.main = log
cli.main()
"""


def test_what_is_logged_is_one_line_without_orders_to_the_terminal() -> None:
    command = [sys.executable, "-c", LOGGED]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stderr == "a\\n\\x1b[2J: 1\n"


INTERRUPTED_IMPORT = """
import sys

late = sys.argv.pop(1)

class Interrupting:
    def find_spec(self, name, *rest):
        if name == late:
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupting())
from waifu2x.__main__ import main
main()
"""


@pytest.mark.parametrize("late", ["click", "waifu2x.cli.commands.upscale", "llvmlite"])
def test_an_interrupt_while_modules_are_imported(run: Run, late: str) -> None:
    command = [late, "upscale", "--backend", "cpu", "-m", tiny(), "a.png", "b.png"]
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED_IMPORT, *command],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr.strip()) == (130, "Interrupted.")
    assert not Path("b.png").exists()


STUCK = """
import hashlib, sys

from {module} import {kind}

def stuck(*arguments, **named):
    print("stuck", flush=True)
    hashlib.pbkdf2_hmac("sha256", b"", b"", 2**31 - 1)  # one instruction of many minutes

{kind}.{method} = stuck
from waifu2x.__main__ import main
main()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="other signals")
@pytest.mark.parametrize(
    ("module", "kind", "method", "name", "message"),
    [
        ("waifu2x.backends.reference.backend", "NumpyNetwork", "run", "SIGTERM", ""),
        ("waifu2x.formats.png.write", "PngWriter", "add", "SIGINT", "Interrupted.\n"),
        ("waifu2x.formats.png.write", "PngWriter", "add", "SIGTERM", ""),
        ("waifu2x.formats.png.write", "PngWriter", "add", "SIGHUP", ""),
    ],
)
def test_signals_are_heard_while_compiled_code_runs(
    run: Run, module: str, kind: str, method: str, name: str, message: str
) -> None:
    """Python runs no handler of a signal before that has returned. No half file stays."""
    number = signal.Signals[name]
    code = STUCK.format(module=module, kind=kind, method=method)
    process = subprocess.Popen(
        [sys.executable, "-c", code, "upscale", "--backend", "numpy", "a.png", "b.png"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "stuck\n"
        assert len(leftovers(Path())) == (kind == "PngWriter")
        process.send_signal(number)
        try:
            _, errors = process.communicate(timeout=60)
        finally:
            process.kill()
    # Where the signal comes before the code begins, Python hears it, and ends the line first.
    assert (process.returncode, errors.lstrip("\n")) == (128 + number, message)
    assert not leftovers(Path())
    assert not Path("b.png").exists()


@pytest.mark.skipif(sys.platform == "win32", reason="other signals")
@pytest.mark.parametrize("signals", [1, 2])
def test_a_folder_hears_signals_while_compiled_code_runs(run: Run, signals: int) -> None:
    """With --watch, the second one, as the first waits for what has been begun."""
    Path("in").mkdir()
    Path("a.png").replace("in/a.png")
    os.utime("in/a.png", (0, 0))  # whole since long ago
    code = STUCK.format(
        module="waifu2x.backends.reference.backend", kind="NumpyNetwork", method="run"
    )
    options = ["--report", "page.html", *(["--watch"] if signals == 2 else [])]
    process = subprocess.Popen(
        [sys.executable, "-c", code, "batch", *options, "--backend", "numpy", "in", "out"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            assert process.stdout.readline() == "stuck\n"
            for _ in range(signals - 1):
                process.send_signal(signal.SIGINT)
                assert process.stderr.readline().startswith("Ending when")
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=60)
        finally:
            process.kill()
    left = "" if signals == 2 else ", 1 not done"
    assert process.returncode == 130
    assert errors == f"0 done, 0 skipped, 0 failed{left}\nInterrupted.\n"
    assert f"0 done, 0 skipped, 0 failed{left}<" in Path("page.html").read_text()
    assert not list(Path("out").iterdir())


def test_names_that_an_archive_has_twice_are_no_news(run: Run) -> None:
    Path("in").mkdir()
    with warnings.catch_warnings(), zipfile.ZipFile("in/book.cbz", "w") as archive:
        warnings.simplefilter("ignore")
        for _ in range(2):
            archive.writestr("a.png", Path("a.png").read_bytes())
    process = program("batch", "-m", tiny(), "--backend", "numpy", "in", "out")
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "Warning" not in errors
    with zipfile.ZipFile("out/book.cbz") as archive:
        assert archive.namelist() == ["a.png", "a.png"]


def test_interrupt_keeps_what_is_finished_and_leaves_no_half_file(run: Run) -> None:
    Path("in").mkdir()
    pixels = np.random.default_rng(0).integers(0, 256, (150, 150, 3), np.uint8)
    for index in range(200):
        Image.fromarray(pixels).save(f"in/{index:03}.png")
    process = program("batch", "in", "out")
    deadline = time.monotonic() + 120
    while not list(Path().glob("out/*.png")):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in errors
    assert errors.endswith("Interrupted.\n")
    made = list(Path("out").iterdir())
    assert 0 < len(made) < 200
    for path in made:
        assert np.asarray(load(path)).shape == (300, 300, 3)


def test_backends_that_most_machines_lack_are_no_news(
    run: Run, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The package for OpenCL without a driver, say; what should work and does not, is."""
    reason: BackendError = UnavailableError("backend opencl found no device: install a driver")

    def devices(*, gpus_only: bool) -> None:
        raise reason

    real = backends._load
    fake = types.SimpleNamespace(devices=devices)
    monkeypatch.setattr(
        backends, "_load", lambda entry: fake if entry.name == "opencl" else real(entry)
    )
    caplog.set_level(logging.DEBUG)
    call = ["upscale", "-m", tiny(), "--overwrite", "a.png", "b.png"]
    assert (run(*call).stderr, reason.args[0] in caplog.text) == ("", True)
    reason = DeviceError("OpenCL device 0: it does not answer")
    assert "OpenCL device 0: it does not answer" in run(*call).stderr
    assert run(*call, "--quiet").stderr == ""


def test_devices(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = json.loads(run("devices", "--json").stdout)
    usable = {row["backend"] for row in rows if row["usable"]}
    assert usable == set(PRESENT)
    assert [row["number"] for row in rows if row["backend"] == "cpu"] == [0]
    # OpenCL runs on a processor here, which is not what `auto` takes it for.
    assert [row["backend"] for row in rows if row.get("default")] == ["cpu"]
    for columns in (60, 80, 100):
        monkeypatch.setenv("COLUMNS", str(columns))
        lines = run("devices").stdout.splitlines()
        assert max(map(len, lines)) <= columns
        starts = [line.split()[:2] for line in lines if line[0] != " "]
        numbers = [[row["backend"], str(row.get("number", "-"))] for row in rows]
        assert starts == numbers
        assert "(the default)" in " ".join(" ".join(lines).split())


WITHOUT_NUMBA = """
import sys

class Hidden:
    def find_spec(self, name, *rest):
        if name.partition(".")[0] in ("numba", "llvmlite"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Hidden())
from waifu2x.cli import main
main()
"""


@pytest.mark.parametrize("command", ["devices", "upscale --backend cpu in.png out.png"])
def test_a_processor_without_numba_is_a_sentence(command: str, tmp_path: Path) -> None:
    Image.new("RGB", (8, 8)).save(tmp_path / "in.png")
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_NUMBA, *command.split()],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    said = "needs the package llvmlite; run `pip install waifu2x-kernels`"
    assert said in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_cache(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("WAIFU2X_CACHE_DIR", str(tmp_path / "kept"))
    assert run("models", "info", "vgg_7/art").exit_code == 0
    document = json.loads(run("cache", "info", "--json").stdout)
    assert document["folder"] == str(tmp_path / "kept")
    assert document["kinds"]["weights"]["files"] == 5
    removed = run("cache", "clear").stdout
    assert re.fullmatch(rf"{tmp_path}/kept: 10 files removed, \d+\.\d MiB\n", removed)
    assert run("cache", "clear").stdout == f"{tmp_path}/kept: nothing to remove\n"
    assert json.loads(run("cache", "info", "--json").stdout)["kinds"] == {}


@pytest.mark.matrix
def test_a_cache_that_cannot_be_written_changes_nothing(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("file").touch()
    expected = waifu2x.upscale(np.asarray(load("a.png")), model=tiny())
    monkeypatch.setenv("WAIFU2X_CACHE_DIR", "file")
    process = program("upscale", "-m", tiny(), "a.png", "b.png")
    assert process.communicate() == ("", NOT_KEPT)
    np.testing.assert_array_equal(np.asarray(load("b.png")), expected)
