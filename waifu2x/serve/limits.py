"""Limits for strangers' files and clients."""

from __future__ import annotations

from waifu2x.formats.limits import MAX_PIXELS
from waifu2x.system.lazy_dataclass import dataclass

FILM_SECONDS = 12 * 3600
"""The longest film, in seconds of its own time."""
CROP_SIDE = 512
"""The most pixels of a crop's side."""
VIEW_PIXELS = 1 << 26
"""The most pixels of a view: browsers refuse pictures of a few times as many."""
NAME_LENGTH = 200
"""The most characters of a file's name."""
MOST_IDS = 10_000
"""The most jobs that a request may name."""
HEADER_SECONDS = 10.0
"""How long a client may take for the TLS handshake, and for a request's header."""
IDLE_SECONDS = 30.0
"""How long a connection may stay open without a request."""
CHUNK_SECONDS = 20.0
"""How long a client may take to send, or to take, the next bytes."""
SLOWEST = 4096.0
"""The least bytes a second of an upload, on average, after its first `CHUNK_SECONDS`."""
MOST_WAITING = 128
"""The most connections that are idle, or have a request without the token: beyond that, the oldest
is closed."""
MOST_WORKING = 128
"""The most requests with the token that are under way together."""
MOST_UPLOADS = 64
"""The most of them that send files: slow ones must leave room for others."""


@dataclass(frozen=True)
class ServiceLimits:
    """Limits that the command line sets."""

    max_pixels: int = MAX_PIXELS
    """Pixels of a file, in all its pictures together."""
    max_bytes: int = 4 << 30
    """Bytes of an uploaded file."""
    max_queue: int = 20_000
    """Jobs in the queue, finished ones included."""
    max_kept: int = 32 << 30
    """Bytes on the disk, for all jobs together."""
