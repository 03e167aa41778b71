"""The folders that come with the package, wherever it is installed."""

from __future__ import annotations

from pathlib import Path

import platformdirs

_PACKAGE = Path(__file__).parent


def shipped_models() -> Path:
    """The models of this release."""
    return _folder("models")


def user_models() -> Path:
    """Where `waifu2x models import` puts models; it may not exist yet."""
    return platformdirs.user_data_path("waifu2x-kernels", False) / "models"


def _folder(name: str) -> Path:
    """A folder inside the installed package, or beside it in a source checkout."""
    installed = _PACKAGE / name
    return installed if installed.is_dir() else _PACKAGE.parent / name
