"""The table of formats, and what each can hold."""

from __future__ import annotations

from importlib import import_module
from typing import Literal, NamedTuple

from waifu2x.errors import ImageError, OutputError
from waifu2x.formats.headers import heif, jxl

Kind = Literal[
    "profile", "code points", "HDR10", "EXIF", "XMP", "IPTC", "resolution", "comment", "text"
]
"""Kinds of content besides pixels; `code points` are colours by the numbers of ITU-T H.273, `HDR10`
is its static metadata."""

Compression = Literal["fast", "default", "best"]
"""How hard an encoder tries to make a file small."""


Depth = Literal["auto", "8", "10", "12", "16"]
"""Bits a sample of results; auto: as many as the input has, where the format holds them."""


Range = Literal["sdr"]
"""The dynamic range that HDR is converted to."""


class Quality(NamedTuple):
    """How a result is encoded."""

    level: int | Literal["like"] | None = None
    """1 to 100 where the format can be lossy; `like`: as the input was coded; None: the default."""
    compression: Compression = "default"

    @property
    def has_losses(self) -> bool:
        """Returns whether a format that is lossless by default has losses."""
        return self.level not in (None, 100)


class OutputOptions(NamedTuple):
    """How pictures are written besides their size."""

    depth: Depth = "auto"
    background: tuple[int, int, int] = (255, 255, 255)
    """8-bit RGB under transparent pixels, where the format has no transparency."""
    strip: bool = False
    """Whether metadata is left out; what the colours mean stays."""
    to: Range | None = None
    """sdr: whether pictures of HDR become SDR."""


_ALL: frozenset[Kind] = frozenset(("profile", "EXIF", "XMP", "IPTC", "resolution", "comment"))
_MODERN: frozenset[Kind] = frozenset(("profile", "EXIF", "XMP"))
_CODED: frozenset[Kind] = frozenset(("code points", "HDR10"))
_NOTHING: frozenset[Kind] = frozenset()


class Format(NamedTuple):
    """A format of picture files."""

    name: str
    pillow: str
    """Pillow's name of the format."""
    extensions: tuple[str, ...]
    keeps: frozenset[Kind] = _NOTHING
    depths: tuple[int, ...] = (8,)
    """Bits of a sample that can be written; 32 is float. Empty: the format is only read."""
    alpha: bool = False
    grey: bool = True
    quality: bool = False
    """Whether it can be written with losses."""
    compression: bool = False
    """Whether more time makes smaller files."""
    frames: Literal["animation", "pages"] | None = None
    largest: int = 2**31 - 1
    """Pixels that a side may have."""
    most_bytes: int = 2**62
    """Bytes that the samples of a picture may have."""
    colours: int | None = None
    """Colours of its palette; None for formats without one."""
    feature: str | None = None
    """Pillow's name of the library that it needs, if it can be built without."""
    plugin: tuple[str, str] | None = None
    """The module of the Pillow plugin that it takes, and its package's name."""

    def depth_for(self, bits: int) -> int:
        """Returns the bits in which it holds samples of `bits` bits: as few as keep them all, or as
        many as it can."""
        return min((each for each in self.depths if each >= bits), default=max(self.depths))

    @property
    def writable(self) -> bool:
        """Returns whether results can have it."""
        return bool(self.depths)


