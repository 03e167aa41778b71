"""Mistakes on the command line, and the one sentence that tells of each, with the way out."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result
from PIL import Image, features

from tests.cli.test_cli import tiny
from tests.helpers.terminals import Terminal
from tests.helpers.weight_files import compact, safetensors
from waifu2x.cli import cli
from waifu2x.errors import LESS_MEMORY
from waifu2x.flows import flow as loop

Run = Callable[..., Result]

MISTAKES = [
    # Typos.
    ("upscal a.png", 2,
     "There is no command and no file 'upscal'; did you mean `waifu2x upscale a.png`?"),
    ("bach in out", 2,
     "There is no command and no file 'bach'; did you mean `waifu2x batch in out`?"),
    ("help", 2, "There is no command and no file 'help'; did you mean `waifu2x --help`?"),
    ("resize", 2, "There is no command and no file 'resize'; `waifu2x --help` lists the commands."),
    ("models lst", 2, "waifu2x models has no command 'lst'; did you mean list?"),
    ("--noize 1 a.png", 2, "There is no option --noize; did you mean --noise?"),
    ("a.png out.png --ovewrite", 2, "There is no option --ovewrite; did you mean --overwrite?"),
    ("a.png -z", 2,
     "There is no option -z; `waifu2x upscale --help` shows what there is."),
    ("pictrue.png", 1,
     "pictrue.png: cannot read: no such file or directory; did you mean picture.png?"),
    ("-m realesrgn a.png", 1,
     "realesrgn: no such model and no such folder; did you mean realesrgan?"),
    ("-m nofile.pth a.png", 1, "nofile.pth: no such file"),
    ("-f jpgg a.png", 2, "--format: 'jpgg'; did you mean jpg?"),
    ("a.png out.wepb", 2, "out.wepb: it names no format; did you mean .webp?"),
    ("a.png out.docx", 2,
     "out.docx: it names no format; use one of png, jpg, webp, tif, bmp, ppm, tga, gif, avif,"
     " jp2, qoi, jxl, heic."),
    # Values.
    ("-n 4 a.png", 2, "--noise: expected auto, none, 0, 1, 2 or 3, not '4'."),
    ("-s 2x a.png", 2,
     "--scale: '2x': expected a number above 0, at most 32, such as 2, 1.5 or 4/3."),
    ("-x 3 a.png out.png", 2, "--tta takes 2, 4 or 8, not 3."),
    ("-q 101 a.png out.jpg", 2, "--quality: '101': expected a number from 1 to 100, or like."),
    ("--backend gpu a.png", 2,
     "--backend: expected auto, cuda, opencl, vulkan, cpu or numpy, not 'gpu'."),
    ("--width 0 a.png", 2,
     "--width: expected a whole number of pixels from 1 to 1000000, not '0'."),
    ("--width 5000 a.png", 1,
     "a.png: a picture of 12x8 would grow 416.7 times; ask for at most 32 times"),
    ("-s 2 --width 100 a.png", 2, "Give one size: --scale or --width and --height."),
    ("-n none -s 1 a.png", 2, "Nothing to do; give --noise, a --scale above 1, or both."),
    ("-g 7 a.png", 1, "there is no device 7; see `waifu2x devices`"),
    ("-m vgg_7 -n 1 -s 32 wide.png out.jpg", 1,
     "out.jpg: JPEG holds at most 65500 pixels a side, but the result is 65600x32;"
     " choose png or tiff"),
    # Files.
    ("upscale", 2,
     "Give a picture: `waifu2x in.png` or `waifu2x in.png out.png`; `waifu2x --help` has more."),
    ("new.png a.png", 1,
     "new.png: cannot read: no such file or directory, but a.png is there: the input comes before"
     " the output"),
    ("https://host/x.png out.png", 2,
     "https://host/x.png: it is a URL, not a file; download it first, and give the file."),
    ("a.png s3://bucket/a.png", 2,
     "s3://bucket/a.png: it is a URL; use `waifu2x batch` to write there."),
    ("folder out.png", 1, "folder: it is a folder; try `waifu2x batch folder OUTPUT_DIR`"),
    ("a.png nowhere/out.png", 1, "nowhere: no such folder; make it first"),
    ("a.png out", 2,
     "out: it names no format; end it in .png, say, or in a slash if it is a folder."),
    ("a.png b.png", 1,
     "b.png: it exists already; use --overwrite or --skip-existing, or -o DIR if both are inputs"),
    ("-o b.png a.png", 1, "b.png: it exists already; use --overwrite or --skip-existing"),
    ("a.png folder b.png -o out", 2,
     "folder: it is a folder; use `waifu2x batch` for what is in it."),
    ("a.png a.png", 1, "a.png: it is an input itself; choose another output"),
    ("a.png b.png picture.png", 2,
     "There are 3 inputs; give a folder for the results, with -o DIR."),
    ("a.png picture.png -o large.png", 2,
     "large.png: it names a file, but there are 2 inputs; give a folder."),
    ("-i a.png out.png", 2, "out.png: give the output with -o, since the input has -i."),
    ("-f webp a.png out.png", 2, "--format webp contradicts the file name out.png."),
    ("a.png --name ../{stem}", 2,
     "--name: '../{stem}' is no file name; give its folder to -o."),
    ("a.png --name {stem}.{scale}", 2, "--name {stem}.{scale}: end it in {ext}."),
    ("batch folder out --name {stem}.webp", 2,
     "--name {stem}.webp: end it in {ext}, and choose the format with -f."),
    ("batch a.png out", 2, "a.png: it is a file, not a folder; try `waifu2x a.png OUT`."),
    ("batch new folder", 2,
     "new: no such folder, but folder is there: the input comes before the output."),
    ("batch nowhere out", 2, "nowhere: no such folder."),
    ("batch folder", 2, "OUTPUT_DIR is missing: `waifu2x batch INPUT_DIR OUTPUT_DIR`."),
    ("info", 2, "FILE... is missing: `waifu2x info FILE...`."),
    ("video a.png out.avi", 1,
     "out.avi: a film is written as .mkv, .mp4, .mov, .webm, .gif or .y4m, or as frames such as"
     " frames/%06d.png; choose one"),
    ("video --start 9 --end 5 a.mkv out.mkv", 2, "--end must be later than --start."),
    ("-s", 2, "Option '-s' requires an argument; `waifu2x upscale --help` shows what there is."),
    ("batch folder folder", 2, "OUTPUT_DIR must be another folder than INPUT_DIR."),
    (f"a.png --width {'9' * 5000}", 2,
     f"--width: expected a whole number of pixels from 1 to 1000000, not '{'9' * 60}...'."),
]  # fmt: skip
"""Words, exit code, and the sentence."""


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Calls the command line in a folder with three pictures of 12 x 8, a wide one, a folder."""
    monkeypatch.chdir(tmp_path)
    pixels = np.random.default_rng(0).integers(0, 256, (8, 12, 3), np.uint8)
    for name in ("a.png", "b.png", "picture.png"):
        Image.fromarray(pixels).save(name)
    Image.new("RGB", (2050, 1)).save("wide.png")
    Path("folder").mkdir()
    return lambda *words: CliRunner().invoke(cli, words)


