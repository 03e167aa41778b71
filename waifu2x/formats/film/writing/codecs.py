"""Encoders of films: their names, options and pixel formats."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

from waifu2x.errors import OutputError, Sentence
from waifu2x.formats.film import HARDWARE
from waifu2x.formats.film.description import PixelFormat, yuv_format
from waifu2x.formats.film.library import library
from waifu2x.imaging.picture import Hdr
from waifu2x.system.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from av.codec.hwaccel import HWAccel

X265_QUIET = "log-level=none"
"""The parameter without which x265 writes to standard error."""


@dataclass(frozen=True)
class FilmEncoder:
    """An encoder as users know it."""

    library: str
    """FFmpeg's name."""
    containers: tuple[str, ...]
    quality: str = "crf"
    """FFmpeg's option that `--crf` sets; empty if it has none."""
    crf: int | None = None
    worst: int = 51
    """The largest value of `--crf`."""
    preset_option: str = "preset"
    preset: str | None = None
    depths: tuple[int, ...] = (8, 10)
    chromas: tuple[str, ...] = ("420", "422", "444")
    transparent: tuple[str, ...] = ()
    """The containers in which it keeps transparency."""
    transparent_chromas: tuple[str, ...] = ()
    """Those that it takes with transparency."""
    presets: tuple[str, ...] = ()
    """All presets; empty: the encoder checks."""
    tunes: tuple[str, ...] = ()
    even: bool = True
    """Whether sides must be even where chroma is halved."""
    extra: tuple[tuple[str, str], ...] = ()
    repacked: tuple[tuple[str, str], ...] = ()
    """Planar formats that it does not take, and the format with the same samples that it takes."""


_PRESETS = (
    *("ultrafast", "superfast", "veryfast", "faster", "fast", "medium"),
    *("slow", "slower", "veryslow", "placebo"),
)
_TUNES = ("animation", "grain", "psnr", "ssim", "fastdecode", "zerolatency")
_ALL = ("mkv", "mp4", "mov")
_PRORES_422 = ("proxy", "lt", "standard", "hq")
_PRORES_444 = ("4444", "4444xq")
"""Names of the profiles 4 and 5, the only ones of ProRes with transparency and 4:4:4."""


def _numbers(most: int) -> tuple[str, ...]:
    return tuple(map(str, range(most + 1)))


_QUALITIES = {
    "nvenc": "cq", "qsv": "global_quality", "amf": "qp_i", "vaapi": "global_quality",
    "videotoolbox": "",
}  # fmt: skip
"""Options of encoders in hardware that `--crf` sets, by their makers."""
_EXTRAS = {
    "vaapi": (("rc_mode", "CQP"),),
    # 65 of 100, times FFmpeg's factor of lambda.
    "videotoolbox": (("flags", "+qscale"), ("global_quality", str(65 * 118))),
}


def _in_hardware(coded: str, maker: str) -> FilmEncoder:
    has_444 = maker == "nvenc" and coded != "av1"
    return FilmEncoder(
        f"{coded}_{maker}",
        (*_ALL, "webm") if coded == "av1" else _ALL,
        quality=_QUALITIES[maker],
        crf=20,
        worst=255 if coded == "av1" and maker in ("amf", "vaapi") else 51,
        preset_option="" if maker in ("vaapi", "videotoolbox") else "preset",
        depths=(8,) if coded == "h264" else (8, 10),
        chromas=("420", "444") if has_444 else ("420",),
        extra=_EXTRAS.get(maker, ()),
        repacked=(
            ("yuv420p10le", "p010le"),
            *((("yuv420p", "nv12"),) if maker != "nvenc" else ()),
        ),
    )


