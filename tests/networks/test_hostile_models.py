"""Model files of strangers: each ends in a sentence, within bounded memory and time."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import textwrap
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from tests.helpers import family_weights, weight_files
from tests.helpers.family_weights import filled
from tests.helpers.weight_files import Pickle, View, new_file, old_file, pth, safetensors
from waifu2x.cli import cli
from waifu2x.errors import ModelError
from waifu2x.networks import model_set
from waifu2x.networks.model_import import import_models
from waifu2x.networks.readers import parse_named, read_model, waifu2x_json
from waifu2x.networks.readers.ncnn import reader as ncnn

ROOT = Path(__file__).parents[2]
FORMS: dict[str, Callable[[Pickle], bytes]] = {"zip": new_file, "legacy": old_file}

needs_pipes = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes in folders here")


def refused(content: bytes, message: str, name: str = "m.pth") -> None:
    with pytest.raises(ModelError, match=message) as caught:
        parse_named(content, name)
    text = str(caught.value)
    assert text.startswith(f"{name}: ")
    assert text.isprintable()
    assert len(text) < 250


# A storage must be for every tensor what it says it is.


def twice(second: View, form: str) -> bytes:
    """A network whose last bias is a second tensor of the storage of the first."""
    tensors: dict[str, Any] = dict(weight_files.compact(1, 3, 0))
    numbers = tensors["body.0.bias"].reshape(-1)
    tensors["body.0.bias"] = View(numbers, 0, (3,), (1,), key="shared")
    tensors["body.2.bias"] = second
    pickle = Pickle(legacy=form == "legacy")
    pickle.add(tensors)
    pickle.storages["shared"] = weight_files.raw(numbers, "f32")
    pickle.counts["shared"] = 3
    return FORMS[form](pickle)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("second", "message"),
    [
        (View(np.zeros(3, "f4"), 1 << 30, (3,), (1,), key="shared", count=1 << 39), "of two kinds"),
        (View(np.zeros(3, "f4"), 0, (3,), (1 << 20,), key="shared", count=1 << 39), "of two kinds"),
        (View(np.zeros(3, "f4"), 0, (3,), (1,), key="shared", dtype="f64"), "of two kinds"),
        (View(np.zeros(3, "f4"), 0, (3,), (1,), key="shared", dtype="f16"), "of two kinds"),
        (View(np.zeros(3, "f4"), 1, (3,), (1,), key="shared"), "reaches beyond its data"),
        (View(np.zeros(3, "f4"), 0, (2, 2), (1, 1), key="shared"), "its numbers overlap"),
        (View(np.zeros(3, "f4"), 2, (3,), (-1,), key="shared"), "a tensor without a shape"),
        (View(np.zeros(3, "f4"), 0, (1 << 39,), (1,), key="shared"), "reaches beyond its data"),
    ],
)
def test_a_storage_is_the_same_for_all_of_its_tensors(
    form: str, second: View, message: str
) -> None:
    fits = View(np.zeros(3, "f4"), 0, (3,), (1,), key="shared")
    assert parse_named(twice(fits, form), "m.pth").scale == 1
    refused(twice(second, form), message)


@pytest.mark.parametrize("size", [4, 8, 16])
def test_a_storage_has_the_bytes_that_it_says(size: int) -> None:
    tensors = weight_files.compact(1, 3, 0)
    pickle = Pickle()
    pickle.add(tensors)
    key = list(tensors).index("body.0.bias")
    pickle.storages[str(key)] = bytes(size)
    refused(new_file(pickle), "damaged: data .* has")


def test_members_that_overlap() -> None:
    content = bytearray(pth(weight_files.compact(1, 3, 0)))
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        first, second = (archive.getinfo(f"archive/data/{key}") for key in (1, 2))
    directory = content.index(b"PK\x01\x02")
    for found in re.finditer(rb"PK\x01\x02", content[directory:]):
        at = directory + found.start()
        if content[at + 42 : at + 46] == second.header_offset.to_bytes(4, "little"):
            content[at + 42 : at + 46] = first.header_offset.to_bytes(4, "little")
    refused(bytes(content), "its members overlap")


# Pickles that never end, or take all memory.


def nested(step: bytes, times: int) -> bytes:
    return b"K\x01" + step * times


BOMBS = {
    "a tuple of itself twice, sixty times, as a key": b"}" + nested(b"2\x86", 60) + b"K\x01s",
    "the same among items": b"}(" + nested(b"2\x86", 60) + b"K\x01u",
    "the same as OrderedDict's argument": b"ccollections\nOrderedDict\n]("
    + nested(b"2\x86", 60)
    + b"K\x01\x86e\x85R",
    "nested tuples as a key": b"}" + nested(b"\x85", 200_000) + b"K\x01s",
    "nested tuples": nested(b"\x85", 50_000),
    "nested lists": b"]" * 9000 + b"a" * 8999,
    "a list in itself": b"]q\x00h\x00ah\x00a",
    "a list filled once it is part of another": b"]q\x00]h\x00ah\x00K\x01a0",
    "one long list made a dictionary, again and again": b"ccollections\nOrderedDict\nq\x01]("
    + b"".join(b"X\x04\0\0\0%04dK\x01\x86" % number for number in range(2000))
    + b"eq\x00"
    + b"h\x01h\x00\x85R0" * 400
    + b"h\x01h\x00\x85R",
    "an attribute for a name": b"ccollections\nOrderedDict\n}b",
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("bomb", BOMBS)
def test_pickles_are_bounded(form: str, bomb: str) -> None:
    pickle = Pickle()
    pickle.code += BOMBS[bomb]
    refused(FORMS[form](pickle), "keys are neither|nested more|more entries|damaged: ")


def test_numbers_as_keys_are_read() -> None:
    """Optimizers' states have them."""
    pickle = Pickle()
    pickle.add({"params": weight_files.compact(1, 3, 0)})
    # The same dictionary once more, with another that has a number as key.
    pickle.code += b"X\x09\x00\x00\x00optimizer}K\x00K\x01ss"
    assert parse_named(new_file(pickle), "m.pth").scale == 1