FORMATS = (
    Format(
        "PNG", "PNG", ("png", "apng"), _ALL - {"comment"} | _CODED | {"text"}, (8, 16), True,
        compression=True, frames="animation",
    ),
    Format(
        "JPEG", "JPEG", ("jpg", "jpeg", "jpe", "jfif"), _ALL, quality=True, largest=65500,
        feature="jpg",
    ),
    Format(
        "WebP", "WEBP", ("webp",), _MODERN, alpha=True, grey=False, quality=True,
        compression=True, frames="animation", largest=16383, feature="webp",
    ),
    Format(
        "TIFF", "TIFF", ("tif", "tiff"), _ALL - {"comment"}, (8, 16, 32), True,
        compression=True, frames="pages",
    ),
    Format("BMP", "BMP", ("bmp", "dib"), frozenset(("resolution",)), most_bytes=2**32 - 2**24),
    Format("PNM", "PPM", ("ppm", "pgm", "pnm"), depths=(8, 16)),
    Format("TGA", "TGA", ("tga",), alpha=True, largest=65535),
    Format(
        "GIF", "GIF", ("gif",), frozenset(("comment",)), alpha=True, frames="animation",
        largest=65535, colours=256,
    ),
    Format(
        "AVIF", "AVIF", ("avif",), _MODERN | _CODED, (8, 10, 12), True, grey=False,
        quality=True, frames="animation", largest=65535, feature="avif",
    ),
    Format(
        "JPEG 2000", "JPEG2000", ("jp2",), alpha=True, quality=True, feature="jpg_2000"
    ),
    Format("QOI", "QOI", ("qoi",), alpha=True, grey=False),
    Format(
        "JPEG XL", "JXL", ("jxl",), frozenset(("code points", "EXIF", "XMP")), (8, 10, 12, 16),
        True, quality=True, compression=True, plugin=("pillow_jxl", "pillow-jxl-plugin"),
    ),
    Format(
        "HEIF", "HEIF", ("heic", "heif", "hif"), _MODERN | _CODED, (8, 10, 12), True,
        quality=True, largest=16384, plugin=("pillow_heif", "pillow-heif"),
    ),
    Format("JPEG", "JPEG", ("mpo",), depths=()),
    Format("JPEG 2000", "JPEG2000", ("j2k", "jpx"), depths=()),
    Format("PSD", "PSD", ("psd",), depths=()),
    Format("ICO", "ICO", ("ico",), depths=()),
    Format("PCX", "PCX", ("pcx",), depths=()),
    Format("DDS", "DDS", ("dds",), depths=()),
    Format("SGI", "SGI", ("sgi", "rgb"), depths=()),
)  # fmt: skip
"""All formats, in the order in which they are shown."""


class FilePart(NamedTuple):
    """Content of a file besides its pictures, which no result holds."""

    formats: tuple[str, ...]
    """Names of the formats in which it is found."""
    notice: str
    """A clause on what becomes of it; {count} is its number."""


PARTS = {
    "gain map": FilePart(
        ("JPEG", "HEIF", "AVIF", "JPEG XL"),
        "its gain map is left out: the result is the picture for SDR displays",
    ),
    "depth map": FilePart(("JPEG", "HEIF", "AVIF"), "its depth map is left out"),
    "masks": FilePart(("JPEG", "HEIF", "AVIF"), "masks are left out: {count}"),
    "film": FilePart(("JPEG", "HEIF"), "its film is left out: the picture of a motion photo stays"),
    "sound": FilePart(("JPEG", "AVIF"), "its sound is left out"),
    "animation": FilePart(
        ("HEIF", "JPEG XL"), "its animation is left out: the first picture stays"
    ),
    "further pictures": FilePart(
        ("JPEG", "HEIF", "AVIF"),
        "further pictures are left out: {count}, the main picture stays",
    ),
    "further sizes": FilePart(("ICO",), "smaller sizes are left out: {count}"),
    "layers": FilePart(("PSD", "TIFF"), "its layers are left out: the merged picture stays"),
    "further channels": FilePart(
        ("PSD", "TIFF"), "channels such as saved selections are left out: {count}"
    ),
    "transparency": FilePart(
        ("PSD",), "its transparency is left out: save it as PNG or TIFF to keep that"
    ),
    "extended XMP": FilePart(("JPEG",), "its extended XMP is left out"),
}
"""Parts of files by their kind."""


def left_out(kind: str, count: int) -> str:
    """Returns the notice of parts of a kind, which no result holds."""
    return PARTS[kind].notice.format(count=count)


