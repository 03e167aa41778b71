"""Files of models are read whole, and only up to a limit: what is unpacked can be a bomb."""

from __future__ import annotations

import gzip
import io
import zipfile
import zlib
from pathlib import Path

from waifu2x.errors import ModelError
from waifu2x.system.files import reason

try:
    from lzma import LZMAError
except ImportError:  # Python can be built without it; then zipfile does not read it either
    LZMAError = zlib.error  # type: ignore[assignment, misc]

DAMAGED_ZIP = (zipfile.BadZipFile, zlib.error, LZMAError, EOFError, ValueError, RuntimeError)
"""What zipfile raises. ValueError: names that are not UTF-8. RuntimeError: a damaged header can
look like encryption or an unknown compression."""

MAX_BYTES = 64 << 20
"""Of one file, packed or unpacked; the largest networks of waifu2x take half of it as JSON."""


def read_file(path: Path, most: int | None = None) -> bytes:
    """A file's bytes. Raises ModelError if it cannot be read or has more than `most`, MAX_BYTES
    if that is None."""
    most = MAX_BYTES if most is None else most
    try:
        with path.open("rb") as file:
            content = file.read(most + 1)
    except (OSError, ValueError) as error:
        why = reason(error) if isinstance(error, OSError) else str(error)
        raise ModelError(f"{path}: cannot read the model: {why}") from error
    _check(content, str(path), most)
    return content


def gunzip(packed: bytes, name: str) -> bytes:
    """What gzip packed. Raises ModelError if it is damaged or larger than MAX_BYTES."""
    try:
        content = gzip.GzipFile(fileobj=io.BytesIO(packed)).read(MAX_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise ModelError(f"{name}: damaged gzip data: {error}") from error
    _check(content, name)
    return content


def read_member(archive: zipfile.ZipFile, member: str, name: str) -> bytes:
    """A member of a zip file, its checksum compared.

    Raises ModelError if it is larger than MAX_BYTES, and what zipfile raises for damage.
    """
    with archive.open(member) as file:
        content = file.read(MAX_BYTES + 1)
    _check(content, name)
    return content


def _check(content: bytes, name: str, most: int | None = None) -> None:
    most = MAX_BYTES if most is None else most
    if len(content) > most:
        raise ModelError(f"{name}: larger than the {most >> 20} MiB that a model may take")
