"""What strangers' files and clients may take."""

from __future__ import annotations

from waifu2x.formats.limits import MAX_PIXELS
from waifu2x.system.lazy_dataclass import dataclass

FILM_SECONDS = 12 * 3600
"""How long a film may be, in its own time."""
CROP_SIDE = 512
"""Pixels of a side of a crop, at most."""
VIEW_PIXELS = 1 << 26
"""Pixels of a view, at most: browsers refuse pictures of a few times as many."""
NAME_LENGTH = 200
"""Characters of the name of a file, at most."""
MOST_IDS = 10_000
"""Jobs that a request may name."""
HEADER_SECONDS = 10.0
"""How long a client may take to send the header of a request, and before that for TLS."""
IDLE_SECONDS = 30.0
"""How long a connection may stay open without a request."""
CHUNK_SECONDS = 20.0
"""How long a client may take until it sends, or takes, the next bytes."""
SLOWEST = 4096.0
"""Bytes a second of an upload, on average, once it has had `CHUNK_SECONDS`."""
MOST_WAITING = 128
"""Connections that may wait for a request, or have one without the token: beyond that, the oldest
is closed."""
MOST_WORKING = 128
"""Requests with the token under way at a time."""


@dataclass(frozen=True)
class ServiceLimits:
    """ServiceLimits that the command line sets."""

    max_pixels: int = MAX_PIXELS
    """Pixels of a file, all its pictures together."""
    max_bytes: int = 4 << 30
    """Bytes of a file that is sent."""
    max_queue: int = 20_000
    """Jobs that are kept, finished ones among them."""
    max_kept: int = 32 << 30
    """Bytes on the disk that all of them take."""