@pytest.mark.parametrize("words", [["", "out.png"], ["a.png", ""], ["a.png", "-o", ""]])
def test_empty_names(run: Run, words: list[str]) -> None:
    result = run(*words)
    message = "A file's name is empty: is a variable of the shell not set?"
    assert (result.exit_code, result.stderr) == (2, f"Error: {message}\n")


def test_a_name_that_begins_with_a_dash(run: Run) -> None:
    Path("-dash.png").write_bytes(Path("a.png").read_bytes())
    result = run("-dash.png")
    assert result.exit_code == 2
    assert "-dash.png: begins as options do; for the file write ./-dash.png" in result.stderr
    assert run("-m", "upconv_7/art", "--backend", "numpy", "./-dash.png", "out.png").exit_code == 0
    assert "There is no option -e" in run("-else.png").stderr


def test_names_hold_no_orders_to_the_terminal(run: Run) -> None:
    for words in (["x\x1b[31m.png"], ["a.png", "x\x1b[31m"], ["\x1b[31m"], ["-\x1b[31m"]):
        result = run(*words)
        assert result.exit_code in (1, 2)
        assert len(result.stderr.splitlines()) == 1
        assert "\x1b" not in result.stderr


def test_pictures_neither_come_from_a_terminal_nor_go_to_one(run: Run) -> None:
    with Terminal(["-m", "waifu2x", "a.png", "-"]) as terminal:
        assert terminal.end() == 2
        assert terminal.lines == [
            "Error: - is standard output, which is a terminal; send it on with > or |."
        ]
    ours, theirs = os.openpty()
    try:
        result = subprocess.run(
            [sys.executable, "-m", "waifu2x", "-", "out.png"],
            stdin=theirs,
            capture_output=True,
            text=True,
            timeout=120,
        )
    finally:
        os.close(ours)
        os.close(theirs)
    message = "- is standard input, which is a terminal; send a picture with <."
    assert (result.returncode, result.stderr) == (2, f"Error: {message}\n")


