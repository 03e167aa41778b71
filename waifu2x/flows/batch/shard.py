"""A part of a folder, for machines that know nothing of each other."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from typing import NamedTuple


class Shard(NamedTuple):
    """One part of a folder that is divided by a hash of its files' names."""

    number: int
    """From 1 on."""
    parts: int

    def holds(self, path: str) -> bool:
        """Whether a file is in this part, by its path in the folder, with slashes.

        A hash of the path decides, the same on every machine, so another file moves none. Systems
        write accents in two ways, which count as one.
        """
        written = unicodedata.normalize("NFC", path).encode("utf-8", "surrogatepass")
        digest = hashlib.blake2b(written, digest_size=8).digest()
        return int.from_bytes(digest, "big") % self.parts == self.number - 1


def shard_of(text: str) -> Shard:
    """The part that text like 3/16 means. Raises ValueError."""
    match = re.fullmatch(r"([1-9]\d{0,5})/([1-9]\d{0,5})", text, re.ASCII)
    if not match or int(match[1]) > int(match[2]):
        raise ValueError(f"Expected a part like 3/16, but got {text!r}")
    return Shard(int(match[1]), int(match[2]))
