"""What there is to say of a film, in lines for people."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

from waifu2x.cli.output.progress_line import clock
from waifu2x.flows.jobs import STANDARD
from waifu2x.formats.film.description import HLG, MATRICES, Film
from waifu2x.formats.film.reading.describe import is_hdr
from waifu2x.formats.film.reading.selection import Ending

if TYPE_CHECKING:
    from waifu2x.flows.film.assembly import MadeFilm
    from waifu2x.flows.film.request import PreparedFilm


def frame_count(film: Film) -> int | None:
    """How many frames a film has, as far as its file tells."""
    if film.pictures.frames:
        return film.pictures.frames
    return None if film.seconds is None else max(1, round(film.seconds * film.pictures.rate))


def film_line(film: Film) -> str:
    """Its pictures."""
    pictures = film.pictures
    rate = f"{float(pictures.rate):.5g} frames a second"
    parts = [film.container.partition(",")[0]]
    parts.append(f"{pictures.codec} {pictures.width}x{pictures.height}, {_samples(film)}, {rate}")
    count = frame_count(film)
    if count is not None:
        parts.append(f"{'' if pictures.frames else 'about '}{_frames(count)}")
    if film.seconds is not None:
        parts.append(clock(film.seconds))
    if pictures.interlaced:
        parts.append("interlaced")
    if pictures.rotation:
        parts.append(f"turned by {pictures.rotation} degrees when shown")
    return ", ".join(parts)


def _samples(film: Film) -> str:
    pixels = film.pictures.pixels
    if pixels.is_rgb:
        kind = "RGB"
    elif pixels.planes < 3:
        kind = "grey"
    else:
        kind = {(2, 2): "4:2:0", (2, 1): "4:2:2"}.get((pixels.columns, pixels.rows), "4:4:4")
    alpha = " with transparency" if pixels.planes == 4 else ""
    return f"{kind}{alpha} of {pixels.bits} bits"


def colours_line(film: Film) -> str:
    """What its codes mean, and what of that nobody told."""
    colours, pixels = film.pictures.colours, film.pictures.pixels
    parts = [f"{MATRICES[colours.matrix]} {colours.range}"]
    if pixels.planes >= 3 and (pixels.columns, pixels.rows) != (1, 1):
        parts.append(f"chroma {colours.siting}")
    if is_hdr(colours):
        parts.append("HLG" if colours.transfer == HLG else "PQ")
    assumed = f" (not said, assumed: {'; '.join(colours.assumed)})" if colours.assumed else ""
    return f"{', '.join(parts)}{assumed}"


def streams_line(film: Film, taken: frozenset[int]) -> str:
    """The streams beside its pictures that are taken, by their numbers; empty if there are none."""
    titles = [stream.title for stream in film.others if stream.index in taken]
    if film.chapters:
        titles.append(f"{film.chapters} chapters")
    return ", ".join(titles)


def result_line(prepared: PreparedFilm) -> str:
    """How the result is coded."""
    shape = prepared.shape
    options = dict(shape.encoding.options)
    told = [
        f"{name} {options[name]}"
        for name in ("crf", "cq", "preset", "cpu-used", "profile", "tune")
        if name in options
    ]
    how = f" ({', '.join(told)})" if told else ""
    return (
        f"{shape.width}x{shape.height}, {shape.encoding.codec}{how}, {shape.encoding.pixels.name}"
    )


def warnings(film: Film, prepared: PreparedFilm) -> Iterator[str]:
    """What people should know before the work."""
    yield from prepared.notices
    if is_hdr(film.pictures.colours):
        yield "HDR is passed through as it is coded: networks were made for SDR"
    for lost in film.pictures.lost:
        yield f"no encoder here keeps {lost}"
    if film.pictures.interlaced:
        how = prepared.selection.deinterlacing
        yield (
            "is interlaced and enlarged as it is: combs stay"
            if how == "off"
            else f"is interlaced: deinterlaced (--deinterlace {how})"
        )


def damage(film: Film, made: MadeFilm) -> list[str]:
    """What of a film could not be read, each a clause."""
    ending, found = made.ending, []
    of = "" if film.seconds is None else f" of {film.seconds:.2f} s"
    what = f"{_frames(made.frames)}, {float(ending.seconds):.2f} s{of}"
    if ending.is_short:
        found.append(f"the input ends early ({what})")
    if ending.damaged:
        places = "1 place is" if ending.damaged == 1 else f"{ending.damaged} places are"
        found.append(f"{places} damaged" + ("" if ending.is_short else f" ({what} could be read)"))
    found += [
        f"no pictures from {_seconds(gap.start)} to {_seconds(gap.start + gap.length)} s"
        for gap in ending.gaps
    ]
    return [*found, *made.lost]


def moved(ending: Ending) -> str:
    """What became of times that go back or repeat; empty if none do."""
    if not ending.moved:
        return ""
    have = "has" if ending.moved == 1 else "have"
    return f"{_frames(ending.moved)} {have} the time of another, and came a tick later"


def done_line(target: Path, prepared: PreparedFilm, made: MadeFilm, seconds: float) -> str:
    """How a film was made."""
    shape = prepared.shape
    held = made.frames - made.resumed - made.computed
    parts = [_frames(made.frames)]
    if made.resumed:
        parts[0] += f" ({made.resumed} were there)"
    if held > 0:
        parts.append(f"{made.computed} computed, {held} held")
    parts += [f"{shape.width}x{shape.height}", f"{seconds:.1f} s"]
    return f"{place(target)}: {', '.join(parts)}"


def place(path: Path) -> str:
    """Where a film goes, for people."""
    return "standard output" if path == STANDARD else str(path)


def _frames(count: int) -> str:
    return "1 frame" if count == 1 else f"{count} frames"


def _seconds(value: Fraction) -> str:
    return f"{float(value):.2f}"
