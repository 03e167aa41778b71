"""The request for a film, and the decisions before its first frame."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from itertools import chain
from pathlib import Path

from waifu2x import __version__
from waifu2x.errors import OutputError
from waifu2x.flows.film.parts.part_runs import Duplicates
from waifu2x.flows.film.reading.client import FilmReader
from waifu2x.formats.film.description import (
    BT470BG,
    BT709,
    BT2020,
    HLG,
    MATRICES,
    PQ,
    SMPTE170M,
    SMPTE240M,
    Cut,
    Film,
    FilmColours,
    FilmCrop,
    Pictures,
    PixelFormat,
)
from waifu2x.formats.film.library import versions
from waifu2x.formats.film.reading.describe import HD_LINES, STEREO_TAG
from waifu2x.formats.film.reading.fields import MOST_LINES, Deinterlacing, Fields
from waifu2x.formats.film.reading.selection import Selection, tick_of
from waifu2x.formats.film.writing import targets
from waifu2x.formats.film.writing.codecs import (
    ENCODERS,
    Encoding,
    Wish,
    choose,
    encoder_threads,
    fitted,
    has_own_hdr,
    is_available,
    losses,
)
from waifu2x.formats.film.writing.encode import Shape, check
from waifu2x.formats.film.writing.header import FilmPlan
from waifu2x.formats.film.writing.targets import StreamPlan
from waifu2x.formats.metadata import code_points
from waifu2x.formats.table import Range
from waifu2x.imaging.picture import CodePoints
from waifu2x.system.lazy_dataclass import dataclass
from waifu2x.system.machine import core_count

PART_SECONDS = 10
"""Length of a part in the film's own time."""
LONG_PART_SECONDS = 30
"""Length of a part on GPUs: encoders need it to reach their full rate."""


PART_TICKS = "ticks of a part"
THREADS = "threads"
"""Settings fixed by the run that started the film; later runs adopt them."""


@dataclass(frozen=True)
class FilmJob:
    """A film to make of another."""

    source: Path
    target: Path
    wish: Wish = Wish()
    sound: bool = True
    subtitles: bool = True
    drop_unsupported: bool = False
    cut: Cut = Cut()
    deinterlacing: Deinterlacing | None = None
    """None: "frame" for a film that says it is interlaced."""
    duplicates: Duplicates = "exact"
    crop: FilmCrop | None = None
    """The part of the source's pictures that is enlarged; None: all."""
    max_height: int | None = None
    """The most rows of results."""
    threads: int = 0
    """Threads of the encoder; 0: chosen by the machine that begins the film."""
    to: Range | None = None
    """sdr: whether a film of HDR becomes SDR."""
    form: str | None = None
    """The format of standard output: mkv, webm or y4m; None: mkv."""
    has_long_parts: bool = False
    """Whether parts are long. The run that begins the film decides."""
    overwrite: bool = False
    """Whether a film that is there already is replaced."""
    restart: bool = False
    """Whether parts of an earlier run are made again."""
    keep_parts: bool = False
    """Whether the parts stay once the film is complete."""
    settings: tuple[tuple[str, str], ...] = ()
    """Names and values of all else that decides the pixels: network, noise level, arithmetic."""


@dataclass(frozen=True)
class PreparedFilm:
    """All decisions about a film."""

    shape: Shape
    plan: StreamPlan
    selection: Selection
    fields: Fields = Fields()
    """The look of the source's fields."""

    @property
    def notices(self) -> tuple[str, ...]:
        """Returns a clause for each thing that users should know before the work."""
        left = tuple(f"{title} is left out" for _, title in self.plan.refused)
        return left + self.plan.notices


def prepare(reader: FilmReader, job: FilmJob, height: int, width: int) -> PreparedFilm:
    """Decides about a film whose results have that size. Raises OutputError, ImageError."""
    film, container = reader.film, targets.container_of(job.target, job.form)
    pictures = film.pictures
    if job.to == "sdr":
        pictures = _in_sdr(pictures)
        film = replace(film, pictures=pictures)
    is_raw = container in targets.RAW
    encoding = _encoding(job.wish, pictures, container, (height, width))
    pixels = encoding.pixels
    if (
        not is_raw
        and ENCODERS[encoding.codec].even
        and (height % pixels.rows or width % pixels.columns)
    ):
        raise OutputError(
            f"{job.target}: {encoding.codec} needs even sides, not {width}x{height}",
            "give --width and --height, or use --chroma 444",
        )
    how = job.deinterlacing
    fields = Fields()
    if film.seekable and pictures.height <= MOST_LINES:
        fields = reader.fields()
    if how is None:
        how, order = ("frame" if pictures.interlaced else "off"), None
    else:
        order = None if pictures.interlaced else fields.order or "tff"
    rate = pictures.rate * (2 if how == "field" else 1) * (Fraction(4, 5) if how == "ivtc" else 1)
    shape = Shape(
        encoding,
        height,
        width,
        tick_of(film, how),
        rate,
        None if container == "gif" else pictures.aspect,
        _coded_colours(pictures, pixels, height),
        job.threads or encoder_threads(encoding.codec, height, core_count()),
        pictures.orientation if is_raw else 1,
    )
    plan = targets.plan(film, container, sound=job.sound, subtitles=job.subtitles)
    if not is_raw:
        plan = reader.tried(FilmPlan(film, shape, plan), check(shape))
        if plan.refused and not job.drop_unsupported:
            elsewhere = {
                other: found
                for other in targets.ROOMIEST
                if other != container and (found := _plan_for(other, film, reader, job, shape))
            }
            targets.check(plan, film, str(job.target), elsewhere)
    lost = losses(job.wish, pictures.pixels, encoding), _lost(pictures, shape, container)
    plan = replace(plan, notices=(*plan.notices, *chain(*lost)))
    selection = Selection(job.cut.start, job.cut.end, deinterlacing=how, order=order, crop=job.crop)
    return PreparedFilm(shape, plan, selection, fields)


