"""Weights by name, .pth and .safetensors: which network they are of, and how they can be wrong."""

from __future__ import annotations

import io
import struct
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from numpy.typing import NDArray

from tests.helpers import obvious, weight_files
from tests.helpers.weight_files import Arrays, Pickle, View, pth, safetensors
from waifu2x.cli import cli
from waifu2x.errors import ModelError
from waifu2x.networks import model_set
from waifu2x.networks.model import Model
from waifu2x.networks.readers import parse_named, read_model

PICTURE = np.random.default_rng(5).random((12, 8, 3))


def read(content: bytes, suffix: str = "pth") -> Model:
    return parse_named(content, f"m.{suffix}")


def made(model: Model, picture: NDArray[np.float64] = PICTURE) -> NDArray[np.float64]:
    return obvious.values(model, picture)[-1]


NETWORKS: dict[str, tuple[Callable[[], Arrays], int]] = {
    "compact": (weight_files.compact, 2),
    "compact-4x": (lambda: weight_files.compact(4, 6, 3), 4),
    "compact-1x": (lambda: weight_files.compact(1), 1),
    "esrgan": (weight_files.esrgan, 4),
    "esrgan-2x": (lambda: weight_files.esrgan(ups=1, blocks=2), 2),
    "esrgan-older": (lambda: weight_files.esrgan(weight_files.OLDER_NAMES), 4),
    "esrgan-old": (weight_files.old_esrgan, 4),
    "esrgan-old-1x": (lambda: weight_files.old_esrgan(0, 2), 1),
    "esrgan-old-8x": (lambda: weight_files.old_esrgan(3), 8),
    "esrgan-x2plus": (lambda: weight_files.esrgan(read=12), 2),
    "esrgan-x1": (lambda: weight_files.esrgan(read=48), 1),
    "span": (weight_files.span, 2),
    "span-4x": (lambda: weight_files.span(4), 4),
    "cugan-2x": (lambda: weight_files.u_net(2), 2),
    "cugan-3x": (lambda: weight_files.u_net(3), 3),
    "cugan-4x": (lambda: weight_files.u_net(4), 4),
    "cunet": (lambda: weight_files.u_net(1), 1),
    "vgg_7": (lambda: weight_files.stack(False), 1),
    "upconv_7": (lambda: weight_files.stack(True), 2),
}

