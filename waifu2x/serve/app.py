"""The HTTP interface: what is asked, and what is answered. docs/how-to/serve.md describes it."""

from __future__ import annotations

import asyncio
import functools
import logging
import re
import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from waifu2x.errors import Waifu2xError
from waifu2x.serve import archive, names, uploads
from waifu2x.serve.described import described
from waifu2x.serve.downloads import Downloads, UnknownAddressError, asked_ids
from waifu2x.serve.jobs import FINISHED
from waifu2x.serve.openapi import document
from waifu2x.serve.queue import (
    DiskFullError,
    QueueFullError,
    UnknownJobError,
    WrongStateError,
)
from waifu2x.serve.request import JobSettings
from waifu2x.serve.service import Service
from waifu2x.serve.spool import source_name
from waifu2x.serve.static import PageFiles
from waifu2x.serve.uploads import TooLargeError, TooSlowError

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
"""What is answered to errors."""
_MOST_LISTED = 500
_LOOK_SECONDS = 0.05
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
"""Types of results, by the extension of what we have encoded."""
_log = logging.getLogger("waifu2x")
_Handler = Callable[["Api", Request], Awaitable[Response]]


def _answers(handler: _Handler) -> _Handler:
    """Makes answers of errors."""

    @functools.wraps(handler)
    async def answered(api: Api, request: Request) -> Response:
        try:
            return await handler(api, request)
        except ClientDisconnect:
            return Response(status_code=400)
        except tuple(_STATUS) as error:
            kind = next(kind for kind in type(error).__mro__ if kind in _STATUS)
            # What a client still sends is not read: it is told before, and then cut off.
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


