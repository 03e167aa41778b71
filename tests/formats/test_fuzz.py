"""Damaged files of every format that is read: each ends as pictures or as an ImageError."""

from __future__ import annotations

import re
import warnings
from contextlib import closing

import numpy as np
import pytest

from tests.helpers.limits import memory_limit
from tests.helpers.mutations import mutated
from tests.helpers.odd_pictures import MAX_PIXELS, sound
from waifu2x.errors import ImageError
from waifu2x.formats.read import extent, open_content

MEMORY = 512 << 20
"""Bytes that reading one of the small files may take, libraries of codecs included."""


def outcome(content: bytes) -> str:
    """`read`, or the sentence that refuses it."""
    extent(content)
    try:
        with closing(open_content(content, "p", MAX_PIXELS)) as source:
            pixels = sum(timed.picture.pixels.size for timed in source)
    except ImageError as error:
        return str(error)
    assert 0 < pixels <= 4 * MAX_PIXELS
    return "read"


def check(name: str, content: bytes, seed: int, count: int) -> None:
    generator = np.random.default_rng((seed, *name.encode()))
    outcomes = {outcome(content)}
    assert outcomes == {"read"}
    with memory_limit(MEMORY), warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for _ in range(count):
            outcomes.add(outcome(mutated(content, generator)))
    # The program ignores what these two warn of.
    assert not [one for one in told if not re.search("PIL|tifffile", one.filename)]
    for sentence in outcomes - {"read"}:
        assert re.fullmatch(r"p: [^\n]+", sentence)


FILES = sound(np.random.default_rng(0))


@pytest.mark.parametrize("name", FILES)
def test_damaged_files(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    check(name, FILES[name], 0, 40)
    assert capfd.readouterr() == ("", "")


@pytest.mark.matrix
@pytest.mark.parametrize("name", FILES)
def test_many_damaged_files(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    check(name, FILES[name], 1, 1000)
    assert capfd.readouterr() == ("", "")
