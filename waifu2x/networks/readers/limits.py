"""Bounds what one model file may cost, and reads files and archives within that.

Files come from strangers, and few bytes can ask for much: every number of a file that decides how
much is copied, made or done is taken from a budget before that happens.
"""

from __future__ import annotations

import gzip
import io
import os
import re
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from waifu2x.errors import ModelError
from waifu2x.system.files import open_regular, reason

DAMAGED_ZIP = (zipfile.BadZipFile, zlib.error, EOFError, ValueError, RuntimeError)
"""Errors of zipfile. ValueError: names that are not UTF-8. RuntimeError: a damaged header can look
like encryption or an unknown compression."""

MAX_BYTES = 64 << 20
"""Bytes of one file, packed or unpacked; the largest networks of waifu2x take half of it as JSON.
"""
MAX_TENSOR_BYTES = 512 << 20
"""Bytes of one file of tensors, .pth or .safetensors: the largest networks in single precision,
twice, are a quarter of it."""
_MAX_ENTRIES = 20_000
_MAX_STEPS = 500_000
_MAX_DEPTH = 32
_ENTRY = re.compile(rb"PK\x01\x02")
"""The signature of each entry in a zip file's directory."""
_CHUNK = 1 << 20


def shown(name: str) -> str:
    """Returns a name of the file for messages."""
    printable = "".join(each if each.isprintable() else "?" for each in name[:61])
    return printable if len(printable) <= 60 else f"{printable[:57]}..."


class ModelBudget:
    """Counts the bytes, entries and steps that reading one model file may still take.

    Each `take_` method raises ModelError, one sentence that begins with the file's name, for more
    than is left.
    """

    def __init__(
        self,
        name: str,
        *,
        size: int | None = None,
        entries: int = _MAX_ENTRIES,
        steps: int = _MAX_STEPS,
    ) -> None:
        """`size` is bytes of memory beside the file's own, MAX_BYTES if it is None."""
        self.name = name
        self._size = self._bytes = MAX_BYTES if size is None else size
        self._entries = entries
        self._steps = steps

    def take_bytes(self, count: int) -> None:
        """Takes bytes that are about to be allocated."""
        self._bytes -= count
        if self._bytes < 0:
            raise ModelError(f"{self.name}: it asks for more than {self._size >> 20} MiB of memory")

    def take_entries(self, count: int) -> None:
        """Takes members of an archive, or elements of lists and dictionaries."""
        self._entries -= count
        if self._entries < 0:
            raise ModelError(f"{self.name}: it has more entries than a model can need")

    def take_steps(self, count: int = 1) -> None:
        """Takes instructions, or other work of about that duration."""
        self._steps -= count
        if self._steps < 0:
            raise ModelError(f"{self.name}: it takes more steps to read than a model can need")

    def check_depth(self, depth: int) -> None:
        """Raises ModelError for data nested deeper than any model's."""
        if depth > _MAX_DEPTH:
            raise ModelError(f"{self.name}: it is nested more than {_MAX_DEPTH} deep")


def open_file(path: Path) -> IO[bytes]:
    """Opens a regular file. Raises ModelError, at once for devices, pipes, folders."""
    try:
        return open_regular(path)
    except (OSError, ValueError) as error:
        why = reason(error) if isinstance(error, OSError) else str(error)
        raise ModelError(f"{path}: cannot read the model: {why}") from error


def read_file(path: Path, most: int | None = None) -> bytes:
    """Returns a regular file's bytes, at most `most` (MAX_BYTES by default). Raises ModelError."""
    most = MAX_BYTES if most is None else most
    with open_file(path) as file:
        try:
            size = os.fstat(file.fileno()).st_size
            _check_size(size, str(path), most)
            content = file.read(size + 1)
        except OSError as error:
            raise ModelError(f"{path}: cannot read the model: {reason(error)}") from error
    _check_size(len(content), str(path), most)
    return content


def gunzip(packed: bytes, name: str) -> bytes:
    """Unpacks gzip data. Raises ModelError if it is damaged, or unpacked larger than MAX_BYTES."""
    try:
        content = gzip.GzipFile(fileobj=io.BytesIO(packed)).read(MAX_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise ModelError(f"{name}: damaged gzip data: {error}") from error
    _check_size(len(content), name, MAX_BYTES)
    return content


def open_archive(file: IO[bytes], budget: ModelBudget) -> zipfile.ZipFile:
    """Opens a zip file after counting its entries.

    Raises ModelError for more entries than the budget has, and what zipfile raises for damage.
    """
    for chunk in _chunks(file):
        budget.take_entries(len(_ENTRY.findall(chunk)))
    file.seek(0)
    return zipfile.ZipFile(file)


def _chunks(file: IO[bytes]) -> Iterator[bytes]:
    """Yields a file's content in parts that overlap by less than an entry's signature."""
    file.seek(0)
    tail = b""
    while part := file.read(_CHUNK):
        yield tail + part
        tail = part[-3:]


def read_member(archive: zipfile.ZipFile, member: str, name: str) -> bytes:
    """Returns a member of a zip file, stored or deflated, its checksum compared.

    Raises ModelError if it is larger than MAX_BYTES or packed in another way, whose size is unknown
    before it is unpacked; and what zipfile raises for damage.
    """
    method = archive.getinfo(member).compress_type
    if method not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ModelError(f"{name}: packed by method {method} of zip files: only deflate is read")
    with archive.open(member) as file:
        content = file.read(MAX_BYTES + 1)
    _check_size(len(content), name, MAX_BYTES)
    return content


def _check_size(size: int, name: str, most: int) -> None:
    if size > most:
        raise ModelError(f"{name}: larger than the {most >> 20} MiB that a model may take")