def everything() -> set[tuple[str, int]]:
    return {(str(path), path.stat().st_mtime_ns) for path in Path().rglob("*")}


@pytest.mark.parametrize(
    ("words", "code", "sentence"), MISTAKES, ids=[words[:60] for words, _, _ in MISTAKES]
)
def test_a_mistake_ends_in_one_sentence(run: Run, words: str, code: int, sentence: str) -> None:
    before = everything()
    result = run(*words.split())
    assert result.exit_code == code
    assert result.stderr == f"Error: {sentence}\n"
    assert result.stdout == ""
    assert everything() == before


def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Returns a list that gets an entry for each opened upscaler."""
    opened: list[str] = []

    def refuse(self: object, *arguments: object, **named: object) -> None:
        opened.append("opened")
        raise AssertionError("this takes long")

    monkeypatch.setattr("waifu2x.api.Upscaler.__init__", refuse)
    return opened


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize(
    ("name", "module", "package"),
    [("late.heic", "pillow_heif", "pillow-heif"), ("late.jxl", "pillow_jxl", "pillow-jxl-plugin")],
)
def test_a_missing_encoder_is_said_before_any_work(
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    module: str,
    package: str,
    several: bool,
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    opened = calls(monkeypatch)
    form, extension = {"heic": "HEIF", "jxl": "JPEG XL"}[name[5:]], name[5:]
    words = ["a.png", name]
    if several:
        Image.new("RGB", (4, 4)).save("folder/x.png")
        words = ["batch", "-f", extension, "folder", "out"]
    result = run(*words)
    assert (result.exit_code, opened) == (1, [])
    assert result.stderr == (
        f"Error: cannot write .{extension}: {form} needs a plugin; run `pip install {package}`\n"
    )
    assert not Path("out").exists()
    assert not Path(name).exists()
    several_words = ["a.png", "b.png", "-f", extension, "-o", "out"]
    assert run(*several_words).stderr == result.stderr


def test_a_pillow_without_an_encoder(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(features, "check", lambda feature: feature != "avif")
    opened = calls(monkeypatch)
    result = run("a.png", "out.avif")
    assert (result.exit_code, opened) == (1, [])
    assert result.stderr == (
        "Error: cannot write .avif: this Pillow cannot write AVIF; run `pip install -U pillow`\n"
    )


@pytest.mark.parametrize(
    "words", ["--width 500 a.png", "-s 32 wide.png out.jpg", "-s 9 wide.png out.webp"]
)
def test_sizes_are_checked_before_a_device_is_opened(
    run: Run, monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    opened = calls(monkeypatch)
    assert run(*words.split()).exit_code == 1
    assert opened == []


@pytest.mark.parametrize(
    ("name", "free", "fits"),
    [
        ("out.png", 0, False),
        ("out.png", 1 << 20, True),
        ("out.bmp", 3 * 24 * 16 + 2000, True),
        ("out.bmp", 24 * 16 - 1, False),
    ],
)
def test_a_full_disk_is_seen_before_the_work(
    run: Run, monkeypatch: pytest.MonkeyPatch, name: str, free: int, fits: bool
) -> None:
    """Only where nothing of the result's size could fit."""
    monkeypatch.setattr(
        "waifu2x.flows.upscaling.shutil.disk_usage",
        lambda folder: type("Usage", (), {"free": free}),
    )
    flows: list[object] = []
    flow = loop.flow

    def seen(*arguments: object, **named: object) -> None:
        flows.append(1)
        flow(*arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr("waifu2x.flows.upscaling.flow", seen)
    result = run("-m", tiny(), "a.png", name)
    assert (result.exit_code, len(flows)) == ((0, 1) if fits else (1, 0))
    if not fits:
        assert result.stderr == (
            f"Error: {name}: no space on the disk for the result, 0 KiB are free; make room, or"
            " choose another folder\n"
        )


def test_a_full_disk_ends_a_batch(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(9):
        Image.new("RGB", (4, 4)).save(f"folder/{number}.png")
    monkeypatch.setattr(
        "waifu2x.flows.upscaling.shutil.disk_usage",
        lambda folder: type("Usage", (), {"free": 0}),
    )
    result = run("batch", "-j", "1:1:1", "-m", tiny(), "folder", "out")
    assert result.exit_code == 1
    assert "out: the disk is full; make room and go on with --skip-existing" in result.stderr


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), "enlarges 4 times: the result is reduced to 2x; -s 4 takes no longer"),
        (("-s", "1.5"), "enlarges 4 times: the result is reduced to 1.5x; -s 4 takes no longer"),
        (("-s", "3"), ""),
        (("-s", "4"), ""),
    ],
)
def test_a_model_that_enlarges_more_than_is_asked_for(
    run: Run, words: Sequence[str], told: str
) -> None:
    """It is said without -v."""
    Path("four.safetensors").write_bytes(safetensors(compact(4)))
    result = run(*words, "-m", "four.safetensors", "--backend", "numpy", "a.png")
    assert result.exit_code == 0
    assert (told in result.stderr) if told else ("reduced" not in result.stderr)


