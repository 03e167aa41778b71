"""The folders that come with the package, wherever it is installed, and those of the user."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Literal

import platformdirs

_PACKAGE = Path(__file__).parent.parent


def shipped_models() -> Path:
    """Returns the folder of this release's models."""
    return _folder("models")


def shipped_kernels() -> Path:
    """Returns the folder of this release's sources of GPU kernels."""
    return _folder("kernels")


def shipped_code() -> Path:
    """Returns the folder of machine code that a wheel built for release carries; others have
    none."""
    return _PACKAGE / "machine_code"


def user_models() -> Path | None:
    """Returns the folder where `waifu2x models import` puts models; it may not exist yet. None
    without a home directory."""
    folder = of_user(platformdirs.user_data_path)
    return folder / "models" if folder else None


def of_user(find: Callable[[str, Literal[False]], Path]) -> Path | None:
    """Returns our folder below one of platformdirs', or None without a home directory."""
    try:
        folder = find("waifu2x-kernels", False)
    except RuntimeError:
        return None
    # Older platformdirs return ~/..., which would be a folder named ~ in the working one.
    return folder if folder.is_absolute() else None


def _folder(name: str) -> Path:
    """Returns a folder inside the installed package, or beside it in a source checkout."""
    installed = _PACKAGE / name
    return installed if installed.is_dir() else _PACKAGE.parent / name