FORMS: dict[str, Callable[[Arrays], tuple[bytes, str]]] = {
    "pth": lambda tensors: (pth(tensors), "pth"),
    "legacy": lambda tensors: (pth({"params_ema": tensors}, legacy=True), "pth"),
    "bf16": lambda tensors: (pth({"state_dict": tensors, "epoch": 7}, "bf16"), "pth"),
    "f64 prefixed": lambda tensors: (
        pth({"model": {f"module.netG.{key}": each for key, each in tensors.items()}}, "f64"),
        "pth",
    ),
    "safetensors": lambda tensors: (safetensors(tensors), "safetensors"),
    "safetensors bf16": lambda tensors: (safetensors(tensors, "bf16"), "safetensors"),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_every_form_of_a_network_is_the_same_network(name: str) -> None:
    make, scale = NETWORKS[name]
    tensors = make()
    results = []
    for form in FORMS.values():
        model = read(*form(tensors))
        assert (model.in_planes, model.out_planes, model.scale) == (3, 3, scale)
        weights = [node.weight for _, node in model.weighted]
        results.append(weights)
    for other in results[1:]:
        for weight, expected in zip(other, results[0], strict=True):
            np.testing.assert_array_equal(weight, expected)


# The networks by their formulas, written once more.


def same(
    source: NDArray[np.float64], tensors: Arrays, key: str, slope: float = 1.0
) -> NDArray[np.float64]:
    """A 3x3 convolution with zeros around, or a 1x1 one, and a leaky ReLU."""
    weight = tensors[f"{key}.weight"].astype(np.float64)
    reach = weight.shape[-1] // 2
    padded = np.pad(source, [(reach, reach), (reach, reach), (0, 0)])
    windows = np.lib.stride_tricks.sliding_window_view(padded, weight.shape[2:], (0, 1))
    sums = np.einsum("yxipq,oipq->yxo", windows, weight, optimize=True)
    sums += tensors.get(f"{key}.bias", 0)
    result: NDArray[np.float64] = np.where(sums > 0, sums, sums * slope)
    return result


def shuffled(source: NDArray[np.float64], by: int) -> NDArray[np.float64]:
    rows, columns, planes = source.shape
    result = np.zeros((rows * by, columns * by, planes // by**2))
    for plane, y, x in np.ndindex(planes // by**2, by, by):
        result[y::by, x::by, plane] = source[..., (plane * by + y) * by + x]
    return result


def enlarged(source: NDArray[np.float64], by: int) -> NDArray[np.float64]:
    return source.repeat(by, 0).repeat(by, 1)


def test_compact_by_its_formula() -> None:
    tensors = weight_files.compact(3)
    value = PICTURE
    for index in (0, 2, 4):
        value = same(value, tensors, f"body.{index}")
        # Slopes above 1 and below 0: no maximum of two.
        value = np.where(value > 0, value, value * tensors[f"body.{index + 1}.weight"])
    expected = shuffled(same(value, tensors, "body.6"), 3) + enlarged(PICTURE, 3)
    assert obvious.psnr(made(read(pth(tensors))), expected) > 140


def test_esrgan_by_its_formula() -> None:
    tensors = weight_files.esrgan(blocks=2, ups=1, read=12)
    rows = PICTURE.reshape(6, 2, 4, 2, 3)
    small = rows.transpose(0, 2, 4, 1, 3).reshape(6, 4, 12)  # [plane][dy][dx]
    first = value = same(small, tensors, "conv_first")
    for block in range(2):
        outer = value
        for part in (1, 2, 3):
            found = [value]
            for k in range(1, 6):
                source, slope = np.concatenate(found, axis=-1), 0.2 if k < 5 else 1.0
                found.append(same(source, tensors, f"body.{block}.rdb{part}.conv{k}", slope))
            value = value + 0.2 * found[-1]
        value = outer + 0.2 * value
    value = first + same(value, tensors, "conv_body")
    value = same(enlarged(value, 2), tensors, "conv_up1", 0.2)
    expected = same(same(value, tensors, "conv_hr", 0.2), tensors, "conv_last")
    model = read(pth(tensors))
    assert (model.scale, model.multiple, model.border) == (1, 2, "reflect")
    assert obvious.psnr(made(model), expected) > 140


@pytest.mark.parametrize("norm", [True, False])
def test_span_by_its_formula(norm: bool) -> None:
    tensors = weight_files.span(2)
    tensors["upsampler.0.weight"] /= 255**2
    mean = np.array([0.4488, 0.4371, 0.4040])
    start = (PICTURE - mean) * 255 if norm else PICTURE

    def three(source: NDArray[np.float64], key: str) -> NDArray[np.float64]:
        """Three convolutions one after the other, the picture's zeros around them once, and one
        beside them."""
        wide = np.pad(source, [(1, 1), (1, 1), (0, 0)])
        inner = same(same(wide, tensors, f"{key}.conv.0"), tensors, f"{key}.conv.1")
        inner = same(inner[1:-1, 1:-1], tensors, f"{key}.conv.2")
        return inner + same(source, tensors, f"{key}.sk")

    def sigmoid(values: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(np.exp(-np.logaddexp(0, -values)))

    first = value = three(start, "conv_1")
    after_first = tap = first
    for block in range(1, 7):
        tap = three(value, f"block_{block}.c1_r")
        tap = tap * sigmoid(tap)
        inner = three(tap, f"block_{block}.c2_r")
        inner = three(inner * sigmoid(inner), f"block_{block}.c3_r")
        value = (inner + value) * (sigmoid(inner) - 0.5)
        after_first = value if block == 1 else after_first
    joined = np.concatenate([first, three(value, "conv_2"), after_first, tap], axis=-1)
    expected = shuffled(same(same(joined, tensors, "conv_cat"), tensors, "upsampler.0"), 2)
    content = pth(tensors if norm else tensors | {"no_norm": np.zeros(1, np.float32)})
    scale = max(1.0, float(abs(expected).max()))
    assert obvious.psnr(made(read(content)) / scale, expected / scale) > 110


def test_real_cugan_reflects_and_maps_and_waifu2x_repeats() -> None:
    tensors = weight_files.u_net(2)
    plain, pro = read(pth(tensors)), read(pth({**tensors, "pro": True}))
    assert (plain.border, plain.padding, plain.multiple) == ("reflect", 18, 2)
    small = PICTURE[:2, :4]
    mapped = (made(plain, small * 0.7 + 0.15) - 0.15) / 0.7
    assert obvious.psnr(made(pro, small), mapped) > 110
    own = read(pth({"name": "waifu2x.upcunet", "state_dict": tensors, "nunif_model": 1}))
    assert own.border == "replicate"
    big = read(pth(weight_files.u_net(4)))
    assert (big.padding, big.multiple, big.scale) == (19, 2, 4)
    flat = {key: np.zeros_like(each) for key, each in weight_files.u_net(4).items()}
    np.testing.assert_array_equal(made(read(pth(flat)), small), enlarged(small, 4))


def test_views_of_shared_storages() -> None:
    tensors = dict(weight_files.compact(1, 3, 0))  # body.0 3>3, slopes, body.2 3>3
    weight = tensors["body.0.weight"]
    turned = np.ascontiguousarray(weight.transpose(3, 2, 1, 0)).reshape(-1)
    numbers = np.concatenate([np.zeros(5, np.float32), weight.reshape(-1)])
    changed: dict[str, Any] = {
        **tensors,
        "body.0.weight": View(turned, 0, (3, 3, 3, 3), (1, 3, 9, 27)),
        "body.2.weight": View(numbers, 5, (3, 3, 3, 3), (27, 9, 3, 1), True, "shared"),
        "body.2.bias": View(numbers, 5, (3,), (1,), False, "shared"),
        "body.1.weight": View(np.full(1, 0.25, np.float32), 0, (3,), (0,)),
    }
    expected = {
        **tensors,
        "body.2.weight": weight,
        "body.2.bias": weight.reshape(-1)[:3],
        "body.1.weight": np.full(3, 0.25, np.float32),
    }
    for legacy in (False, True):
        model = read(pth(changed, legacy=legacy))
        np.testing.assert_array_equal(made(model), made(read(pth(expected))))


def test_what_is_averaged_goes_before_what_is_not() -> None:
    good, other = weight_files.compact(2), weight_files.compact(4)
    assert read(pth({"params": other, "params_ema": good})).scale == 2
    # A prefix that not all have is a name.
    half = {("module." if n else "") + key: each for n, (key, each) in enumerate(good.items())}
    with pytest.raises(ModelError, match="weights of no network that is known"):
        read(pth(half))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"body.2.weight": np.zeros((8, 7, 3, 3), np.float32)},
            "weight reads 7 planes, but body.0 makes 8",
        ),
        (
            {"body.2.bias": np.zeros(7, np.float32)},
            "body.2.bias has the shape (7,), but expected 8",
        ),
        ({"body.1.weight": np.zeros(5, np.float32)}, "body.1.weight: 5 slopes for 8 planes"),
        (
            {"body.0.weight": np.full((8, 3, 3, 3), np.nan, np.float32)},
            "body.0.weight holds a value",
        ),
        (
            {"body.0.weight": np.zeros((8, 3, 5, 5), np.float32)},
            "body.0.weight has the shape (8, 3,",
        ),
        ({"more": np.zeros(3, np.float32)}, "more belongs to no layer of this network"),
        ({"body.6.weight": np.zeros((11, 8, 3, 3), np.float32)}, "body.6.weight: 11 planes are no"),
        ({"body.3.weight": None}, "body.3.weight is missing"),
    ],
)
def test_weights_that_do_not_fit(change: dict[str, Any], message: str) -> None:
    tensors = {k: v for k, v in (weight_files.compact() | change).items() if v is not None}
    with pytest.raises(ModelError) as caught:
        read(pth(tensors))
    assert message in str(caught.value)
    assert str(caught.value).startswith("m.pth: ")


@pytest.mark.parametrize(
    ("key", "word"),
    [
        ("layers.0.residual_group.blocks.0.attn.logit_scale", "a Swin2SR: not supported"),
        ("layers.0.residual_group.td", "an ATD: not supported"),
        ("layers.0.blocks.0.gamma", "an RGT: not supported"),
        ("feats.1.channe_mixer.0.weight", "a PLKSR: not supported"),
        ("what.ever", "weights of no network that is known"),
    ],
)
def test_other_networks_are_named(key: str, word: str) -> None:
    with pytest.raises(ModelError, match=word):
        read(pth({key: np.zeros((2, 2), np.float32)}))


# Files that are not what they say.


def hostile_pickles() -> Iterator[tuple[str, Pickle]]:
    """Programs that do something."""
    calls = {
        "os": ("system", "touch {}"),
        "posix": ("system", "touch {}"),
        "subprocess": ("getoutput", "touch {}"),
        "builtins": ("eval", "open('{}', 'w')"),
        "__builtin__": ("exec", "open('{}', 'w')"),
        "runpy": ("run_path", "{}"),
        "torch": ("load", "{}"),
        "torch.serialization": ("load", "{}"),
        "torch.jit._script": ("load", "{}"),
        "numpy": ("load", "{}"),
        "numpy._core.multiarray": ("_reconstruct", "{}"),
        "pickle": ("loads", "{}"),
        "collections": ("Counter", "{}"),
        "waifu2x.networks.readers.pytorch.pickles": ("load", "{}"),
        "torch._utils": ("_rebuild_device_tensor_from_numpy", "{}"),
        "torch.nn.modules.container": ("Sequential", "{}"),
    }
    for module, (name, argument) in calls.items():
        pickle = Pickle()
        pickle.name(module, name)
        pickle.text(argument.format("/tmp/waifu2x-was-run"))
        pickle.code += b"\x85R"
        yield f"{module}.{name}", pickle
    for word, code in {
        "old call": b"ctorch._utils\n_rebuild_tensor_v2\n}R",
        "instance": b"(ios\nsystem\n",
        "new object": b"ctorch._utils\n_rebuild_tensor_v2\n)\x81",
        "attributes of a name": b"ccollections\nOrderedDict\nN}X\x04\0\0\0nameK\1s\x86b",
        "attributes of ours": b"ccollections\nOrderedDict\n)R}X\x04\0\0\0keysK\1sb",
        "extension": b"\x82\x01",
        "stack global": b"X\x02\0\0\0osX\x06\0\0\0system\x93",
        "text": b"S'os'\n",
        "memory": b"Kar\xff\xff\xff\x7f",
        "no storage": b"ctorch._utils\n_rebuild_tensor_v2\n(K\0K\0))tR",
        "unknown storage": b"(X\x07\0\0\0storageK\1K\1K\1K\1tQ",
        "unhashable": b"}]K\1s",
        "nothing": b"",
        "missing": b"0",
        "a name": b"X\x01\0\0\0a",
    }.items():
        pickle = Pickle()
        pickle.code += code
        yield word, pickle
    for shape, strides, offset in (
        ((1 << 38, 4), (0, 0), 0),  # expanded
        ((4,), (1,), 1),  # beyond
        ((2, 2), (3, 1), 0),
        ((4,), (-1,), 3),
        ((4,), (1, 1), 0),
        ((4,) * 9, (0,) * 9, 0),
        ((1 << 62,), (1,), 0),
        ((4,), (1,), -1),
    ):
        pickle = Pickle()
        pickle.add({"body.0.weight": View(np.zeros(4, np.float32), offset, shape, strides)})
        yield f"shape {shape} {strides} {offset}", pickle


def hostile_files() -> Iterator[tuple[str, str, bytes]]:
    """Name, suffix and content: none of them is a network."""
    tensors = weight_files.compact(1, 3, 0)
    new, old, safe = pth(tensors), pth(tensors, legacy=True), safetensors(tensors)
    for word, pickle in hostile_pickles():
        yield f"{word}, zip", "pth", weight_files.new_file(pickle)
        yield f"{word}, legacy", "pth", weight_files.old_file(pickle)
    for content, suffix in ((new, "pth"), (old, "pth"), (safe, "safetensors")):
        for cut in np.linspace(0, len(content) - 1, 150).astype(int):
            yield f"cut at {cut}", suffix, content[:cut]
        yield (
            "longer",
            suffix,
            content + b"\0\0\0\0" if suffix != "pth" or content is old else b"PK",
        )
    pickle = Pickle()
    pickle.add(tensors)
    yield "packed by LZMA", "pth", weight_files.new_file(pickle, method=zipfile.ZIP_LZMA)
    packed = weight_files.new_file(pickle, method=zipfile.ZIP_DEFLATED)
    for cut in np.linspace(0, len(packed) - 1, 50).astype(int):
        yield f"packed, cut at {cut}", "pth", packed[:cut]
    yield "program", "pth", weight_files.new_file(pickle, {"code/__torch__.py": b"x"})
    yield "big-endian", "pth", new.replace(b"little", b"bigger")
    pickle.storages["0"] = b"\0\0\0\0"
    yield "short data", "pth", weight_files.new_file(pickle)
    del pickle.storages["0"]
    yield "no data", "pth", weight_files.new_file(pickle)
    bomb = io.BytesIO()
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a/data.pkl", bytes(40 << 20))
    yield "bomb", "pth", bomb.getvalue()
    yield "tar", "pth", bytes(257) + b"ustar" + bytes(250)
    for header in (
        b"[" * 100_000,
        b"{}",
        b"[]",
        b'{"a":1}',
        b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}',
        b'{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}}',
        b'{"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}}',
        b'{"a":{"dtype":"F32","shape":[true],"data_offsets":[0,4]}}',
        b'{"a":{"dtype":"F32","shape":[1e0],"data_offsets":[0,4]}}',
        b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}',
        b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}}',
        b'{"a":{"dtype":"F8_E4M3","shape":[4],"data_offsets":[0,4]}}',
        b'{"a":{"dtype":"F32","shape":[99999999999999],"data_offsets":[0,399999999999996]}}',
        b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},'
        b'"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}',
        b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},'
        b'"b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}',
        b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"more":1}}',
        b'{"__metadata__":1}',
        b"\xff\xfe{}",
    ):
        content = struct.pack("<Q", len(header)) + header + bytes(4)
        yield f"header {header[:60]!r}", "safetensors", content
    yield "no end of a header", "safetensors", b"\xff" * 8 + b"{}"