def test_a_whole_module_is_told_how_to_be_saved() -> None:
    pickle = Pickle()
    pickle.code += b"c__main__\nNet\n)\x81"
    refused(new_file(pickle), r"holds a whole module .*; save model\.state_dict\(\)")
    refused(pth({"epoch": 7, "loss": 3}), "holds no weights by name; save model.state_dict()")


# Few bytes that ask for many: in a process that may not have many.


BOUNDED = {
    "planes of an Input": """
        text = b"7767517\\n2 2\\nInput a 0 1 a 2=1000000000\\nBinaryOp b 1 1 a b 0=2 1=1 2=3"
        refuse(lambda: ncnn.parse(text, b"", "m"))
    """,
    "planes of an affine layer": """
        lines = ["Input data 0 1 b0 2=60000"]
        lines += [f"BinaryOp b{n} 1 1 b{n} b{n + 1} 0=2 1=1 2=3" for n in range(9)]
        text = "\\n".join(["7767517", f"{len(lines)} {len(lines)}", *lines])
        refuse(lambda: ncnn.parse(text.encode(), b"", "m"))
    """,
    "planes that double": """
        lines = ["Input data 0 1 data 2=3"]
        for n in range(2000):
            lines += [f"Split s{n} 1 2 {n and f'c{n-1}' or 'data'} a{n} b{n}"]
            lines += [f"Concat c{n} 2 1 a{n} b{n} c{n}"]
        text = "\\n".join(["7767517", f"{len(lines)} {1 + 3 * 2000}", *lines])
        refuse(lambda: ncnn.parse(text.encode(), b"", "m"))
    """,
    "objects of JSON": """
        refuse(lambda: waifu2x_json.parse(b"[" + b"{}," * 8_000_000 + b"{}]", "m"))
    """,
    "lists of JSON, packed": """
        packed = gzip.compress(b"[" + b"[]," * 8_000_000 + b"[]]", 1)
        refuse(lambda: waifu2x_json.parse(packed, "m"))
    """,
    "dictionaries of a pickle": """
        pickle = Pickle()
        pickle.code += b"}" * 8_000_000
        refuse(lambda: parse_named(new_file(pickle), "m.pth"))
    """,
    "entries of an archive": """
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w") as archive:
            archive.writestr("a/data.pkl", b"")
        entry = packed.getvalue()
        at = entry.index(b"PK\\x01\\x02")
        end = entry.index(b"PK\\x05\\x06")
        many = 1_000_000
        size = (end - at) * many
        tail = entry[end : end + 8] + b"\\xff" * 4 + size.to_bytes(4, "little") + entry[end + 16 :]
        refuse(lambda: parse_named(entry[:at] + entry[at:end] * many + tail, "m.pth"))
    """,
    "a tensor of one number": """
        view = View(np.zeros(1, np.float32), 0, (11000, 11000, 1, 1), (0, 0, 0, 0))
        tensors = {"net.0.weight": view, "net.2.weight": np.zeros(1, "f4")}
        refuse(lambda: parse_named(pth(tensors), "m.pth"))
    """,
    "parts of a SPAN": """
        shapes = {"conv.0": (1, 2000, 1, 1), "conv.1": (1, 1, 3, 3), "conv.2": (2000, 1, 1, 1)}
        shapes["sk"] = (2000, 2000, 1, 1)
        tensors = {f"conv_1.{key}.weight": np.zeros(each, "f4") for key, each in shapes.items()}
        for key in ("conv_cat.weight", "upsampler.0.weight", "block_1.c1_r.sk.bias"):
            tensors[key] = np.zeros(1, "f4")
        refuse(lambda: parse_named(pth(tensors), "m.pth"))
    """,
    "the mean of a picture of 60,000 planes": """
        first = "layers.0.residual_group.blocks.0"
        shapes = {"conv_first.weight": (1, 60000, 3, 3), "conv_first.bias": (1,)}
        shapes |= {f"{first}.attn.qkv.weight": (3, 1), f"{first}.mlp.fc1.weight": (2, 1)}
        shapes[f"{first}.attn.relative_position_bias_table"] = (225, 1)
        tensors = {key: np.zeros(each, "f4") for key, each in shapes.items()}
        refuse(lambda: parse_named(pth(tensors), "m.pth"))
    """,
    "biases of DAT by a layer of 30,000": """
        shapes = dat(window=(64, 64))
        key = "layers.0.blocks.0.attn.attns.0.pos.pos_proj"
        shapes |= {f"{key}.weight": (30000, 2), f"{key}.bias": (30000,)}
        tensors = filled(shapes, window=(64, 64))
        refuse(lambda: parse_named(pth(tensors), "m.pth"))
    """,
    "Anime4K for a picture of 3,000 planes": """
        kernels = np.zeros((1, 3000, 3, 3)).tolist(), np.zeros((1, 2, 3, 3)).tolist()
        layers = [{"weight": kernel, "bias": [0]} for kernel in kernels]
        layers[0]["model_config"] = {"arch_name": "anime4k_2x"}
        refuse(lambda: waifu2x_json.parse(json.dumps(layers).encode(), "m.json"))
    """,
}


