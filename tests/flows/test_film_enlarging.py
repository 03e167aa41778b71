"""The planes of frames, enlarged by networks that repeat every pixel: against the definition of
planes in `obvious_planes`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.helpers.contents import identity_models
from tests.helpers.obvious_planes import Meaning, codes, from_rgb, to_rgb
from waifu2x import Upscaler
from waifu2x.backends import Backend
from waifu2x.flows.film.frames.frame_enlarger import FrameEnlarger
from waifu2x.formats.film.description import PixelFormat
from waifu2x.imaging import planar_rgb
from waifu2x.imaging.picture import Picture
from waifu2x.networks.builder import GraphBuilder
from waifu2x.networks.readers.architectures import Layer
from waifu2x.networks.readers.waifu2x_json import NetworkWeights, dump

HEIGHT, WIDTH = 13, 18
STEPS = {"400": (1, 1), "444": (1, 1), "422": (2, 1), "420": (2, 2)}
Planes = list[NDArray[Any]]


class Kind(NamedTuple):
    """The frames of a film, or those that an encoder is given."""

    bits: int
    layout: str = "420"
    matrix: str = "bt709"
    is_full: bool = False
    has_alpha: bool = False

    @property
    def pixels(self) -> PixelFormat:
        planes = (1 if self.layout == "400" else 3) + self.has_alpha
        return PixelFormat("", self.bits, *STEPS[self.layout], planes, self.matrix == "rgb")

    @property
    def meaning(self) -> Meaning:
        matrix = "bt601" if self.layout == "400" else self.matrix
        return Meaning(self.bits, self.layout, matrix, self.is_full, "left")

    def empty(self, height: int, width: int) -> Planes:
        shapes = self.pixels.shapes(height, width)
        return [np.full(shape, 7, self.pixels.dtype) for shape in shapes]

    def drawn(self) -> Planes:
        rng = np.random.default_rng(self.bits)
        planes = self.empty(HEIGHT, WIDTH)
        for plane in planes:
            plane[:] = rng.integers(1, 1 << self.bits, plane.shape)
        return planes


def enlarger(
    models: Path, backend: Backend, ends: tuple[Kind, Kind], **request: Any
) -> FrameEnlarger:
    codes_of = {"bt709": 1, "bt601": 6, "bt2020": 9, "rgb": 0}
    source, target = (
        SimpleNamespace(
            pixels=kind.pixels,
            colours=SimpleNamespace(
                matrix=codes_of[kind.matrix],
                range="full" if kind.is_full else "limited",
                siting="left",
                transfer=1,
            ),
        )
        for kind in ends
    )
    pictures: Any = SimpleNamespace(**vars(source), height=HEIGHT, width=WIDTH)
    shape: Any = SimpleNamespace(encoding=target, colours=target.colours)
    upscaler = Upscaler(model=str(models), backend=backend.name, precision="fp32", **request)
    return FrameEnlarger(upscaler, pictures, shape)


def rgb_of(planes: Sequence[NDArray[Any]], kind: Kind) -> NDArray[np.float32]:
    colours = planes[: 1 if kind.layout == "400" else 3]
    return to_rgb(colours, kind.meaning).clip(0, 1).astype(np.float32)


def check_codes(made: Planes, rgb: NDArray[Any], kind: Kind, near: float) -> None:
    """They are those of RGB, but where a value is so near to a rounding, in codes."""
    values = from_rgb(rgb, kind.meaning)
    for plane, value, wanted in zip(made, values, codes(values, kind.bits), strict=False):
        far = np.abs(value - np.floor(value) - 0.5) > near
        np.testing.assert_array_equal(plane[far], wanted[far])
        assert np.abs(plane.astype(np.int64) - wanted).max() <= 1
        assert far.mean() > 0.7


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return identity_models(tmp_path_factory.mktemp("models") / "identity")


@pytest.fixture(scope="module")
def luma_models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same for luma alone."""
    folder = tmp_path_factory.mktemp("models") / "luma"
    folder.mkdir()
    kernel = np.zeros((1, 1, 3, 3), np.float32)
    kernel[0, 0, 1, 1] = 1
    layer = Layer("convolution", kernel, np.zeros(1, np.float32))
    (folder / "scale2.0x_model.json").write_bytes(dump(NetworkWeights("vgg_2", [layer, layer])))
    return folder