ENCODERS = {
    "x264": FilmEncoder(
        "libx264", _ALL, crf=18, preset="medium", presets=_PRESETS,
        tunes=(*_TUNES, "film", "stillimage"),
    ),
    "x265": FilmEncoder(
        "libx265", _ALL, crf=20, preset="medium", presets=_PRESETS, tunes=_TUNES
    ),
    "av1": FilmEncoder(
        "libsvtav1", ("mkv", "mp4", "webm"), crf=28, worst=63, preset="8", chromas=("420",),
        presets=_numbers(13),
    ),
    "vp9": FilmEncoder(
        "libvpx-vp9", ("mkv", "mp4", "webm"), crf=28, worst=63, preset_option="cpu-used",
        preset="4", depths=(8,), transparent=("mkv", "webm"), transparent_chromas=("420",),
        presets=_numbers(8), even=False, extra=(("b", "0"), ("row-mt", "1")),
    ),
    "ffv1": FilmEncoder(
        "ffv1", ("mkv",), quality="", transparent=("mkv",),
        transparent_chromas=("420", "422", "444"), even=False, preset_option="",
        extra=(("level", "3"), ("slices", "16"), ("slicecrc", "1"), ("g", "1")),
    ),
    "prores": FilmEncoder(
        "prores_ks", ("mkv", "mov"), quality="", preset_option="profile", preset="3",
        depths=(10,), chromas=("422", "444"), transparent=("mkv", "mov"),
        transparent_chromas=("444",), presets=(*_numbers(5), *_PRORES_422, *_PRORES_444),
    ),
    **{name: _in_hardware(*name.split("_")) for name in HARDWARE},
}  # fmt: skip
"""By the name that `--codec` takes."""
_USUAL_TRANSPARENT = {"mkv": "ffv1", "mov": "prores", "webm": "vp9"}
"""The encoder for transparent films, by the container."""


def keeps_transparency(container: str) -> bool:
    """Returns whether a container has an encoder that keeps transparency."""
    return container in _USUAL_TRANSPARENT


@dataclass(frozen=True)
class Wish:
    """The requested encoding; None leaves a choice to the film or the encoder."""

    codec: str | None = None
    crf: float | None = None
    preset: str | None = None
    tune: str | None = None
    depth: int | None = None
    chroma: str | None = None
    options: tuple[tuple[str, str], ...] = ()
    """Options of the encoder, by FFmpeg's names."""


@dataclass(frozen=True)
class Encoding:
    """An encoder, all its options, and its input format."""

    codec: str
    pixels: PixelFormat
    options: tuple[tuple[str, str], ...]

    @property
    def taken(self) -> str:
        """Returns the format of frames that the encoder takes for these planes."""
        name = self.pixels.name
        return dict(ENCODERS[self.codec].repacked).get(name, name)


def choose(wish: Wish, source: PixelFormat, container: str, hdr: Hdr | None) -> Encoding:
    """Returns the encoding for a film. Raises OutputError for a combination that is impossible."""
    depth = wish.depth or (8 if source.bits == 8 else 10)
    name = wish.codec or _usual(container, depth, has_alpha=source.planes == 4)
    encoder = ENCODERS[name]
    if container not in encoder.containers:
        raise OutputError(f".{container} cannot hold {name}", f"use .{encoder.containers[0]}")
    if source.planes == 4:
        _check_alpha(name, container)
    if depth not in encoder.depths:
        if wish.depth is not None or len(encoder.depths) != 1:
            raise OutputError(
                f"{name} has no {depth} bits here", f"use --depth {encoder.depths[0]}"
            )
        depth = encoder.depths[0]
    options = _options(name, encoder, wish, hdr)
    chroma = wish.chroma or ("420" if source.planes < 3 else source.chroma)
    chromas = encoder.transparent_chromas if source.planes == 4 else encoder.chromas
    if chroma not in chromas:
        if wish.chroma is not None:
            clear = " with transparency" if source.planes == 4 else ""
            raise OutputError(f"{name} cannot code {':'.join(chroma)}{clear}", "leave --chroma out")
        chroma = chromas[0]
    if encoder.library == "prores_ks":
        chroma, options["profile"] = _prores(wish, chroma, has_alpha=source.planes == 4)
    if encoder.library == "libvpx-vp9" and source.planes == 4:
        options.setdefault("auto-alt-ref", "0")  # it refuses transparency with them
    pixels = yuv_format(depth, chroma, has_alpha=source.planes == 4)
    return Encoding(name, pixels, tuple(sorted(options.items())))


def _usual(container: str, depth: int, *, has_alpha: bool) -> str:
    """Returns the encoder of a film for which none is named. Raises OutputError."""
    if has_alpha:
        if not keeps_transparency(container):
            raise OutputError(f".{container} cannot hold transparency", "use .mkv, .mov or .webm")
        return _USUAL_TRANSPARENT[container]
    return "av1" if container == "webm" else "x264" if depth == 8 else "x265"