_BUILT_IN = ("PNG", "JPEG", "BMP", "GIF", "PPM")
"""Formats that Pillow knows without loading all its plugins, so they are tried first."""
_LAST = "TGA"
_OPENED = (
    *_BUILT_IN,
    *dict.fromkeys(
        form.pillow
        for form in FORMATS
        if form.plugin is None and form.pillow not in (*_BUILT_IN, _LAST)
    ),
    _LAST,
)
_TGA_FOOTER = b"TRUEVISION-XFILE.\0"
_BY_EXTENSION = {extension: form for form in FORMATS for extension in form.extensions}
READABLE = tuple(_BY_EXTENSION)
"""File name extensions of pictures, without the dot."""
WRITABLE = tuple(extension for extension, form in _BY_EXTENSION.items() if form.writable)
"""Extensions that results can have."""
LOSSY = tuple(extension for extension, form in _BY_EXTENSION.items() if form.quality)
"""Extensions of formats that have a quality."""
COMPRESSED = tuple(
    extension for extension, form in _BY_EXTENSION.items() if form.writable and form.compression
)
"""Extensions of formats whose files more time makes smaller."""
NAMES = ", ".join(dict.fromkeys(form.name for form in FORMATS))
"""The names of all formats, for messages."""


def of(extension: str) -> Format:
    """Returns the format that an extension means."""
    return _BY_EXTENSION[extension]


def check(extension: str, quality: Quality, depth: Depth) -> None:
    """Raises ValueError, which begins with the option's name, for options that a format lacks."""
    form = of(extension)
    if quality.level is not None and not form.quality:
        raise ValueError(f"quality is for {', '.join(LOSSY)}, and {extension} is lossless")
    if quality.level == "like" and form.name != "JPEG":
        raise ValueError(f"quality like is for jpg; give {extension} a number")
    if quality.compression != "default" and not form.compression:
        raise ValueError(f"compression is for {', '.join(COMPRESSED)}")
    if depth != "auto" and int(depth) not in form.depths:
        told = f"depth {depth}: {form.name} does not hold {depth} bits a sample"
        if depth == "16":
            raise ValueError(f"{told}; choose png or tiff")
        raise ValueError(f"{told}; choose avif, heic or jxl")


def same(one: str, other: str) -> bool:
    """Returns whether two extensions mean one format."""
    return of(one) is of(other)


def name_of(pillow: str) -> str:
    """Returns a format's name by Pillow's name for it."""
    return next((form.name for form in FORMATS if form.pillow == pillow), pillow)


def sniffed(data: bytes) -> Format | None:
    """Returns the format of a file's first bytes, where it is one that takes a plugin."""
    if jxl.is_jxl(data):
        return of("jxl")
    brands = heif.brands(data)
    # HEIF's general brands, such as mif1, say nothing of the coding.
    if brands & heif.HEIF and (data[8:12] in heif.OF_HEVC or not brands & heif.AVIF):
        return of("heic")
    return None


def by_pillow(data: bytes) -> tuple[str, ...]:
    """Returns Pillow's names of the built-in formats that a file may have.

    A TGA has no signature at its start, so it comes last, unless it has one at its end. PCX's
    signature is so short that all of its header counts.
    """
    if data.endswith(_TGA_FOOTER):
        return ("TGA",)
    is_pcx = (
        data[:1] == b"\x0a" and data[2:3] == b"\1" and data[3:4] in (b"\1", b"\2", b"\4", b"\x08")
    )
    return tuple(name for name in _OPENED if name != "PCX" or is_pcx)


def check_encoder(form: Format) -> None:
    """Raises OutputError if the library that writes a format is missing, or cannot write it."""
    if form.plugin is not None:
        try:
            plug_in(form)
        except ImageError as error:
            raise OutputError(error.sentence) from error
    elif form.feature is not None:
        from PIL import features

        if not features.check(form.feature):
            raise OutputError(
                f"this Pillow cannot write {form.name}", "run `pip install -U pillow`"
            )


def plug_in(form: Format) -> None:
    """Registers a format's plugin with Pillow. Raises ImageError if it is not installed."""
    if form.plugin is None:
        return
    module, package = form.plugin
    try:
        loaded = import_module(module)
    except ImportError as error:
        raise ImageError(f"{form.name} needs a plugin", f"run `pip install {package}`") from error
    if module == "pillow_heif":
        loaded.register_heif_opener()
