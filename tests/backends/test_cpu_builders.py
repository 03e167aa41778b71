"""Code that other processes compile, and what becomes of it where they cannot."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from waifu2x.backends.cpu.compile import builders
from waifu2x.backends.cpu.compile.compiled import Compiled, begin
from waifu2x.backends.cpu.kernels import EntryPoint, strip
from waifu2x.backends.cpu.pack import records
from waifu2x.backends.cpu.pack.tasks import CpuTask, TaskSchedule
from waifu2x.backends.cpu.run import kernels


def fresh() -> Compiled:
    """A small entry point, not loaded yet."""
    return Compiled("planar", "read_exactly")


def test_processes_compile_what_this_one_would_and_nothing_else() -> None:
    key = fresh().key()
    names = ("read_exactly", key), ("no_such", key), ("read_exactly", "another key")
    right, missing, foreign = builders.build([("planar", *one) for one in names])
    made = right.result()
    assert made is not None
    fresh()._link(made)
    assert missing.result() is None
    assert foreign.result() is None


@pytest.mark.parametrize(
    "change",
    [
        ("_CODE", "raise SystemExit"),
        ("_CODE", "print('nothing that is a size')"),
        ("sys", type("Fake", (), {"executable": "/no/such/python", "path": []})),
    ],
    ids=["ends", "says something else", "does not start"],
)
def test_without_processes_the_caller_compiles(
    change: tuple[str, object], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("WAIFU2X_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(builders, *change)
    monkeypatch.setattr(builders, "can_build", lambda: True)
    built: list[str] = []

    def compiled(self: Compiled) -> bytes:
        built.append(self.name)
        return b"symbol\0code"

    monkeypatch.setattr(Compiled, "compiled", compiled)
    monkeypatch.setattr(Compiled, "_link", lambda self, stored: len)
    code = fresh()
    begin([code, code])
    assert code.load() is len
    assert built == ["read_exactly"]


def test_programs_that_embed_python_are_not_started_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(builders, "core_count", lambda: 2)
    expected = {"/usr/bin/python3.14": True, "C:/x/Python.exe": True, "/opt/host": False, "": False}
    for name, can in expected.items():
        monkeypatch.setattr(sys, "executable", name)
        assert builders.can_build() == can
    monkeypatch.setattr(sys, "executable", "/usr/bin/python3")
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    assert not builders.can_build()


def test_every_task_has_an_entry_point() -> None:
    made = {name for name, one in vars(strip).items() if isinstance(one, EntryPoint)}
    assert made == {*kernels.NAMES, "run_strips"}
    for kind in range(records.WRITE + 1):
        for method in range(records.BY_SIZES + 1):
            if kind == records.WRITE and method > records.BY_RESIZING:
                continue
            task = CpuTask(TaskSchedule(0, 1), kind, {"method": method})
            assert kernels._name(task) in kernels.NAMES