def _check_alpha(name: str, container: str) -> None:
    """Raises OutputError for an encoder that would lose transparency."""
    if container not in ENCODERS[name].transparent:
        usual = _usual(container, 8, has_alpha=True)
        raise OutputError(f"{name} cannot code transparency", f"leave --codec out, or use {usual}")


def _prores(wish: Wish, chroma: str, *, has_alpha: bool) -> tuple[str, str]:
    """Returns chroma and profile for ProRes, in which each profile has its own chroma. Raises
    OutputError for a profile that is named and lacks what has to be kept."""
    given = wish.preset or dict(wish.options).get("profile")
    if given is None:
        return chroma, "4" if chroma == "444" else "3"
    if given in ("4", "5", *_PRORES_444):
        return "444", given
    if has_alpha:
        raise OutputError(f"prores of profile {given} has no transparency", "use --preset 4")
    if wish.chroma == "444":
        raise OutputError(f"prores of profile {given} has no 4:4:4", "use --preset 4")
    return "422", given


def fitted(encoding: Encoding, height: int, width: int) -> Encoding:
    """Returns the encoding adapted to the size of pictures."""
    pixels = encoding.pixels
    if encoding.codec == "ffv1" and (height % pixels.rows or width % pixels.columns):
        # FFV1 cannot cut such planes into any number of slices: FFmpeg finds one that it can.
        kept = tuple(option for option in encoding.options if option[0] != "slices")
        return replace(encoding, options=kept)
    return encoding


def _options(name: str, encoder: FilmEncoder, wish: Wish, hdr: Hdr | None) -> dict[str, str]:
    options = dict(encoder.extra)
    crf = wish.crf if wish.crf is not None else encoder.crf
    if encoder.quality and crf is not None:
        if crf > encoder.worst:
            raise OutputError(f"{name} has no --crf {crf:g}", f"use 0 to {encoder.worst}")
        options[encoder.quality] = f"{crf:g}"
    elif wish.crf is not None:
        raise OutputError(f"{name} has no --crf")
    preset = wish.preset or encoder.preset
    if encoder.preset_option and preset is not None:
        options[encoder.preset_option] = preset
    elif wish.preset is not None:
        raise OutputError(f"{name} has no --preset")
    if wish.tune is not None:
        if not encoder.tunes:
            raise OutputError(f"{name} has no --tune")
        options["tune"] = wish.tune
    own = _PARAMETERS.get(name)
    parameters = [X265_QUIET] if name == "x265" else []
    if own is not None and hdr is not None:
        parameters += _hdr(name, hdr)
    for key, value in wish.options:
        if key in _OURS:
            raise OutputError(f"{name}: --codec-option {key} would move pictures", "leave it out")
        if key == own:
            _check_display(name, value)
            parameters.append(value)
        else:
            options[key] = value
    for kind, key, known in (
        ("preset", encoder.preset_option, encoder.presets),
        ("tune", "tune", encoder.tunes),
    ):
        if known and key in options and options[key] not in known:
            raise OutputError(f"{name} has no {kind} {options[key]!r}", f"use {_listed(known)}")
    if own is not None and parameters:
        options[own] = ":".join(parameters)
    if name in ("x264", "x265"):
        options.setdefault("flags", "+cgop")  # each part begins on its own
    return options


def _listed(known: tuple[str, ...]) -> str:
    numbers = [one for one in known if one.isdecimal() and len(one) < 3]
    words = [one for one in known if one not in numbers]
    return ", ".join([f"{numbers[0]} to {numbers[-1]}", *words] if numbers else words)


_OURS = frozenset({"time_base", "framerate"})
"""Options of all encoders that its times depend on."""
_NUMBER = r"\d{1,12}(?:\.\d{1,12})?"
_DISPLAY = re.compile(
    "".join(rf"{colour}\({_NUMBER},{_NUMBER}\)" for colour in ("G", "B", "R", "WP", "L")), re.ASCII
)