def test_short_memory_hints_at_a_smaller_model(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object, **named: object) -> None:
        raise MemoryError

    monkeypatch.setattr("waifu2x.flows.upscaling.flow", refuse)
    result = run("-m", tiny(), "a.png")
    assert "the model upconv_7" in LESS_MEMORY
    assert result.stderr == f"Error: not enough memory for this picture: {LESS_MEMORY}\n"


def test_models_are_found_in_capitals(run: Run) -> None:
    for name in ("VGG_7", "Vgg_7/Art", "vgg_7/ART"):
        assert run("--overwrite", "-m", name, "a.png", "x.png").exit_code == 0
    # A folder of that name comes first.
    Path(tiny()).rename("VGG_7")
    assert run("-m", "VGG_7", "a.png", "y.png").exit_code == 0
    assert Path("x.png").read_bytes() != Path("y.png").read_bytes()


def test_the_documentation_quotes_what_is_said() -> None:
    said = {f"waifu2x {words}": (code, sentence) for words, code, sentence in MISTAKES}
    page = Path(__file__).parents[2] / "docs/reference/exit-codes.md"
    rows = re.findall(r"^\| `(waifu2x [^`]*)` \| (.*) \| (\d) \|$", page.read_text(), re.MULTILINE)
    assert len(rows) >= 10
    for words, sentence, code in rows:
        assert said[words] == (int(code), sentence)
