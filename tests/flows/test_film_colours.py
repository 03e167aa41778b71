"""The colours of films, end to end: decoded results against formulas in float64."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from numpy.typing import NDArray

av = pytest.importorskip("av")
films = pytest.importorskip("tests.helpers.films")

from tests.helpers.obvious_planes import Meaning, codes, from_rgb, to_rgb  # noqa: E402
from waifu2x import Upscaler  # noqa: E402
from waifu2x.backends.call import Call  # noqa: E402
from waifu2x.cli import cli  # noqa: E402

MATRICES = {1: "bt709", 4: "fcc", 5: "bt601", 6: "bt601", 7: "smpte240m", 9: "bt2020"}
SITINGS = ("left", "topleft", "center")
MODEL = "upconv_7/art"
KINDS = [
    (code, layout, bits, number % 2 == 0, SITINGS[number // 2 % 3])
    for number, (layout, bits, code) in enumerate(product(("420", "422", "444"), (8, 10), MATRICES))
]
"""Each matrix, layout and depth, and in turn each range and siting."""
HEIGHT, WIDTH, FRAMES = 19, 26, 2


def drawn(seed: int, shape: Sequence[int], bits: int) -> NDArray[np.uint16]:
    """Samples with edges, beyond black and white too."""
    random = np.random.default_rng(seed)
    coarse = random.integers(0, 1 << bits, [-(-side // 4) for side in shape])
    plane = coarse.repeat(4, 0).repeat(4, 1)[: shape[0], : shape[1]]
    noisy = plane + random.integers(-3, 4, plane.shape)
    return noisy.clip(0, (1 << bits) - 1).astype(np.uint16)


def write(path: Path, frames: Sequence[Any], pixels: str, siting: str, tags: Sequence[int]) -> None:
    """A film of these planes, to the bit."""
    with av.open(str(path), "w") as out:
        video = out.add_stream("ffv1", rate=25, options={"chroma_sample_location": siting})
        context = video.codec_context
        context.height, context.width, context.pix_fmt = HEIGHT, WIDTH, pixels
        context.colorspace, context.color_range, context.color_primaries, context.color_trc = tags
        for number, planes in enumerate(frames):
            frame = av.VideoFrame(WIDTH, HEIGHT, pixels)
            for plane, samples in zip(frame.planes, planes, strict=True):
                wide = np.uint8 if "10" not in pixels else np.uint16
                rows = np.frombuffer(plane, wide).reshape(plane.height, -1)
                rows[:, : samples.shape[1]] = samples
            frame.pts = number
            out.mux(video.encode(frame))
        out.mux(video.encode())


def read(path: Path) -> list[list[NDArray[Any]]]:
    """The planes of a film's frames."""
    with av.open(str(path)) as film:
        return [
            [
                np.frombuffer(
                    plane, np.uint8 if frame.format.components[0].bits == 8 else np.uint16
                )
                .reshape(plane.height, -1)[:, : plane.width]
                .copy()
                for plane in frame.planes
            ]
            for frame in film.decode(video=0)
        ]


@pytest.fixture(scope="module")
def network() -> Any:
    """A network that enlarges float RGB by 2."""
    with Upscaler(noise=None, model=MODEL, backend="numpy", precision="fp32") as upscaler:
        yield upscaler.networks.chains.network(2, None)


def check(kind: tuple[int, str, int, bool, str], network: Any, folder: Path) -> None:
    code, layout, bits, is_full, siting = kind
    meaning = Meaning(bits, layout, MATRICES[code], is_full, siting)
    pixels = f"yuv{layout}p{'' if bits == 8 else '10le'}"
    down, across = meaning.steps
    chroma = (-(-HEIGHT // down), -(-WIDTH // across))
    frames = [
        [drawn(7 * number + place, shape, bits) for place, shape in enumerate(shapes)]
        for number in range(FRAMES)
        for shapes in [((HEIGHT, WIDTH), chroma, chroma)]
    ]
    source, target = folder / "film.mkv", folder / "out.mkv"
    tags = (code, 2 if is_full else 1, code if code != 4 else 1, code if code != 4 else 1)
    write(source, frames, pixels, siting, tags)
    command = ["video", str(source), str(target), "-n", "none", "-c", "ffv1", "-m", MODEL]
    result = CliRunner().invoke(cli, [*command, "--backend", "numpy", "--precision", "fp32"])
    assert result.exit_code == 0, result.output
    made = read(target)
    assert len(made) == FRAMES
    for planes, results in zip(frames, made, strict=True):
        rgb = to_rgb(planes, meaning).clip(0, 1).astype(np.float32)
        enlarged = network.run(Call(rgb, np.float32)).astype(np.float64)
        values = from_rgb(enlarged, meaning)
        for value, wanted, got in zip(values, codes(values, bits), results, strict=True):
            assert got.shape == wanted.shape
            far = np.abs(value - np.floor(value) - 0.5) > 0.02
            np.testing.assert_array_equal(got[far], wanted[far])
            assert np.abs(got.astype(np.int64) - wanted).max() <= 1
            assert far.mean() > 0.9


def test_colours_are_converted_by_the_formulas(network: Any, tmp_path: Path) -> None:
    check(KINDS[0], network, tmp_path)


@pytest.mark.matrix
@pytest.mark.parametrize("kind", KINDS[1:], ids=lambda kind: "-".join(map(str, kind)))
def test_every_meaning_of_planes(kind: Any, network: Any, tmp_path: Path) -> None:
    check(kind, network, tmp_path)


@pytest.mark.parametrize(
    ("code", "name"), [(8, "YCgCo"), (10, "constant luminance"), (14, "ICtCp")]
)
def test_matrices_that_are_no_product_are_a_sentence(code: int, name: str, tmp_path: Path) -> None:
    source = tmp_path / "film.mkv"
    films.film(source, codec="ffv1", colours=(code, 1, 1, 1), times=(0, 40))
    result = CliRunner().invoke(cli, ["video", str(source), str(tmp_path / "out.mkv")])
    assert result.exit_code == 1
    assert name in result.output
