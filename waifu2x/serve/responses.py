"""Responses: files, errors, and the files of the page."""

from __future__ import annotations

import functools
import logging
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response
from starlette.types import Receive, Scope, Send

from waifu2x.errors import Waifu2xError
from waifu2x.serve.downloads import UnknownAddressError
from waifu2x.serve.jobs import JobRecord
from waifu2x.serve.queue import (
    DiskFullError,
    QueueFullError,
    UnknownJobError,
    WrongStateError,
)
from waifu2x.serve.request_bodies import TooLargeError, TooSlowError
from waifu2x.serve.spool import Spool

_Api = TypeVar("_Api")
_STATUS: dict[type[Exception], int] = {
    ValueError: 400,
    UnknownAddressError: 404,
    UnknownJobError: 404,
    TooSlowError: 408,
    WrongStateError: 409,
    TooLargeError: 413,
    Waifu2xError: 422,
    QueueFullError: 429,
    DiskFullError: 507,
}
"""Status codes of errors."""
_TYPES = {
    "png": "image/png", "apng": "image/png", "jpg": "image/jpeg", "jpeg": "image/jpeg",
    "jpe": "image/jpeg", "jfif": "image/jpeg", "webp": "image/webp", "tif": "image/tiff",
    "tiff": "image/tiff", "bmp": "image/bmp", "dib": "image/bmp", "gif": "image/gif",
    "avif": "image/avif", "jp2": "image/jp2", "jxl": "image/jxl", "heic": "image/heic",
    "heif": "image/heif", "hif": "image/heif", "qoi": "image/qoi", "tga": "image/x-tga",
    "ppm": "image/x-portable-pixmap", "pgm": "image/x-portable-graymap",
    "pnm": "image/x-portable-anymap", "zip": "application/zip",
    "cbz": "application/vnd.comicbook+zip", "mkv": "video/x-matroska", "mp4": "video/mp4",
    "mov": "video/quicktime", "webm": "video/webm",
}  # fmt: skip
"""Types of results, by extension."""
_PAGE = Path(__file__).parent / "page"
_INDEX = "index.html"
_PAGE_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".woff2": "font/woff2",
}
_log = logging.getLogger("waifu2x")
_Handler = Callable[[_Api, Request], Awaitable[Response]]


def answers(handler: _Handler[_Api]) -> _Handler[_Api]:
    """Wraps a handler: errors become responses."""

    @functools.wraps(handler)
    async def answered(api: _Api, request: Request) -> Response:
        try:
            return await handler(api, request)
        except ClientDisconnect:
            return Response(status_code=400)
        except tuple(_STATUS) as error:
            kind = next(kind for kind in type(error).__mro__ if kind in _STATUS)
            # The rest of the body is not read: the client is told, then cut off.
            headers = {"connection": "close"} if request.method == "POST" else None
            return JSONResponse({"error": str(error)}, _STATUS[kind], headers)
        except sqlite3.Error as error:
            told = f"The queue cannot be written ({error}): remove finished jobs."
            return JSONResponse({"error": told}, 507)
        except MemoryError:
            return JSONResponse({"error": "There is not enough memory."}, 507)
        except Exception as error:
            _log.error("a request failed: %s: %s", type(error).__name__, error)
            return JSONResponse({"error": "This is a defect of the program."}, 500)

    return answered


class RemovingResponse(Response):
    """A response after which its job is removed, even if the client disconnects."""

    def __init__(self, response: Response, remove: Callable[[], None]) -> None:
        self._response = response
        self._remove = remove
        self.background = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._response(scope, receive, send)
        finally:
            with suppress(UnknownJobError):
                await run_in_threadpool(self._remove)


def result_file(spool: Spool, record: JobRecord) -> FileResponse:
    """Returns the result of a job as a response. Raises WrongStateError, UnknownJobError."""
    if record.result is None:
        raise WrongStateError("There is no result: the job is not done.")
    path = spool.result(record)
    if not path.exists():
        raise UnknownJobError("The result is gone.")
    kind = _TYPES.get(record.result.format, "application/octet-stream")
    return FileResponse(path, media_type=kind, headers=attached(record.result.name))


def attached(name: str) -> dict[str, str]:
    """Returns headers that make a response a file of that name, never a page."""
    return {"content-disposition": f"attachment; filename*=UTF-8''{quote(name, safe='')}"}


def shown(path: Path, kind: str, name: str) -> Response:
    """Returns a file that the server has encoded for the page, of type `kind`."""
    return FileResponse(path, media_type=kind, headers=attached(name))


class PageFiles:
    """The files of the page, by name: exactly those of the package."""

    def __init__(self) -> None:
        self._names = frozenset(path.name for path in _PAGE.iterdir() if path.suffix in _PAGE_TYPES)

    async def answer(self, request: Request) -> Response:
        """Sends one of the files; at the root, the page."""
        name = request.path_params.get("name") or _INDEX
        if name not in self._names:
            return PlainTextResponse("There is no such page.", 404)
        path = _PAGE / name
        return Response(path.read_bytes(), media_type=_PAGE_TYPES[path.suffix])