def _lost(pictures: Pictures, shape: Shape, container: str) -> Iterator[str]:
    """Yields a clause for each thing about the pictures that the target has no place for."""
    codec = shape.encoding.codec
    if STEREO_TAG in dict(pictures.tags) and container not in ("mkv", "webm"):
        yield f"the arrangement of a stereo picture is lost: .{container} has no place for it here"
    if pictures.hdr is not None and not (has_own_hdr(codec) or container in ("mkv", "png")):
        yield f"HDR10 metadata is lost: {codec} in .{container} has no place for it"
    if container == "y4m" and (names := _unsaid(shape)):
        yield f"y4m does not say its colours ({', '.join(names)}): tell the program that reads it"


def _plan_for(
    container: str, film: Film, reader: FilmReader, job: FilmJob, shape: Shape
) -> StreamPlan | None:
    """Returns the streams that another container would take; None where it cannot hold the
    pictures."""
    plan = targets.plan(film, container, sound=job.sound, subtitles=job.subtitles)
    with suppress(OutputError):
        encoding = _encoding(job.wish, film.pictures, container, (shape.height, shape.width))
        its = replace(shape, encoding=encoding)
        return reader.tried(FilmPlan(film, its, plan), check(its))
    return None


def _encoding(wish: Wish, pictures: Pictures, container: str, size: tuple[int, int]) -> Encoding:
    if container in targets.RAW:
        return targets.raw_encoding(wish, pictures.pixels, container)
    encoding = fitted(choose(wish, pictures.pixels, container, pictures.hdr), *size)
    if "_" in encoding.codec and not is_available(encoding.codec):
        raise OutputError(
            f"this machine has no encoder {encoding.codec}",
            "use --codec auto, or "
            f"{choose(replace(wish, codec=None), pictures.pixels, container, None).codec}",
        )
    return encoding


def _in_sdr(pictures: Pictures) -> Pictures:
    """Returns the description of pictures once HDR has become SDR."""
    colours = pictures.colours
    if colours.transfer not in (PQ, HLG):
        return pictures
    matrix = colours.matrix if pictures.pixels.is_rgb else BT709
    made = replace(colours, matrix=matrix, primaries=BT709, transfer=BT709)
    return replace(pictures, colours=made, hdr=None)


def _coded_colours(pictures: Pictures, pixels: PixelFormat, height: int) -> FilmColours:
    """Returns the colours of results: those of the source, unless one of both is RGB."""
    colours = pictures.colours
    if pictures.pixels.is_rgb == pixels.is_rgb:
        return colours
    if pixels.is_rgb:  # files of pictures cannot say another range
        return replace(colours, range="full")
    matrix = _MATRICES.get(colours.primaries, _usual_matrix(height))
    return replace(colours, matrix=matrix, range="limited")


_MATRICES = {1: BT709, 5: BT470BG, 6: SMPTE170M, 7: SMPTE240M, 9: BT2020}
"""The matrix that goes with some primaries, both by the numbers of H.273."""


def _usual_matrix(height: int) -> int:
    """Returns the matrix that players assume where a film names none."""
    return BT709 if height >= HD_LINES else SMPTE170M


def _unsaid(shape: Shape) -> list[str]:
    """Returns names of colours that a player would not assume of such a film."""
    colours, names = shape.colours, []
    usual = _usual_matrix(shape.height)
    if shape.encoding.pixels.planes >= 3 and MATRICES[colours.matrix] != MATRICES[usual]:
        names.append(f"matrix {MATRICES[colours.matrix]}")
    points = CodePoints(colours.primaries, colours.transfer)
    if code_points.is_wide(points):
        names.append(code_points.name_of(points))
    return names


def settings(job: FilmJob, prepared: PreparedFilm, source: Mapping[str, str]) -> dict[str, str]:
    """Returns all that decides the bytes of parts. `source` identifies the source."""
    shape = prepared.shape
    seconds = LONG_PART_SECONDS if job.has_long_parts else PART_SECONDS
    return {
        **{f"source {key}": value for key, value in source.items()},
        **dict(job.settings),
        "codec": shape.encoding.codec,
        "pixel format": shape.encoding.pixels.name,
        **{f"codec option {key}": value for key, value in shape.encoding.options},
        "size": f"{shape.width}x{shape.height}",
        THREADS: str(shape.threads),
        "start": str(prepared.selection.start),
        "end": str(prepared.selection.end),
        "deinterlace": " ".join(
            filter(None, (prepared.selection.deinterlacing, prepared.selection.order))
        ),
        "duplicates": job.duplicates,
        **({} if job.crop is None else {"crop": str(job.crop)}),
        **({} if job.to is None else {"to": job.to}),
        PART_TICKS: str(max(1, round(seconds / shape.tick))),
        "version of waifu2x": __version__,
        **{f"version of {name}": number for name, number in versions().items()},
    }
