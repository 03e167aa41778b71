"""Checkpoints: wherever the weights are, and however they were packed, the same network is read."""

from __future__ import annotations

import collections
import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from numpy.typing import NDArray

from tests.helpers import weight_files
from tests.helpers.checkpoint_files import (
    Global,
    Made,
    legacy,
    members,
    packed,
    prefixed,
    zipped,
)
from waifu2x.cli import cli
from waifu2x.errors import ModelError
from waifu2x.networks import model_set
from waifu2x.networks.model import Model
from waifu2x.networks.readers import parse_named, read_model
from waifu2x.networks.readers.pytorch import files

WANTED = weight_files.compact(2)
OTHER = {key: each / 2 for key, each in WANTED.items()}
DENOISER = weight_files.compact(1)
RIVAL = {"conv0.weight": np.ones((8, 3, 3, 3), np.float32), "conv0.bias": np.ones(8, np.float32)}
COUNTER = np.array(5, np.int64)
OPTIMIZER = {
    "state": {0: {"step": COUNTER, "exp_avg": np.ones((8, 3, 3, 3), np.float32)}},
    "param_groups": [{"lr": 1e-4, "betas": (0.9, 0.99), "params": [0, 1, 2], "fused": None}],
}
NUMPY_FLOAT = Made(
    Global("numpy._core.multiarray", "scalar"),
    (
        Made(Global("numpy", "dtype"), ("f8", False, True)),
        Made(Global("_codecs", "encode"), ("\x00\x00\x00\x00\x00\x00\xf0?", "latin1")),
    ),
)

PREFIXES = (
    *("_orig_mod.", "module.", "model.", "net_g.", "generator.", "ema.", "netG.", "net."),
    *("_orig_mod.module.", "module.model.net_g.", "some.thing.else."),
)

# Each with what the program says that it took.
CONTENTS: dict[str, tuple[Any, str]] = {
    **{f"prefix {each}": (prefixed(each, WANTED), each) for each in PREFIXES},
    "state_dict": ({"epoch": 3, "state_dict": WANTED}, "state_dict"),
    "model_state_dict": (
        {"model_state_dict": WANTED, "optimizer_state_dict": OPTIMIZER, "loss": 0.5},
        "model_state_dict",
    ),
    "params": ({"iter": 1000, "params": WANTED}, "params"),
    "params, averaged": ({"params": OTHER, "params_ema": WANTED}, "params_ema"),
    "a name of its own": ({"mine": {"weights": WANTED}}, "mine > weights"),
    "Lightning": (
        {
            "epoch": 1,
            "pytorch-lightning_version": "2.1",
            "state_dict": prefixed("model.", WANTED),
            "callbacks": {"checkpoint": {"best_model_path": None}},
            "optimizer_states": [OPTIMIZER],
            "hyper_parameters": {"lr": 1e-4},
        },
        "state_dict > model.",
    ),
    "Lightning, GAN": (
        {"state_dict": prefixed("net_d.", RIVAL) | prefixed("net_g.", WANTED)},
        "state_dict > net_g.",
    ),
    "GAN": ({"generator": WANTED, "discriminator": OTHER}, "generator"),
    "GAN by prefixes": (
        prefixed("discriminator.", OTHER)
        | prefixed("generator.", WANTED)
        | prefixed("perceptual_loss.vgg.", RIVAL),
        "generator.",
    ),
    "GAN, averaged": ({"G": OTHER, "D": RIVAL, "G_ema": WANTED, "step": 7}, "G_ema"),
    "swa_utils": ({"n_averaged": COUNTER, **prefixed("module.", WANTED)}, "module."),
    "ema_pytorch": (
        {
            "initted": np.ones(1, np.float32),
            "step": COUNTER,
            **prefixed("online_model.", OTHER),
            **prefixed("ema_model.", WANTED),
        },
        "ema_model.",
    ),
    "timm": ({"state_dict": OTHER, "state_dict_ema": WANTED, "metric": 31.5}, "state_dict_ema"),
    "shadow": ({"model": OTHER, "ema": {"decay": 0.999, "shadow": WANTED}}, "ema > shadow"),
    "the one that enlarges": ({"denoiser": DENOISER, "enlarger": WANTED}, "enlarger"),
    "the one that enlarges, by prefixes": (
        prefixed("first.", DENOISER) | prefixed("second.", WANTED),
        "second.",
    ),
    "others that are damaged": (
        {"params_ema": {**OTHER, "x": COUNTER}, "params": WANTED},
        "params",
    ),
    "numbers and sets beside": (
        {
            "size": Made(Global("torch", "Size"), ((2, 3),)),
            "device": Made(Global("torch", "device"), ("cpu",)),
            "type": Global("torch", "float32"),
            "set": {1, 2, 3},
            "frozen": frozenset({4}),
            "best": NUMPY_FLOAT,
            "milestones": Made(Global("collections", "Counter"), ({10: 1},)),
            "state_dict": WANTED,
            "raw": b"bytes",
        },
        "state_dict",
    ),
    "parameters with attributes": (
        {
            "state_dict": {
                key: Made(
                    Global("torch._utils", "_rebuild_parameter_with_state"),
                    (each, True, collections.OrderedDict(), {"note": "x"}),
                )
                for key, each in WANTED.items()
            }
        },
        "state_dict",
    ),
}


