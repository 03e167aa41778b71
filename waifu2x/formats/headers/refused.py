"""Names files that are not read by their first bytes, so that the reason and a remedy are true."""

from __future__ import annotations

import re

from waifu2x.errors import Sentence
from waifu2x.formats.headers import jpeg, psd

RAW = Sentence(
    "it is a camera's raw file, and no picture yet",
    "export a TIFF or a 16-bit PNG from a raw converter",
)


def _other(what: str) -> Sentence:
    return Sentence(f"it is {what}, which is not read", "export it as PNG or TIFF")


_FILM = Sentence("it is a film, not a picture", "use `waifu2x video`")
_SIGNATURES: tuple[tuple[int, bytes, Sentence], ...] = (
    *(
        (at, mark, RAW)
        for at, mark in (
            (4, b"ftypcrx "),  # Canon CR3
            (6, b"HEAPCCDR"),  # Canon CRW
            (0, b"FUJIFILMCCD-RAW"),
            (0, b"IIRO"),  # Olympus ORF
            (0, b"IIRS"),
            (0, b"MMOR"),
            (0, b"IIU\0"),  # Panasonic RW2, Leica RWL
            (0, b"FOVb"),  # Sigma X3F
            (0, b"\0MRM"),  # Minolta MRW
        )
    ),
    (0, b"II\xbc", _other("JPEG XR")),
    (0, b"v/1\x01", _other("OpenEXR")),
    (0, b"#?RADIANCE", _other("Radiance HDR")),
    (0, b"#?RGBE", _other("Radiance HDR")),
    (0, b"gimp xcf", _other("GIMP's XCF")),
    (0, b"CSFCHUNK", _other("a Clip Studio Paint file")),
    (0, b"icns", _other("an icon of macOS (ICNS)")),
    (0, b"BPG\xfb", _other("BPG")),
    (0, b"AT&TFORM", _other("DjVu")),
    (0, b"%!PS", _other("PostScript")),
    (0, b"\xc5\xd0\xd3\xc6", _other("PostScript")),
    (0, b"\x1aE\xdf\xa3", _FILM),
    (4, b"ftypisom", _FILM),
    (4, b"ftypmp4", _FILM),
    (4, b"ftypqt  ", _FILM),
)
_PACK_ANEW = "unpack it, and pack its pictures as a ZIP"
_DOCUMENTS = (
    (0, b"Rar!\x1a\x07", Sentence("it is a RAR archive", _PACK_ANEW)),
    (0, b"7z\xbc\xaf\x27\x1c", Sentence("it is a 7z archive", _PACK_ANEW)),
    (257, b"ustar", Sentence("it is a tar archive", _PACK_ANEW)),
    (30, b"mimetypeapplication/epub+zip", Sentence("it is an EPUB book", _PACK_ANEW)),
    (0, b"PK\3\4", Sentence("it is a ZIP archive", "let its name end in .zip or .cbz")),
    (0, b"%PDF-", Sentence("it is a PDF document", "save its pages as pictures")),
)
"""Files that hold pictures; the first that fits counts."""
_MARKUP = (
    (
        rb"(?i:<!doctype html|<html)",
        Sentence("it is a web page, not a picture", "save the picture itself"),
    ),
    (
        rb"<svg[\s>]",
        Sentence("it is a drawing (SVG), not pixels", "export it as PNG in the size you want"),
    ),
)
_HEAD = 1 << 10
"""Bytes in which a page or a drawing says what it is."""
_HIERARCHICAL, _ARITHMETIC_LOSSLESS = (5, 6, 7, 13, 14, 15), 11


def reason(data: bytes) -> Sentence | None:
    """Returns why a file is not read, with a remedy, as a sentence without the name.

    None for files that decoders are to read. TIFF is for `headers.tiff`. Raises OverBudgetError.
    """
    if said := _by(_SIGNATURES, data):
        return said
    if data.startswith(jpeg.START):
        return _of_jpeg(data)
    if data.startswith(psd.SIGNATURE):
        return _of_psd(data)
    if data[:3].strip()[:1] in (b"<", b"\xef"):
        for pattern, said in _MARKUP:
            if re.search(pattern, data[:_HEAD]):
                return said
    return None


def document(head: bytes) -> Sentence | None:
    """Returns the same for an archive or a document by its first 512 bytes; None for others."""
    return _by(_DOCUMENTS, head)


def _by(signatures: tuple[tuple[int, bytes, Sentence], ...], data: bytes) -> Sentence | None:
    return next((said for at, mark, said in signatures if data.startswith(mark, at)), None)


def _of_jpeg(data: bytes) -> Sentence | None:
    frame = jpeg.frame(data)
    if frame is None:
        return None
    if frame.process == jpeg.JPEG_LS:
        return _other("JPEG-LS")
    if frame.process in _HIERARCHICAL or frame.process == _ARITHMETIC_LOSSLESS:
        return _other(f"a JPEG of a rare kind (SOF{frame.process})")
    if frame.bits != 8 and frame.planes not in (1, 3):
        return Sentence(
            f"it is a JPEG of {frame.planes} colours and {frame.bits} bits",
            "convert it to RGB first",
        )
    return None


def _of_psd(data: bytes) -> Sentence | None:
    header = psd.read(data)
    if header is None:
        return None
    if header.version != 1:
        return Sentence(
            "it is a large document of Photoshop (PSB), which is not read", "save it as TIFF"
        )
    if header.bits > 8:
        return Sentence(
            f"it is a PSD of {header.bits} bits a sample, which is not read", "save it as TIFF"
        )
    if not header.is_merged:
        return Sentence(
            "it is a PSD without a merged picture",
            "save it with Maximize Compatibility, or as TIFF",
        )
    if header.mode == psd.MULTICHANNEL:
        return Sentence(
            "it is a PSD of several inks (multichannel), which is not read",
            "convert it to RGB first",
        )
    return None
