"""Compiled code: its key, which holds everything that is compiled in and nothing else; how it is
kept and put into memory."""

from __future__ import annotations

import ast
import contextlib
import ctypes
import math
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import llvmlite.binding as llvm
import pytest

from waifu2x.backends.cpu.compile import carried, code_image, compiled, host
from waifu2x.backends.cpu.compile.code_image import UnlinkableError, loaded, packed
from waifu2x.backends.cpu.compile.compiled import Compiled
from waifu2x.backends.cpu.compile.object_file import linked
from waifu2x.system import cache, sources

PACKAGE = Path(compiled.__file__).parents[3]


def imported(path: Path) -> set[Path]:
    """The files of the package that a file imports."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        for name in names:
            if name.startswith("waifu2x."):
                file = PACKAGE.joinpath(*name.split(".")[1:])
                if file.with_suffix(".py").is_file():
                    found.add(file.with_suffix(".py"))
                elif name == getattr(node, "module", "") and (file / "__init__.py").is_file():
                    found.add(file / "__init__.py")
    return found


def test_the_key_holds_all_that_kernels_import() -> None:
    reached = set((PACKAGE / "backends/cpu/kernels").glob("*.py"))
    asked = {PACKAGE / "backends/cpu/compile/host.py"}  # what it says is in the key
    while new := {file for path in reached for file in imported(path)} - reached - asked:
        reached |= new
    found = {path for pattern in compiled.SOURCES for path in PACKAGE.glob(pattern)}
    assert found == reached


def copied(folder: Path) -> Path:
    """A copy of the package's sources."""
    shutil.copytree(PACKAGE, folder / "waifu2x", ignore=shutil.ignore_patterns("*.pyc"))
    return folder / "waifu2x"


def test_a_changed_source_is_another_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def key() -> str:
        compiled.code.cache_clear()
        return Compiled("strip", "run_strips").key()

    before = key()
    copy = copied(tmp_path)
    monkeypatch.setattr(sources, "PACKAGE", copy)
    assert key() == before
    paths = [path for pattern in compiled.SOURCES for path in copy.glob(pattern)]
    assert len(paths) > 15
    for path in paths:
        text = path.read_text()
        path.write_text(text + "\n")
        assert key() != before, path
        path.write_text(text)
    assert key() == before
    monkeypatch.undo()
    assert key() == before


def test_versions_are_those_which_pip_installed() -> None:
    """They are found in another way, which takes less time."""
    assert compiled.environment()[2:4] == (version("numba"), version("llvmlite"))


images = pytest.mark.skipif(not code_image.is_possible(), reason="no images on this system")


