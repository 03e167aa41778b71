"""`waifu2x bench --verify`: right machines pass, and broken kernels are found."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from numpy.typing import NDArray

from benchmarks import known_results as script
from tests.conftest import need
from waifu2x.backends.call import Call
from waifu2x.backends.cpu.backend import CpuBackend
from waifu2x.backends.cpu.network import CpuNetwork
from waifu2x.cli import cli
from waifu2x.flows import known_results
from waifu2x.flows.known_results import TABLE, kind_of, networks_of
from waifu2x.networks import model_set

MODEL = "anime4k/s"


def verify(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["bench", "--verify", "-m", MODEL, *arguments])


@pytest.mark.parametrize("backend", ["cpu", "numpy", "opencl"])
def test_this_machine_is_right(backend: str) -> None:
    need(backend)
    result = verify("--backend", backend, "--json")
    document = json.loads(result.stdout)
    assert result.exit_code == 0
    assert document["right"]
    networks = {each["network"] for each in document["results"]}
    assert networks == {"1x-noise0", "2x"}
    assert {each["mode"] for each in document["results"]} == {"auto", "fp32"}
    if backend == "numpy":  # of float64, whole numbers are equal everywhere
        assert all(each["same_bits_as"] == ["numpy"] for each in document["results"])


def test_an_unknown_machine_is_measured_against_exact_results(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(known_results, "read", dict)
    result = verify("--backend", "cpu", "--json")
    assert result.exit_code == 0
    for each in json.loads(result.stdout)["results"]:
        assert not each["same_bits_as"]
        assert each["psnr"] >= (60 if each["mode"] == "auto" else 100)
    lines = verify("--backend", "cpu", "--precision", "fp32").stdout.splitlines()
    assert " dB, off by 0.5" in lines[1]
    assert lines[-1].startswith("Right: of 2 results 0 have the bits that other machines make, 2")


def _darker_row(values: NDArray[Any]) -> None:
    values[len(values) // 2] //= 2


def _sixteen_levels(values: NDArray[Any]) -> None:
    values.flat[values.size // 2] ^= 16 << (8 if values.dtype == np.uint16 else 0)


def _stale_part(values: NDArray[Any]) -> None:
    values[-3:, -3:] = 0


@pytest.mark.parametrize("known", [True, False], ids=["known kind", "unknown kind"])
@pytest.mark.parametrize("broken", [_darker_row, _sixteen_levels, _stale_part])
def test_a_broken_kernel_is_found(
    broken: Callable[[NDArray[Any]], None], known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever it writes: one row, one value, or a corner that it leaves as it was."""
    run = CpuNetwork.run

    def damaged(self: CpuNetwork, call: Call[Any]) -> Any:
        made = run(self, call)
        if made.dtype != np.float32:
            broken(made.reshape(made.shape[-3:]))
        return made

    monkeypatch.setattr(CpuNetwork, "run", damaged)
    if not known:
        monkeypatch.setattr(known_results, "read", dict)
    result = verify("--backend", "cpu")
    assert result.exit_code == 1
    _, *lines, last = result.stdout.splitlines()
    assert all(line.endswith("WRONG: 1x-noise0, 2x") for line in lines)
    assert last.startswith("Wrong: 4 of 4 results break the promise")


def test_other_bits_than_a_machine_of_the_same_kind_are_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Results that are exact enough, but not those that the table has for this kind."""
    opened = CpuBackend()
    kind = kind_of(opened)
    opened.close()
    table = {key: {"0" * 16: [kind]} for key in known_results.read() if key[0] == MODEL}
    monkeypatch.setattr(known_results, "read", lambda: table)
    result = verify("--backend", "cpu")
    assert result.exit_code == 0
    assert f"4 have other bits than {kind} made before" in result.stdout


def test_the_table_is_as_the_script_writes_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    copy = tmp_path / "table.txt"
    copy.write_text(TABLE.read_text())
    monkeypatch.setattr(known_results, "TABLE", copy)
    monkeypatch.setattr(script, "TABLE", copy)
    known = known_results.read()
    script.write(known)
    assert copy.read_text() == TABLE.read_text()
    key = MODEL, "00000000", "2x", "fp32"
    script.add(known, key, "a", "cpu one")
    script.add(known, key, "a", "cpu other")
    script.add(known, key, "b", "cpu one")  # after a change
    assert known[key] == {"a": ["cpu other"], "b": ["cpu one"]}
    for found in known.values():
        kinds = [kind for each in found.values() for kind in each]
        assert len(kinds) == len(set(kinds))


def test_the_networks_that_are_computed() -> None:
    cunet = model_set.find("cunet/art")
    assert networks_of(cunet, every=False) == [(0, 1), (None, 2)]
    every = [(level, 1) for level in range(4)] + [(None, 2)] + [(level, 2) for level in range(4)]
    assert networks_of(cunet, every=True) == every


@pytest.mark.parametrize("option", ["--size=9x9", "--noise=1", "--tune"])
def test_options_of_measuring_are_refused(option: str) -> None:
    result = verify(option)
    assert result.exit_code == 2
    assert f"--verify takes no {option.partition('=')[0]}." in result.output
