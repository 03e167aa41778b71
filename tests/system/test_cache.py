"""The cache folder: entries come back as they were, or not at all."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import platformdirs
import pytest
from click.testing import CliRunner
from PIL import Image

from waifu2x.cli import cli
from waifu2x.networks.readers.architectures import Layer
from waifu2x.networks.readers.waifu2x_json import NetworkWeights, dump
from waifu2x.system import cache
from waifu2x.system.files import write_atomically

KEY, OTHER = cache.digest("one"), cache.digest("two")
DIGEST = 32
"""Bytes before the content of an entry."""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "deep" / "cache"
    monkeypatch.setenv("WAIFU2X_CACHE_DIR", str(folder))
    return folder


def test_directory(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cache.directory() == folder
    assert not folder.exists()  # asking makes nothing
    monkeypatch.delenv("WAIFU2X_CACHE_DIR")
    assert cache.directory() == Path(platformdirs.user_cache_dir("waifu2x-kernels", False))
    monkeypatch.setenv("WAIFU2X_CACHE_DIR", "")
    assert cache.directory() == Path(platformdirs.user_cache_dir("waifu2x-kernels", False))


@pytest.mark.parametrize("content", [b"", b"x", bytes(range(256)) * 99])
def test_entries_come_back(content: bytes) -> None:
    assert cache.load("weights", KEY) is None
    cache.store("weights", KEY, content)
    assert cache.load("weights", KEY) == content
    assert cache.load("numba", KEY) is None
    cache.store("weights", KEY, b"replaced")
    assert cache.load("weights", KEY) == b"replaced"


@pytest.mark.parametrize("position", [0, 31, 32, -1])
def test_a_flipped_bit_loses_the_entry(folder: Path, position: int) -> None:
    cache.store("weights", KEY, b"content")
    stored = bytearray((folder / "weights" / KEY).read_bytes())
    stored[position] ^= 1
    (folder / "weights" / KEY).write_bytes(stored)
    assert cache.load("weights", KEY) is None
    cache.store("weights", KEY, b"content")
    assert cache.load("weights", KEY) == b"content"


@pytest.mark.parametrize("size", [0, 1, 31, 32, 38])
def test_a_cut_off_entry_is_lost(folder: Path, size: int) -> None:
    cache.store("weights", KEY, b"content")
    path = folder / "weights" / KEY
    path.write_bytes(path.read_bytes()[:size])
    assert cache.load("weights", KEY) is None


def test_a_folder_in_the_place_of_an_entry(folder: Path) -> None:
    (folder / "weights" / KEY).mkdir(parents=True)
    cache.store("weights", KEY, b"content")
    assert cache.load("weights", KEY) is None
    assert [path.name for path in (folder / "weights").iterdir()] == [KEY]


@pytest.mark.skipif(sys.platform == "win32", reason="no such files")
@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_what_is_no_regular_file_is_no_entry(folder: Path, kind: str) -> None:
    """To read it would never end, or never begin."""
    (folder / "weights").mkdir(parents=True, mode=0o700)
    path = folder / "weights" / KEY
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")
    code = f"from waifu2x.system import cache; print(cache.load('weights', {KEY!r}))"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "None\n"
    if kind == "pipe":
        cache.store("weights", KEY, b"content")
        assert cache.load("weights", KEY) == b"content"


def test_a_file_in_the_place_of_the_cache(folder: Path) -> None:
    folder.parent.mkdir()
    folder.write_bytes(b"mine")
    cache.store("weights", KEY, b"content")
    assert cache.load("weights", KEY) is None
    assert cache.usage() == []
    cache.clear()
    assert folder.read_bytes() == b"mine"


def test_folders_are_the_owners_alone(folder: Path) -> None:
    cache.store("numba", KEY, b"code")
    assert (folder / "numba").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777])
def test_code_that_others_could_have_written_is_not_used(folder: Path, mode: int) -> None:
    cache.store("numba", KEY, b"code")
    (folder / "numba").chmod(mode)
    assert cache.load("numba", KEY) is None
    cache.store("numba", OTHER, b"more")
    assert [path.name for path in (folder / "numba").iterdir()] == [KEY]
    assert cache.distrusted() == [folder / "numba"]
    result = CliRunner().invoke(cli, ["cache"])
    assert f"{folder / 'numba'}: it is not used, since others can write there" in result.stderr


def test_a_folder_of_somebody_else_is_not_used(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.store("numba", KEY, b"code")
    monkeypatch.setattr(os, "getuid", lambda: (folder / "numba").stat().st_uid + 1)
    assert cache.load("numba", KEY) is None


def test_what_was_not_used_for_longest_goes_first(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "MOST_BYTES", 3000)
    keys = [cache.digest(str(number)) for number in range(4)]
    for number, key in enumerate(keys[:3]):
        cache.store("weights" if number % 2 else "numba", key, bytes(900))
        path = folder / ("weights" if number % 2 else "numba") / key
        os.utime(path, (number, number))
    assert cache.load("numba", keys[0]) is not None  # now it is the newest
    cache.store("opencl", keys[3], bytes(900))
    left = [
        cache.load(kind, key) is not None
        for kind, key in zip(("numba", "weights", "numba", "opencl"), keys, strict=True)
    ]
    assert left == [True, False, True, True]
    # One that is too large alone is kept all the same: it was made for now.
    cache.store("opencl", OTHER, bytes(9000))
    assert cache.load("opencl", OTHER) is not None


def test_digests_tell_parts_apart() -> None:
    parts: list[tuple[bytes | str, ...]] = [
        ("ab", "c"),
        ("a", "bc"),
        ("abc",),
        ("abc", ""),
        ("", "abc"),
        ("c", "ab"),
        (),
        ("",),
    ]
    keys = [cache.digest(*each) for each in parts]
    assert len(set(keys)) == len(parts)
    assert cache.digest("ä", b"\x00") == cache.digest("ä".encode(), "\x00")
    assert all(key.isalnum() for key in keys)  # they serve as file names


def test_usage_and_clear(folder: Path) -> None:
    assert cache.usage() == []
    cache.store("weights", KEY, b"1234")
    cache.store("weights", OTHER, b"")
    cache.store("numba", KEY, b"12345678")
    assert cache.usage() == [
        cache.Usage("numba", 1, 8 + DIGEST),
        cache.Usage("weights", 2, 4 + 2 * DIGEST),
    ]
    cache.clear()
    assert cache.usage() == []
    assert list(folder.iterdir()) == []
    assert cache.load("weights", KEY) is None
    cache.store("weights", KEY, b"again")
    assert cache.load("weights", KEY) == b"again"


def test_an_entry_that_could_not_be_cleared_is_not_made() -> None:
    with pytest.raises(
        ValueError, match="accuracy, cuda, digests, numba, opencl, tuning, vulkan, weights"
    ):
        cache.store("thumbnails", KEY, b"")


FOREIGN = (
    "Documents/thesis.tex",
    f"Documents/{KEY}",
    "notes",
    KEY,
    "weights/model.onnx",
    "weights/.hidden",
    "weights/.other.part",
    f"weights/{KEY}.bak",
    f"weights/{KEY[:-1]}",
    f"weights/{KEY[:-1]}G",
    f"weights/nested/{KEY}",
    f"numba/{KEY}/file",
)


def test_files_of_others_stay(folder: Path) -> None:
    """The folder may be any: with WAIFU2X_CACHE_DIR=$HOME, the user's files are in it."""
    for name in FOREIGN:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"mine")
    assert cache.usage() == []
    cache.store("weights", OTHER, b"1234")
    cache.store("numba", OTHER, b"")
    assert [kind.files for kind in cache.usage()] == [1, 1]
    cache.clear()
    left = [path for path in folder.rglob("*") if path.is_file()]
    assert sorted(left) == sorted(folder / name for name in FOREIGN)