HOSTILE = list(hostile_files())


def test_damaged_and_hostile_files_are_refused_in_a_sentence() -> None:
    assert len(HOSTILE) >= 500
    for word, suffix, content in HOSTILE:
        try:
            read(content, suffix)
        except ModelError as error:
            message = str(error)
            assert message.startswith(f"m.{suffix}: "), word
            assert "\n" not in message, word
            assert len(message) < 250, word
        else:
            pytest.fail(f"{word}: was read")
    assert not Path("/tmp/waifu2x-was-run").exists()


def test_a_changed_byte_is_refused_or_read_but_breaks_nothing() -> None:
    rng = np.random.default_rng(9)
    tensors = weight_files.compact(1, 3, 0)
    refused = 0
    for content, suffix in (
        (pth(tensors), "pth"),
        (pth(tensors, legacy=True), "pth"),
        (safetensors(tensors), "safetensors"),
    ):
        for place in rng.integers(0, len(content), 70):
            changed = bytearray(content)
            changed[place] ^= 1 << rng.integers(0, 8)
            try:
                read(bytes(changed), suffix)
            except ModelError:
                refused += 1
    assert refused > 60


def test_a_pickle_that_counts_takes_no_memory() -> None:
    import tracemalloc

    pickle = Pickle()
    pickle.code += b"Kar" + struct.pack("<I", 1 << 30)
    content = weight_files.new_file(pickle)
    tracemalloc.start()
    with pytest.raises(ModelError, match="holds no weights by name"):
        read(content)
    assert tracemalloc.get_traced_memory()[1] < 4 << 20
    tracemalloc.stop()


