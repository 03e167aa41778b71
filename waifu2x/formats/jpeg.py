"""The segments of a JPEG, looked at before a decoder is: some are cheap to write and dear to read.

ISO/IEC 10918-1, annex B.
"""

from __future__ import annotations

import re

from waifu2x.formats.limits import Budget, OverBudgetError

SIGNATURE = b"\xff\xd8\xff"
_MOST_SCANS = 500
"""Passes over the pixels of a progressive picture: each takes as long as its size says."""
_PROGRESSIVE, _END, _SCAN, _FILL = 0xC2, 0xD9, 0xDA, 0xFF
_BARE = (0x00, 0x01, *range(0xD0, 0xD9))
"""Markers without a length."""
_MARKER = rb"\xff[^\x00\xd0-\xd7\xff]"
"""What ends the coded data of a scan."""


def check(data: bytes) -> None:
    """Raises OverBudgetError for a JPEG of more segments, bytes between them or scans than sound
    ones have."""
    budget, scans, progressive = Budget(len(data)), 0, False
    at = 2
    while at + 4 <= len(data):
        budget.visit()
        if data[at] != _FILL:
            at = data.find(b"\xff", at)
            if at < 0:
                return
            continue
        kind = data[at + 1]
        if kind == _FILL:
            at += 1
            continue
        if kind == _END:
            return
        if kind in _BARE:
            at += 2
            continue
        at += 2 + int.from_bytes(data[at + 2 : at + 4], "big")
        progressive |= kind == _PROGRESSIVE
        if kind == _SCAN:
            scans += 1
            if scans > _MOST_SCANS:
                raise OverBudgetError(f"it has more than the {_MOST_SCANS} scans that are read")
            found = re.compile(_MARKER).search(data, at) if progressive else None
            if found is None:
                return
            at = found.start()
