"""How players show frames: turned, with pixels that are not square, and without what is cropped."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from numpy.typing import NDArray
from PIL import Image

av = pytest.importorskip("av")
films = pytest.importorskip("tests.helpers.films")

from tests.flows.test_film_pipes import make  # noqa: E402
from tests.flows.test_film_streams import enlarge, pictures_of  # noqa: E402
from tests.helpers import containers  # noqa: E402
from tests.helpers.cases import thinned  # noqa: E402
from tests.helpers.contents import identity_models  # noqa: E402
from waifu2x.cli import cli  # noqa: E402
from waifu2x.flows.film import automatic  # noqa: E402
from waifu2x.flows.film.frames.frame_device import FrameDevice  # noqa: E402
from waifu2x.flows.film.reading.client import FilmReader  # noqa: E402
from waifu2x.flows.film.request import FilmJob  # noqa: E402
from waifu2x.flows.film.trials import _levels  # noqa: E402
from waifu2x.formats.film.reading.selection import Selection  # noqa: E402
from waifu2x.formats.film.writing.codecs import Wish  # noqa: E402
from waifu2x.imaging import picture as imaging  # noqa: E402
from waifu2x.imaging import planar_rgb  # noqa: E402
from waifu2x.imaging.orientation import oriented_plane  # noqa: E402
from waifu2x.imaging.planar import PlanarPicture, PlaneFormat  # noqa: E402
from waifu2x.networks import model_set  # noqa: E402

needs_ffmpeg = pytest.mark.skipif(
    shutil.which("ffmpeg") is None or shutil.which("ffprobe") is None,
    reason="needs the programs ffmpeg and ffprobe",
)


def _shown(path: Path) -> NDArray[np.uint8]:
    """The first frame as the program ffmpeg shows it, which turns it upright: RGB."""
    command = ["ffmpeg", "-v", "error", "-i", str(path), "-frames:v", "1", "-sws_flags"]
    command += ["accurate_rnd+full_chroma_int", "-c:v", "png", "-f", "image2pipe", "-"]
    data = subprocess.run(command, check=True, capture_output=True).stdout
    target = path.with_suffix(".shown.png")
    target.write_bytes(data)
    return np.asarray(Image.open(target).convert("RGB"))


def _as_rgb(pictures: Any, results: Any) -> None:
    """Enlarges 4:2:0 to green, blue and red, by repeating pixels."""
    form = PlaneFormat(8, "420", "bt601", False, "left")
    for planes, made in zip(pictures, results, strict=True):
        rgb = planar_rgb.to_rgb(PlanarPicture(form, *planes)).repeat(2, 0).repeat(2, 1)
        for plane, channel in zip(made, (1, 2, 0), strict=True):
            plane[:] = np.rint(rgb[..., channel] * 255)


def _stream(path: Path) -> dict[str, Any]:
    command = ["ffprobe", "-v", "quiet", "-of", "json", "-show_streams", str(path)]
    found = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return found["streams"][0]  # type: ignore[no-any-return]


@needs_ffmpeg
@pytest.mark.parametrize(
    ("name", "rotation"), thinned(("frames/%03d.png", "out.y4m"), (0, 90, 180, 270))
)
def test_frames_of_a_turned_film_are_upright(rotation: int, name: str, tmp_path: Path) -> None:
    source = tmp_path / "film.mp4"
    films.film(source, rotation=rotation, options={"crf": "4"})
    target = tmp_path / name
    make(FilmJob(source, target), FrameDevice(_as_rgb) if name.endswith("png") else None)
    made = _shown(tmp_path / name.replace("%03d", "001"))
    wanted = _shown(source).repeat(2, 0).repeat(2, 1)
    assert made.shape == wanted.shape
    assert np.abs(made.astype(int) - wanted).mean() < 4
    flipped = np.abs(made[::-1, ::-1].astype(int) - wanted).mean()
    assert flipped > 20


@pytest.mark.parametrize("turn", range(1, 9))
def test_a_display_matrix_is_an_orientation(turn: int, tmp_path: Path) -> None:
    """By the formula of ISO/IEC 14496-12: (x, y) is shown at (a x + c y, b x + d y)."""
    across, down, across_by_y, down_by_y = [
        (1, 0, 0, 1), (-1, 0, 0, 1), (-1, 0, 0, -1), (1, 0, 0, -1),
        (0, 1, 1, 0), (0, 1, -1, 0), (0, -1, -1, 0), (0, -1, 1, 0),
    ][turn - 1]  # fmt: skip
    path = tmp_path / "film.mp4"
    films.film(path, times=[0, 40])
    matrix = [across, down, 0, across_by_y, down_by_y, 0, 0, 0, 1 << 14]
    with FilmReader(path) as reader:
        told = replace(reader.film.pictures, matrix=tuple(one << 16 for one in matrix))
    stored = np.arange(6).reshape(2, 3)
    shown = oriented_plane(stored, told.orientation)
    places = {
        (x * across + y * across_by_y, x * down + y * down_by_y): stored[y, x]
        for y in range(2)
        for x in range(3)
    }
    left, top = min(x for x, _ in places), min(y for _, y in places)
    for (x, y), value in places.items():
        assert shown[y - top, x - left] == value
    odd = replace(told, matrix=(46341, 46341, 0, -46341, 46341, 0, 0, 0, 1 << 30))
    assert odd.orientation == 1


@needs_ffmpeg
@pytest.mark.parametrize(("rotation", "told"), [(0, "32:27"), (90, "27:32")])
def test_frames_tell_the_proportions_of_pixels(rotation: int, told: str, tmp_path: Path) -> None:
    source = tmp_path / "film.mp4"
    films.film(source, aspect=Fraction(32, 27), rotation=rotation)
    make(FilmJob(source, tmp_path / "frames/%03d.png"), FrameDevice(_as_rgb))
    assert _stream(tmp_path / "frames/001.png")["sample_aspect_ratio"] == told
    make(FilmJob(source, tmp_path / "out.y4m"))
    assert _stream(tmp_path / "out.y4m")["sample_aspect_ratio"] == told
    make(FilmJob(tmp_path / "frames/%03d.png", tmp_path / "back.mkv", Wish("ffv1")))
    assert _stream(tmp_path / "back.mkv")["sample_aspect_ratio"] == told


@needs_ffmpeg
@pytest.mark.parametrize("rotation", [0, 90])
@pytest.mark.parametrize("asked", [{"width": 300}, {"height": 200}, {"width": 300, "height": 210}])
def test_sizes_are_those_that_are_shown(
    rotation: int, asked: dict[str, int], tmp_path: Path
) -> None:
    source = tmp_path / "film.mp4"
    films.film(source, aspect=Fraction(32, 27), rotation=rotation)
    arguments = {"scale": None, "width": None, "height": None, "noise": 0, **asked}
    with FilmReader(source) as reader:
        film = reader.film
        job = FilmJob(source, tmp_path / "out.mkv", Wish("ffv1"))
        found = automatic.decided(film, job, arguments, model_set.find("upconv_7/art"))
    told = _stream(source)
    aspect = Fraction(*map(int, told["sample_aspect_ratio"].split(":")))
    width, height = found.width * aspect, Fraction(found.height)
    proportions = told["width"] * aspect / told["height"]
    assert width / height == pytest.approx(float(proportions), rel=0.01)
    if rotation:
        width, height = height, width
    if len(asked) == 1:
        shown = width if "width" in asked else height
        assert float(shown) == pytest.approx(next(iter(asked.values())), abs=1)
    else:
        assert max(width / 300, height / 210) == pytest.approx(1, abs=0.01)


def test_a_preview_is_as_players_show_it(tmp_path: Path) -> None:
    source = tmp_path / "film.mp4"
    films.film(source, aspect=Fraction(3, 2), rotation=90)
    with FilmReader(source) as reader:
        pictures = reader.film.pictures
    stored = imaging.Picture(np.zeros((64, 96, 3), np.float32))
    stored.pixels[:8] = 1
    shown = _levels(stored, pictures, pictures.colours).pixels
    assert shown.shape == (144, 64, 3)
    edges = [shown[:, :4], shown[:, -4:]]
    assert sorted(edge.mean() for edge in edges) == [0, 255]


CODECS = {"ffv1": ("yuv444p", b"V_FFV1"), "libx264": ("yuv420p", b"V_MPEG4/ISO/AVC")}


def _cropped(path: Path, *edges: int, codec: str = "ffv1") -> list[NDArray[Any]]:
    """Writes a film whose track crops pixels: top, bottom, left, right. Returns the planes of its
    first frame, whole."""
    whole = path.with_suffix(".whole.mkv")
    pixels, name = CODECS[codec]
    films.film(whole, codec=codec, pixels=pixels, times=[0, 40, 80], options={"bf": "0"})
    with av.open(str(whole)) as film:
        extra = film.streams.video[0].codec_context.extradata
        packets = [bytes(packet) for packet in film.demux(video=0) if packet.size]
    crops = zip((0x54BB, 0x54AA, 0x54CC, 0x54DD), edges, strict=True)
    video = containers.number(0xB0, films.WIDTH) + containers.number(0xBA, films.HEIGHT)
    video += b"".join(containers.number(edge, value) for edge, value in crops)
    told = containers.number(0xD7, 1) + containers.number(0x73C5, 1) + containers.number(0x83, 1)
    told += containers.element(0x86, name) + containers.element(0x63A2, extra)
    track = containers.element(0xAE, told + containers.element(0xE0, video))
    blocks = [(40 * at, containers.block(1, 0, data)) for at, data in enumerate(packets)]
    path.write_bytes(containers.matroska(track, blocks))
    return pictures_of(whole)[1][0]


@pytest.mark.parametrize("edges", [(1, 2, 3, 4), (0, 0, 0, 0), (0, 6, 0, 0)])
def test_what_a_container_crops_is_not_enlarged(
    edges: tuple[int, int, int, int], tmp_path: Path
) -> None:
    source, target = tmp_path / "film.mkv", tmp_path / "out.mkv"
    whole = _cropped(source, *edges)
    top, bottom, left, right = edges
    height, width = films.HEIGHT - top - bottom, films.WIDTH - left - right
    with FilmReader(source) as reader:
        assert (reader.film.pictures.height, reader.film.pictures.width) == (height, width)
        frame = next(reader.frames(Selection(), 2))
        for plane, wanted in zip(frame.planes, whole, strict=True):
            assert (plane == wanted[top : top + height, left : left + width]).all()
    enlarge(FilmJob(source, target, Wish("ffv1", chroma="444")))
    assert pictures_of(target)[1][0][0].shape == (2 * height, 2 * width)


def test_mp4_crops_too(tmp_path: Path) -> None:
    """As FFmpeg writes it, in a box `clap`."""
    source, target = tmp_path / "film.mkv", tmp_path / "film.mov"
    _cropped(source, 2, 4, 6, 8, codec="libx264")
    with av.open(str(source)) as film, av.open(str(target), "w") as out:
        stream = out.add_stream_from_template(film.streams.video[0], opaque=True)
        for packet in film.demux(video=0):
            if packet.size:
                packet.stream = stream
                out.mux(packet)
    assert b"clap" in target.read_bytes()
    with FilmReader(target) as reader:
        assert (reader.film.pictures.height, reader.film.pictures.width) == (58, 82)


@pytest.mark.parametrize(("aspect", "rotation"), [(Fraction(4, 3), 0), (Fraction(1, 2), 90)])
def test_a_gif_has_square_pixels(aspect: Fraction, rotation: int, tmp_path: Path) -> None:
    """It is as wide as players show the film."""
    films.film(tmp_path / "a.mp4", aspect=aspect, rotation=rotation, times=(0, 40), size=(36, 64))
    identity_models(tmp_path / "identity")
    command = ["video", "-n", "none", "-m", str(tmp_path / "identity"), "--backend", "numpy"]
    for more, high in (([], 72), (["--height", "50"], 50)):
        target = tmp_path / f"{high}.gif"
        made = CliRunner().invoke(cli, [*command, *more, str(tmp_path / "a.mp4"), str(target)])
        assert made.exit_code == 0, made.output
        shown = 36 / (64 * aspect) if rotation else 64 * aspect / 36
        with Image.open(target) as image:
            if not rotation or more:
                assert image.height == high
            assert abs(image.width / image.height - shown) < 1 / image.height


@needs_ffmpeg
def test_pictures_are_upright_in_films_made_of_them(tmp_path: Path) -> None:
    """EXIF turns them; FFmpeg reads it, and has no name for it that PyAV knows."""
    pixels = np.zeros((36, 64, 3), np.uint8)
    pixels[:, :20] = 255
    said = Image.Exif()
    said[0x112] = 6
    (tmp_path / "in").mkdir()
    for number in (1, 2):
        Image.fromarray(pixels).save(tmp_path / f"in/{number}.png", exif=said)
    identity_models(tmp_path / "identity")
    command = ["video", "-n", "none", "-m", str(tmp_path / "identity"), "--backend", "numpy"]
    for target in ("a.mkv", "b.mp4", "c.gif", "out/%d.png"):
        arguments = [*command, str(tmp_path / "in/%d.png"), str(tmp_path / target)]
        made = CliRunner().invoke(cli, arguments)
        assert made.exit_code == 0, made.output
        path = tmp_path / target.replace("%d", "1")
        if path.suffix in (".mkv", ".mp4"):
            shown = _shown(path)
        else:
            with Image.open(path) as image:
                shown = np.asarray(image.convert("RGB"))
        assert shown.shape == (128, 72, 3), target
        assert shown[:36].mean() > 240, target
        assert shown[44:].mean() < 15, target
