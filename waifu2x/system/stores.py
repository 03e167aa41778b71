"""Files at URLs (`s3://`, `gs://` and others of fsspec), used like paths. A file in an object store
appears at once, when its upload is complete. Outputs need that, so other stores take none."""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, cast

from waifu2x.errors import StoreError

_URL = re.compile(r"([a-z][a-z0-9+.-]+)://", re.IGNORECASE)
_OBJECTS = ("s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "memory")
"""Protocols of stores where an upload is atomic, and can refuse to replace."""


def located(text: str) -> Path:
    """Returns the path that a text names; for a URL, an object that behaves like one (a UPath).

    `file://` URLs become paths. Raises StoreError for an unknown scheme, a missing package, and a
    store that cannot be reached.
    """
    url = _URL.match(text)
    if url is None:
        return Path(text)
    try:
        from upath import UPath
    except ImportError as error:
        raise StoreError(f"{text}: URLs need more packages", INSTALL) from error
    rest = text[url.end() :]
    try:
        # A URL needs at least its slashes.
        found = UPath(url[0] + (rest.rstrip("/") or rest[:1]))
        if found.protocol in ("file", "local"):
            return Path(found.path)
        assert found.fs  # this imports the protocol's package
    except ImportError as error:
        raise StoreError(f"{text}: {_line(error)}") from error
    except ValueError as error:
        raise StoreError(f"{text}: no such kind of URL: {url[1]}") from error
    except Exception as error:  # some connect at once
        raise StoreError(f"{text}: cannot reach it: {_line(error)}") from error
    return cast(Path, found)


def scheme(text: str) -> str:
    """Returns the scheme of a URL in lower case, such as s3; empty for a path."""
    found = _URL.match(text)
    return found[1].lower() if found else ""


INSTALL = "run `pip install 'waifu2x-kernels[cluster]'`"
"""The remedy where packages of the extra `cluster` are missing."""


def is_url(path: Path) -> bool:
    """Returns whether a path is a URL that `located` has made."""
    return not isinstance(path, Path)


def check_outputs(folder: Path) -> None:
    """Raises StoreError for a URL where a file could be seen before it is complete, and for a
    bucket that does not exist."""
    store = cast(Any, folder)
    protocol = store.protocol
    if protocol not in _OBJECTS:
        known = ", ".join(_OBJECTS[:-1])
        raise StoreError(
            f"{folder}: no outputs to {protocol}, where half a file could be seen",
            f"give a path, or an object store ({known})",
        )
    bucket = store.path.lstrip("/").split("/")[0]
    if not bucket:
        raise StoreError(
            f"{folder}: it names no bucket", f"give one, as in {protocol}://bucket/folder"
        )
    try:
        with _in_words(folder):
            missing = protocol != "memory" and not store.fs.exists(bucket)
    except OSError as error:
        raise StoreError(f"{folder}: cannot reach it: {_line(error)}") from error
    if missing:
        raise StoreError(f"{folder}: no such bucket", "make it first")


def is_folder(url: Path) -> bool:
    """Returns whether there is anything below a URL. Raises StoreError if that cannot be known."""
    try:
        with _in_words(url):
            return url.is_dir()
    except OSError as error:
        raise StoreError(f"{url}: cannot reach it: {_line(error)}") from error


def listed(folder: Path, recursive: bool) -> dict[str, int]:
    """Returns the files below a URL: their names from there on, with slashes, and their bytes.
    Raises StoreError."""
    store = cast(Any, folder)
    root = store.path.rstrip("/")
    try:
        with _in_words(folder):
            store.fs.invalidate_cache(store.path)
            found = store.fs.find(store.path, maxdepth=None if recursive else 1, detail=True)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise StoreError(f"{folder}: cannot list it: {_line(error)}") from error
    # Web pages also list files elsewhere.
    names = {
        name[len(root) :].lstrip("/"): info.get("size")
        for name, info in found.items()
        if not root or name.startswith(f"{root}/")
    }
    # Some programs make folders by objects whose names end in a slash.
    return {name: size or 0 for name, size in names.items() if name and not name.endswith("/")}


def stat(url: Path) -> os.stat_result:
    """Returns size and dates of a file at a URL. Raises OSError."""
    with _in_words(url):
        return url.stat()


def read_bytes(url: Path) -> bytes:
    """Returns the content of a file at a URL. Raises OSError."""
    store = cast(Any, url)
    with _in_words(url):
        return bytes(store.fs.cat_file(store.path))


@contextlib.contextmanager
def downloaded(url: Path) -> Iterator[IO[bytes]]:
    """Gives a temporary file with the content of a file at a URL. Raises OSError."""
    import tempfile  # which few need, and takes two milliseconds

    with tempfile.TemporaryDirectory(prefix="waifu2x-") as folder:
        path = Path(folder) / "download"
        with _in_words(url):
            cast(Any, url).fs.get_file(cast(Any, url).path, str(path))
        with path.open("rb") as file:
            yield file


@contextlib.contextmanager
def uploading(url: Path, *, replace: bool | None) -> Iterator[IO[bytes]]:
    """Gives a temporary file to write, read and seek, and uploads it at the end. Raises OSError,
    and FileExistsError if `replace` is False and the file exists; None: it stays then."""
    store = cast(Any, url)
    import tempfile  # which few need, and takes two milliseconds

    with tempfile.TemporaryDirectory(prefix="waifu2x-") as folder:
        path = Path(folder) / f"upload{url.suffix}"
        with path.open("x+b") as file:
            yield file
        mode = "overwrite" if replace else "create"
        try:
            with _in_words(url):
                store.fs.put_file(str(path), store.path, mode=mode)
        except OSError as error:
            if replace or not _is_there(url):
                raise
            if replace is False:
                message = os.strerror(errno.EEXIST)
                raise FileExistsError(errno.EEXIST, message, str(url)) from error


def _is_there(url: Path) -> bool:
    store = cast(Any, url)
    try:
        with _in_words(url):
            store.fs.invalidate_cache(store.path)
            return url.exists()
    except OSError:
        return False


@contextlib.contextmanager
def _in_words(url: Path) -> Iterator[None]:
    """Turns all exceptions of stores' libraries into OSErrors that say what is wrong."""
    try:
        yield
    except FileNotFoundError as error:
        # Its message is the name, mostly.
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(url)) from error
    except OSError as error:
        if error.strerror and error.errno:
            raise
        raise OSError(errno.EIO, _line(error), str(url)) from error
    except Exception as error:
        raise OSError(errno.EIO, _line(error), str(url)) from error


def _line(error: BaseException) -> str:
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return " ".join(text.split()) or type(error).__name__
