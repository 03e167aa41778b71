"""Fuzz targets: each hands bytes to one reader, and lets through nothing but its own refusals.

Targets are called with the bytes alone, so that Atheris (`tests/fuzz/run.py`) and the tests
(`tests/fuzz/test_corpus.py`) call the same functions.
"""

from __future__ import annotations

import asyncio
import io
import json
import traceback
import zipfile
from collections.abc import Callable
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

import waifu2x
from tests.helpers import weight_files
from waifu2x.errors import FaultError, ImageError, ModelError, Waifu2xError
from waifu2x.flows import archive_members, archive_pages, comic_info
from waifu2x.flows.jobs import Output
from waifu2x.formats.headers import declared, gif, heif, jpeg, jpeg_parts, jxl, psd, refused, tiff
from waifu2x.formats.limits import Budget, OverBudgetError
from waifu2x.formats.png import animation, chunks
from waifu2x.formats.read import extent, open_content
from waifu2x.formats.table import Quality
from waifu2x.networks.readers import chainer, parse_named, waifu2x_json
from waifu2x.networks.readers.ncnn import reader as ncnn

CORPUS = Path(__file__).parent / "corpus"
MAX_PIXELS = 50_000
"""The limit that pictures are read with: each is decoded."""
MOST_LETTERS = 1000
"""Letters of a refusal."""
_PACKAGE = str(Path(waifu2x.__file__).parent)
_FAULTS = (AssertionError, AttributeError, NameError, RecursionError, TypeError)
"""Errors that damaged data never explains, wherever they were put into words."""


class UnexpectedError(Exception):
    """A reader has let through, or has hidden, what is no refusal."""


class Target(NamedTuple):
    """A reader and the errors by which it refuses what it is given."""

    read: Callable[[bytes], object]
    refusals: tuple[type[Exception], ...]
    folder: str = ""
    """Its folder in the corpus, where that is another target's."""
    speaks: bool = True
    """Whether users see the text of a refusal."""
    needs: str = ""
    """A library that it needs and the program may lack."""

    def __call__(self, data: bytes) -> None:
        """Reads the bytes. Raises what is no refusal, and UnexpectedError for a refusal that hides
        a fault or is no sentence."""
        try:
            self.read(data)
        except self.refusals as error:
            _check(error, speaks=self.speaks)


def _check(error: Exception, *, speaks: bool) -> None:
    root: BaseException = error
    while root.__cause__ is not None:
        root = root.__cause__
    is_fault = isinstance(root, _FAULTS) and _last(root).filename.startswith(_PACKAGE)
    if is_fault or isinstance(error, FaultError):
        raise UnexpectedError(f"a fault, as {type(error).__name__}: {error}") from error
    text = str(error)
    if speaks and not (text.isprintable() and 0 < len(text) < MOST_LETTERS):
        raise UnexpectedError(f"no sentence: {text[:MOST_LETTERS]!r}") from error
    # An int() of what is no number, say, raises a ValueError, too, but in Python's words.
    if (
        speaks
        and isinstance(error, ValueError)
        and not (_last(error).line or "").startswith("raise ")
    ):
        raise UnexpectedError(f"not put into words: {text}") from error


def _last(error: BaseException) -> traceback.FrameSummary:
    """Returns where an error was raised."""
    return traceback.extract_tb(error.__traceback__)[-1]


# Models


@cache
def _sound_zip() -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(weight_files.pth(weight_files.compact(1, 3, 0)))) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def _pickle(data: bytes) -> None:
    """Reads a pickle as that of a sound file of PyTorch."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, content in _sound_zip().items():
            archive.writestr(name, data if name.endswith(".pkl") else content)
    parse_named(packed.getvalue(), "m.pth")


def _ncnn(data: bytes) -> None:
    """Reads a .param; its .bin follows behind a null byte."""
    text, _, weights = data.partition(b"\0")
    ncnn.parse(text, weights, "m.param")


# Pictures and films


def _picture(data: bytes) -> None:
    with closing(open_content(data, "p", MAX_PIXELS)) as source:
        for _ in source:
            pass


def _structure(data: bytes) -> None:
    """Walks through a picture by every parser of the program's own that its beginning fits."""
    budget = Budget(len(data))
    declared.declared(data)
    declared.of_stream(data)
    refused.reason(data)
    if data.startswith(chunks.SIGNATURE):
        animation.is_damaged(data)
        for _ in chunks.contents(data):
            pass
    elif data.startswith((b"II", b"MM")):
        tiff.parts(data, tiff.find(data, budget).pictures, budget)
    elif data.startswith(jpeg.START):
        jpeg_parts.parts(data)
    elif data.startswith(b"GIF8"):
        gif.has_colours(data)
        gif.profile(data)
    elif data.startswith(b"8BPS"):
        psd.read(data)
    elif data[4:8] == b"ftyp":
        heif.brands(data)
        heif.parts(data)
    elif jxl.is_jxl(data):
        jxl.depth(data)
        jxl.is_animated(data)
        jxl.has_gain_map(data)


