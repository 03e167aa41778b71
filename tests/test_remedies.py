"""Each remedy that a message names is done, and works."""

from __future__ import annotations

import contextlib
import importlib.util
import re
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from PIL import Image

from tests.helpers.contents import identity_models
from tests.helpers.remedies import messages, remedies
from tests.helpers.weight_files import compact, safetensors
from waifu2x.api import Upscaler
from waifu2x.cli import cli
from waifu2x.errors import BackendError, OutputError

Run = Callable[[str], Result]

COMMANDS: dict[str, tuple[str, ...]] = {
    # A command that fails, or has a notice, then each way out; + is a small model on NumPy.
    "ask for at most {} times": ("--width 999 a.png o.png +", "--width 384 a.png o.png +"),
    "choose avif, heic or jxl": (
        "--depth 12 a.png o.png +", "--depth 12 a.png o.avif +", "--depth 12 a.png o.heic +",
        "--depth 12 a.png o.jxl +",
    ),
    "choose another output": ("a.png a.png +", "a.png o.png +"),
    "choose png or tiff": (
        "--depth 16 a.png o.jpg +", "--depth 16 a.png o.png +", "--depth 16 a.png o.tiff +"
    ),
    "did you mean {}?": ("ther.png o.png +", "there.png o.png +"),
    "end it in a slash": (
        "a.png -o new --name {stem}.{ext} +", "a.png -o new/ --name {stem}.{ext} +"
    ),
    "give -n 0 to 3, or a scale": (
        "-n auto -s 1 a.png o.png +", "-n 0 -s 1 a.png p.png +", "-n auto -s 2 a.png q.png +"
    ),
    "give --noise, a --scale above 1, or both": (
        "-n none -s 1 a.png o.png +", "-n 0 -s 1 a.png o.png +", "-n none -s 2 a.png p.png +",
        "-n 0 -s 2 a.png q.png +",
    ),
    "give IN alone": (
        "compare --models ./tiny,./other --backend numpy a.png b.png",
        "compare --models ./tiny,./other --backend numpy a.png",
    ),
    "give a --scale above 1, or --noise": (
        "compare --models ./tiny,./other --backend numpy -s 1 -n none a.png",
        "compare --models ./tiny,./other --backend numpy -s 2 -n none a.png",
        "compare --models ./tiny,./other --backend numpy -n 0 --overwrite a.png",
    ),
    "give a folder": ("a.png b.png -o large.png +", "a.png b.png -o out +"),
    "give a folder for the results, with -o DIR": (
        "a.png b.png folder/c.png +", "a.png b.png folder/c.png -o out +"
    ),
    "give it a name in .png": ("compare a.png b.png -o s.jpg", "compare a.png b.png -o s.png"),
    "give its folder to -o": (
        "a.png --name ../{stem}.{ext} +", "a.png --name {stem}.{ext} -o up/ +"
    ),
    "give {} a number": ("-q like a.png o.webp +", "-q 90 a.png o.webp +"),
    "leave out -n, or use {}": (
        "-n 0 -s 1 -m ./plain --backend numpy a.png o.png",
        "-m ./plain --backend numpy a.png o.png",
        "-n 0 -s 1 -m cunet/art --backend numpy a.png p.png",
    ),
    "see `waifu2x devices`": ("-g 7 a.png o.png", "devices"),
    "try `waifu2x batch {} OUTPUT_DIR`": (
        "folder out.png +", "batch folder OUTPUT_DIR +"
    ),
    "use --overwrite or --skip-existing": (
        "-o there.png a.png +", "-o there.png a.png --skip-existing +",
        "-o there.png a.png --overwrite +",
    ),
    "use --overwrite, or another name with -o": (
        "compare a.png b.png -o there.png", "compare a.png b.png -o new.png",
        "compare a.png b.png -o there.png --overwrite",
    ),
    "use `waifu2x batch` for what is in it": ("a.png folder -o out +", "batch folder out +"),
    "use auto or fp32, or another backend": (
        "--precision fp16 a.png o.png +", "--precision auto a.png o.png +",
        "--precision fp32 a.png p.png +",
        "--precision fp32 -m ./tiny --backend cpu a.png q.png",
    ),
    "use it with -s 1 -n 0": (
        "-m 1x.safetensors --backend numpy a.png o.png",
        "-m 1x.safetensors --backend numpy -s 1 -n 0 a.png o.png",
    ),
    "use {}": ("-n 1 a.png o.png +", "-n 0 a.png o.png +"),
    "{}, as `waifu2x devices` shows": (
        "--device 7 a.png o.png +", "devices", "--device 0 a.png o.png +"
    ),
    "{}, or -o DIR if both are inputs": (
        "a.png there.png +", "a.png there.png -o out +", "a.png there.png --skip-existing +",
        "a.png there.png --overwrite +",
    ),
    "<_instead(name)>": (
        "-m tinny/x a.png o.png", "models list", "-m vgg_7 --backend numpy a.png o.png"
    ),
    "make it as large as the picture": (
        "--mask narrow.png a.png o.png +", "--mask b.png a.png o.png +"
    ),
    "give --name SET": (
        "models import sets/noise1_model.json own",
        "models import --name my sets/noise1_model.json own"
    ),
    "give one like vgg_7/mine": (
        "models import --name ../x sets/noise1_model.json own",
        "models import --name vgg_7/mine sets/noise1_model.json own",
    ),
}  # fmt: skip

