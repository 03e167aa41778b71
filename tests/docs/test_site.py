"""The site of the documents is built without a warning, and shows what the program prints."""

from __future__ import annotations

import html
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.docs.documents import ROOT
from waifu2x.cli import cli


@pytest.mark.matrix
def test_site_is_built_without_warnings(tmp_path: Path) -> None:
    if find_spec("mkdocs") is None:
        pytest.skip("MkDocs is not here: pip install -e '.[docs]'")
    # Material's advertisement of its successor is no warning about these pages.
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "DISABLE_MKDOCS_2_WARNING": "true"}
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert not done.returncode, done.stderr
    assert "WARNING" not in done.stderr
    page = html.unescape((tmp_path / "reference" / "command-line" / "index.html").read_text())
    printed = CliRunner().invoke(
        cli, ["compare", "--help"], terminal_width=88, max_content_width=88, prog_name="waifu2x"
    )
    assert printed.output.rstrip() in page
    assert "https://fonts" not in page