@pytest.mark.parametrize(
    ("shapes", "key", "size", "layer"),
    [
        (family_weights.spanf3(), "block_1.c1_r.conv.0.weight", 1e30, "block_1.c1_r"),
        (family_weights.edsr(), "sub_mean.weight", 3e38, "sub_mean"),
        (
            family_weights.dat(),
            "layers.0.blocks.0.attn.dwconv.0.weight",
            3e38,
            "layers.0.blocks.0.attn.dwconv.0",
        ),
    ],
    ids=["SPANF3", "EDSR", "DAT"],
)
def test_weights_that_become_infinite_are_refused(
    shapes: dict[str, tuple[int, ...]], key: str, size: float, layer: str
) -> None:
    """Numbers of a file that are finite, but not what is computed of them."""
    tensors = filled(shapes)
    for each in (key, key.replace("conv.0", "conv.1")):
        tensors[each] = np.full_like(tensors[each], size)
    message = f"{layer}: its numbers become too large for single precision"
    refused(pth(tensors), re.escape(message))


@pytest.mark.parametrize(
    "last",
    [
        "Eltwise z 2 1 b c d 0=1 -23301=2,1e39,1.0",
        "BinaryOp z 1 1 b d 0=2 1=1 2=1e39",
        "BinaryOp z 1 1 b d 0=3 1=1 2=1e-45",
    ],
)
def test_numbers_of_text_that_are_infinite_as_floats_are_refused(last: str) -> None:
    rows = ["7767517", "3 4", "Input i 0 1 a 2=3", "Split s 1 2 a b c", last]
    with pytest.raises(ModelError, match=r"^m: line 5 \(\w+ z\): its numbers become too large"):
        ncnn.parse("\n".join(rows).encode(), b"", "m")


