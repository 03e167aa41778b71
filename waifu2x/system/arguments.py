"""Checks of users' input, and words for what is wrong with it."""

from __future__ import annotations

import operator
from collections.abc import Container, Iterable, Sequence
from typing import Any

_LEAST = 0.6
"""The least likeness, by difflib's ratio, of a name that may have been meant."""


def integer(value: Any, allowed: Container[int], expected: str) -> int:
    """Returns an argument as an int: NumPy's integers are accepted, 2.0 and True are not. Raises
    ValueError, which names what was `expected`, unless the number is in `allowed`."""
    try:
        number = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = None
    if number is None or number not in allowed:
        raise ValueError(f"Expected {expected}, but got {value!r}")
    return number


def nearest(word: str, names: Iterable[str]) -> str | None:
    """Returns the name that is most like `word`, in any case; None if none is like it."""
    import difflib

    spelt = {name.lower(): name for name in names}
    found = difflib.get_close_matches(word.lower(), spelt, 1, _LEAST)
    return spelt[found[0]] if found else None


def listed(names: Sequence[str], last: str = "or") -> str:
    """Joins names in a sentence: a, b or c."""
    *others, end = names
    return f"{', '.join(others)} {last} {end}" if others else end
