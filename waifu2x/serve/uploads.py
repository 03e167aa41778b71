"""Files that are sent: streamed to the disk, and bounded while they stream."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request

from waifu2x.serve.limits import CHUNK_SECONDS, SLOWEST, ServiceLimits
from waifu2x.serve.queue import DiskFullError, Queue
from waifu2x.serve.spool import Spool
from waifu2x.system.files import is_disk_full, reason

_WRITTEN = 1 << 20
"""Bytes that are written at a time."""
_LOOKED = 64 << 20
"""Bytes after which the disk is looked at again."""


class TooLargeError(Exception):
    """A file is larger than may be. Its text is a sentence."""


class TooSlowError(Exception):
    """A client sends too little. Its text is a sentence."""


async def receive(
    request: Request, target: Path, limits: ServiceLimits, queue: Queue, spool: Spool
) -> None:
    """Writes the body of a request into a new file.

    Raises TooLargeError, TooSlowError, DiskFullError, QueueFullError, ClientDisconnect; the file
    may be there then.
    """
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
    except ClientDisconnect:
        raise
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