def _film_marks(data: bytes) -> None:
    """Reads what the program itself reads of a film: its first bytes, and elements of EBML."""
    from waifu2x.formats.film.description import seconds_of
    from waifu2x.formats.film.reading import describe, opening

    if opening.format_of(data) == "yuv4mpegpipe":
        opening.y4m_siting(data)
    opening._has_late_index(data)
    describe._walk(data, 0, len(data), {})
    seconds_of(data.decode("utf-8", "replace"))


def _film(data: bytes) -> None:
    """Opens a film and describes it by its first frame, as the process does that reads films."""
    from waifu2x.formats.film.reading.opening import opened
    from waifu2x.formats.film.reading.reader import Reader

    file = io.BytesIO(data)
    with opened(file, "f") as container:
        Reader(container, file, "f")


# Archives and requests


def _archive(data: bytes) -> None:
    output = Output("png", Quality(None), "overwrite", pages_only=True)
    with archive_members.opened(io.BytesIO(data), "a") as archive:
        members = archive.infolist()
        names = [archive_members.MemberName.of(member) for member in members]
        for old, new in archive_pages.page_names(names, output).items():
            assert old.leaves() or not new.leaves(), new
        for member, name in zip(members, names, strict=True):
            # Larger members are bounded, too, but too slow for millions of cases.
            if member.file_size < 1 << 20:
                content = archive_members.unpacked(archive, member, "a")
                archive_pages.output_of_page(name.text, content, output)
                _comic_info(content)


def _comic_info(data: bytes) -> None:
    comic_info.without_sizes(data)
    written = comic_info.rewritten(data)
    assert written is None or comic_info.rewritten(written) is not None


def _query(data: bytes) -> None:
    """Reads the settings and the name of an upload from a query."""
    from waifu2x.serve import names
    from waifu2x.serve.job_settings import JobSettings

    query = dict(parse_qsl(data.decode("latin-1"), keep_blank_values=True))
    name = names.shown(query.get("name", "picture"))
    settings = JobSettings.of(query)
    settings.output(names.extension(name))
    for is_film in (False, True):
        settings.command(name, is_film=is_film)
    result = names.of_result(name, "png", None)
    assert "/" not in result, result
    assert "\\" not in result, result


def _body(data: bytes) -> None:
    """Reads the jobs that the body of a request names."""
    from starlette.requests import Request

    from waifu2x.serve.request_bodies import selected

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": data, "more_body": False}

    ids = asyncio.run(selected(Request({"type": "http", "headers": []}, receive)))
    assert ids is None or json.dumps(ids).isascii()


def _headers(data: bytes) -> None:
    """Decides by its headers, a line each, whether a request is answered; the first line is its
    path. None is, without the token."""
    from waifu2x.serve.security import Access

    path, *lines = data.split(b"\n")
    pairs = [line.partition(b":")[::2] for line in lines]
    access = Access.of(["n"], 80, "a token that nobody guesses", is_tls=False)
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/api/" + path.decode("latin-1"),
        "headers": [(name.lower(), value.strip()) for name, value in pairs],
    }
    assert access.refusal(scope) is not None


_REFUSED_MODEL = (ModelError,)
_REFUSED_PICTURE = (ImageError,)
_REFUSED_REQUEST = (ValueError, Waifu2xError)
TARGETS = {
    "onnx": Target(lambda data: parse_named(data, "m.onnx"), _REFUSED_MODEL),
    "pth": Target(lambda data: parse_named(data, "m.pth"), _REFUSED_MODEL),
    "pickle": Target(_pickle, _REFUSED_MODEL),
    "safetensors": Target(lambda data: parse_named(data, "m.safetensors"), _REFUSED_MODEL),
    "ncnn": Target(_ncnn, _REFUSED_MODEL),
    "waifu2x_json": Target(lambda data: waifu2x_json.parse(data, "m.json"), _REFUSED_MODEL),
    "chainer": Target(lambda data: chainer.parse(data, "m.npz"), _REFUSED_MODEL),
    "picture": Target(_picture, _REFUSED_PICTURE),
    "picture_size": Target(extent, (), "picture"),
    "picture_structure": Target(_structure, (OverBudgetError, ValueError), "picture", speaks=False),
    "film": Target(_film, _REFUSED_PICTURE, needs="av"),
    "film_marks": Target(_film_marks, (), "film", needs="av"),
    "archive": Target(_archive, _REFUSED_PICTURE),
    "comic_info": Target(_comic_info, ()),
    "query": Target(_query, _REFUSED_REQUEST, needs="starlette"),
    "body": Target(_body, _REFUSED_REQUEST, needs="starlette"),
    "headers": Target(_headers, (), needs="starlette"),
}
"""Every target by its name."""


def corpus(name: str) -> Path:
    """Returns the folder of a target's files."""
    return CORPUS / (TARGETS[name].folder or name)