def rezipped(change: Callable[[dict[str, bytes]], dict[str, bytes]]) -> bytes:
    return packed(change(members(zipped(WANTED))).items())


def renamed(old: str, new: str) -> bytes:
    return rezipped(lambda found: {key.replace(old, new): each for key, each in found.items()})


FILES: dict[str, tuple[bytes, str]] = {
    **{name: (zipped(content), where) for name, (content, where) in CONTENTS.items()},
    **{f"protocol {each}": (zipped(WANTED, each), "") for each in (1, 2, 3, 4, 5)},
    **{f"legacy, protocol {each}": (legacy(WANTED, each), "") for each in (1, 2, 3, 4, 5)},
    "protocol 4 with sets": (zipped(CONTENTS["numbers and sets beside"][0], 4), "state_dict"),
    "deflated": (rezipped(dict), ""),
    "another order": (rezipped(lambda found: dict(reversed(found.items()))), ""),
    "stored anew": (packed(members(zipped(WANTED)).items(), zipfile.ZIP_STORED), ""),
    "another folder": (renamed("archive/", "4x model (1)/"), ""),
    "no folder": (renamed("archive/", ""), ""),
    "folder in a folder": (renamed("archive/", "a/b/"), ""),
    "folders by backslashes": (renamed("/", "\\"), ""),
    "entries of folders": (
        rezipped(lambda found: {"archive/": b"", "archive/data/": b"", **found}),
        "",
    ),
    "macOS's own beside": (
        rezipped(lambda found: {**found, "__MACOSX/archive/._data.pkl": b"\0\5\26\7"}),
        "",
    ),
}


def arrays(model: Model) -> list[NDArray[np.float32]]:
    return [each for _, node in model.weighted for each in (node.weight, node.bias)]


def test_enough_checkpoints() -> None:
    assert len(FILES) >= 40


@pytest.mark.parametrize("name", FILES)
def test_the_same_network_wherever_it_is(name: str) -> None:
    content, where = FILES[name]
    model = parse_named(content, "m.ckpt")
    assert model.taken.partition(":")[0] == where
    for mine, expected in zip(arrays(model), arrays(_plain()), strict=True):
        np.testing.assert_array_equal(mine, expected)


def _plain() -> Model:
    return parse_named(weight_files.pth(WANTED), "m.pth")


@pytest.mark.parametrize("name", FILES)
def test_the_same_tensors_as_pytorch(name: str) -> None:
    torch = pytest.importorskip("torch")
    content, _ = FILES[name]
    if name in ("no folder", "folder in a folder", "folders by backslashes", "macOS's own beside"):
        pytest.skip("PyTorch reads one folder alone")
    if content[:2] == b"PK" and _first(content).compress_type == zipfile.ZIP_DEFLATED:
        content = packed(members(content).items(), zipfile.ZIP_STORED)  # as PyTorch takes it
    loaded = torch.load(io.BytesIO(content), weights_only=False)
    for network in files.parse(content, "m.pth"):
        for key, tensor in network.tensors.items():
            inside = loaded
            for part in network.where[:-1] if _is_prefix(network.where) else network.where:
                inside = inside[part]
            full = network.where[-1] + key if _is_prefix(network.where) else key
            np.testing.assert_array_equal(tensor.read(), inside[full].detach().numpy())


def _first(content: bytes) -> zipfile.ZipInfo:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return archive.infolist()[0]


def _is_prefix(where: tuple[str, ...]) -> bool:
    return bool(where) and where[-1].endswith(".")


@pytest.mark.parametrize("new", [True, False], ids=["zip", "legacy"])
@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_what_pytorch_writes(protocol: int, new: bool) -> None:
    torch = pytest.importorskip("torch")
    content = {
        "state_dict": {key: torch.nn.Parameter(torch.tensor(each)) for key, each in OTHER.items()},
        "ema": {key: torch.tensor(each) for key, each in WANTED.items()},
        "size": torch.Size((2, 3)),
        "device": torch.device("cpu"),
        "type": torch.float32,
        "half": torch.ones(3, dtype=torch.bfloat16),
        "best": np.float64(31.5),
        "milestones": collections.Counter({10: 1}),
    }
    written = io.BytesIO()
    torch.save(content, written, pickle_protocol=protocol, _use_new_zipfile_serialization=new)
    model = parse_named(written.getvalue(), "m.pt")
    assert model.taken == "ema: averaged weights (EMA) come first; not taken: state_dict"
    for mine, expected in zip(arrays(model), arrays(_plain()), strict=True):
        np.testing.assert_array_equal(mine, expected)


