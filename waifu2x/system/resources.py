"""The folders that come with the package, wherever it is installed, and those of the user."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Literal

import platformdirs

_PACKAGE = Path(__file__).parent.parent


def shipped_models() -> Path:
    """The models of this release."""
    return _folder("models")


def shipped_kernels() -> Path:
    """The sources of GPU kernels of this release."""
    return _folder("kernels")


def user_models() -> Path | None:
    """The folder where `waifu2x models import` puts models; it may not exist yet.

    None for a user without a home directory.
    """
    folder = of_user(platformdirs.user_data_path)
    return folder / "models" if folder else None


def of_user(find: Callable[[str, Literal[False]], Path]) -> Path | None:
    """Our folder below one of platformdirs', or None for a user without a home directory."""
    try:
        folder = find("waifu2x-kernels", False)
    except RuntimeError:
        return None
    # Older platformdirs answer ~/..., which would be a folder of that name in the working one.
    return folder if folder.is_absolute() else None


def _folder(name: str) -> Path:
    """A folder inside the installed package, or beside it in a source checkout."""
    installed = _PACKAGE / name
    return installed if installed.is_dir() else _PACKAGE.parent / name
