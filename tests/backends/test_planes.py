"""The contract of YUV planes in and out, against the definition in `obvious_planes`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Any, get_args

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.helpers import obvious
from tests.helpers.obvious_planes import Meaning, codes, from_rgb, to_rgb
from waifu2x.backends import Backend, Network, open_backend
from waifu2x.backends.call import Call
from waifu2x.backends.engine.pool import DevicePool
from waifu2x.errors import BackendError
from waifu2x.imaging.planar import (
    DEPTHS,
    Matrix,
    PlanarPicture,
    PlaneFormat,
    Siting,
    Subsampling,
)
from waifu2x.networks.activations import leaky
from waifu2x.networks.builder import GraphBuilder
from waifu2x.networks.frame_windows import WindowNetwork
from waifu2x.networks.model import Model, Surround

EXACT_DB = 100.0
MATRICES: list[Matrix] = [matrix for matrix in get_args(Matrix) if matrix != "rgb"]
SITINGS: list[Siting] = list(get_args(Siting))
LAYOUTS: list[tuple[Subsampling, Siting]] = [
    *(("420", siting) for siting in SITINGS),
    ("422", "left"),
    ("422", "center"),
    ("444", "left"),
    ("400", "left"),
]
"""All that differ in where chroma lies, or whether it is there."""
GEOMETRIES = [*((8, layout) for layout in LAYOUTS), (10, LAYOUTS[0]), (12, LAYOUTS[4])]
KINDS = [
    *(
        PlaneFormat(bits, layout[0], MATRICES[number % 4], number % 3 == 0, layout[1])
        for number, (bits, layout) in enumerate(GEOMETRIES)
    ),
    PlaneFormat(8, "444", "rgb", True),
    PlaneFormat(10, "444", "rgb"),
    PlaneFormat(16, "400", "bt601", True),
]
"""Each layout, and in turn each matrix, range and depth."""
YUV: list[Subsampling] = ["420", "422", "444"]


def formats(
    depths: Sequence[int],
    subsamplings: Sequence[Subsampling],
    matrices: Sequence[Matrix],
    sitings: Sequence[Siting] = ("left",),
) -> list[PlaneFormat]:
    """All of them, of either range."""
    ranges = False, True
    return [
        PlaneFormat(*values) for values in product(depths, subsamplings, matrices, ranges, sitings)
    ]


ALL_KINDS = [
    *formats((8, 10), YUV, MATRICES, SITINGS),
    *formats((9, 12, 14, 16), ["420", "444"], ["bt709"]),
    *formats(DEPTHS, ["444"], ["rgb"]),
    *formats(DEPTHS, ["400"], ["bt601", "bt2020"]),
]
SIZES = [(9, 14), (8, 7), (1, 1), (1, 6), (5, 1), (2, 2)]


def meaning(kind: PlaneFormat) -> Meaning:
    return Meaning(kind.bits, kind.subsampling, kind.matrix, kind.is_full_range, kind.siting)


def name(kind: PlaneFormat) -> str:
    span = "full" if kind.is_full_range else "limited"
    return f"{kind.bits}-{kind.subsampling}-{kind.matrix}-{span}-{kind.siting}"


def picture(kind: PlaneFormat, height: int, width: int, seed: int = 0) -> PlanarPicture:
    """Any codes, those beyond white and black among them."""
    rng = np.random.default_rng(seed * 10_000 + height * 100 + width)
    made = kind.empty(height, width)
    for plane in made.planes:
        plane[:] = rng.integers(0, 1 << kind.bits, plane.shape)
    return made


def identity(scale: int = 1) -> Model:
    """A network that gives its pictures as they are, each pixel repeated."""
    weight = np.zeros((3, 3, 3, 3), np.float32)
    for plane in range(3):
        weight[plane, plane, 1, 1] = 1
    net = GraphBuilder("identity", 3)
    value = net.enlarge(0, scale) if scale > 1 else 0
    if scale > 1:
        value = net.crop(value, scale - 1)
    net.convolution(value, weight, np.zeros(3, np.float32), leaky(1.0, 3))
    return net.model()


def rgb_of(one: PlanarPicture) -> NDArray[np.float64]:
    """The RGB that a network is to read."""
    return to_rgb(one.planes, meaning(one.format)).clip(0, 1)


def read_by(backend: Backend, one: PlanarPicture) -> NDArray[np.float32]:
    """The RGB that a backend's first model reads: it is in memory only at these places."""
    if backend.name == "numpy":
        from waifu2x.backends.reference.planar import to_rgb

        return to_rgb(one)
    if backend.name == "cpu":
        from waifu2x.backends.cpu.run.planar import read_planes

        pixels = np.full((*one.size, 3), np.nan, np.float32)
        read_planes(one, pixels, 3)
        return pixels
    network: Any = backend.compile([identity()], "fp32")
    found: NDArray[np.float32] = network._converted(lambda bands: bands.pixels([one]))[0]
    network.close()
    return found