PROGRAM = """
import gzip, io, json, resource, signal, zipfile
import numpy as np
from tests.helpers.family_weights import dat, filled
from tests.helpers.weight_files import Pickle, View, new_file, pth
from waifu2x.errors import ModelError
from waifu2x.networks.readers import chainer, parse_named, waifu2x_json
from waifu2x.networks.readers.ncnn import reader as ncnn

def refuse(read):
    size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (size + (400 << 20), before[1]))
    signal.alarm(30)
    try:
        read()
    except ModelError as error:
        assert len(str(error)) < 250
        assert "MemoryError" not in str(error), error
    else:
        raise AssertionError("was read")
    signal.alarm(0)
    resource.setrlimit(resource.RLIMIT_AS, before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="address space is bounded as Linux does")
def test_few_bytes_do_not_ask_for_many() -> None:
    parts = [textwrap.dedent(code) + f"print({word!r})\n" for word, code in BOUNDED.items()]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM + "".join(parts)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},
    )
    assert done.stdout.splitlines() == list(BOUNDED), done.stderr


def test_scale_is_bounded() -> None:
    lines = ["Input data 0 1 b 2=3"]
    for n in range(60):
        lines.append(f"Interp i{n} 1 1 {(n and f'i{n - 1}') or 'b'} i{n} 0=1 1=64.0 2=64.0")
    text = "\n".join(["7767517", "61 61", *lines]).encode()
    with pytest.raises(
        ModelError, match=r"line 5 \(Interp i1\): its map is 4096 times the picture"
    ):
        ncnn.parse(text, b"", "m")
    text = "\n".join(["7767517", "2 2", *lines[:2]]).encode()
    assert ncnn.parse(text, b"", "m").scale == 64


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_what_unpacks_to_no_known_size_is_not_unpacked(tmp_path: Path, method: int) -> None:
    source = tmp_path / "models.zip"
    with zipfile.ZipFile(source, "w", method) as archive:
        archive.writestr("a/b/noise1_model.json", _json())
    with pytest.raises(ModelError, match=f"packed by method {method} of zip files: only deflate"):
        import_models(source, tmp_path / "models", None)


# Reading takes about as much memory as the weights.


def memory_of(read: Callable[[], Any]) -> int:
    read()
    tracemalloc.start()
    try:
        kept = read()
        peak = tracemalloc.get_traced_memory()[1]
        del kept
    finally:
        tracemalloc.stop()
    return peak


@pytest.mark.parametrize(
    ("form", "most"),
    [
        (lambda tensors: (pth(tensors), "m.pth"), 1.3),
        # Its numbers begin at any byte: those that are not aligned are copied.
        (lambda tensors: (pth(tensors, legacy=True), "m.pth"), 2.2),
        (lambda tensors: (safetensors(tensors), "m.safetensors"), 1.3),
        (lambda tensors: (pth(tensors, "f16"), "m.pth"), 1.8),
        (lambda tensors: (pth(tensors, "bf16"), "m.pth"), 1.8),
    ],
    ids=["pth", "legacy", "safetensors", "f16", "bf16"],
)
def test_weights_are_copied_once_at_most(tmp_path: Path, form: Any, most: float) -> None:
    tensors = weight_files.compact(2, 192, 8)
    content, name = form(tensors)
    (tmp_path / name).write_bytes(content)
    weights = sum(array.nbytes for array in tensors.values())
    assert weights > 8 << 20
    assert memory_of(lambda: read_model(tmp_path / name)) < most * weights


# Paths that are no file, and names that are orders to a terminal.


@needs_pipes
@pytest.mark.parametrize("name", ["m.json", "m.param", "m.npz", "m.pth", "m.safetensors", "m.zip"])
@pytest.mark.parametrize("kind", ["pipe", "device", "folder"])
def test_only_regular_files_are_read(tmp_path: Path, name: str, kind: str) -> None:
    path = tmp_path / name
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        path.mkdir()
    with pytest.raises(ModelError, match=r"cannot read the model: (not a regular file|is a dir)"):
        import_models(path, tmp_path / "models", "a/b")
    if name != "m.zip":
        with pytest.raises(ModelError, match=r"not a regular file|is a directory"):
            read_model(path)
    if kind != "folder":
        with pytest.raises(ModelError, match="not a model file"):
            model_set.find(str(path))


def test_names_are_no_orders_to_a_terminal(tmp_path: Path) -> None:
    source = tmp_path / "models.zip"
    text = waifu2x_json.dump(waifu2x_json.parse(_json(), "m")[0])
    with zipfile.ZipFile(source, "w") as archive:
        archive.writestr("a/\x1b[2J/noise1_model.json", text)
        archive.writestr("a/b\nc/noise1_model.json", text)
        archive.writestr("a/b/noise1_model.json", text)
        archive.writestr("a/\x1b[2Jd/noise2_model.json", b"{}")
        archive.writestr(f"a/{'b' * 60_000}/noise2_model.json", text)
    target = tmp_path / "models"
    done = CliRunner().invoke(cli, ["models", "import", str(source), str(target)])
    assert done.exit_code == 0
    assert [path.name for path in (target / "a").iterdir()] == ["b"]
    assert "\x1b" not in done.output + done.stderr
    assert "characters that cannot be shown" in done.stderr
    assert max(map(len, done.stderr.splitlines())) < 250


def test_folders_that_are_orders_to_a_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("model_import", "model_set"):
        monkeypatch.setattr(f"waifu2x.networks.{module}.user_models", lambda: tmp_path)
    folder = tmp_path / "a" / "\x1b[2J"
    folder.mkdir(parents=True)
    (folder / "noise1_model.json").write_bytes(_json())
    for arguments in (["list"], ["list", "--json"], ["info", "a/\x1b[2J"]):
        done = CliRunner().invoke(cli, ["models", *arguments])
        assert done.exit_code == 0
        assert "\x1b" not in done.output
        assert "x1b[2J" in done.output or "u001b[2J" in done.output


def test_models_of_an_archive_are_not_compared_in_pairs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, count = tmp_path / "models.zip", 100
    with zipfile.ZipFile(source, "w") as archive:
        for number in range(count):
            archive.writestr(f"a/b{number}/noise1_model.json", _json())
    asked: list[str] = []
    plain = Path.with_suffix

    def counted(path: Path, suffix: str) -> Path:
        asked.append(suffix)
        return plain(path, suffix)

    monkeypatch.setattr(Path, "with_suffix", counted)
    assert len(import_models(source, tmp_path / "models", None)) == count
    assert count < len(asked) < 20 * count


def test_an_error_is_one_line() -> None:
    assert str(ModelError("a\x1b[2J\n\u202eb: gone")) == r"a\x1b[2J\n\u202eb: gone"
    assert str(ModelError("ä: fehlt")) == "ä: fehlt"


def _json() -> bytes:
    kernel = np.zeros((3, 3, 3, 3)).tolist()
    return json.dumps([{"weight": kernel, "bias": [0, 0, 0]}]).encode()


# Damage at random.


@pytest.mark.skipif(sys.platform != "linux", reason="address space is bounded as Linux does")
@pytest.mark.parametrize(
    "cases",
    [
        100,
        pytest.param(6_000, marks=pytest.mark.matrix),
        pytest.param(20_000, marks=pytest.mark.long),
    ],
    ids=["some", "many", "most"],
)
def test_damaged_files_end_in_a_sentence(cases: int) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.helpers.model_fuzz", str(cases), "0"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    counts = json.loads(done.stdout)
    assert counts["refused"] + counts["read"] == 9 * cases
    assert counts["refused"] > 5 * cases
    assert counts["read"] > cases // 2


# Harm that was meant.


@pytest.mark.skipif(sys.platform != "linux", reason="address space is bounded as Linux does")
@pytest.mark.parametrize(
    "every", [16, pytest.param(1, marks=pytest.mark.matrix)], ids=["some", "all"]
)
def test_attacks_are_refused_and_open_nothing(tmp_path: Path, every: int) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.helpers.model_attacks", str(tmp_path), str(every)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    counts = json.loads(done.stdout)
    assert counts["refused"] > 750 // every
    assert counts["read"] < 70 // every + 2