# As model sets.


def test_a_file_is_a_model_set(tmp_path: Path) -> None:
    path = tmp_path / "4x_Drawn.PTH"
    path.write_bytes(pth(weight_files.compact(4)))
    found = model_set.find(str(path))
    assert (found.scales, found.noise_levels) == ([4], [])
    assert found.factors(3, None) == (4,)
    assert [model.scale for model in found.models(16, None)] == [4, 4]
    one = tmp_path / "1x.safetensors"
    one.write_bytes(safetensors(weight_files.compact(1)))
    found = model_set.find(str(one))
    assert (found.scales, found.noise_levels) == ([1], [0])
    assert [model.scale for model in found.models(1, 0)] == [1]
    with pytest.raises(
        ModelError, match=r"1x\.safetensors: it does not enlarge; use it with -s 1 -n 0"
    ):
        found.models(2, None)
    (tmp_path / "text.txt").write_text("no model")
    with pytest.raises(ModelError, match=r"text\.txt: not a model file: expected \.json"):
        model_set.find(str(tmp_path / "text.txt"))


def test_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "models"
    for module in ("waifu2x.networks.model_import", "waifu2x.networks.model_set"):
        monkeypatch.setattr(f"{module}.user_models", lambda: root)
    source = tmp_path / "4x-Fine.safetensors"
    source.write_bytes(safetensors(weight_files.esrgan()))
    done = CliRunner().invoke(cli, ["models", "import", str(source)])
    target = root / "imported" / "4x-Fine" / "scale4.0x_model.safetensors"
    assert done.output.strip() == str(target)
    assert target.read_bytes() == source.read_bytes()
    assert [m.scale for m in model_set.find("imported/4x-Fine").models(4, None)] == [4]
    done = CliRunner().invoke(cli, ["models", "import", str(source), "--name", "mine/fine"])
    assert read_model(root / "mine" / "fine" / target.name).scale == 4
    (tmp_path / "bad.pth").write_bytes(pth({"relative_position": np.zeros(3, np.float32)}))
    done = CliRunner().invoke(cli, ["models", "import", str(tmp_path / "bad.pth")])
    assert done.exit_code == 1
    assert "weights of no network that is known" in done.output