def assert_codes(made: PlanarPicture, values: list[NDArray[np.float64]], near: float) -> None:
    """They are those of the values, but where a value is so near to a rounding, in codes."""
    for plane, value, wanted in zip(
        made.planes, values, codes(values, made.format.bits), strict=True
    ):
        far = np.abs(value - np.floor(value) - 0.5) > near
        np.testing.assert_array_equal(plane[far], wanted[far])
        assert np.abs(plane.astype(np.int64) - wanted).max() <= 1
        assert far.mean() > 0.7 or plane.size < 100


def ran(
    network: Network, pictures: list[PlanarPicture], kind: PlaneFormat, scale: int, **options: Any
) -> list[PlanarPicture]:
    out = [kind.empty(*(scale * side for side in one.size)) for one in pictures]
    network.run(Call(pictures, out=out, **options))
    return out


def planes_of(pictures: list[PlanarPicture]) -> list[NDArray[Any]]:
    return [plane for one in pictures for plane in one.planes]


def assert_same(made: list[PlanarPicture], wanted: list[PlanarPicture]) -> None:
    for one, other in zip(planes_of(made), planes_of(wanted), strict=True):
        np.testing.assert_array_equal(one, other)


def check_conversion(backend: Backend, kind: PlaneFormat) -> None:
    one = picture(kind, 9, 13)
    assert obvious.psnr(read_by(backend, one), rgb_of(one)) >= EXACT_DB
    network = backend.compile([identity()], "fp32")
    # For 16 bits, float32's error is a larger share of a code.
    near = max(0.02, 2.0 ** (kind.bits - 16) / 10)
    wide = picture(PlaneFormat(10, "444", "bt709", True), 9, 13)
    (made,) = ran(network, [wide], kind, 1)
    assert_codes(made, from_rgb(rgb_of(wide), meaning(kind)), near)
    network.close()


@pytest.mark.parametrize("kind", KINDS, ids=name)
def test_planes_are_read_and_written_as_defined(backend: Backend, kind: PlaneFormat) -> None:
    check_conversion(backend, kind)


@pytest.mark.matrix
@pytest.mark.parametrize("kind", ALL_KINDS, ids=name)
def test_every_format_is_read_and_written_as_defined(backend: Backend, kind: PlaneFormat) -> None:
    check_conversion(backend, kind)


@pytest.mark.parametrize("bits", [8, 10])
@pytest.mark.parametrize("matrix", MATRICES)
@pytest.mark.parametrize("is_full_range", [False, True])
def test_codes_come_back_as_they_were(
    backend: Backend, matrix: Matrix, bits: int, is_full_range: bool
) -> None:
    kind = PlaneFormat(bits, "444", matrix, is_full_range)
    one = picture(kind, 250, 261)
    rgb = to_rgb(one.planes, meaning(kind))
    beyond = ((rgb < 0) | (rgb > 1)).any(axis=-1)
    assert beyond.mean() < 0.9
    grey = (1 << bits) // 2
    for plane in one.planes:
        plane[beyond] = grey
    with np.errstate(invalid="ignore"):
        network = backend.compile([identity()], "fp32")
        assert_same(ran(network, [one], kind, 1), [one])
    network.close()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_any_size(
    backend: Backend, layout: tuple[Subsampling, Siting], size: tuple[int, int]
) -> None:
    kind = PlaneFormat(8, layout[0], "bt601", False, layout[1])
    one = picture(kind, *size)
    network = backend.compile([identity(2)], "fp32")
    (made,) = ran(network, [one], kind, 2)
    doubled = rgb_of(one).repeat(2, axis=0).repeat(2, axis=1)
    assert_codes(made, from_rgb(doubled, meaning(kind)), 0.02)
    network.close()


