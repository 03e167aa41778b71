"""Tables of the documents say what the program does."""

from __future__ import annotations

import re

from tests.cli.test_mistakes import MISTAKES
from tests.docs import formats_table
from tests.docs.documents import ROOT
from waifu2x.api.settings.uses import USES, Use
from waifu2x.cli.options.settings import ONE_RUN, OTHER_VARIABLES
from waifu2x.networks.noise_levels import LIMITS

TASKS = {"enlarge": "enlarging", "same size": "alone", "same size, flat colours": "flat"}


def rows(page: str, heading: str) -> list[list[str]]:
    """The cells of the first table under a heading."""
    text = (ROOT / page).read_text(encoding="utf-8").partition(f"# {heading}\n")[2]
    table = re.findall(r"(?:^\|.*\|\n)+", text, re.MULTILINE)[0]
    return [
        [cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]
    ]


def test_noise_levels_are_those_of_the_page() -> None:
    told: dict[tuple[str, str], dict[int, int]] = {}
    for models, task, *limits in rows("docs/how-to/noise.md", "What `-n auto` chooses"):
        found = zip((2, 1, 0), limits, strict=True)
        told[models.strip("`"), TASKS[task]] = {
            level: int(limit) for level, limit in found if limit != "-"
        }
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


def test_mistakes_are_told_as_the_page_says() -> None:
    """By sentences that another test holds the program to."""
    held = {(f"`waifu2x {words}`", sentence, str(code)) for words, code, sentence in MISTAKES}
    told = [tuple(row) for row in rows("docs/reference/exit-codes.md", "Mistakes")]
    assert len(told) >= 10
    assert set(told) <= held


def test_variables_are_those_of_the_page() -> None:
    told = {
        row[0].strip("`") for row in rows("docs/reference/environment.md", "Environment variables")
    }
    assert {name for name in told if name.startswith("WAIFU2X_") and " " not in name} == {
        *OTHER_VARIABLES
    }


def test_the_page_names_what_no_setting_stands_for() -> None:
    text = (ROOT / "docs/reference/settings.md").read_text(encoding="utf-8")
    told = re.findall(r"`--([\w-]+)`", text.partition("## What cannot be set")[2])
    assert {*told} == {*ONE_RUN}


def test_uses_are_those_of_the_page() -> None:
    def words(model: str, use: Use) -> str:
        return f"`-m {model}`" if use.level is None else f"`-m {model} -n {use.level}`"

    assert rows("docs/how-to/models.md", "Which model") == [
        [f"`{name}`", use.about, words(use.model, use), words(use.film_model, use)]
        for name, use in USES.items()
    ]


def test_formats_are_those_of_the_page() -> None:
    """`python -m tests.docs.formats_table` writes them."""
    text = formats_table.PAGE.read_text(encoding="utf-8")
    assert text == formats_table.page(text)
    assert formats_table.formats() in text
    assert formats_table.parts() in text


def test_what_is_read_first_is_short() -> None:
    for page in ("README.md", "CONTRIBUTING.md"):
        assert len((ROOT / page).read_text(encoding="utf-8").splitlines()) <= 150, page