@pytest.mark.parametrize(
    "ends",
    [
        (Kind(8), Kind(8)),
        (Kind(9, "422", "bt601", True), Kind(10, "420", "bt2020")),
        (Kind(12, "444"), Kind(8, "444")),
        (Kind(8, "444", "rgb", True), Kind(16, "444", "rgb", True)),
        (Kind(14, "444", "rgb", True), Kind(10, "420")),
        (Kind(8, "400"), Kind(8, "400")),
        (Kind(16, "400", is_full=True), Kind(10, "420", is_full=True)),
    ],
    ids=str,
)
def test_a_network_reads_and_writes_planes_itself(
    ends: tuple[Kind, Kind], models: Path, backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(planar_rgb, "to_rgb")
    source, target = ends
    enlarge = enlarger(models, backend, ends, scale=2)
    with enlarge.upscaler:
        frames = [source.drawn(), source.drawn()]
        frames[1][0][:] = frames[1][0][::-1]
        made = [target.empty(2 * HEIGHT, 2 * WIDTH) for _ in frames]
        enlarge(frames, made)
    near = max(0.02, 2.0 ** (target.bits - 16) / 10)
    for planes, results in zip(frames, made, strict=True):
        doubled = rgb_of(planes, source).repeat(2, 0).repeat(2, 1)
        check_codes(results, doubled, target, near)
        if source.layout == "400" and target.layout != "400":
            for chroma in results[1:]:
                assert (chroma == 128 << (target.bits - 8)).all()


@pytest.mark.parametrize(
    "ends",
    [
        (Kind(8, has_alpha=True), Kind(8, has_alpha=True)),
        (Kind(10, "444", has_alpha=True), Kind(12, "422", "bt601", has_alpha=True)),
        (Kind(8, "444", "rgb", True, True), Kind(16, "444", "rgb", True, True)),
    ],
    ids=str,
)
@pytest.mark.parametrize("is_even", [False, True])
def test_frames_that_are_transparent(
    ends: tuple[Kind, Kind], is_even: bool, models: Path, backend: Backend
) -> None:
    source, target = ends
    enlarge = enlarger(models, backend, ends, scale=2)
    with enlarge.upscaler:
        frame = source.drawn()
        if is_even:
            frame[-1][:] = (1 << source.bits) - 1
        made = target.empty(2 * HEIGHT, 2 * WIDTH)
        enlarge([frame], [made])
    check_codes(made, rgb_of(frame, source).repeat(2, 0).repeat(2, 1), target, 1e-2)
    opacity = frame[-1].repeat(2, 0).repeat(2, 1) / ((1 << source.bits) - 1)
    value = opacity * ((1 << target.bits) - 1)
    far = np.abs(value - np.floor(value) - 0.5) > 1e-2
    np.testing.assert_array_equal(made[-1][far], np.floor(value + 0.5)[far])


@pytest.mark.parametrize(
    "ends",
    [
        (Kind(8), Kind(8)),
        (Kind(10, "422", "bt2020"), Kind(10, "420", "bt2020")),
        (Kind(8, "444", "rgb", True), Kind(8, "420")),
        (Kind(8, "400"), Kind(8, "400")),
        (Kind(8, "400"), Kind(10, "444")),
    ],
    ids=str,
)
@pytest.mark.parametrize(("is_luma", "scale"), [(False, 1.5), (True, 2)])
def test_what_is_more_than_a_network_goes_through_rgb(
    ends: tuple[Kind, Kind],
    is_luma: bool,
    scale: float,
    models: Path,
    luma_models: Path,
    backend: Backend,
) -> None:
    """Conversions to and from it have no error of their own: codes are the nearest to what the
    enlarger makes of the frame."""
    source, target = ends
    enlarge = enlarger(luma_models if is_luma else models, backend, ends, scale=scale)
    with enlarge.upscaler:
        frame = source.drawn()
        rgb = rgb_of(frame, source)
        wanted = enlarge.upscaler.enlarger.picture(
            Picture(rgb[..., :1] if source.layout == "400" else rgb)
        ).pixels
        made = target.empty(*wanted.shape[:2])
        enlarge([frame], [made])
    kind = target._replace(layout="400") if source.layout == "400" else target
    check_codes(made, np.broadcast_to(wanted, (*wanted.shape[:2], 3)), kind, 1e-9)


@pytest.mark.parametrize(
    ("ends", "luma"),
    [
        ((Kind(8), Kind(8)), False),
        ((Kind(10, "422", "bt2020"), Kind(10, "420", "bt2020")), False),
        ((Kind(8, "400"), Kind(8, "400")), False),
        ((Kind(8, "400"), Kind(8, "444")), True),
        ((Kind(8, has_alpha=True), Kind(8, has_alpha=True)), False),
    ],
    ids=str,
)
def test_windows_of_frames(
    ends: tuple[Kind, Kind], luma: bool, backend: Backend, tmp_path: Path
) -> None:
    source, target = ends
    enlarge = of_three(tmp_path, backend, ends, 1 if luma else 3, scale=2)
    with enlarge.upscaler:
        assert enlarge.frames == 3
        frames = moved(source)
        made = target.empty(2 * HEIGHT, 2 * WIDTH)
        enlarge([[plane for frame in frames for plane in frame]], [made])
    weighed: Any = sum(
        share * rgb_of(frame, source) for share, frame in zip(SHARES, frames, strict=True)
    )
    kind = target._replace(layout="400") if source.layout == "400" else target
    check_codes(made, weighed.repeat(2, 0).repeat(2, 1), kind, 0.02)
    if source.has_alpha:
        alphas = zip(SHARES, frames, strict=True)
        opacity: Any = sum(share * frame[-1] for share, frame in alphas)
        assert np.abs(opacity.repeat(2, 0).repeat(2, 1) - made[-1]).max() < 0.52


def test_results_of_windows_may_be_resized(tmp_path: Path) -> None:
    kind = Kind(8, "444")
    named: Any = SimpleNamespace(name="numpy")
    enlarge = of_three(tmp_path, named, (kind, kind), 3, scale=1.5)
    with enlarge.upscaler:
        frames = moved(kind)
        mean: Any = sum(
            share * rgb_of(frame, kind) for share, frame in zip(SHARES, frames, strict=True)
        )
        wanted = enlarge.upscaler.enlarger.picture(Picture(mean.astype(np.float32))).pixels
        made = kind.empty(*wanted.shape[:2])
        enlarge([[plane for frame in frames for plane in frame]], [made])
    check_codes(made, wanted, kind, 1e-3)


SHARES = (0.25, 0.5, 0.25)


def moved(kind: Kind) -> list[Planes]:
    """Three frames, each two rows further down."""
    return [[np.roll(plane, 2 * number, 0) for plane in kind.drawn()] for number in range(3)]


def of_three(
    folder: Path, backend: Backend, ends: tuple[Kind, Kind], planes: int, **request: Any
) -> FrameEnlarger:
    """An enlarger by a network that repeats every pixel of three frames' weighted mean."""
    net = GraphBuilder("mean", 3 * planes)
    weight = np.zeros((4 * planes, 3 * planes, 1, 1), np.float32)
    for place, share in enumerate(SHARES):
        for plane in range(planes):
            weight[4 * plane : 4 * plane + 4, place * planes + plane] = share
    net.pixel_shuffle(net.convolution(0, weight, np.zeros(len(weight), np.float32)), 2)
    model = net.model("zero", frames=3)
    (folder / "scale2.0x_model.pth").touch()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("waifu2x.networks.shared.read_model", lambda path: model)
        return enlarger(folder, backend, ends, **request)


@pytest.mark.parametrize(
    ("kind", "noise", "told"),
    [
        (Kind(8), 0, "numpy: int16"),
        (Kind(8, has_alpha=True), None, "numpy: fp32"),
        (Kind(8, has_alpha=True), 0, "numpy: int16, transparency fp32"),
    ],
    ids=str,
)
def test_the_arithmetic_of_transparency_is_told(
    kind: Kind, noise: int | None, told: str, models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its chain is another one where noise is removed: films go on only with the same in both."""
    named: Any = SimpleNamespace(name="numpy")
    enlarge = enlarger(models, named, (kind, kind), scale=2, noise=noise)
    with enlarge.upscaler:

        def network(factor: int, level: int | None) -> Any:
            assert factor == 2
            return SimpleNamespace(arithmetic="fp32" if level is None else "int16")

        monkeypatch.setattr(enlarge._networks.chains, "network", network)
        assert enlarge.arithmetic() == told