@pytest.mark.parametrize("tta", [1, 2])
@pytest.mark.parametrize("bits", [8, 10])
def test_results_are_those_of_converted_pictures(backend: Backend, bits: int, tta: int) -> None:
    models = [obvious.random_model([3, 16, 3], seed=4), obvious.random_model([3, 8, 3], 5, 2)]
    kind = PlaneFormat(bits, "420", "bt709")
    one = picture(kind, 21, 26)
    network = backend.compile(models, "fp32")
    (made,) = ran(network, [one], kind, 2, tta=tta)
    pixels = np.ascontiguousarray(rgb_of(one), np.float32)
    assert_codes(
        made, from_rgb(network.run(Call(pixels, np.float32, tta=tta)), meaning(kind)), 0.05
    )
    expected = obvious.run_turned(models, pixels, tta) if tta > 1 else obvious.run(models, pixels)
    assert_codes(made, from_rgb(expected, meaning(kind)), 0.1)
    network.close()


def test_depth_and_sampling_may_change(backend: Backend) -> None:
    source = PlaneFormat(8, "422", "bt601", False, "center")
    target = PlaneFormat(10, "420", "bt2020", True, "topleft")
    one = picture(source, 9, 14)
    network = backend.compile([identity(2)], "fp32")
    (made,) = ran(network, [one], target, 2)
    doubled = rgb_of(one).repeat(2, axis=0).repeat(2, axis=1)
    assert_codes(made, from_rgb(doubled, meaning(target)), 0.02)
    network.close()