def test_what_a_killed_program_left_is_cleared(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "numba").mkdir(parents=True)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", lambda path, missing_ok=False: None)  # killed before that
        patch.setattr(os, "fsync", lambda descriptor: 1 / 0)
        with contextlib.suppress(ZeroDivisionError):
            write_atomically(folder / "numba" / KEY, b"123")
    [path] = (folder / "numba").iterdir()
    assert path.name.endswith(".part")
    assert cache.usage() == [cache.Usage("numba", 1, 3)]
    cache.clear()
    assert not (folder / "numba").exists()


def test_two_programs_clear_at_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.store("weights", KEY, b"")
    cache.store("weights", OTHER, b"")
    lstat, unlink = Path.lstat, Path.unlink

    # os.unlink below, since Path's is replaced.
    def late_lstat(path: Path) -> os.stat_result:
        if path.name == KEY:
            os.unlink(path)  # noqa: PTH108
        return lstat(path)

    def late_unlink(path: Path, missing_ok: bool = False) -> None:
        if path.exists():
            shutil.rmtree(path.parent)
        unlink(path, missing_ok)

    monkeypatch.setattr(Path, "lstat", late_lstat)
    monkeypatch.setattr(Path, "unlink", late_unlink)
    cache.clear()
    assert not (folder / "weights").exists()


def refuse(path: Path) -> None:
    raise PermissionError(13, "Permission denied", str(path))


