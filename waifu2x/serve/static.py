"""The page's own files: exactly those that come with the package."""

from __future__ import annotations

from pathlib import Path

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

_FOLDER = Path(__file__).parent / "page"
_INDEX = "index.html"
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".woff2": "font/woff2",
}


class PageFiles:
    """The files, by name."""

    def __init__(self) -> None:
        self._names = frozenset(path.name for path in _FOLDER.iterdir() if path.suffix in _TYPES)

    async def answer(self, request: Request) -> Response:
        """One of the files; the page itself at the root."""
        name = request.path_params.get("name") or _INDEX
        if name not in self._names:
            return PlainTextResponse("There is no such page.", 404)
        path = _FOLDER / name
        return Response(path.read_bytes(), media_type=_TYPES[path.suffix])