@pytest.mark.parametrize("precision", ["fp32", "auto"])
def test_tiles_and_stacks_change_no_bit(
    backend: Backend, precision: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from waifu2x.backends.gpu.device import planar

    monkeypatch.setattr(planar, "_BAND_BYTES", 5000)  # a few rows
    kind = PlaneFormat(10, "420", "bt709", siting="topleft")  # reads two rows around
    models = [obvious.random_model([3, 16, 3], seed=4), obvious.random_model([3, 8, 3], 5, 2)]
    pictures = [picture(kind, 51, 38, seed) for seed in range(3)]
    network = backend.compile(models, precision)
    alone = [ran(network, [one], kind, 2)[0] for one in pictures]
    for options in ({}, {"tile": 16}, {"tile": 37}):
        assert_same(ran(network, pictures, kind, 2, **options), alone)
    network.close()


def test_devices_change_no_bit(backend: Backend) -> None:
    kind = PlaneFormat(8, "420", "bt709")
    models = [obvious.random_model([3, 8, 3], 5, 2)]
    pictures = [picture(kind, 11, 16, seed) for seed in range(3)]
    network = backend.compile(models, "fp32")
    wanted = ran(network, pictures, kind, 2)
    network.close()
    pool = DevicePool([open_backend(backend.name), open_backend(backend.name)])
    progress: list[float] = []
    made = ran(pool.compile(models, "fp32"), pictures, kind, 2, on_progress=progress.append)
    pool.close()
    assert_same(made, wanted)
    assert sum(progress) == pytest.approx(1)


def test_cores_change_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    planar = pytest.importorskip("waifu2x.backends.cpu.run.planar")
    monkeypatch.setattr(planar, "_THREAD_PIXELS", 1000)
    kind = PlaneFormat(10, "420", "bt709", siting="topleft")
    one = picture(kind, 333, 41)
    pixels = [np.full((333, 41, 3), np.nan, np.float32) for _ in range(2)]
    made = [kind.empty(333, 41) for _ in range(2)]
    for cores in range(2):
        planar.read_planes(one, pixels[cores], 1 + 4 * cores)
        planar.write_planes(pixels[cores], made[cores], 1 + 4 * cores)
    np.testing.assert_array_equal(pixels[0], pixels[1])
    assert_same(made[:1], made[1:])
    assert_codes(made[0], from_rgb(pixels[0], meaning(kind)), 0.01)


def of_frames(scale: int, surround: Surround | None) -> Model:
    """A network of three frames, which weighs them and their neighbouring pixels."""
    weight = np.random.default_rng(3).random((3 * scale**2, 9, 3, 3)).astype(np.float32)
    weight /= weight.sum((1, 2, 3), keepdims=True)
    net = GraphBuilder("of frames", 9)
    value = net.convolution(0, weight, np.zeros(len(weight), np.float32), padding=1)
    if scale > 1:
        net.pixel_shuffle(value, scale)
    return net.model("zero", frames=3, surround=surround)


def window_of(model: Model, pixels: NDArray[np.float64]) -> NDArray[np.float64]:
    """The RGB that a network of several frames makes of theirs, by the definition."""
    height, width, _ = pixels.shape
    top = left = 0
    if around := model.surround:
        sides = [(around.before(n), around.added(n) - around.before(n)) for n in (height, width)]
        pixels = np.pad(pixels, [*sides, (0, 0)], "reflect")
        (top, _), (left, _) = sides
    made = obvious.values(model, pixels)[-1][top * model.scale :, left * model.scale :]
    return made[: height * model.scale, : width * model.scale]


@pytest.mark.parametrize(
    ("source", "target", "scale", "size", "surround"),
    [
        (PlaneFormat(8, "420", "bt709"), PlaneFormat(10, "420", "bt2020"), 2, (9, 14), None),
        (PlaneFormat(10, "422", "bt601", True), PlaneFormat(8, "444"), 1, (13, 1), Surround(8)),
        (PlaneFormat(8, "420"), PlaneFormat(8, "420"), 2, (11, 6), Surround(8, 8)),
        (PlaneFormat(8, "444", "rgb"), PlaneFormat(12, "444", "rgb"), 2, (8, 7), Surround(8, 8)),
        (PlaneFormat(8, "400", "bt601"), PlaneFormat(8, "400", "bt601"), 2, (1, 6), Surround(8)),
    ],
    ids=["420", "422", "420 in the middle", "rgb", "grey"],
)
def test_windows_of_frames(
    backend: Backend,
    source: PlaneFormat,
    target: PlaneFormat,
    scale: int,
    size: tuple[int, int],
    surround: Surround | None,
) -> None:
    model = of_frames(scale, surround)
    network = WindowNetwork(backend.compile([model], "fp32"), model)
    frames = [picture(source, *size, seed) for seed in range(4)]
    windows = [frames[0], *frames[:2], *frames[1:]]  # the first one begins with its own frame
    out = [target.empty(*(scale * side for side in size)) for _ in range(2)]
    network.run(Call(windows, out=out))
    pixels = [np.dstack([rgb_of(one) for one in windows[at : at + 3]]) for at in (0, 3)]
    for window, made in zip(pixels, out, strict=True):
        assert_codes(made, from_rgb(window_of(model, window), meaning(target)), 0.05)
    again = [target.empty(*one.size) for one in out]
    network.run(Call(windows, out=again, tile=4))
    assert_same(again, out)
    network.run(Call(windows, out=again, tta=2))
    for window, made in zip(pixels, again, strict=True):
        turned = window_of(model, window.transpose(1, 0, 2)).transpose(1, 0, 2)
        mean = (window_of(model, window) + turned) / 2
        assert_codes(made, from_rgb(mean, meaning(target)), 0.05)
    network.close()


def inside(
    array: NDArray[Any], gap: int, *, upside_down: bool
) -> tuple[NDArray[Any], NDArray[Any]]:
    """A plane somewhere in a larger array, and that array."""
    around = np.full((array.shape[0] + 2, array.shape[1] + 3 + gap), 99, array.dtype)
    place = around[1:-1, 3:-gap][:: -1 if upside_down else 1]
    place[:] = array
    return place, around


@pytest.mark.parametrize("upside_down", [False, True])
@pytest.mark.parametrize("bits", [8, 10])
def test_rows_may_lie_anywhere(backend: Backend, bits: int, upside_down: bool) -> None:
    kind = PlaneFormat(bits, "420", "bt709")
    one, empty = picture(kind, 9, 14), kind.empty(18, 28)
    network = backend.compile([identity(2)], "fp32")
    (wanted,) = ran(network, [one], kind, 2)
    sources = [
        inside(plane, gap, upside_down=upside_down)[0] for gap, plane in enumerate(one.planes, 1)
    ]
    for plane in sources:
        plane.flags.writeable = False
    targets = [
        inside(np.zeros_like(plane), gap, upside_down=upside_down)
        for gap, plane in enumerate(empty.planes, 1)
    ]
    made = PlanarPicture(kind, *(place for place, _ in targets))
    network.run(Call([PlanarPicture(kind, *sources)], out=[made]))
    network.close()
    assert_same([made], [wanted])
    for place, around in targets:
        place[:] = 99
        assert (around == 99).all()


def test_what_does_not_fit_is_refused(backend: Backend) -> None:
    kind = PlaneFormat(8, "420", "bt709")
    one = picture(kind, 4, 6)
    network = backend.compile([identity()], "fp32")
    with pytest.raises(ValueError, match="Expected 1 results, but got 0"):
        network.run(Call([one], out=[]))
    with pytest.raises(ValueError, match="of 6x4 pixels"):
        network.run(Call([one], out=[kind.empty(4, 8)]))
    other = replace(kind, matrix="bt601").empty(4, 6)
    with pytest.raises(ValueError, match="one format"):
        network.run(Call([one, one], out=[kind.empty(4, 6), other]))
    with pytest.raises(ValueError, match="memory of their own"):
        network.run(Call([one], out=[one]))
    locked = kind.empty(4, 6)
    locked.planes[1].flags.writeable = False
    with pytest.raises(ValueError, match="writable"):
        network.run(Call([one], out=[locked]))
    network.run(Call([], out=[]))
    network.close()
    with pytest.raises(BackendError, match="closed"):
        network.run(Call([one], out=[kind.empty(4, 6)]))
    grey = backend.compile([obvious.random_model([1, 8, 1], 2)], "fp32")
    with pytest.raises(ValueError, match="three planes"):
        grey.run(Call([one], out=[kind.empty(4, 6)]))
    grey.close()


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"bits": 11}, "bits to be one of 8, 9, 10, 12, 14, 16, but got 11"),
        ({"subsampling": "411"}, "subsampling to be one of '400', '420', '422', '444'"),
        ({"matrix": "ycgco"}, "matrix to be one of 'bt601'"),
        ({"siting": "bottom"}, "siting to be one of 'left'"),
        ({"matrix": "rgb"}, "RGB with subsampling 444, but got 420"),
    ],
)
def test_formats_that_there_are_not(values: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        PlaneFormat(**values)


def test_planes_that_do_not_fit_each_other() -> None:
    kind = PlaneFormat(8, "420", "bt709")
    y, u, v = kind.empty(5, 7).planes
    assert u.shape == (3, 4)
    with pytest.raises(ValueError, match=r"plane 2 of shape \(3, 4\) and dtype uint8"):
        PlanarPicture(kind, y, u, v[:2])
    with pytest.raises(ValueError, match="dtype uint16"):
        PlanarPicture(replace(kind, bits=10), y, u, v)
    with pytest.raises(ValueError, match="neighbours"):
        PlanarPicture(kind, np.zeros((5, 14), np.uint8)[:, ::2], u, v)
    with pytest.raises(ValueError, match="2 dimensions"):
        PlanarPicture(kind, y[0], u, v)
    with pytest.raises(ValueError, match="3 planes, but got 1"):
        PlanarPicture(kind, y)
    with pytest.raises(ValueError, match="no plane"):
        PlanarPicture(kind)