def test_safetensors_with_prefixes_and_under_another_name() -> None:
    content = weight_files.safetensors(prefixed("net_d.", RIVAL) | prefixed("net_g.", WANTED))
    for name in ("m.safetensors", "m.ckpt", "m.pth"):
        model = parse_named(content, name)
        assert model.taken == "net_g.: the only network found that makes pictures"
    assert parse_named(weight_files.pth(WANTED), "m.safetensors").scale == 2


def test_marks_behind_a_prefix_count() -> None:
    tensors = {**weight_files.span(2), "no_norm": np.zeros(1, np.float32)}
    plain = parse_named(zipped(tensors), "m.pth")
    for prefix in ("module.", "a.b."):
        assert str(parse_named(zipped(prefixed(prefix, tensors)), "m.pth").nodes) == str(
            plain.nodes
        )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"discriminator": WANTED}, "holds a discriminator or a loss, and no network"),
        # Part of a network that is not known.
        (
            prefixed("first.", WANTED) | {"second.weight": np.ones((8, 8), np.float32)},
            "weights of no network that is known",
        ),
        (prefixed("a." * 9, WANTED), "weights of no network that is known"),
        ({str(n): dict(WANTED) for n in range(17)}, "holds 17 networks, more than 16"),
        ({"one": {"a": {"b": None}}}, "holds no weights by name"),
        ({"net_g": {"layers.0.blocks.0.gamma": RIVAL["conv0.bias"]}}, "an RGT: not supported"),
        (
            Made(Global("os", "system"), ("true",)),
            "asks for 'os.system', and only tensors are read",
        ),
        (
            {"state_dict": WANTED, "x": Made(Global("os", "system"), ("true",))},
            "asks for 'os.system', and only tensors are read",
        ),
    ],
)
@pytest.mark.parametrize("protocol", [2, 4])
def test_refused_in_a_sentence(content: Any, message: str, protocol: int) -> None:
    for form in (zipped, legacy):
        with pytest.raises(ModelError, match=message) as caught:
            parse_named(form(content, protocol), "m.pth")
        assert str(caught.value).startswith("m.pth: ")


def test_a_small_file_cannot_name_a_dictionary_without_end() -> None:
    inner: dict[str, Any] = {"a": np.ones(2, np.float32)}
    for _ in range(20):
        inner = {str(n): inner for n in range(1000)}
    with pytest.raises(ModelError, match="holds no weights by name"):
        parse_named(zipped(inner), "m.pth")


def test_a_packed_member_is_measured_before_it_is_unpacked() -> None:
    import tracemalloc

    found = members(zipped(WANTED))
    found["archive/data/0"] = bytes(64 << 20)
    content = packed(found.items())
    tracemalloc.start()
    with pytest.raises(ModelError, match="'archive/data/0' has 67108864 bytes, more than"):
        parse_named(content, "m.pth")
    assert tracemalloc.get_traced_memory()[1] < 4 << 20
    tracemalloc.stop()
    found["archive/data/0"] = bytes(len(members(zipped(WANTED))["archive/data/0"]))
    locked = bytearray(packed(found.items()))
    at = locked.rindex(
        b"PK\x01\x02", 0, locked.index(b"archive/data/0", locked.index(b"PK\x01\x02"))
    )
    locked[at + 8] |= 1
    with pytest.raises(ModelError, match="'archive/data/0' is encrypted; pack it anew"):
        parse_named(bytes(locked), "m.pth")


def test_info_says_which_network_and_why(tmp_path: Path) -> None:
    path = tmp_path / "gan.ckpt"
    path.write_bytes(zipped({"params": OTHER, "params_ema": WANTED, "net_d": RIVAL}))
    words = "params_ema: averaged weights (EMA) come first; not taken: params"
    done = CliRunner().invoke(cli, ["models", "info", str(path)])
    assert done.exit_code == 0
    assert f"network: {words}" in done.output
    done = CliRunner().invoke(cli, ["models", "info", "--json", str(path)])
    assert json.loads(done.output)[0]["network"] == words
    path.write_bytes(zipped(WANTED))
    assert "network:" not in CliRunner().invoke(cli, ["models", "info", str(path)]).output


@pytest.mark.parametrize("suffix", [".pt", ".ckpt", ".param"])
def test_a_file_of_any_name_is_imported(
    suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "models"
    for module in ("waifu2x.networks.model_import", "waifu2x.networks.model_set"):
        monkeypatch.setattr(f"{module}.user_models", lambda: root)
    source = tmp_path / f"4x custom-model{suffix}"
    if suffix == ".param":
        text, weights = weight_files.ncnn_compact()
        source.write_text(text)
        source.with_suffix(".bin").write_bytes(weights)
    else:
        source.write_bytes(zipped(WANTED))
    done = CliRunner().invoke(cli, ["models", "import", str(source)])
    target = root / "imported" / "4x custom-model" / f"scale2.0x_model{suffix}"
    assert done.output.strip() == str(target)
    assert read_model(target).scale == 2
    assert [m.scale for m in model_set.find("imported/4x custom-model").models(2, None)] == [2]