FILMS: dict[str, tuple[str, ...]] = {
    "choose another --start or --end": (
        "--start 9 in.mkv o.mkv +", "--start 0.04 in.mkv o.mkv +", "--end 0.08 in.mkv p.mkv +"
    ),
    "choose one": ("in.mkv out.avi +", "in.mkv out.mkv +", "in.mkv frames/%06d.png +"),
    "end it in .png": ("--preview 0 in.mkv out.mkv +", "--preview 0 in.mkv out.png +"),
    "give --noise, a --scale above 1, or both": (
        "-s 1 -n none in.mkv o.mkv +", "-n 0 -s 1 in.mkv o.mkv +"
    ),
    "leave --depth {} out": ("--depth 10 in.mkv o.gif +", "in.mkv o.gif +"),
    "leave out --shard, --restart, --cluster": (
        "--join --shard 1/2 in.mkv o.mkv +", "--shard 1/2 in.mkv o.mkv +",
        "--shard 2/2 in.mkv o.mkv +", "--join in.mkv o.mkv +",
    ),
    "leave out {}": (
        "--preview 0 --join in.mkv out.png +", "--preview 0 in.mkv out.png +"
    ),
    "leave {} out": ("-c x264 in.mkv o.gif +", "in.mkv o.gif +"),
    "make them with --shard": (
        "--join in.mkv o.mkv +", "--shard 1/1 in.mkv o.mkv +", "--join in.mkv o.mkv +"
    ),
    "name one": ("--preview 0 in.mkv there.mkv new/ +", "--preview 0 in.mkv new.png +"),
    "use --codec auto, or {}": (
        "-c hevc_amf in.mkv o.mkv +", "-c auto in.mkv o.mkv +", "-c x264 in.mkv p.mkv +"
    ),
    "use --join to make {} of all": ("-v --shard 1/1 in.mkv o.mkv +", "--join in.mkv o.mkv +"),
    "use --overwrite, or another name": (
        "in.mkv there.mkv +", "in.mkv new.mkv +", "--overwrite in.mkv there.mkv +"
    ),
    "use --overwrite, or other names": (
        "in.mkv numbers/%d.png +", "in.mkv numbers/new%d.png +",
        "--overwrite in.mkv numbers/%d.png +",
    ),
    "use .mkv, .mov or .webm": (
        "clear.mkv o.mp4 +", "clear.mkv o.mkv +", "clear.mkv o.mov +", "clear.mkv o.webm +"
    ),
    "use .mkv": ("clear.mkv o.y4m +", "clear.mkv o.mkv +"),
    "use .{}": ("-c vp9 in.mkv o.mov +", "-c vp9 in.mkv o.mkv +"),
    "leave --codec out, or use {}": (
        "-c x264 clear.mkv o.mkv +", "clear.mkv o.mkv +", "-c ffv1 clear.mkv p.mkv +"
    ),
    "use --preset 4": (
        "-c prores --preset 3 clear.mkv o.mov +", "-c prores --preset 4 clear.mkv o.mov +"
    ),
    "use --depth {}": ("-c prores --depth 8 in.mkv o.mov +", "-c prores --depth 10 in.mkv o.mov +"),
    "use 0 to {}": ("--crf 64 in.mkv o.mkv +", "--crf 0 in.mkv o.mkv +", "--crf 51 in.mkv p.mkv +"),
    "use another value": (
        "-c x264 --codec-option level=99 in.mkv o.mkv +",
        "-c x264 --codec-option level=51 in.mkv o.mkv +",
    ),
    "use `waifu2x {}`": ("a.png o.mp4 +", "waifu2x a.png +"),
    "use `waifu2x video {} {}`": ("waifu2x in.mkv o.mkv +", "in.mkv o.mkv +"),
    "begin --crop {} at multiples of that": (
        "--crop 20:16:1:1 in.mkv o.mkv +", "--crop 20:16:2:2 in.mkv o.mkv +"
    ),
    "name one, {} say": ("two o.mkv +", "two/%d.png o.mkv +", "two/a%d.png p.mkv +"),
    "for the films in it, give a folder as OUT": ("films o.mkv +", "films out/ +"),
    "use --deinterlace off to keep it": (
        "combed.mkv o.mkv +", "--deinterlace off combed.mkv p.mkv +"
    ),
    "use --deinterlace frame to remove them": (
        "--deinterlace off combed.mkv o.mkv +", "--deinterlace frame combed.mkv p.mkv +"
    ),
    "look at a frame first, with --preview, or use --to sdr": (
        "hdr.mkv o.mkv +", "--preview 0 hdr.mkv o.png +", "--to sdr hdr.mkv p.mkv +"
    ),
    "use --chroma 420 for them": ("fine.mkv o.mkv +", "--chroma 420 fine.mkv p.mkv +"),
}  # fmt: skip
FILMS |= {
    "leave it out": (
        "-c x264 --codec-option framerate=2 in.mkv o.mkv +", "-c x264 in.mkv o.mkv +"
    ),
    "leave --chroma out": ("--chroma 420 in.mkv o.gif +", "in.mkv o.gif +"),
    "number frames without a gap": ("gap/%d.png o.mkv +", "numbers/%d.png o.mkv +"),
    "use --overwrite, or another folder": (
        "in.mkv stamped/%d.png +", "in.mkv fresh/%d.png +", "--overwrite in.mkv stamped/%d.png +"
    ),
    "write {}=G(x,y)B(x,y)R(x,y)WP(x,y)L(most,least)": (
        "-c x265 --codec-option x265-params=master-display=x in.mkv o.mkv +",
        "-c x265 --codec-option x265-params=master-display=G(13250,34500)B(7500,3000)R(34000,16000)"
        "WP(15635,16450)L(10000000,1) in.mkv o.mkv +",
    ),
}  # fmt: skip

