"""The HTTP interface of the page. docs/how-to/serve.md describes its requests and answers."""

from __future__ import annotations

import asyncio
import functools
import re
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from waifu2x.errors import Waifu2xError
from waifu2x.serve import downloads, names
from waifu2x.serve.capabilities import capabilities
from waifu2x.serve.connections import DOWNLOAD
from waifu2x.serve.downloads import Downloads
from waifu2x.serve.job_settings import JobSettings
from waifu2x.serve.jobs import FINISHED, JobRecord
from waifu2x.serve.openapi import document
from waifu2x.serve.queue import UnknownJobError
from waifu2x.serve.request_bodies import receive, selected
from waifu2x.serve.responses import (
    PageFiles,
    RemovingResponse,
    answers,
    attached,
    result_file,
    shown,
)
from waifu2x.serve.service import Service
from waifu2x.serve.spool import source_name

_Handler = Callable[["Api", Request], Awaitable[Response]]
_LOOK_SECONDS = 0.05


class Api:
    """Answers requests for one service."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._downloads = Downloads()

    def app(self) -> Starlette:
        """Returns the application with all its routes."""
        page = PageFiles()
        job = "/api/jobs/{id}"
        routes = [
            Route("/api/settings", self._bound(Api.settings), methods=["GET"]),
            Route("/api/openapi.json", self._bound(Api.openapi), methods=["GET"]),
            Route("/api/jobs", self._bound(Api.add), methods=["POST"]),
            Route("/api/jobs", self._bound(Api.jobs), methods=["GET"]),
            Route("/api/jobs/cancel", self._bound(Api.cancel_all), methods=["POST"]),
            Route("/api/jobs/remove", self._bound(Api.remove_all), methods=["POST"]),
            Route("/api/jobs/restore", self._bound(Api.restore_all), methods=["POST"]),
            Route("/api/jobs/retry", self._bound(Api.retry_all), methods=["POST"]),
            Route("/api/upscale", self._bound(Api.upscale), methods=["POST"]),
            Route("/api/downloads", self._bound(Api.offer), methods=["POST"]),
            Route(f"{DOWNLOAD}{{name}}", self._bound(Api.download), methods=["GET"]),
            Route("/api/archive", self._bound(Api.archive), methods=["GET"]),
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

    @answers
    async def settings(self, request: Request) -> Response:
        return JSONResponse(await run_in_threadpool(capabilities, self._service))

    @answers
    async def openapi(self, request: Request) -> Response:
        return JSONResponse(document())

    @answers
    async def add(self, request: Request) -> Response:
        """Makes a job of the file that the request sends."""
        return JSONResponse(await self._added(request), 201)

    @answers
    async def upscale(self, request: Request) -> Response:
        """Takes a file and answers with its result, once that is made."""
        service = self._service
        queue, identity = service.queue, (await self._added(request))["id"]
        try:
            while (record := await run_in_threadpool(queue.get, identity)).state not in FINISHED:
                if await request.is_disconnected():
                    raise ClientDisconnect
                await asyncio.sleep(_LOOK_SECONDS)
        except ClientDisconnect:
            await run_in_threadpool(queue.remove, identity)
            raise
        if record.state != "done":
            await run_in_threadpool(queue.remove, identity)
            raise Waifu2xError(record.error or "The job was cancelled.")
        response = await run_in_threadpool(result_file, service.spool, record)
        return RemovingResponse(response, lambda: queue.remove(identity))

    @answers
    async def jobs(self, request: Request) -> Response:
        """Tells what has changed since a version, or lists all jobs."""
        since = _number(request, "since", 0, 0, 1 << 49)
        return JSONResponse(await run_in_threadpool(self._service.queue.changes, since))

    @answers
    async def get(self, request: Request) -> Response:
        return JSONResponse(await run_in_threadpool(self._service.queue.shown, _id(request)))

    @answers
    async def remove(self, request: Request) -> Response:
        await run_in_threadpool(self._service.queue.remove, _id(request))
        return Response(status_code=204)

    @answers
    async def cancel(self, request: Request) -> Response:
        return JSONResponse(await run_in_threadpool(self._service.queue.cancel, _id(request)))

    @answers
    async def retry(self, request: Request) -> Response:
        before = await self._record(request)
        settings = await run_in_threadpool(JobSettings.of, request.query_params, before.settings)
        return JSONResponse(await run_in_threadpool(self._service.queue.retry, before.id, settings))

    @answers
    async def cancel_all(self, request: Request) -> Response:
        """Cancels the named jobs, or all unfinished ones."""
        return await _changed(self._service.queue.cancel_all, await selected(request))

    @answers
    async def remove_all(self, request: Request) -> Response:
        """Removes the named jobs, or all finished ones."""
        return await _changed(self._service.queue.remove_all, await selected(request))

    @answers
    async def restore_all(self, request: Request) -> Response:
        """Restores the named jobs, or those that were removed last."""
        return await _changed(self._service.queue.restore_all, await selected(request))

    @answers
    async def retry_all(self, request: Request) -> Response:
        """Retries the named jobs, or all failed and cancelled ones."""
        query, ids = request.query_params, await selected(request)
        await run_in_threadpool(JobSettings.of, query)  # raises for what suits no job

        def settings(before: JobSettings) -> JobSettings | None:
            try:
                return JobSettings.of(query, before)
            except (ValueError, Waifu2xError):
                return None

        return await _changed(self._service.queue.retry_all, ids, settings)

    @answers
    async def result(self, request: Request) -> Response:
        return await run_in_threadpool(
            result_file, self._service.spool, await self._record(request)
        )

    @answers
    async def thumbnail(self, request: Request) -> Response:
        record = await self._record(request)
        path = await run_in_threadpool(self._service.views.thumbnail, record)
        return shown(path, "image/jpeg", "thumbnail.jpg")

    @answers
    async def source(self, request: Request) -> Response:
        """Sends a picture of the source, as a PNG for the slider."""
        return await self._view(request, self._service.views.source, "source.png")

    @answers
    async def view(self, request: Request) -> Response:
        """Sends a picture of the result, as a PNG for the slider."""
        return await self._view(request, self._service.views.result, "view.png")

    async def _view(
        self, request: Request, make: Callable[[JobRecord, int], Path], name: str
    ) -> Response:
        record = await self._record(request)
        page = _number(request, "page", 0, 0, 1 << 20)
        return shown(await run_in_threadpool(make, record, page), "image/png", name)

    @answers
    async def crop(self, request: Request) -> Response:
        """Sends a part of the source, enlarged by any model."""
        record = await self._record(request)
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
        own = record.settings.of_film() if record.kind == "film" else record.settings
        settings = await run_in_threadpool(JobSettings.of, asked, own)
        made = await run_in_threadpool(self._service.views.crop, record, page, box, settings)
        return Response(made, media_type="image/png", headers=attached("crop.png"))

    @answers
    async def archive(self, request: Request) -> Response:
        """Sends results as one ZIP."""
        ids = request.query_params.get("ids", "all") or "all"
        return await self._zip(None if ids == "all" else ids.split(","))

    async def _zip(self, ids: Sequence[str] | None) -> Response:
        members = await run_in_threadpool(self._members, ids)
        headers = attached("waifu2x.zip")
        return StreamingResponse(
            downloads.zipped(members), media_type="application/zip", headers=headers
        )

    @answers
    async def offer(self, request: Request) -> Response:
        """Makes an address where a browser saves one result, or several as a ZIP."""
        ids = await selected(request)
        if ids is None:
            ids = [record.id for record in await run_in_threadpool(self._service.queue.done)]
        await run_in_threadpool(self._members, ids)  # raises here if a result is missing
        return JSONResponse({"address": f"{DOWNLOAD}{self._downloads.offer(ids)}"}, 201)

    @answers
    async def download(self, request: Request) -> Response:
        """Sends the results of such an address."""
        ids = self._downloads.take(str(request.path_params["name"]))
        if len(ids) > 1:
            return await self._zip(ids)
        service = self._service
        record = await run_in_threadpool(service.queue.get, ids[0])
        return await run_in_threadpool(result_file, service.spool, record)

    async def _added(self, request: Request) -> dict[str, Any]:
        service, query = self._service, request.query_params
        settings = await run_in_threadpool(JobSettings.of, query, service.defaults)
        name = names.shown(query.get("name", "picture"))
        identity, folder = await run_in_threadpool(service.spool.new)
        is_kept = False
        try:
            path = folder / source_name(name)
            await receive(request, path, service.limits, service.queue, service.spool)
            added = await run_in_threadpool(service.add, identity, path, name, settings)
            is_kept = True
            return added
        finally:
            if not is_kept:
                await run_in_threadpool(service.spool.remove, identity)

    async def _record(self, request: Request) -> JobRecord:
        return await run_in_threadpool(self._service.queue.get, _id(request))

    def _members(self, ids: Sequence[str] | None) -> list[tuple[str, Path]]:
        service = self._service
        queue = service.queue
        found = queue.done() if ids is None else [queue.get(identity) for identity in ids]
        done = [(record, record.result) for record in found if record.result is not None]
        if not done:
            raise UnknownJobError("Nothing is done yet that could be packed.")
        called = downloads.member_names([result.name for _, result in done])
        paths = [service.spool.result(record) for record, _ in done]
        return list(zip(called, paths, strict=True))


async def _changed(change: Callable[..., int], *arguments: Any) -> Response:
    """Answers a request for many jobs with the number that `change` has changed."""
    return JSONResponse({"changed": await run_in_threadpool(change, *arguments)})


def _id(request: Request) -> str:
    return str(request.path_params["id"])


def _number(request: Request, name: str, default: int | None, least: int, most: int) -> int:
    """Reads a whole number from the query. Raises ValueError, with a sentence."""
    text = request.query_params.get(name)
    if text is None and default is not None:
        return default
    if text is None or not re.fullmatch(r"\d{1,15}", text, re.ASCII):
        raise ValueError(f"{name}: expected a whole number.")
    if not least <= int(text) <= most:
        raise ValueError(f"{name}: expected {least} to {most}.")
    return int(text)
