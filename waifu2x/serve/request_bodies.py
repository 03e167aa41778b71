"""Bodies of requests: files, streamed to the disk within limits, and lists of jobs."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Sequence
from pathlib import Path

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from waifu2x.serve.limits import CHUNK_SECONDS, MOST_IDS, SLOWEST, ServiceLimits
from waifu2x.serve.queue import DiskFullError, Queue
from waifu2x.serve.spool import Spool
from waifu2x.system.files import is_disk_full, reason

_WRITTEN = 1 << 20
"""Bytes after which the file is written."""
_LOOKED = 64 << 20
"""Bytes after which the free space is checked again."""
_BODY_BYTES = 1 << 20
_ID = re.compile(r"[\w-]{1,64}", re.ASCII)


class TooLargeError(Exception):
    """A file is too large. The text is a sentence."""


class TooSlowError(Exception):
    """A client sends too slowly. The text is a sentence."""


async def receive(
    request: Request, target: Path, limits: ServiceLimits, queue: Queue, spool: Spool
) -> None:
    """Writes the body of a request into a new file. Raises TooLargeError, TooSlowError,
    DiskFullError, QueueFullError, ClientDisconnect; the file may exist then."""
    announced = _announced(request)
    if announced > limits.max_bytes:
        raise _too_large(limits)
    await run_in_threadpool(queue.make_room, announced)
    begun, size, looked = time.monotonic(), 0, 0
    waiting = bytearray()
    chunks = request.stream()
    try:
        with target.open("xb") as file:
            while True:
                try:
                    chunk = await asyncio.wait_for(anext(chunks, None), CHUNK_SECONDS)
                except TimeoutError:
                    raise TooSlowError("The file came too slowly: send it again.") from None
                if chunk is None:
                    break
                size += len(chunk)
                if size > limits.max_bytes:
                    raise _too_large(limits)
                spent = time.monotonic() - begun
                if spent > CHUNK_SECONDS and size < (spent - CHUNK_SECONDS) * SLOWEST:
                    raise TooSlowError("The file came too slowly: send it again.")
                if size - looked >= _LOOKED:
                    looked = size
                    await run_in_threadpool(queue.make_room, size)
                waiting += chunk
                if len(waiting) >= _WRITTEN:
                    await run_in_threadpool(file.write, bytes(waiting))
                    waiting.clear()
            await run_in_threadpool(file.write, bytes(waiting))
    except OSError as error:
        if is_disk_full(error):
            raise DiskFullError("The disk is full: remove finished jobs.") from error
        raise DiskFullError(f"The file cannot be kept: {reason(error)}.") from error


def _announced(request: Request) -> int:
    text = request.headers.get("content-length", "0")
    return int(text) if text.isascii() and text.isdigit() else 0


def _too_large(limits: ServiceLimits) -> TooLargeError:
    return TooLargeError(
        f"The file is larger than {limits.max_bytes >> 20} MiB, which --max-bytes allows."
    )


async def selected(request: Request) -> Sequence[str] | None:
    """Reads the jobs that a request names: {"ids": [...]}, or {"all": true}, which gives None.
    Raises ValueError, with a sentence, for anything else."""
    body = bytearray()
    try:
        async with asyncio.timeout(CHUNK_SECONDS):
            async for chunk in request.stream():
                body += chunk
                if len(body) > _BODY_BYTES:
                    raise ValueError("The list of jobs is too long: ask for all of them.")
    except TimeoutError:
        raise ValueError("The list of jobs came too slowly: send it again.") from None
    try:
        asked = json.loads(body)
    except (ValueError, RecursionError):
        asked = None
    if asked == {"all": True}:
        return None
    ids = asked.get("ids") if isinstance(asked, dict) else None
    if not isinstance(ids, list) or not ids:
        raise ValueError('Expected JSON: {"ids": [...]} or {"all": true}.')
    if len(ids) > MOST_IDS:
        raise ValueError(f"Expected {MOST_IDS} ids at most: ask for all, or in several requests.")
    if not all(isinstance(each, str) and _ID.fullmatch(each) for each in ids):
        raise ValueError("Expected ids of jobs.")
    return list(dict.fromkeys(ids))