UNTRIED: dict[str, tuple[str, ...]] = {
    "an error's own remedy, passed on": (
        "<context>",
        "<found.remedy>",
        "<idle.remedy>",
        "<instead>",
        "<self._resume>",
        "<self.remedy>",
    ),
    "VapourSynth does not run on every Python; its own tests do what clips here can": (
        "choose an even size, or convert it to 4:4:4",
        "convert it first, by resize.Bicubic",
        "convert it to RGBS, or to YUV of 4:2:0, 4:2:2 or 4:4:4 with up to 16 bits",
        "convert it, by resize.Bicubic(matrix=1)",
        "use waifu2x video for it",
    ),
    "a test can install no driver and no package": (
        "<INSTALL>",
        "<_OTHER_DRIVER>",
        "<_REMEDY>",
        "<stores.INSTALL>",
        "check NVIDIA's driver with `nvidia-smi`",
        "check it with `nvidia-smi`",
        "install it with `pip install 'waifu2x-kernels[video]'`",
        "install it, or use another backend",
        "install the same",
        "install {} there",
        "install your GPU's driver, and on Linux the package libvulkan1 or vulkan-icd-loader",
        "reinstall your GPU's driver",
        "restart its driver, or use another backend",
        "update its driver, or use another backend",
        "update your GPU's driver",
        "run `pip install -U pillow`",
        "run `pip install {}`",
        "run `pip uninstall {}`",
        "run `{}`",
        "run `{}`, or use another backend",
        "run `{}`, which brings an older one, or use another backend",
        "start the program again, or use another backend",
        "update NVIDIA's driver, or use another backend",
        "update the driver, or use another backend",
        "{}, or use another backend",
    ),
    "a test can free no memory and no disk": (
        "<LESS_MEMORY>",
        "close other programs that use it, or use another backend",
        "close other programs that use this device, or use another backend",
        "close other programs that use this device, or use another backend or -m upconv_7",
        "cut it into parts",
        "free some memory",
        "free some memory, or allow more (ulimit -u, ulimit -v)",
        "free some memory, or allow more files (ulimit -n)",
        "free some memory, or install it again",
        "make room, or choose another folder",
        "use a model that enlarges less",
        "use a model that enlarges less, or a larger scale",
        "use a smaller network",
        "use a smaller scale",
    ),
    "it is done in another program": (
        "<_PACK_ANEW>",
        "<_STATE_DICT>",
        "convert it on a Mac, as by sips -s format png",
        "convert it to RGB first",
        "convert to 16 bits or float first",
        "convert to RGB first",
        "export a TIFF or a 16-bit PNG from a raw converter",
        "export it as PNG in the size you want",
        "export it as PNG or TIFF",
        "pack it anew",
        "replace it first, as numpy.nan_to_num does",
        "save it anew",
        "save it as TIFF",
        "save it with Maximize Compatibility, or as TIFF",
        "save its pages as pictures",
        "save model.state_dict()",
        "save the one to use by itself",
        "save the picture itself",
        "scale them first",
        "unpack it first",
        "unpack it, and use one",
        "unpack it, and pack it again without one",
        "unpack it, and use `waifu2x batch`",
        "unpack the archive first",
        "unpack the archive, and pack it again",
        "use deflate",
    ),
    "the processor or the GPU decides whether it is said": (
        "try {}=portable, or another backend",
        "use another backend",
        "use auto or {}, or another backend",
        "use {}, or another backend",
        "open a new one",
        "start it with the method spawn, and open an engine there",
        "start such processes with the method spawn",
    ),
    "it takes a cluster, a store or a server, whose own tests have it": (
        "choose another --port or --host",
        "copy it, and use folders of this machine",
        "give a certificate and its key in PEM by --certfile and --keyfile",
        "make one in each process",
        "give a noise level, a scale above 1, or both",
        "leave out best_for or model",
        "give a noise level, or a larger size",
        "give a path, or an object store ({})",
        "give one that all machines share, or a URL",
        "give one, as in {}://bucket/folder",
        "move its folder jobs elsewhere",
        "start it with `DASK_DISTRIBUTED__WORKER__DAEMON=False dask worker`",
        "start one with `dask scheduler`, or look at the address",
        "start some with `dask worker {}`",
        "try again",
        "use `waifu2x batch` to write there",
        "use `waifu2x video`",
        "use its page, or set WAIFU2X_CACHE_DIR to another folder",
        "use paths that all machines share",
        "choose another folder",
        "remove it",
        "set {} to a folder that can be written",
    ),
    "the options' own checks come before": (
        "give --width and --height, or use --chroma 444",
        "use -f mkv or y4m",
    ),
    "it takes a terminal, a signal or a change under way": (
        "<remedy>",
        "<way>",
        "check who may use this folder, or set {} to another",
        "do it again, with --restart",
        "go on by `{}`",
        "remove it yourself",
        "remove it, and it is made anew",
        "run again with --restart",
        "send a picture with <",
        "send it on with > or |",
        "use --restart",
        "use --restart to begin anew",
        "use another --codec",
        "wait for it, or end it",
        "for stdout give -",
        "choose another --name",
        "give the file by its name",
        "give a FOLDER",
    ),
    "it takes a model of several frames, whose own tests have it": (
        "choose a scale and a noise level that one network is enough for",
    ),
    "another test of films does it, such as test_film_remedies.py": (
        "give it alone, and a file as OUT",
        "<', or '.join(ways)>",
        "use --crop {} to remove them",
        "use --ivtc to restore its pictures",
        "convert them first, for instance by `ffmpeg -i FILM -c:v ffv1 OUT.mkv`, if you trust them",
        "convert them first, for instance by `ffmpeg -i FILM -pix_fmt gbrp16le -c:v ffv1 OUT.mkv`",
        "make two films, by --end and --start there",
        "use --deinterlace off",
        "write an .mkv",
        "to keep {}, give the film that `ffmpeg -analyzeduration 10G -probesize 10G -i FILM"
        " -map 0 -c copy OUT.mkv` makes",
    ),
}
"""Remedies that no test does, by the reason."""
DONE = {
    "end it in .png, say, or use format=", "end it in .cbz or .zip", "use overwrite=True",
    "make a new one", "choose one of {}", "use --restart, or {}",
    "remove OUT.parts to begin anew", "give it alone",
    "let its name end in .zip or .cbz", "crop one of them first", "give what a run with it wrote",
    "choose another name", "use --overwrite to replace it", "give {}", "<held>",
    "remove {} yourself", "see `waifu2x models list`", "try '{}'", "make it first",
    "make them with --shard, or without --join",
}  # fmt: skip
"""Remedies that functions below do."""


