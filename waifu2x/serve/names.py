"""Names of files as clients send them: made fit to be shown, and harmless as names of results."""

from __future__ import annotations

import re
from fractions import Fraction
from pathlib import PurePosixPath

from waifu2x.flows import naming
from waifu2x.formats import film
from waifu2x.serve.limits import NAME_LENGTH

_SEPARATORS = re.compile(r"[/\\]")
_UNUSABLE = re.compile(r'[\x00-\x1f\x7f<>:"|?*]')
"""Characters that some system forbids in file names."""
_RESERVED = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)
"""Names of devices on Windows."""
_LONGEST_STEM = 120
"""In bytes, so that a name with scale and extension fits 255."""


def shown(sent: str) -> str:
    """Returns a file's name to be shown: without folders, on one line, not too long."""
    last = _SEPARATORS.split(sent)[-1]
    plain = "".join(each if each.isprintable() else "�" for each in last)
    return plain[-NAME_LENGTH:] or "picture"


def extension(name: str) -> str:
    """Returns a name's extension in lower case, without the dot; empty if there is none."""
    return PurePosixPath(name).suffix[1:].lower()


def film_extension(name: str) -> str:
    """Returns the extension of a film's result."""
    return film.result_extension(extension(name))


def of_result(name: str, suffix: str, scale: Fraction | None) -> str:
    """Returns a name for the result of the file `name`, valid on any system. With `scale`, it says
    how much larger the result is."""
    stem = _UNUSABLE.sub("_", PurePosixPath(shown(name)).stem).strip(" .")
    while len(stem.encode()) > _LONGEST_STEM:
        stem = stem[:-1]
    stem = stem.strip(" .") or "picture"
    if _RESERVED.fullmatch(stem):
        stem = f"_{stem}"
    template = naming.ELSEWHERE if scale is None else naming.BESIDE
    scaled = "" if scale is None else naming.shown(scale)
    return template.format(stem=stem, scale=scaled, ext=f".{suffix}")
