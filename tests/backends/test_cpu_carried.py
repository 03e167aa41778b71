"""Code that a wheel carries: when it is taken, and that all else is compiled as without it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from waifu2x.backends.cpu.compile import carried, code_image, compiled, host, isa
from waifu2x.backends.cpu.compile.carried import SETS, InstructionSet
from waifu2x.backends.cpu.compile.compiled import Compiled, parts
from waifu2x.backends.cpu.compile.object_file import linked
from waifu2x.system import cache, resources

pytestmark = pytest.mark.skipif(
    not code_image.is_possible(), reason="code is carried for Linux on x86-64 alone"
)
OWN = InstructionSet("own", isa.VECTOR.name, "", ())
ENTRY = "planar", "read_exactly"


@pytest.fixture(scope="module")
def object_code() -> bytes:
    """The symbol and the code of an entry point."""
    return Compiled(*ENTRY).compiled()


@pytest.fixture
def built(
    object_code: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[list[str]]:
    """The names of what is compiled; a package that carries the entry point, and an empty
    cache."""
    names: list[str] = []

    def made(self: Compiled) -> bytes:
        names.append(self.name)
        return object_code

    folder = tmp_path / "machine_code"
    folder.mkdir()
    monkeypatch.setattr(resources, "shipped_code", lambda: folder)
    monkeypatch.setenv("WAIFU2X_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(carried, "SETS", (OWN,))
    monkeypatch.setattr(Compiled, "compiled", made)
    carried.target.cache_clear()
    symbol, code = parts(object_code)
    entry = cache.packed(code_image.packed(linked(code, symbol)))
    (folder / carried.key(OWN, *ENTRY, compiled.code())).write_bytes(entry)
    yield names
    carried.target.cache_clear()


def test_carried_code_is_neither_compiled_nor_cached(built: list[str], tmp_path: Path) -> None:
    Compiled(*ENTRY).load()
    assert built == []
    assert not (tmp_path / "cache" / "numba").exists()


def _changed(change: Callable[[bytes], bytes]) -> Callable[[pytest.MonkeyPatch], None]:
    def do(monkeypatch: pytest.MonkeyPatch) -> None:
        (path,) = resources.shipped_code().iterdir()
        path.write_bytes(change(path.read_bytes()))

    return do


def _version(of: str, version: str) -> Callable[[pytest.MonkeyPatch], None]:
    def do(monkeypatch: pytest.MonkeyPatch) -> None:
        real = host.package_version
        monkeypatch.setattr(
            host, "package_version", lambda name: version if name == of else real(name)
        )

    return do


def _middle(entry: bytes) -> bytes:
    half = len(entry) // 2
    return entry[:half] + bytes([entry[half] ^ 1]) + entry[half + 1 :]


def _absent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resources, "shipped_code", lambda: Path("no such folder"))


def _other_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        carried, "SETS", (InstructionSet("own", isa.VECTOR.name, "", ("no-such",)),)
    )


def _other_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(carried, "SETS", (InstructionSet("own", "no such", "", ()),))


def _other_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "code", lambda: "another digest")


def _settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_OPT", "1")


@pytest.mark.parametrize(
    "change",
    [
        _absent,
        _changed(lambda entry: b""),
        _changed(lambda entry: entry[:-1]),
        _changed(_middle),
        _changed(lambda entry: cache.packed(b"no image")),
        _other_set,
        _other_vectors,
        _other_sources,
        _settings,
        _version("numba", "0.1.0"),
        _version("llvmlite", "0.1.0"),
    ],
    ids=[
        "absent",
        "empty",
        "short",
        "damaged",
        "foreign",
        "other set",
        "other vectors",
        "other sources",
        "settings",
        "other numba",
        "other llvmlite",
    ],
)
def test_all_else_is_compiled_in_silence(
    built: list[str],
    change: Callable[[pytest.MonkeyPatch], None],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    change(monkeypatch)
    Compiled(*ENTRY, is_told=False).load()
    assert built == ["read_exactly"]
    assert not caplog.records
    Compiled(*ENTRY).load()  # from the cache
    assert built == ["read_exactly"]


def test_repaired_versions_of_the_compilers_take_it(
    built: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    series = carried._series(host.package_version("numba"))
    _version("numba", f"{series}.99")(monkeypatch)
    Compiled(*ENTRY).load()
    assert built == []


def test_each_processor_gets_the_set_with_the_most_instructions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    v3, v4 = carried._V3, carried._V4
    expected: dict[tuple[str, tuple[str, ...]], str | None] = {
        ("portable", v4): None,
        ("avx2", v3): "avx2",
        ("avx2", (*v3, "avxvnni")): "avxvnni",
        ("avx2", v3[1:]): None,
        ("avx512", v4): "avx512",
        ("avx512", (*v4, "avx512vnni", "avx512bf16")): "vnni",
        ("amx", (*v4, "avx512vnni", "avx512bf16", "amx-tile", "amx-bf16")): "amx",
    }
    for (vector, features), name in expected.items():
        monkeypatch.setattr(isa, "VECTOR", isa._UNITS[vector])
        monkeypatch.setattr(host, "has", features.__contains__)
        found = carried.target.__wrapped__()
        assert (found and found.name) == name
    assert len({target.name for target in SETS}) == len(SETS)
