"""Files that other programs and formats have stumbled over: each is made right, kept or said.

python tests/by_hand/public_faults.py SCRIPTS [NAME ...]

SCRIPTS is a folder of small scripts that make such files; each says in its first lines what. Every
product is given to the program as a user would, and other readers judge: Pillow, imagecodecs,
tifffile, exiftool, ffprobe, and the formula of the picture where the script has one. Prints a line
for each: `right` (the content is there, as the judge reads it), `said` (what is not made is told in
a sentence), or what is wrong. Exit code 1 for a traceback, a silent loss or a wrong result, and for
a script that this one has no case for.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import imagecodecs
import numpy as np
import tifffile
from numpy.typing import NDArray
from PIL import Image

sys.path.insert(0, str(Path(__file__).parents[2]))

ROOT = Path(__file__).parents[2]
MODEL = ("-m", "anime4k/s")
PROGRAMS = ("deflate_tokens.py", "list_chunks.py", "png_where.py")
"""Scripts that look at files, and make none."""
_Y, _X = np.mgrid[0:32, 0:32]
_SLOPES = np.stack([_X * 8, _Y * 8, (_X + _Y) * 4], -1)


class Run(NamedTuple):
    """A run of the program."""

    code: int
    said: str
    """All that it wrote."""
    made: Path
    """The file or folder that it was to make."""
    seconds: float


Check = Callable[[Run], str]
"""Returns `right` or `said`; raises AssertionError with what is wrong."""


class Case(NamedTuple):
    """A product of a script, and the way it is given to the program."""

    script: str
    product: str
    """The name of the file that is made, or a file inside of the folder that is."""
    made_by: tuple[str, ...]
    """Arguments of the script; OUT stands for the product's path, or the folder's."""
    command: tuple[str, ...]
    """Arguments of the program; IN and OUT stand for paths."""
    target: str
    check: Check


def run(command: tuple[str, ...], source: Path, target: Path) -> Run:
    """Runs the program as a process."""
    words = [{"IN": str(source), "OUT": str(target)}.get(word, word) for word in command]
    start = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "waifu2x", *words],
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ | {"PYTHONPATH": str(ROOT), "WAIFU2X_CONFIG": ""},
        cwd=target.parent,
    )
    return Run(done.returncode, done.stdout + done.stderr, target, time.monotonic() - start)


def said(run: Run, *words: str) -> str:
    """Holds a run to have told what it leaves out or refuses."""
    lower = run.said.lower()
    assert not words or any(word in lower for word in words), f"does not say {words}"
    assert run.said.strip(), "silent"
    return "said"


def refused(run: Run, *words: str) -> str:
    """Holds a run to a refusal of one sentence that leaves no file."""
    assert run.code in (1, 2), f"code {run.code}"
    assert not run.made.exists(), "a file is left"
    assert len(run.said.strip().splitlines()) <= 3, "more than a sentence"
    return said(run, *words)


def tags(path: Path) -> dict[str, Any]:
    """Reads all tags by exiftool."""
    done = subprocess.run(
        ["exiftool", "-j", "-n", str(path)], capture_output=True, text=True, check=True
    )
    found: dict[str, Any] = json.loads(done.stdout)[0]
    return found


def like(run: Run, wanted: NDArray[Any], found: NDArray[Any] | None = None) -> str:
    """Holds a result to be the wanted picture (8 bits) enlarged."""
    assert run.code == 0, run.said.strip()
    if found is None:
        found = np.asarray(Image.open(run.made).convert("RGB"))
    height, width, *_ = wanted.shape
    assert found.shape[:2] == (2 * height, 2 * width), f"shape {found.shape}"
    reduced = found.reshape(height, 2, width, 2, -1).mean((1, 3))
    off = np.abs(reduced - wanted.reshape(height, width, -1)).mean()
    assert off < 6, f"off by {off:.1f} levels"
    return "right"


def coded(run: Run, wanted: str) -> str:
    """Holds a PNG to have the colours that its input states, by its cICP."""
    data = run.made.read_bytes()
    at = data.find(b"cICP")
    found = " ".join(str(byte) for byte in data[at + 4 : at + 6]) if at > 0 else "none"
    assert found == wanted, f"cICP {found}, not {wanted}"
    return "right"


def avif(source: Path, wanted: str, run: Run) -> str:
    exact = imagecodecs.avif_decode(source.read_bytes())
    deep = exact.dtype == np.uint16
    like(run, exact[..., :3] / (4 if deep else 1))
    return coded(run, wanted)


def without_promise(word: str, promises: tuple[str, ...], run: Run) -> str:
    """Holds a picture to tell what is left out, and its metadata not to promise it."""
    assert run.code == 0, run.said.strip()
    found = tags(run.made)
    kept = [promise for promise in promises if promise in found]
    assert not kept, f"metadata still promises {kept}"
    return said(run, word)


def comic(run: Run, *names: str) -> str:
    assert run.code == 0, run.said.strip()
    with zipfile.ZipFile(run.made) as archive:
        found = tuple(sorted(each.filename for each in archive.infolist()))
        for each in archive.infolist():
            if each.filename.endswith(".png"):
                with Image.open(archive.open(each)) as page:
                    assert page.size == (32, 32), page.size
    assert found == tuple(sorted(names)), found
    return "right"


def sizes_of_pages(run: Run) -> str:
    assert run.code == 0, run.said.strip()
    with zipfile.ZipFile(run.made) as archive:
        text = archive.read("ComicInfo.xml").decode()
        size = archive.getinfo("001.png").file_size
    assert 'ImageWidth="16"' not in text, "the page's old size is told"
    assert "ImageSize" not in text or f'ImageSize="{size}"' in text, text
    return "right"


def probed(path: Path) -> list[dict[str, Any]]:
    """Reads the streams of a film by ffprobe."""
    done = subprocess.run(
        ["ffprobe", "-v", "error", "-of", "json", "-show_streams", str(path)],
        capture_output=True,
        text=True,
        check=True,
    )
    streams: list[dict[str, Any]] = json.loads(done.stdout)["streams"]
    return streams


def film(run: Run, **wanted: Any) -> str:
    assert run.code == 0, run.said.strip()
    (stream,) = (each for each in probed(run.made) if each["codec_type"] == "video")
    stream["rotation"] = next(
        (each["rotation"] for each in stream.get("side_data_list", ()) if "rotation" in each), 0
    )
    found = {name: stream.get(name) for name in wanted}
    assert found == wanted, found
    return "right"


def frame_of(run: Run, form: str) -> NDArray[np.uint8]:
    """Decodes the first frame of a film by ffmpeg."""
    assert run.code == 0, run.said.strip()
    stream = next(each for each in probed(run.made) if each["codec_type"] == "video")
    done = subprocess.run(
        f"ffmpeg -v error -i {run.made} -frames:v 1 -f rawvideo -pix_fmt {form} -".split(),
        capture_output=True,
        check=True,
    )
    shape = stream["height"], stream["width"], -1
    return np.frombuffer(done.stdout, np.uint8).reshape(shape)


def clear_corner(run: Run) -> str:
    alpha = frame_of(run, "rgba")[..., 3]
    assert alpha[2, 2] < 16, f"the corner has an alpha of {alpha[2, 2]}"
    assert alpha[32, 32] > 240, f"the middle has an alpha of {alpha[32, 32]}"
    return "right"


def slope(run: Run, *, alpha: bool = False) -> str:
    found = frame_of(run, "rgba" if alpha else "gray")[..., -1].astype(int)
    assert found[:4].mean() < 16, "not dark above"
    assert found[-4:].mean() > 235, "not light below"
    return "right"


def bits(run: Run) -> str:
    found = frame_of(run, "gray").astype(int)
    assert found[:8].mean() < 8, "not black above"
    assert found[-8:].mean() > 247, "not white below"
    return "right"


def in_time(run: Run) -> str:
    assert run.seconds < 60, f"took {run.seconds:.0f} s"
    return "right" if run.code == 0 else refused(run)


def works(run: Run) -> str:
    assert run.code == 0, run.said.strip()
    return "right"


def right_or_refused(run: Run) -> str:
    return "right" if run.code == 0 else refused(run)


def _pictures() -> Iterator[Case]:
    picture = ("upscale", *MODEL, "IN", "OUT")
    for primaries, transfer, depth in ((12, 13, 8), (9, 16, 10)):
        for brand in ("", "mif1"):
            name = f"{primaries}-{transfer}{brand}.avif"
            made = ("OUT", str(primaries), str(transfer), str(depth), *filter(None, [brand]))
            check = partial(avif, Path(name), f"{primaries} {transfer}")
            yield Case("avif_nclx.py", name, made, picture, f"{name}.png", check)
    apple = _SLOPES[:16, :16, [2, 1, 0]].copy()  # BGR in the file
    apple[..., 0] = 128
    apple[..., 2] = _X[:16, :16] * 8
    yield Case(
        "cgbi_png.py", "apple.png", ("OUT",), picture, "apple-x.png", partial(like, wanted=apple)
    )
    for digits in ("8", "16"):
        name, check = f"cicp{digits}.png", partial(coded, wanted="9 16")
        script = "png_cicp_beside_iccp.py"
        yield Case(script, name, ("OUT", digits), picture, f"x-{name}", check)
    script = "psd_channels.py"

    def selection(run: Run) -> str:
        like(run, _SLOPES)
        return said(run, "saved selection")

    def transparent(run: Run) -> str:
        found = np.asarray(Image.open(run.made))
        if found.shape[-1] != 4:
            return said(run, "transparency")
        assert found[2, 2, 3] < 16 < 240 < found[32, 32, 3], "another transparency"
        return "right"

    yield Case(script, "selection.psd", ("OUT",), picture, "selection.png", selection)
    yield Case(script, "clear.psd", ("OUT", "transparent"), picture, "clear.png", transparent)

    def deep(run: Run) -> str:
        if run.code:
            return refused(run, "16 bits", "16-bit")
        found = imagecodecs.imread(str(run.made))
        assert found.dtype == np.uint16, found.dtype
        return like(run, _SLOPES, found / 257)

    yield Case(script, "deep.psd", ("OUT", "16"), picture, "deep.png", deep)
    raw: Check = lambda run: refused(run, "raw")  # noqa: E731
    yield Case("raw_dng.py", "camera.dng", ("OUT",), picture, "camera.png", raw)
    for name in ("big_endian_big", "jpegxl", "jpeg2000", "webp", "cmyk16", "bright"):
        check = partial(page_of, Path(f"tiff/{name}.tif"))
        made = ("tiff",)
        yield Case("tiff_variants.py", f"tiff/{name}.tif", made, picture, f"{name}.tif", check)
    for kind, word, promises in (
        ("gain", "gain map", ("Version", "DirectoryItemSemantic")),
        ("motion", "film", ("MotionPhoto", "DirectoryItemSemantic")),
    ):
        made = ("OUT", *(["motion"] if kind == "motion" else []))
        check = partial(without_promise, word, promises)
        name = f"{kind}.jpg"
        yield Case("ultra_hdr_jpeg.py", name, made, picture, f"x-{name}", check)


def page_of(source: Path, run: Run) -> str:
    if run.code:
        return refused(run)
    exact = tifffile.imread(source).astype(float)
    if "bright" in source.name:  # floats above 1, which a picture for display has not
        assert tifffile.imread(run.made).max() > 1.5, "values above 1 are clipped without a word"
        return "right"
    if "cmyk" in source.name:
        return works(run)
    return like(run, exact, tifffile.imread(run.made))


def _comics() -> Iterator[Case]:
    command = ("upscale", *MODEL, "IN", "OUT")
    checks: dict[str, Check] = {
        "zip_named.cbr": lambda run: comic(run, "001.png"),
        "rar_named.cbz": lambda run: refused(run, "rar"),
        "sjis.cbz": lambda run: sjis(run),
        "backslash.cbz": lambda run: comic(run, "vol1\\001.png", "vol1\\002.png"),
        "locked.cbz": lambda run: refused(run, "password", "encrypted", "locked"),
        "book.epub": lambda run: refused(run, "epub"),
        "sizes.cbz": sizes_of_pages,
        "nested.cbz": lambda run: comic(run, "ch1.cbz", "cover.png"),
    }
    for name, check in checks.items():
        target = "book.png" if name == "book.epub" else f"x-{name.partition('.')[0]}.cbz"
        yield Case("comic_archives.py", f"comics/{name}", ("comics",), command, target, check)


def sjis(run: Run) -> str:
    assert run.code == 0, run.said.strip()
    wanted = {"漫画/表紙.png".encode("shift_jis"), "漫画/一.png".encode("shift_jis")}
    data = run.made.read_bytes()
    if all(name in data for name in wanted):
        return "right"
    with zipfile.ZipFile(run.made) as archive:
        assert {*archive.namelist()} == {"漫画/表紙.png", "漫画/一.png"}, archive.namelist()
    return "right"


def _films() -> Iterator[Case]:
    command = ("video", *MODEL, "--preset", "ultrafast", "IN", "OUT")
    kinds: dict[str, tuple[str, str, Check]] = {
        "rotated": (".mp4", ".mp4", lambda run: film(run, width=128, height=96, rotation=90)),
        "anamorphic": (".mkv", ".mkv", lambda run: film(run, sample_aspect_ratio="32:27")),
        "hdr": (
            ".mkv",
            ".mkv",
            lambda run: film(run, color_transfer="smpte2084", color_primaries="bt2020"),
        ),
        "dv": (".avi", ".mkv", lambda run: film(run, width=1440, height=960)),
        "thumbnail": (".mp4", ".mkv", lambda run: the_film(run)),
        "sizes": (".ts", ".mkv", lambda run: said(run, "size")),
    }
    for kind, (source, target, check) in kinds.items():
        yield Case(
            "films.py", f"{kind}{source}", (kind, "OUT"), command, f"x-{kind}{target}", check
        )
    for what in ("mebx", "apac", "gpmd"):
        track = ("rotated.mp4", "OUT", what)
        yield Case("phone_tracks.py", f"{what}.mp4", track, command, f"x-{what}.mkv", without_track)
    sequences: dict[str, tuple[str, Check]] = {
        "late": (".mkv", slope),
        "clear": (".mov", clear_corner),
        "grey": (".mov", partial(slope, alpha=True)),
        "bits": (".mkv", bits),
    }
    for kind, (target, check) in sequences.items():
        inside = f"frames/{kind}"
        plain = ("video", *MODEL, "IN", "OUT")
        yield Case("frames.py", inside, ("frames",), plain, f"{kind}{target}", check)


def the_film(run: Run) -> str:
    assert run.code == 0, run.said.strip()
    found = [(s["width"], s["height"]) for s in probed(run.made) if s["codec_type"] == "video"]
    assert (128, 96) in found, found
    return "right"


def without_track(run: Run) -> str:
    if run.code:
        return refused(run, "--drop-unsupported", "cannot hold")
    return said(run)


def _models() -> Iterator[Case]:
    names = "plain.pth plain.pt plain.ckpt plain.bin compiled.pth compiled_ddp.pth averaged.pth"
    names += " gan.pth params_ema.pth dict_with_iter.pth lightning.ckpt lightning.pth net_g.pth"
    names += " protocol4.pth rezipped.pth grey.pth rgba.pth numpy.pth"
    for name in names.split():
        check = right_or_refused if name in ("rgba.pth", "numpy.pth", "plain.bin") else works
        command = ("models", "info", "IN")
        yield Case("model_files.py", f"models/{name}", ("models",), command, f"{name}.x", check)
    for name in ("4x custom-model.param", "out0.param"):
        command = ("models", "info", "IN")
        yield Case("ncnn_names.py", f"ncnn/{name}", ("ncnn",), command, f"{name}.x", works)
    enlarging = ("upscale", "-m", "IN", "picture.png", "OUT")
    yield Case("concat_714.onnx", "concat_714.onnx", (), enlarging, "concat.png", in_time)


CASES = [*_pictures(), *_comics(), *_films(), *_models()]


def judged(case: Case, scripts: Path, folder: Path) -> str:
    """Makes a product, gives it to the program, and returns the verdict."""
    product = folder / case.product
    if not product.exists():
        script = scripts / case.script
        if script.suffix == ".py":
            words = [str(product) if word == "OUT" else word for word in case.made_by]
            subprocess.run([sys.executable, script, *words], cwd=folder, check=True)
        else:
            product.write_bytes(script.read_bytes())
    done = run(case.command, product, folder / case.target)
    if "Traceback" in done.said:
        return "TRACEBACK"
    try:
        verdict = case.check(done)
    except (AssertionError, OSError, StopIteration) as error:
        return f"WRONG: {error or type(error).__name__}"
    line = done.said.strip().partition("\n")[0]
    return f"{verdict}: {line}" if verdict == "said" else verdict


def closes_in_progress(scripts: Path, folder: Path) -> str:
    """Runs the script that closes an upscaler in its own on_progress."""
    done = subprocess.run(
        [sys.executable, scripts / "closecb.py"],
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        cwd=folder,
    )
    last = (done.stdout + done.stderr).strip().splitlines()[-1]
    return "right" if done.stdout.strip() == "ended" or "closed" in last else f"WRONG: {last}"


def equal_files(scripts: Path, folder: Path) -> str:
    """Makes a PNG of many bands twice; the script that compares PNGs has nothing to say."""
    random = np.random.default_rng(0)
    pixels = random.integers(0, 256, (300, 900, 3), np.uint8)
    Image.fromarray(pixels).save(folder / "bands.png")
    for name in ("a.png", "b.png"):
        run(("upscale", *MODEL, "IN", "OUT"), folder / "bands.png", folder / name)
    done = subprocess.run(
        [sys.executable, scripts / "png_where.py", folder / "a.png", folder / "b.png"],
        capture_output=True,
        text=True,
        check=True,
    )
    found = done.stdout.strip().splitlines()  # the first one counts chunks
    return "right" if len(found) == 1 else f"WRONG: {found[1:]}"


def main() -> None:
    scripts, only = Path(sys.argv[1]).resolve(), sys.argv[2:]
    known = {case.script for case in CASES} | {"closecb.py", *PROGRAMS}
    found = {path.name for path in scripts.iterdir() if path.is_file()}
    bad = [f"{name}: no case" for name in sorted(found - known)]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        os.chdir(folder)
        Image.fromarray(_SLOPES[:20, :24].astype(np.uint8)).save("picture.png")
        rows: list[tuple[str, Callable[[], str]]] = [
            (f"{case.script} {case.product}", partial(judged, case, scripts, folder))
            for case in CASES
        ]
        rows.append(("closecb.py", partial(closes_in_progress, scripts, folder)))
        rows.append(("png_where.py", partial(equal_files, scripts, folder)))
        for name, judge in rows:
            if only and not any(each in name for each in only):
                continue
            verdict = judge()
            print(f"{name:45} {verdict}", flush=True)
            if not verdict.startswith(("right", "said")):
                bad.append(f"{name}: {verdict}")
    for line in bad:
        print(line)
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
