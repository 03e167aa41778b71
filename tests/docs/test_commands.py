"""Every command of the documents runs as it stands, or is marked with the reason why it cannot.

The commands of a page run in order, in one folder with the pictures that the documents name.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest

from tests.cli.test_mistakes import MISTAKES
from tests.docs.documents import PAGES, ROOT, Block, blocks, commands_in
from tests.docs.pictures import prepare
from waifu2x.cli import cli

BLOCKS = [block for page in PAGES for block in blocks(page)]
LANGUAGES = {"sh", "python", "text", "toml", "json", "yaml", "dockerfile", "bat"}
REASONS = (
    "the test command",
    "is a part of",
    "needs a package index",
    "needs Docker",
    "needs an NVIDIA GPU",
    "needs a second GPU",
    "needs PyTorch",
    "needs a cluster",
    "needs an object store",
    "needs another shell",
    "needs a file of weights",
    "needs the clone's own environment",
    "runs until it is interrupted",
    "takes minutes",
)
"""How a reason may begin."""
SMALLER = {"1920": "96", "1080": "54", "2000": "100", "2160": "98"}
"""Sizes of results in shell commands, and what stands for them here: time is that of pixels."""
WRONG = {words for words, _, _ in MISTAKES}
"""Commands that are shown for what the program says of them."""
ELSEWHERE = {"docs/python.md": "tests/api/test_examples.py"}
"""Pages whose Python is run by another test, which looks at what it makes."""


def of(language: str, *, run: bool) -> list[str]:
    """The pages that have such blocks."""
    return [
        page
        for page in PAGES
        if any(_is(block, language, run) for block in BLOCKS if block.page == page)
    ]


def _is(block: Block, language: str, run: bool) -> bool:
    return block.language == language and (block.not_run is None) == run


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the pictures that the documents name, as the working directory."""
    prepare(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.matrix
@pytest.mark.parametrize("page", of("sh", run=True))
def test_commands_run(page: str, folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    if "waifu2x video" in (ROOT / page).read_text(encoding="utf-8"):
        pytest.importorskip("av")
    if "waifu2x serve" in (ROOT / page).read_text(encoding="utf-8"):
        pytest.importorskip("uvicorn")
    programs = tmp_path_factory.mktemp("bin")
    for name, words in {"waifu2x": "-m waifu2x", "python": ""}.items():
        (programs / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {words} "$@"\n')
        (programs / name).chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "HOME": str(folder),
        "XDG_CONFIG_HOME": str(folder / ".config"),
    }
    for block in BLOCKS:
        if block.page != page:
            continue
        if block.file:
            (folder / block.file).write_text(block.text)
        if not _is(block, "sh", True):
            continue
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", smaller(block.text)],
            env=environment,
            cwd=folder,
            capture_output=True,
            timeout=300,
        )
        assert not done.returncode, f"{block}\n{block.text}\n{done.stderr.decode()}"


def smaller(text: str) -> str:
    """Commands with smaller results."""
    return re.sub("|".join(SMALLER), lambda found: SMALLER[found[0]], text)


@pytest.mark.parametrize("page", sorted({*of("python", run=True)} - {*ELSEWHERE}))
def test_python_runs(page: str, folder: Path) -> None:
    names: dict[str, Any] = {}
    for block in BLOCKS:
        if block.page == page and _is(block, "python", True):
            exec(compile(block.text, str(block), "exec"), names)


@pytest.mark.parametrize("page", [page for page in PAGES if any(commands_in(page))])
def test_options_of_commands_exist(page: str) -> None:
    """Also where a command is not run, and in running text."""
    for place, arguments in commands_in(page):
        if arguments[:1] == ["--version"]:
            continue  # reads what follows by itself
        if " ".join(arguments) in WRONG:
            continue
        try:
            _parse(arguments)
        except click.UsageError as error:
            raise AssertionError(f"{place}: {error.format_message()}") from error


def _parse(arguments: list[str]) -> None:
    """Reads a command line without doing or opening anything.

    Raises UsageError for an option or a choice that does not exist.
    """
    command: click.Command = cli
    context = click.Context(cli, info_name="waifu2x", **cli.context_settings)
    own = {name for option in cli.get_params(context) for name in option.opts}
    if arguments[0] not in own and cli.get_command(context, arguments[0]) is None:
        arguments = ["upscale", *arguments]
    while True:
        taken, rest, _ = command.make_parser(context).parse_args(list(arguments))
        for parameter in command.get_params(context):
            for value in _values(taken.get(parameter.name or "")):
                if isinstance(parameter.type, click.Choice) and isinstance(value, str):
                    parameter.type.convert(value, parameter, context)
        if not isinstance(command, click.Group) or not rest:
            return
        found = command.get_command(context, rest[0])
        assert found is not None, f"no command {rest[0]}"
        command, arguments = found, rest[1:]
        context = click.Context(command, context, command.name, **command.context_settings)


def _values(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]


def test_blocks_name_their_language() -> None:
    found = [str(block) for block in BLOCKS if block.language not in LANGUAGES]
    assert not found


@pytest.mark.parametrize("block", [block for block in BLOCKS if block.not_run], ids=str)
def test_what_is_not_run_says_why(block: Block) -> None:
    assert block.not_run is not None
    assert block.not_run.startswith(REASONS), block.not_run
    assert block.language in ("sh", "python")