@pytest.mark.parametrize("command", ["info", "clear"])
def test_an_unreadable_folder_is_one_line(
    folder: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    cache.store("weights", KEY, b"")
    monkeypatch.setattr(Path, "iterdir", refuse)
    result = CliRunner().invoke(cli, ["cache", command])
    assert result.exit_code == 1
    assert result.stderr.startswith(f"Error: {folder}")
    assert "permission denied; check" in result.stderr
    assert result.stderr.count("\n") == 1


def no_home(appname: str, appauthor: bool) -> Path:
    raise RuntimeError("Could not determine home directory.")


@pytest.mark.parametrize("answer", [no_home, lambda *names: Path("~/.cache/waifu2x-kernels")])
def test_without_a_home_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: object
) -> None:
    monkeypatch.delenv("WAIFU2X_CACHE_DIR")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(platformdirs, "user_cache_path", answer)
    assert cache.directory() is None
    cache.store("weights", KEY, b"content")
    assert cache.load("weights", KEY) is None
    assert cache.usage() == []
    for command in ("info", "clear"):
        result = CliRunner().invoke(cli, ["cache", command])
        assert (result.exit_code, result.stderr) == (0, "")
        assert result.stdout == (
            "No cache: there is no home directory to keep it in; set WAIFU2X_CACHE_DIR.\n"
        )
    result = CliRunner().invoke(cli, ["cache", "info", "--json"])
    assert json.loads(result.stdout) == {"folder": None, "kinds": {}}
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setenv("WAIFU2X_CACHE_DIR", str(tmp_path))
    cache.store("weights", KEY, b"content")
    assert cache.load("weights", KEY) == b"content"


def test_compiled_code_without_a_home_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    from waifu2x.backends.cpu.compile.compiled import Compiled
    from waifu2x.backends.cpu.pack.records import PLACES, TASK
    from waifu2x.backends.cpu.pack.shapes import LANES, PEAK_DEPTH, WIDTHS, tile_height

    monkeypatch.delenv("WAIFU2X_CACHE_DIR")
    monkeypatch.setattr(platformdirs, "user_cache_path", no_home)
    inputs, results = (
        PEAK_DEPTH * tile_height(WIDTHS[0]),
        tile_height(WIDTHS[0]) * WIDTHS[0] * LANES,
    )
    scratch, weights = np.ones(inputs + results, np.float32), np.ones(8192, np.float32)
    task, places = np.zeros(1, TASK), np.zeros(PLACES, np.int64)
    Compiled("loops", "vector_loop")(1, task, places, scratch, weights)
    np.testing.assert_array_equal(scratch, np.repeat([1, PEAK_DEPTH], [inputs, results]))


def test_machine_code_that_does_not_load_is_compiled_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from waifu2x.backends.cpu.compile.compiled import Compiled, _image_key

    made = Compiled("loops", "vector_loop").compiled()
    built: list[bytes] = []

    def counted(self: Compiled) -> bytes:
        built.append(made)
        return made

    def run() -> Compiled:
        loop = Compiled("loops", "vector_loop")
        loop(0, *(np.zeros(1, np.float32) for _ in range(4)))
        return loop

    monkeypatch.setattr(Compiled, "compiled", counted)
    key = run().key()
    run()
    assert len(built) == 1
    for damaged in (b"", b"symbol\0" + b"no code " * 9, b"no_such" + made, made[: len(made) // 2]):
        cache.store("numba", key, damaged)
        cache.store("numba", _image_key(key), damaged)
        built.clear()
        run()
        run()
        assert len(built) == 1
        assert cache.load("numba", key) == made


@pytest.mark.matrix
def test_code_is_compiled_once_and_again_where_it_is_damaged(tmp_path: Path) -> None:
    layer = Layer("convolution", np.ones((3, 3, 3, 3), np.float32), np.zeros(3, np.float32))
    (tmp_path / "scale2.0x_model.json").write_bytes(dump(NetworkWeights("vgg_1", [layer])))
    code = f"""
import sys
from waifu2x.__main__ import main
sys.argv[1:1] = ["upscale", "-v", "--backend", "cpu", "-m", {str(tmp_path)!r}]
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
"""
    Image.fromarray(np.arange(192, dtype=np.uint8).reshape(8, 8, 3)).save(tmp_path / "in.png")
    environment = os.environ | {"WAIFU2X_CACHE_DIR": str(tmp_path / "cache")}

    def start(name: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", code, str(tmp_path / "in.png"), str(tmp_path / name)]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, env=environment, stdout=pipe, stderr=pipe, text=True)

    def run(is_compiled: bool, *names: str) -> dict[Path, int]:
        for process in [start(name) for name in names]:
            _, said = process.communicate()
            assert process.returncode == 0, said
            compiling = "compiling for this processor, once: some seconds\n"
            assert said.count(compiling) == is_compiled, said
        assert len({(tmp_path / name).read_bytes() for name in ("0.png", *names)}) == 1
        found = {path: path.stat().st_ino for path in (tmp_path / "cache/numba").iterdir()}
        # Two that compile the same leave one entry of each: code and its image, of what one layer
        # needs (`run_strips`, reading, the layer, writing); and what the compiler says of the
        # processor, where the system does not.
        assert len(found) in (2 * 4, 2 * 4 + 1)
        return found

    cold = run(True, "0.png", "1.png")  # at once
    assert run(False, "2.png") == cold
    for path in cold:
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 255
        path.write_bytes(content)
    assert run(True, "3.png").keys() == cold.keys()
