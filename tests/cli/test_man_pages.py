"""Man pages: those in `man/` are what the helps say, and programs that read pages find no fault."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import click
import pytest

from waifu2x.cli import cli, man_pages
from waifu2x.cli.film.in_batches import FILM_OPTIONS

FOLDER = Path(__file__).parents[2] / "man"
PAGES = man_pages.pages()


def test_pages_are_those_of_the_helps() -> None:
    kept = {path.name: path.read_text() for path in FOLDER.glob("*.1")}
    assert kept == PAGES, "write them anew: python -m waifu2x.cli.man_pages man"


@pytest.mark.parametrize(
    "name",
    [
        name
        if name in ("waifu2x.1", "waifu2x-upscale.1")
        else pytest.param(name, marks=pytest.mark.matrix)
        for name in PAGES
    ],
)
def test_man_finds_no_fault(name: str) -> None:
    if not shutil.which("man") or not shutil.which("groff"):
        pytest.skip("man is not here")
    done = subprocess.run(
        ["man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", str(FOLDER / name)],
        env=os.environ | {"LC_ALL": "C.UTF-8", "MANWIDTH": "80", "MANPAGER": "cat"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    # The text has every option of the help, in any line breaks; `batch` names the command that
    # explains those of films.
    shown = " ".join(re.sub(r".\x08", "", done.stdout).split())
    elsewhere = FILM_OPTIONS if "options of `waifu2x video`" in shown else ()
    command = cli.get_command(click.Context(cli), name.removesuffix(".1").partition("-")[2])
    for parameter in command.params if command else []:
        if isinstance(parameter, click.Option) and not parameter.hidden:
            assert max(parameter.opts, key=len) in shown or parameter.name in elsewhere


def test_mandoc_finds_no_fault() -> None:
    """But the date, which would be another one each day."""
    if not shutil.which("mandoc"):
        pytest.skip("mandoc is not here")
    paths = [str(FOLDER / name) for name in PAGES]
    done = subprocess.run(["mandoc", "-T", "lint", *paths], capture_output=True, text=True)
    faults = [line for line in done.stdout.splitlines() if "missing date" not in line]
    assert not faults