def object_code(text: str) -> bytes:
    """Compiles LLVM IR by LLVM itself."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_default_triple()
    machine = target.create_target_machine(reloc="default", codemodel="large", jit=True)
    return bytes(machine.emit_object(llvm.parse_assembly(text)))


SMALL = """
@table = private unnamed_addr constant [4 x i32] [i32 7, i32 11, i32 13, i32 17], align 16
@entries = private unnamed_addr constant [2 x ptr] [ptr @double, ptr @square], align 8
declare double @cos(double)
define i32 @double(i32 %x) noinline { %r = shl i32 %x, 1 ret i32 %r }
define i32 @square(i32 %x) noinline { %r = mul i32 %x, %x ret i32 %r }
define i32 @main(ptr %out, i64 %at, i64 %which) {
  %p = getelementptr [4 x i32], ptr @table, i64 0, i64 %at
  %x = load i32, ptr %p
  %q = getelementptr [2 x ptr], ptr @entries, i64 0, i64 %which
  %f = load ptr, ptr %q
  %r = call i32 %f(i32 %x)
  %d = sitofp i32 %x to double
  %c = call double @cos(double %d)
  store double %c, ptr %out
  ret i32 %r
}
"""


@images
def test_an_image_computes_what_its_code_says() -> None:
    """Constants, tables of addresses, calls inside and to the C library."""
    code = object_code(SMALL)
    out = ctypes.c_double()
    for _ in range(3):  # anywhere in memory
        function, held = loaded(packed(linked(code, "main")))
        for at, number in enumerate((7, 11, 13, 17)):
            for which, expected in enumerate((2 * number, number * number)):
                arguments = ctypes.byref(out), ctypes.c_int64(at), ctypes.c_int64(which)
                assert function(*arguments) == expected
                assert out.value == math.cos(number)
        del held


@images
@pytest.mark.parametrize(
    "text",
    [
        "@count = global i32 1\ndefine i32 @main() { store i32 2, ptr @count ret i32 0 }",
        "define i32 @other() { ret i32 0 }",
        "@count = thread_local global i32 1\ndefine i32 @main() { ret i32 0 }",
    ],
    ids=["written", "missing", "threads"],
)
def test_what_an_image_cannot_hold_has_none(text: str) -> None:
    with pytest.raises(UnlinkableError):
        linked(object_code(text), "main")


@images
def test_damaged_objects_and_images_are_refused_or_harmless() -> None:
    """Whatever a byte is: no crash, no endless loop, no other error."""
    code = object_code(SMALL)
    image = packed(linked(code, "main"))
    with pytest.raises(UnlinkableError):
        linked(b"", "main")
    for end in (0, 1, 31, 40, 63, len(image) // 2, len(image) - 1):
        with pytest.raises(UnlinkableError):
            loaded(image[:end])
    for place in range(0, len(code), 3):
        for value in (0, 0x7F, 0xFF):
            changed = bytearray(code)
            changed[place] = value
            with contextlib.suppress(UnlinkableError):
                linked(bytes(changed), "main")
    unknown = image.replace(b"cos\0", b"no_such_function"[:3] + b"\0")
    with pytest.raises(UnlinkableError):
        loaded(unknown)


USED = """
import sys
import numpy as np
from waifu2x import Upscaler
from waifu2x.backends.cpu.compile import code_image
{change}
with Upscaler(model={model!r}, backend="cpu") as upscaler:
    result = upscaler(np.arange(27, dtype=np.uint8).reshape(3, 3, 3))
print(result.tobytes().hex(), "llvmlite" in sys.modules, "numba" in sys.modules)
"""


def used(change: str = "") -> list[str]:
    """Enlarges a small picture in a new process; says whether LLVM and Numba were loaded."""
    code = USED.format(change=change, model="vgg_7")
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()


@images
def test_a_warm_process_loads_neither_llvm_nor_numba() -> None:
    """And where images cannot be run, LLVM takes the object code; results are the same."""
    first = used()
    assert used() == [first[0], "False", "False"]
    assert used("code_image.is_possible = lambda: False") == [first[0], "True", "False"]
    refused = """
def refuse(*arguments):
    raise OSError(13, "no")
code_image._let_run = refuse
"""
    assert used(refused) == [first[0], "True", "False"]


@images
def test_an_image_that_is_lost_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(carried, "find", lambda *wanted: None)
    Compiled("strip", "run_strips").load()
    key = compiled._image_key(Compiled("strip", "run_strips").key())
    image = cache.load("numba", key)
    assert image is not None
    cache.store("numba", key, image[: len(image) // 2])
    Compiled("strip", "run_strips").load()
    assert cache.load("numba", key) == image


def test_the_processor_is_what_llvm_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """As far as the system tells it, in other words."""
    found = llvm.get_host_cpu_features()
    assert host.host().triple == llvm.get_process_triple()
    asked = {feature for target in carried.SETS for feature in target.features}
    for feature in sorted(asked & set(found)):
        assert host.has(feature) == host.host().has(feature) == found[feature], feature
    monkeypatch.setattr(host, "_flags", frozenset)
    for feature in sorted(asked & set(found)):
        assert host.has(feature) == found[feature]


@pytest.mark.parametrize(
    "text",
    [
        "processor : 0\nmodel : 17\ncpu MHz : {}\nflags : fpu avx2 amx_tile\n",
        "processor : 0\nFeatures : fp asimd\nCPU part : 0xd0c\nBogoMIPS : {}\n",
    ],
)
def test_what_changes_of_a_processor_is_no_key(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = []
    for words in (text.format(1), text.format(2), text.replace("fp", "fq").format(1)):
        monkeypatch.setattr(host, "processor_text", lambda words=words: words)
        keys.append(host.described.__wrapped__())
    assert keys[0] == keys[1] != keys[2]
    assert len(keys[0]) == 3
    monkeypatch.setattr(host, "processor_text", lambda: "")
    assert host.described.__wrapped__() == host.host()