def _check_display(name: str, parameters: str) -> None:
    """Raises OutputError for a malformed mastering display: x265 would write nonsense, and svtav1
    would never return."""
    for parameter in parameters.split(":"):
        key, _, value = parameter.partition("=")
        if key.strip() in ("master-display", "mastering-display") and not _DISPLAY.fullmatch(value):
            raise OutputError(
                f"{name} does not understand {parameter}",
                f"write {key}=G(x,y)B(x,y)R(x,y)WP(x,y)L(most,least)",
            )


def encoder_threads(codec: str, height: int, cores: int) -> int:
    """Returns the threads that an encoder chooses on `cores` cores; 0 if they do not change its
    bytes. Given that number, it writes the same bytes on any machine."""
    if codec == "x264":
        return max(1, min(cores * 3 // 2, (height + 15) // 16 // 2, _X264_MOST))
    if codec == "x265":
        return next(frames for least, frames in _X265_FRAMES if cores >= least)
    return 0


_X264_MOST = 128
_X265_FRAMES = ((32, 6), (16, 5), (8, 3), (4, 2), (0, 1))
"""Cores, and the pictures that x265 codes together on that many."""


def has_own_hdr(codec: str) -> bool:
    """Returns whether an encoder writes HDR10's static metadata into its stream."""
    return codec in _PARAMETERS


_PARAMETERS = {"x264": "x264-params", "x265": "x265-params", "av1": "svtav1-params"}


def _hdr(name: str, hdr: Hdr) -> list[str]:
    found = []
    light = hdr.light
    if hdr.primaries and hdr.luminance:
        red, green, blue, white = (hdr.primaries[at : at + 2] for at in (0, 2, 4, 6))
        least, most = hdr.luminance

        def pair(x: Fraction, y: Fraction, unit: int) -> str:
            if name == "av1":
                return f"({float(x):.6g},{float(y):.6g})"
            return f"({round(x * unit)},{round(y * unit)})"

        display = "".join(
            letter + pair(x, y, unit)
            for letter, (x, y), unit in (
                ("G", green, 50_000),
                ("B", blue, 50_000),
                ("R", red, 50_000),
                ("WP", white, 50_000),
                ("L", (most, least), 10_000),
            )
        )
        found.append(f"{'master-display' if name == 'x265' else 'mastering-display'}={display}")
    if light is not None:
        key = {"x265": "max-cll", "x264": "cll", "av1": "content-light"}[name]
        found.append(f"{key}={round(light[0])},{round(light[1])}")
    if name == "x265":
        found += ["hdr10=1", "repeat-headers=1"]
    return found


def is_available(name: str) -> bool:
    """Returns whether an encoder is built in and, if it needs hardware, works on this machine."""
    av = library()
    encoder = ENCODERS[name]
    try:
        context = av.CodecContext.create(encoder.library, "w", upload(encoder.library))
        if "_" not in name:
            return True
        context.width = context.height = 256
        context.pix_fmt = dict(encoder.repacked).get("yuv420p", "yuv420p")
        context.time_base = Fraction(1, 25)
        context.open()
    except (av.FFmpegError, ValueError, OSError, RuntimeError):
        return False
    return True


def upload(library_name: str) -> HWAccel | None:
    """Returns PyAV's device for an encoder that takes frames in its own memory alone."""
    if not library_name.endswith("_vaapi"):
        return None
    hwaccel = library().codec.hwaccel
    device: HWAccel = hwaccel.HWAccel("vaapi", allow_software_fallback=False)
    return device


def losses(wish: Wish, source: PixelFormat, encoding: Encoding) -> Iterator[str]:
    """Yields a clause for each loss of depth or chroma that was not requested, and for chroma that
    is kept where players do not expect it."""
    made = encoding.pixels
    if made.bits < source.bits and wish.depth is None:
        yield f"made {made.bits} bits, not {source.bits}: {encoding.codec} has no more here"
    if source.planes >= 3 and made.chroma < source.chroma and wish.chroma is None:
        had, has = (":".join(one.chroma) for one in (source, made))
        yield f"made {has}, not {had}: {encoding.codec} has no more here"
    is_played = encoding.codec.startswith(("x26", "h26", "hevc"))
    if is_played and made.chroma == "444" and wish.chroma is None:
        yield Sentence("4:4:4 is kept, which few players show", "use --chroma 420 for them")