class Api:
    """What answers requests, by a service."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._downloads = Downloads()

    def app(self) -> Starlette:
        """The application."""
        page = PageFiles()
        job = "/api/jobs/{id}"
        routes = [
            Route("/api/settings", self._bound(Api.settings), methods=["GET"]),
            Route("/api/openapi.json", self._bound(Api.openapi), methods=["GET"]),
            Route("/api/jobs", self._bound(Api.add), methods=["POST"]),
            Route("/api/jobs", self._bound(Api.jobs), methods=["GET"]),
            Route("/api/upscale", self._bound(Api.upscale), methods=["POST"]),
            Route("/api/downloads", self._bound(Api.offer), methods=["POST"]),
            Route("/download/{name}", self._bound(Api.download), methods=["GET"]),
            Route("/api/archive", self._bound(Api.archive), methods=["GET"]),
            Route("/api/events", self._bound(Api.events), methods=["GET"]),
            Route(job, self._bound(Api.get), methods=["GET"]),
            Route(job, self._bound(Api.remove), methods=["DELETE"]),
            Route(f"{job}/cancel", self._bound(Api.cancel), methods=["POST"]),
            Route(f"{job}/retry", self._bound(Api.retry), methods=["POST"]),
            Route(f"{job}/result", self._bound(Api.result), methods=["GET"]),
            Route(f"{job}/thumbnail", self._bound(Api.thumbnail), methods=["GET"]),
            Route(f"{job}/source", self._bound(Api.source), methods=["GET"]),
            Route(f"{job}/view", self._bound(Api.view), methods=["GET"]),
            Route(f"{job}/crop", self._bound(Api.crop), methods=["GET"]),
            Route("/", page.answer, methods=["GET"]),
            Route("/{name}", page.answer, methods=["GET"]),
        ]
        return Starlette(routes=routes)

    def _bound(self, handler: _Handler) -> Callable[[Request], Awaitable[Response]]:
        return functools.partial(handler, self)

    @_answers
    async def settings(self, request: Request) -> Response:
        """What can be asked for."""
        return JSONResponse(await run_in_threadpool(described, self._service))

    @_answers
    async def openapi(self, request: Request) -> Response:
        """This interface."""
        return JSONResponse(document())

    @_answers
    async def add(self, request: Request) -> Response:
        """A file that is sent becomes a job."""
        return JSONResponse(await self._added(request), 201)

    @_answers
    async def upscale(self, request: Request) -> Response:
        """A file that is sent, and its result as soon as it is there."""
        service = self._service
        identity = (await self._added(request))["id"]
        try:
            while (record := service.queue.get(identity)).state not in FINISHED:
                if await request.is_disconnected():
                    raise ClientDisconnect
                await asyncio.sleep(_LOOK_SECONDS)
        except ClientDisconnect:
            service.queue.remove(identity)
            raise
        if record.state != "done":
            service.queue.remove(identity)
            raise Waifu2xError(record.error or "The job was cancelled.")
        return self._file(identity, and_remove=True)

    @_answers
    async def jobs(self, request: Request) -> Response:
        """Some of the jobs."""
        start = _number(request, "from", 0, 0, 1 << 31)
        count = _number(request, "count", 200, 0, _MOST_LISTED)
        queue = self._service.queue
        listed = await run_in_threadpool(queue.listed, start, count)
        counts = queue.shown_counts()
        total = counts.pop("total")
        return JSONResponse({"total": total, "jobs": listed, "counts": counts})

    @_answers
    async def get(self, request: Request) -> Response:
        """One of them."""
        found = self._service.queue.shown(self._service.queue.get(_id(request)).id)
        if found is None:
            raise UnknownJobError("There is no such job: it was removed.")
        return JSONResponse(found)

    @_answers
    async def remove(self, request: Request) -> Response:
        """Forgets one."""
        await run_in_threadpool(self._service.queue.remove, _id(request))
        return Response(status_code=204)

    @_answers
    async def cancel(self, request: Request) -> Response:
        """Ends one."""
        return JSONResponse(self._service.queue.cancel(_id(request)))

    @_answers
    async def retry(self, request: Request) -> Response:
        """Makes one wait again."""
        queue = self._service.queue
        before = queue.get(_id(request))
        settings = await run_in_threadpool(JobSettings.of, request.query_params, before.settings)
        return JSONResponse(queue.retry(before.id, settings))

    @_answers
    async def result(self, request: Request) -> Response:
        """What was made."""
        return self._file(_id(request))

    @_answers
    async def thumbnail(self, request: Request) -> Response:
        """A small picture."""
        record = self._service.queue.get(_id(request))
        path = await run_in_threadpool(self._service.views.thumbnail, record)
        return _shown(path, "image/jpeg", "thumbnail.jpg")

    @_answers
    async def source(self, request: Request) -> Response:
        """What was sent, for the slider."""
        record = self._service.queue.get(_id(request))
        page = _number(request, "page", 0, 0, 1 << 20)
        path = await run_in_threadpool(self._service.views.source, record, page)
        return _shown(path, "image/png", "source.png")

    @_answers
    async def view(self, request: Request) -> Response:
        """What was made, for the slider."""
        record = self._service.queue.get(_id(request))
        page = _number(request, "page", 0, 0, 1 << 20)
        path = await run_in_threadpool(self._service.views.result, record, page)
        return _shown(path, "image/png", "view.png")

    @_answers
    async def crop(self, request: Request) -> Response:
        """A part of a picture by any model."""
        record = self._service.queue.get(_id(request))
        most = 1 << 31
        box = (
            _number(request, "x", 0, 0, most),
            _number(request, "y", 0, 0, most),
            _number(request, "width", None, 1, most),
            _number(request, "height", None, 1, most),
        )
        page = _number(request, "page", 0, 0, 1 << 20)
        asked = {
            name: value
            for name, value in request.query_params.items()
            if name in ("model", "noise", "scale", "tta")
        }
        settings = await run_in_threadpool(JobSettings.of, asked, record.settings)
        made = await run_in_threadpool(self._service.views.crop, record, page, box, settings)
        return Response(made, media_type="image/png", headers=_attached("crop.png"))

    @_answers
    async def archive(self, request: Request) -> Response:
        """Results as one file."""
        ids = request.query_params.get("ids")
        wanted = self._service.queue.done() if ids in (None, "", "all") else ids.split(",")
        return await self._zip(wanted)

    async def _zip(self, ids: Sequence[str]) -> Response:
        members = await run_in_threadpool(self._members, ids)
        headers = _attached("waifu2x.zip")
        return StreamingResponse(
            archive.zipped(members), media_type="application/zip", headers=headers
        )

    @_answers
    async def offer(self, request: Request) -> Response:
        """An address for a browser, which saves one result, or several as a ZIP."""
        queue = self._service.queue
        ids = await asked_ids(request, queue.done)
        await run_in_threadpool(self._members, ids)  # says now what is wrong with them
        return JSONResponse({"address": f"/download/{self._downloads.offer(ids)}"}, 201)

    @_answers
    async def download(self, request: Request) -> Response:
        """What such an address is for."""
        ids = self._downloads.take(str(request.path_params["name"]))
        if len(ids) == 1:
            return self._file(ids[0])
        return await self._zip(ids)

    @_answers
    async def events(self, request: Request) -> Response:
        """What happens."""
        if self._service.events.is_full:
            return JSONResponse({"error": "Too many pages are open."}, 503)
        last = request.headers.get("last-event-id", "")
        known = int(last) if re.fullmatch(r"\d{1,15}", last, re.ASCII) else None
        stream = self._service.events.stream(known)
        return StreamingResponse(stream, media_type="text/event-stream")

    async def _added(self, request: Request) -> dict[str, Any]:
        service, query = self._service, request.query_params
        settings = await run_in_threadpool(JobSettings.of, query, service.defaults)
        name = names.shown(query.get("name", "picture"))
        identity, folder = await run_in_threadpool(service.spool.new)
        is_kept = False
        try:
            path = folder / source_name(name)
            await uploads.receive(request, path, service.limits, service.queue, service.spool)
            added = await run_in_threadpool(service.add, identity, path, name, settings)
            is_kept = True
            return added
        finally:
            if not is_kept:
                service.spool.remove(identity)

    def _file(self, identity: str, *, and_remove: bool = False) -> Response:
        service = self._service
        record = service.queue.get(identity)
        if record.result is None:
            raise WrongStateError("There is no result: the job is not done.")
        path = service.spool.result(record)
        if not path.exists():
            raise UnknownJobError("The result is gone.")
        response = FileResponse(
            path,
            media_type=_TYPES.get(record.result.format, "application/octet-stream"),
            headers=_attached(record.result.name),
        )
        if and_remove:
            return _Removing(response, lambda: service.queue.remove(identity))
        return response

    def _members(self, ids: Sequence[str]) -> list[tuple[str, Path]]:
        service = self._service
        found = [service.queue.get(identity) for identity in ids]
        done = [(record, record.result) for record in found if record.result is not None]
        if not done:
            raise UnknownJobError("Nothing is done yet that could be packed.")
        called = archive.member_names([result.name for _, result in done])
        paths = [service.spool.result(record) for record, _ in done]
        return list(zip(called, paths, strict=True))


class _Removing(Response):
    """A response after which its job is removed, also where the client goes away."""

    def __init__(self, response: Response, remove: Callable[[], None]) -> None:
        self._response = response
        self._remove = remove
        self.background = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers."""
        try:
            await self._response(scope, receive, send)
        finally:
            with suppress(UnknownJobError):
                await run_in_threadpool(self._remove)


def _id(request: Request) -> str:
    return str(request.path_params["id"])


def _number(request: Request, name: str, default: int | None, least: int, most: int) -> int:
    text = request.query_params.get(name)
    if text is None and default is not None:
        return default
    if text is None or not re.fullmatch(r"\d{1,10}", text, re.ASCII):
        raise ValueError(f"{name}: expected a whole number.")
    if not least <= int(text) <= most:
        raise ValueError(f"{name}: expected {least} to {most}.")
    return int(text)


def _attached(name: str) -> dict[str, str]:
    """Headers of an answer that is a file of that name, and no page."""
    return {"content-disposition": f"attachment; filename*=UTF-8''{quote(name, safe='')}"}


def _shown(path: Path, kind: str, name: str) -> Response:
    return FileResponse(path, media_type=kind, headers=_attached(name))
