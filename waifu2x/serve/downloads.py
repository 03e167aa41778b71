"""Addresses from which a browser saves results by itself, straight to its disk.

What is fetched with a token in a header ends in the memory of a page; a link has no header. So a
page that has the token asks for an address that nobody can guess, which works once, and not for
long.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence

from waifu2x.errors import Waifu2xError

SECONDS = 60
"""How long an address works."""
_MOST = 1000
"""Addresses at a time; the oldest ones end first."""


class UnknownAddressError(Waifu2xError):
    """An address was used before, is too old, or never was."""


class Downloads:
    """Addresses that were given out, each for some jobs."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._offered: dict[str, tuple[float, tuple[str, ...]]] = {}

    def offer(self, ids: Sequence[str]) -> str:
        """The name of a new address for the results of these jobs."""
        name = secrets.token_urlsafe(24)
        self._offered[name] = (self._clock() + SECONDS, tuple(ids))
        while len(self._offered) > _MOST:
            del self._offered[next(iter(self._offered))]
        return name

    def take(self, name: str) -> tuple[str, ...]:
        """The jobs of an address, which ends by this. Raises UnknownAddressError."""
        until, ids = self._offered.pop(name, (-1.0, ()))
        if self._clock() > until:
            raise UnknownAddressError("This address is no longer valid: download it on the page.")
        return ids
