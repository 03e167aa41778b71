"""The members of archives: opened within limits, and their names as the archive spells them."""

from __future__ import annotations

import re
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, NamedTuple

from waifu2x.errors import ImageError
from waifu2x.formats.base import in_words
from waifu2x.formats.headers import refused

_MOST = 20_000
"""Members of an archive. Each costs time, even an empty one."""
_DIRECTORY = _MOST * 512
"""Bytes of an archive's directory: it is read before its entries are counted."""
_LARGEST = 1 << 30
"""Bytes of an unpacked member."""
_SURE, _FOLD = 1 << 28, 50
"""Bytes that the members may unpack to in all: these, and this many for each of the archive's."""
_SHOWN = 100
"""Letters of the beginning and of the end of a long name that messages have."""
_UTF8 = 0x800
"""The flag of names in UTF-8. APPNOTE 6.3, section 4.4.4."""
_LOCKED = 0x1
_UNICODE_PATH = 0x7075
"""Info-ZIP's extra field for names that the header spells in another encoding. APPNOTE 6.3, section
4.6.9."""
_AT_END_SIZE = 5
"""Where zipfile's record of the end of an archive has the size of the directory."""
_SEPARATORS = re.compile(r"[/\\]")
_DRIVE = re.compile(r"[A-Za-z]:")


class MemberName(NamedTuple):
    """A member's name."""

    header: bytes
    """As the archive spells it, in any encoding; `/` and `.` are ASCII in all that occur."""
    is_utf8: bool
    """Whether the archive says that `header` is in UTF-8."""
    unicode_path: str | None
    """The name again, where the header has an Info-ZIP Unicode Path."""

    @staticmethod
    def of(member: zipfile.ZipInfo) -> MemberName:
        """Returns the name of a member that zipfile has read."""
        is_utf8 = bool(member.flag_bits & _UTF8)
        # zipfile reads any byte as a character of code page 437, and each as another one.
        whole = member.orig_filename.encode("utf-8" if is_utf8 else "cp437")
        header = whole.partition(b"\0")[0]
        return MemberName(header, is_utf8, _unicode_path(member.extra, zlib.crc32(whole)))

    @property
    def text(self) -> str:
        """Returns the name for people and for what depends on its extension."""
        if self.unicode_path is not None:
            return self.unicode_path
        return self.header.decode("utf-8" if self.is_utf8 else "cp437")

    @property
    def shown(self) -> str:
        """Returns the name for messages: a long one without its middle."""
        text = self.text
        return text if len(text) <= 2 * _SHOWN else f"{text[:_SHOWN]}...{text[-_SHOWN:]}"

    def ending(self, extension: str, *, keeps_old: bool) -> MemberName:
        """Returns the name with another extension, instead of its own or behind it."""
        header, path = self.header, self.unicode_path
        if not keeps_old:
            header = header.rpartition(b".")[0] or header
            path = path and (path.rpartition(".")[0] or path)
        return MemberName(
            header + f".{extension}".encode(), self.is_utf8, path and f"{path}.{extension}"
        )

    @property
    def extra(self) -> bytes:
        """Returns the extra field for this name, empty if it needs none."""
        if self.unicode_path is None:
            return b""
        body = struct.pack("<BI", 1, zlib.crc32(self.header)) + self.unicode_path.encode()
        return struct.pack("<HH", _UNICODE_PATH, len(body)) + body

    def leaves(self) -> bool:
        """Returns whether a program could unpack this name outside the folder that it unpacks to:
        on any system, by either spelling."""
        return any(
            name[:1] in ("/", "\\") or _DRIVE.match(name) or ".." in _SEPARATORS.split(name)
            for name in (self.header.decode("latin-1"), self.unicode_path or "")
        )


class NewMember(zipfile.ZipInfo):
    """A member of a new archive, whose name is written as it is given."""

    def __init__(self, name: MemberName, like: zipfile.ZipInfo) -> None:
        """Takes date and rights of `like`. Whatever it was, it is a plain file now."""
        super().__init__(name.text, like.date_time)
        self.extra = name.extra
        # Archives of MS-DOS have no rights, which would mean that nobody may read the file; the low
        # half has its own: read-only, hidden, system and archive.
        rights = like.external_attr >> 16 & 0o777 or 0o644
        self.external_attr = rights << 16 | like.external_attr & 0x27
        self._spelled = name

    def _encodeFilenameFlags(self) -> tuple[bytes, int]:  # noqa: N802
        """Overrides what zipfile writes, which is UTF-8 for all but ASCII."""
        flags = self.flag_bits & ~_UTF8 | (_UTF8 if self._spelled.is_utf8 else 0)
        return self._spelled.header, flags


@contextmanager
def opened(file: IO[bytes], name: str) -> Iterator[zipfile.ZipFile]:
    """Gives the archive in a file, whose name is for messages; closes it.

    Raises ImageError if it is no ZIP, is damaged, has too many members, or says that they unpack to
    too much.
    """
    with in_words(name, "not an archive, or damaged"):
        _check_directory(file, name)
        archive = zipfile.ZipFile(file)
    with archive:
        members = archive.infolist()
        if len(members) > _MOST:
            raise _too_many(name)
        size = file.seek(0, 2)
        if sum(member.file_size for member in members) > _SURE + _FOLD * size:
            raise ImageError(
                f"{name}: its files unpack to more than {_FOLD} times its size", "unpack it first"
            )
        yield archive


def unpacked(archive: zipfile.ZipFile, member: zipfile.ZipInfo, name: str) -> bytes:
    """Returns the content of a member; `name` stands for the archive in messages. Raises
    ImageError."""
    if member.flag_bits & _LOCKED:
        raise ImageError(
            f"{name}: it is locked by a password", "unpack it, and pack it again without one"
        )
    name = f"{name}: {MemberName.of(member).shown}"
    if member.file_size > _LARGEST:
        raise ImageError(f"{name}: more than {_LARGEST >> 20} MiB", "unpack the archive first")
    with in_words(name, "damaged"):
        try:
            return archive.read(member)
        except RuntimeError as error:  # packed in a rare way
            raise ImageError(f"{name}: cannot unpack it: {error}") from error


def _check_directory(file: IO[bytes], name: str) -> None:
    """Raises ImageError for a file that is no ZIP, and for a directory that is too long."""
    # As zipfile itself finds it: there are many ways to hide another directory behind this one.
    end = zipfile._EndRecData(file)  # type: ignore[attr-defined]
    if end is None:
        file.seek(0)
        head = file.read(512)
        if not head.startswith(b"PK") and (told := refused.document(head)):
            raise ImageError(told.of(name))
    elif end[_AT_END_SIZE] > _DIRECTORY:
        raise _too_many(name)
    file.seek(0)


def _too_many(name: str) -> ImageError:
    return ImageError(
        f"{name}: it has more than {_MOST:,} files", "unpack it, and use `waifu2x batch`"
    )


def _unicode_path(extra: bytes, checksum: int) -> str | None:
    """Returns the name in an Info-ZIP Unicode Path that belongs to the name of that checksum."""
    at = 0
    while at + 4 <= len(extra):
        kind, length = struct.unpack_from("<HH", extra, at)
        body = extra[at + 4 : at + 4 + length]
        at += 4 + length
        if kind == _UNICODE_PATH and body[:5] == struct.pack("<BI", 1, checksum):
            try:
                return body[5:].decode().partition("\0")[0] or None
            except UnicodeDecodeError:
                return None
    return None
