"""Which name a mistyped one was meant to be."""

from __future__ import annotations

from collections.abc import Iterable

_LEAST = 0.6
"""The least likeness, by difflib's ratio, of a name that somebody may have meant."""


def nearest(word: str, names: Iterable[str]) -> str | None:
    """The one of `names` that is most like `word`, whatever its case; None if none is like it."""
    import difflib

    spelt = {name.lower(): name for name in names}
    found = difflib.get_close_matches(word.lower(), spelt, 1, _LEAST)
    return spelt[found[0]] if found else None
