"""Checks of arguments that Python programs give."""

from __future__ import annotations

import operator
from collections.abc import Container
from typing import Any


def integer(value: Any, allowed: Container[int], expected: str) -> int:
    """An argument as an int: NumPy's integers are welcome, 2.0 and True are mistakes.

    Raises ValueError, which says what was `expected`, unless the number is among those `allowed`.
    """
    try:
        number = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = None
    if number is None or number not in allowed:
        raise ValueError(f"Expected {expected}, but got {value!r}")
    return number
