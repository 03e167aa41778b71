"""Describes the HTTP interface by OpenAPI 3.1."""

from __future__ import annotations

from typing import Any

from waifu2x import __version__
from waifu2x.api.settings.setting import Setting
from waifu2x.api.settings.table import HTTP
from waifu2x.serve.job_settings import KEPT
from waifu2x.serve.jobs import STATES
from waifu2x.serve.limits import CROP_SIDE, MOST_IDS

_TEXT = {"type": "string"}
_WHOLE = {"type": "integer", "minimum": 0}
_NUMBER = {"type": "number"}
_BYTES = {"schema": {"type": "string", "format": "binary"}}


def document() -> dict[str, Any]:
    """Returns the answer to GET /api/openapi.json."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "waifu2x serve",
            "version": __version__,
            "description": "Enlarges and denoises pictures on this machine. Errors are sentences.",
        },
        "security": [{"token": []}],
        "paths": _paths(),
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": _SCHEMAS,
        },
    }


def _paths() -> dict[str, Any]:
    job, binary = _reference("Job"), {"application/octet-stream": _BYTES}
    added = {"parameters": [_query("name", _TEXT, "Name of the file"), *_SETTINGS]}
    body = {"requestBody": {"required": True, "content": binary}}
    page = _query("page", _WHOLE, "Picture of an animation or archive, from 0")
    one = "/api/jobs/{id}"
    paths: dict[str, Any] = {
        "/api/settings": {"get": _does("settings", "What can be asked for", _json({}))},
        "/api/openapi.json": {"get": _does("openapi", "This description", _json({}))},
        "/api/jobs": {
            "post": {
                **_does("add", "Add a file to the queue", _json(job), status="201"), **added, **body
            },
            "get": {
                **_does("jobs", _CHANGES, _json(_LIST)),
                "parameters": [_query("since", _WHOLE, "Version of an answer before; 0 for all")],
            },
        },
        **_of_many(),
        "/api/upscale": {
            "post": {**_does("upscale", "A file, and its result", binary), **added, **body}
        },
        "/api/downloads": {
            "post": {
                **_does(
                    "offer",
                    "An address that works once, without the token, for a browser to save",
                    _json(_object(address=_TEXT)),
                    status="201",
                ),
                "requestBody": {"required": True, "content": _json(_WANTED)},
            }
        },
        "/api/archive": {
            "get": {
                **_does("archive", "Results as one ZIP", {"application/zip": _BYTES}),
                "parameters": [_query("ids", _TEXT, "Ids with commas between; all without it")],
            }
        },
        one: {
            "get": _does("get", "A job", _json(job)),
            "delete": _does("remove", "Remove a job and its files for good", {}, status="204"),
        },
        f"{one}/cancel": {"post": _does("cancel", "Cancel a job", _json(job))},
        f"{one}/retry": {
            "post": {**_does("retry", "Make a finished job anew", _json(job)),
                     "parameters": _SETTINGS}
        },
        f"{one}/result": {"get": _does("result", "The result", binary)},
        f"{one}/thumbnail": {
            "get": _does("thumbnail", "A small picture of the source", {"image/jpeg": _BYTES})
        },
    }  # fmt: skip
    for name, text in {"source": "The source as a PNG", "view": "The result as a PNG"}.items():
        made = _does(name, text, {"image/png": _BYTES})
        paths[f"{one}/{name}"] = {"get": {**made, "parameters": [page]}}
    side = {"type": "integer", "minimum": 1, "maximum": CROP_SIDE}
    crop = [
        _query("x", _WHOLE, "Left edge in pixels of the source"),
        _query("y", _WHOLE, "Upper edge"),
        _query("width", side, "Width", required=True),
        _query("height", side, "Height", required=True),
        page,
        *(one for one in _SETTINGS if one["name"] in ("model", "noise", "scale", "tta")),
    ]
    made = _does("crop", "A part of the source by any model", {"image/png": _BYTES})
    paths[f"{one}/crop"] = {"get": {**made, "parameters": crop}}
    for path, methods in paths.items():
        if "{id}" in path:
            methods["parameters"] = [
                {"name": "id", "in": "path", "required": True, "schema": _TEXT}
            ]
    return paths


def _of_many() -> dict[str, Any]:
    told = {
        "cancel": "Cancel jobs, or all that are not finished",
        "remove": "Remove jobs, or all that are finished; for ten minutes they can be restored",
        "restore": "Restore removed jobs, or those that were removed last, together",
        "retry": "Make finished jobs anew, or all that have failed or were cancelled",
    }
    body = {"required": True, "content": _json(_WANTED)}
    paths: dict[str, Any] = {
        f"/api/jobs/{name}": {
            "post": {**_does(f"{name}All", text, _json(_object(changed=_WHOLE))),
                     "requestBody": body}
        }
        for name, text in told.items()
    }  # fmt: skip
    paths["/api/jobs/retry"]["post"]["parameters"] = _SETTINGS
    return paths


def _does(
    name: str, summary: str, content: dict[str, Any], *, status: str = "200"
) -> dict[str, Any]:
    answer: dict[str, Any] = {"description": "Done"}
    if content:
        answer["content"] = content
    error = {"description": "An error", "content": _json(_reference("Error"))}
    return {
        "operationId": name,
        "summary": summary,
        "responses": {status: answer, "default": error},
    }


def _query(name: str, schema: Any, text: str, *, required: bool = False) -> dict[str, Any]:
    return {"name": name, "in": "query", "required": required, "schema": schema,
            "description": text}  # fmt: skip


def _json(schema: Any) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


def _reference(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


def _or_null(*kinds: str) -> dict[str, Any]:
    return {"type": [*kinds, "null"]}


def _object(**fields: Any) -> dict[str, Any]:
    return {"type": "object", "properties": fields, "required": list(fields)}


def _sentences(text: str) -> dict[str, Any]:
    return {"type": "array", "items": _TEXT, "description": text}


_CHANGES = (
    "What has changed since a version: jobs in the order of their changes, and the ids of removed"
    " ones. `version` is for the next request, at once if there is `more`. `begins` says that"
    " the answer begins a list of all jobs"
)


def _schema(row: Setting) -> dict[str, Any]:
    """Returns the schema of a parameter; "" is for nothing chosen, where that is the default."""
    kind, unset = row.kind, [""] if row.default is None else []
    if not kind.words:
        return {"type": kind.json}
    return {"enum": [*unset, *map(kind.kept, kind.words)]}


_SETTINGS = [_query(row.parameter, _schema(row), row.http) for row in HTTP]
_COUNTS = _object(**dict.fromkeys(STATES, _WHOLE))
_LIST = _object(
    version=_WHOLE,
    begins={"type": "boolean"},
    more={"type": "boolean"},
    jobs={"type": "array", "items": _reference("Job")},
    removed={"type": "array", "items": _TEXT},
    counts=_COUNTS,
    total=_WHOLE,
    restorable=_WHOLE,
)
_WANTED = {
    "oneOf": [
        _object(ids={"type": "array", "items": _TEXT, "minItems": 1, "maxItems": MOST_IDS}),
        _object(all={"const": True}),
    ]
}
_SCHEMAS = {
    "Error": _object(error={"type": "string", "description": "A sentence"}),
    "Settings": _object(
        **{
            row.parameter: _or_null(row.kind.json)
            if row.default is None
            else {"type": row.kind.json}
            for row in KEPT
        }
    ),
    "Source": _object(width=_WHOLE, height=_WHOLE, bytes=_WHOLE, format=_TEXT, pages=_WHOLE),
    "Result": _object(
        name=_TEXT, width=_WHOLE, height=_WHOLE, bytes=_WHOLE, format=_TEXT, seconds=_NUMBER
    ),
    "Job": _object(
        id=_TEXT,
        number={"type": "integer", "description": "Its place in the list"},
        name=_TEXT,
        kind={"enum": ["picture", "animation", "archive", "film"]},
        state={"enum": list(STATES)},
        position=_or_null("integer"),
        source={"anyOf": [_reference("Source"), {"type": "null"}]},
        settings=_reference("Settings"),
        progress={"type": "number", "minimum": 0, "maximum": 1},
        preparing={
            **_or_null("number"),
            "description": "For how many seconds networks have been compiled that it may wait for",
        },
        rate=_or_null("number"),
        seconds_left=_or_null("number"),
        error=_or_null("string"),
        result={"anyOf": [_reference("Result"), {"type": "null"}]},
        lost=_sentences("What the result lacks: its sound, or what could not be read"),
        notices=_sentences("What else changed or was decided, as the command line says it"),
        command=_TEXT,
        created=_NUMBER,
        version=_WHOLE,
    ),
}
