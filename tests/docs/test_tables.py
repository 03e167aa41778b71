"""Tables of the documents say what the program does."""

from __future__ import annotations

import re

from tests.docs.documents import ROOT
from waifu2x.networks.noise_levels import LIMITS

TASKS = {"enlarge": "enlarging", "same size": "alone", "same size, flat colours": "flat"}


def rows(page: str, heading: str) -> list[list[str]]:
    """The cells of the first table under a heading."""
    text = (ROOT / page).read_text(encoding="utf-8").partition(f"## {heading}\n")[2]
    table = re.findall(r"(?:^\|.*\|\n)+", text, re.MULTILINE)[0]
    return [
        [cell.strip(" `") for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]
    ]


def test_noise_levels_are_those_of_the_page() -> None:
    told: dict[tuple[str, str], dict[int, int]] = {}
    for models, task, *limits in rows("docs/how-to/noise.md", "What `-n auto` chooses"):
        found = zip((2, 1, 0), limits, strict=True)
        told[models, TASKS[task]] = {level: int(limit) for level, limit in found if limit != "-"}
    chosen = {
        (name, task): {level: limit for limit, level in getattr(limits, task)}
        for name, limits in LIMITS.items()
        for task in TASKS.values()
    }
    for (name, task), expected in chosen.items():
        if task == "flat" and expected == chosen[name, "alone"]:
            continue
        assert told.pop((name, task)) == expected
    assert not told