def test_each_remedy_is_tried_or_has_a_reason() -> None:
    named, tried = set(remedies()), {*COMMANDS, *FILMS, *DONE}
    untried = {remedy for some in UNTRIED.values() for remedy in some}
    assert not named - tried - untried, "remedies without a test"
    assert not (tried | untried) - named, "remedies that nothing names any more"
    assert not tried & untried


def _pattern(remedy: str) -> str:
    """Returns the longest literal part of a remedy; none of one that is made elsewhere."""
    return "" if remedy.startswith("<") else max(remedy.split("{}"), key=len)


def _films() -> None:
    from tests.helpers import films

    def film(path: str, **options: Any) -> None:
        Path(path).parent.mkdir(exist_ok=True)
        usual = {"codec": "ffv1", "times": (0, 40, 80), "size": (22, 34)}
        films.film(Path(path), **{**usual, **options})

    for path in ("in.mkv", "there.mkv", "films/a.mkv"):
        film(path)
    film("clear.mkv", pixels="yuva420p")
    film("fine.mkv", pixels="yuv444p")
    film("hdr.mkv", pixels="yuv420p10le", colours=(9, 1, 9, 16))
    film("combed.mkv", codec="libx264", size=(24, 34),
         options={"flags": "+ildct+ilme", "x264-params": "tff=1"})  # fmt: skip
    for folder, name, numbers in (
        ("numbers", "{}.png", (1, 2)), ("gap", "{}.png", (1, 3)),
        ("two", "{}.png", (1, 2)), ("two", "a{}.png", (1, 2)), ("stamped", "x{}.png", ()),
    ):  # fmt: skip
        Path(folder).mkdir(exist_ok=True)
        for number in numbers:
            Image.new("RGB", (16, 12)).save(Path(folder, name.format(number)))
    Path("stamped/timestamps.txt").write_text("mine")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with small files for all tests."""
    root = tmp_path_factory.mktemp("made")
    with contextlib.chdir(root):
        for name in ("tiny", "other", "plain"):
            identity_models(Path(name))
        Path("plain/noise0_model.json").unlink()
        Path("sets").mkdir()
        shutil.copy("tiny/noise0_model.json", "sets/noise1_model.json")
        pixels = np.random.default_rng(0).integers(0, 256, (8, 12, 3), np.uint8)
        Path("folder").mkdir()
        for name in ("a.png", "b.png", "there.png", "folder/c.png"):
            Image.fromarray(pixels).save(name)
        Image.fromarray(pixels[:, :5]).save("narrow.png")
        Path("1x.safetensors").write_bytes(safetensors(compact(1)))
        if importlib.util.find_spec("av"):
            _films()
    return root


@pytest.fixture
def run(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    shutil.copytree(made, tmp_path / "own")
    monkeypatch.chdir(tmp_path / "own")

    def called(words: str) -> Result:
        small = ["-m", "./tiny", "--backend", "numpy"]
        listed = words.split()
        return CliRunner().invoke(cli, [*listed[:-1], *small] if listed[-1] == "+" else listed)

    return called


def _do(run: Run, remedy: str, commands: tuple[str, ...], prefix: str = "") -> None:
    first, *ways = (each if each.startswith("waifu2x ") else prefix + each for each in commands)
    told = run(first.removeprefix("waifu2x "))
    assert _pattern(remedy) in told.stderr + told.stdout, told.output
    assert ways, "a remedy needs a way out"
    for words in ways:
        result = run(words.removeprefix("waifu2x "))
        assert result.exit_code == 0, f"{words}: {result.output}"


@pytest.mark.parametrize("remedy", COMMANDS)
def test_commands(run: Run, remedy: str) -> None:
    _do(run, remedy, COMMANDS[remedy])


@pytest.mark.parametrize("remedy", FILMS)
def test_films(run: Run, remedy: str) -> None:
    pytest.importorskip("av")
    _do(run, remedy, FILMS[remedy], "video ")


def test_names_of_results_in_python(run: Run) -> None:
    with Upscaler(model="./tiny", backend="numpy") as upscaler:
        with pytest.raises(OutputError, match=r"end it in \.png, say, or use format=$"):
            upscaler.upscale_file("a.png", "b")
        upscaler.upscale_file("a.png", "new.png")
        upscaler.upscale_file("a.png", "b", format="png")
        with pytest.raises(OutputError, match=r"use overwrite=True$"):
            upscaler.upscale_file("a.png", "there.png")
        upscaler.upscale_file("a.png", "there.png", overwrite=True)
        with zipfile.ZipFile("a.cbz", "w") as archive:
            archive.write("a.png")
        with pytest.raises(OutputError, match=r"end it in \.cbz or \.zip$"):
            upscaler.upscale_file("a.cbz", "book.png")
        upscaler.upscale_file("a.cbz", "book.cbz")
        upscaler.upscale_file("a.cbz", "book.zip")
    with pytest.raises(BackendError, match=r"make a new one$"):
        upscaler.upscale_file("a.png", "late.png")
    with pytest.raises(BackendError, match=r"choose one of .*, numpy$"):
        Upscaler(backend="metal")


def test_a_zip_with_another_name(run: Run) -> None:
    with zipfile.ZipFile("book.png", "w") as archive:
        archive.write("a.png")
    assert "let its name end in .zip or .cbz" in run("book.png o.png +").stderr
    for name in ("book.zip", "book.cbz"):
        shutil.copy("book.png", name)
        assert run(f"{name} new-{name} +").exit_code == 0


def test_pictures_of_other_proportions(run: Run) -> None:
    Image.open("a.png").resize((30, 7)).save("wide.png")
    assert "crop one of them first" in run("compare a.png wide.png").stderr
    Image.open("wide.png").crop((0, 0, 12, 8)).save("cropped.png")
    assert run("compare a.png cropped.png").exit_code == 0


def test_folders(run: Run) -> None:
    assert "make it first" in run("a.png nowhere/o.png +").stderr
    Path("nowhere").mkdir()
    assert run("a.png nowhere/o.png +").exit_code == 0
    Path("folder/bad.png").write_bytes(b"bad")
    failed = run("batch folder out --json +")
    Path("text").write_text('{"status": "done"}\n')
    told = run("batch folder out --retry-failed text --overwrite +").stderr
    assert "give what a run with it wrote" in told
    Path("failed.json").write_text(failed.stdout)
    shutil.copy("a.png", "folder/bad.png")
    assert run("batch folder out --retry-failed failed.json +").exit_code == 0
    Path("mine.html").write_text("mine")
    told = run("batch folder out --overwrite --report mine.html +").stderr
    assert "choose another name" in told
    assert run("batch folder out --overwrite --report new.html +").exit_code == 0


def test_standard_input(run: Run) -> None:
    small, content = ["-m", "./tiny", "--backend", "numpy"], Path("a.png").read_bytes()
    assert "give it alone" in run("b.png - -o out +").stderr
    alone = CliRunner().invoke(cli, ["-", "o.png", *small], input=content)
    assert alone.exit_code == 0, alone.output


def test_names_by_templates(run: Run) -> None:
    told = CliRunner().invoke(cli, ["a.png", "--name", ""]).stderr
    name = re.search(r"try '(.*)'", told)
    assert name, told
    assert run(f"a.png --name {name[1]} +").exit_code == 0


def test_models(run: Run) -> None:
    assert "see `waifu2x models list`" in CliRunner().invoke(cli, ["-m", "", "a.png"]).stderr
    assert run("models list").exit_code == 0
    given = "models import --name my sets/noise1_model.json own"
    assert run(given).exit_code == 0
    assert "use --overwrite to replace it" in run(given).stderr
    assert run(f"{given} --overwrite").exit_code == 0
    told = run("models import --name vgg_7/art sets/noise1_model.json").stderr
    assert "give another --name or a FOLDER" in told
    assert run("models import --name vgg_7/art sets/noise1_model.json own").exit_code == 0
    with zipfile.ZipFile("sets.zip", "w") as archive:
        archive.write("tiny/scale2.0x_model.json", "models/vgg_7/mine/scale2.0x_model.json")
    told = run("models import --name vgg_7/none sets.zip own").stderr
    found = re.search(r"choose (\S+)$", told)
    assert found, told
    assert run(f"models import --name {found[1]} sets.zip own").exit_code == 0


def test_parts_of_films(run: Run) -> None:
    pytest.importorskip("av")
    assert run("video --shard 1/2 in.mkv o.mkv +").exit_code == 0
    assert "make them with --shard, or without --join" in run("video --join in.mkv o.mkv +").stderr
    for way in ("--shard 2/2 in.mkv o.mkv", "--join in.mkv o.mkv", "in.mkv without.mkv"):
        assert (done := run(f"video {way} +")).exit_code == 0, done.output
    assert run("video --shard 1/2 in.mkv other.mkv +").exit_code == 0
    told = run("video --shard 2/2 -s 1 -n 0 in.mkv other.mkv +").stderr
    assert "use --restart, or " in told
    assert run("video --restart -s 1 -n 0 in.mkv other.mkv +").exit_code == 0
    told = run("video --restart --shard 1/2 in.mkv p.mkv +").stderr
    assert "remove OUT.parts to begin anew" in told
    shutil.rmtree("p.mkv.parts", ignore_errors=True)
    assert run("video --shard 1/2 in.mkv p.mkv +").exit_code == 0


def test_messages_have_one_form() -> None:
    """A problem stands without the name before it, and a remedy comes after a semicolon."""
    predicate = re.compile(
        r"\{\}: (?:is|has|was|holds|needs|takes|makes|reads|lasts|does|exists)\b"
    )
    remedy = re.compile(r"[^{}]: (?:use|give|choose|leave out|try|run|set|did you mean)\b")
    found = [
        f"{path}: {text}"
        for path, text in messages()
        if predicate.search(text) or remedy.search(text)
    ]
    assert not found, "\n".join(found)
