"""The machine code of a release: the same whichever processor makes it, and for all it names."""

from __future__ import annotations

from pathlib import Path

import pytest

from release import machine_code
from waifu2x.backends.cpu.compile import carried, code_image, compiled
from waifu2x.backends.cpu.run import kernels
from waifu2x.system import cache


@pytest.mark.long
@pytest.mark.skipif(not code_image.is_possible(), reason="for Linux on x86-64 alone")
def test_code_for_another_processor_is_whole_and_the_same_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    amx = carried.SETS[0]
    made = []
    for zone in ("UTC", "Asia/Tokyo"):
        monkeypatch.setenv("TZ", zone)
        machine_code.make(tmp_path / zone.replace("/", "-"), [amx.name])
        files = {
            path.name: path.read_bytes() for path in (tmp_path / zone.replace("/", "-")).iterdir()
        }
        made.append(files)
    assert made[0] == made[1]
    entries = {"strip": ("run_strips", *kernels.NAMES), **machine_code.ENTRIES}
    keys = {
        carried.key(amx, module, name, compiled.code())
        for module, names in entries.items()
        for name in names
    }
    assert set(made[0]) == keys
    for key in keys:
        assert cache.read(tmp_path / "UTC" / key)
