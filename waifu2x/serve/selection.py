"""Jobs that a request names in its body: some by their ids, or all."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Sequence

from starlette.requests import Request

from waifu2x.serve.limits import CHUNK_SECONDS, MOST_IDS

_BODY_BYTES = 1 << 20
_ID = re.compile(r"[\w-]{1,64}", re.ASCII)


async def selected(request: Request) -> Sequence[str] | None:
    """The jobs that the JSON of a request names: {"ids": [...]}, or None for {"all": true}.

    Raises ValueError, with a sentence, for anything else.
    """
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
