"""Which of the models that people publish load, by the architectures of OpenModelDB's entries."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from tests.helpers import family_weights, weight_files
from tests.helpers.family_weights import filled
from tests.helpers.weight_files import Arrays
from waifu2x.errors import ModelError
from waifu2x.networks.readers import parse_named

PAGE = Path(__file__).parents[2] / "docs" / "internals" / "networks.md"


class Architecture(NamedTuple):
    """Entries of one architecture, at OpenModelDB's commit 782aac0 of August 2026."""

    entries: int
    row: str = ""
    """Their row in the table of the documents; empty for what does not load."""
    make: Callable[[], Arrays] | None = None
    """Weights of such a network; None for networks that are no business of this program."""
    refused_as: str = ""


def named(*keys: str) -> Callable[[], Arrays]:
    """Weights with the right names and wrong content."""
    return lambda: {key: np.zeros((1, 1), np.float32) for key in keys}


def esrgan_plus() -> Arrays:
    tensors = dict(weight_files.esrgan())
    for part in (1, 2, 3):
        tensors[f"body.0.rdb{part}.conv1x1.weight"] = np.ones((4, 8, 1, 1), np.float32)
    return tensors


ARCHITECTURES = {
    "ESRGAN": Architecture(368, "ESRGAN, ESRGAN+", weight_files.esrgan),
    "ESRGAN+": Architecture(3, "ESRGAN, ESRGAN+", esrgan_plus),
    "Compact": Architecture(85, "Compact", weight_files.compact),
    "SPAN": Architecture(34, "SPAN", weight_files.span),
    "DAT": Architecture(34, "DAT", lambda: filled(family_weights.dat())),
    "SwinIR": Architecture(22, "SwinIR", lambda: filled(family_weights.swinir())),
    "RealPLKSR": Architecture(17, "RealPLKSR", lambda: filled(family_weights.realplksr())),
    "RealPLKSR-DySample": Architecture(
        4, "RealPLKSR", lambda: filled(family_weights.realplksr(sampled=True))
    ),
    "SRFormer": Architecture(
        9, "SRFormer", lambda: filled(family_weights.swinir(16, (2, 2), cells=True))
    ),
    "HAT": Architecture(7, "HAT", lambda: filled(family_weights.hat())),
    "CUGAN": Architecture(7, "CUGAN", lambda: weight_files.u_net(2)),
    "DRCT": Architecture(6, "DRCT", lambda: filled(family_weights.drct())),
    "MoSR": Architecture(5, "MoSR", lambda: filled(family_weights.mosr())),
    "RCAN": Architecture(4, "RCAN, EDSR", lambda: filled(family_weights.rcan())),
    "EDSR": Architecture(1, "RCAN, EDSR", lambda: filled(family_weights.edsr())),
    "OmniSR": Architecture(20, "OmniSR", lambda: filled(family_weights.omnisr())),
    "of films": Architecture(18),
    "RGT": Architecture(7, "", named("conv_first.weight", "layers.0.blocks.0.gamma"), "an RGT"),
    "ATD": Architecture(5, "", named("conv_first.weight", "layers.0.residual_group.td"), "an ATD"),
    "GRL": Architecture(
        2, "", named("layers.0.blocks.0.attn.window_attn.attn_transform.bias"), "a GRL"
    ),
    "others": Architecture(13),
}


@pytest.mark.parametrize("name", [name for name, each in ARCHITECTURES.items() if each.make])
def test_it_loads_or_is_refused_by_its_name(name: str) -> None:
    architecture = ARCHITECTURES[name]
    assert architecture.make
    content = weight_files.pth({"params_ema": architecture.make()})
    if architecture.row:
        assert parse_named(content, "m.pth").scale >= 1
    else:
        with pytest.raises(ModelError, match=rf"^m.pth: {architecture.refused_as}: not supported"):
            parse_named(content, "m.pth")


def test_the_share_that_the_documents_name() -> None:
    everything = sum(each.entries for each in ARCHITECTURES.values())
    rows: dict[str, int] = {}
    for each in ARCHITECTURES.values():
        if each.row:
            rows[each.row] = rows.get(each.row, 0) + each.entries
    load = sum(rows.values())
    page = PAGE.read_text("utf-8")
    assert f"Of the {everything} models of OpenModelDB, {load} ({load / everything:.1%})" in (
        page.replace(" %", "%")
    )
    table = re.findall(r"\| ([A-Z][^|]+) \| (\d+) ", page)
    assert {row.strip(): int(entries) for row, entries in table} == rows
