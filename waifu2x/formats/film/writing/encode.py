"""Encodes each part of a film into its own file."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from fractions import Fraction
from typing import IO, Any, NamedTuple

from numpy.typing import NDArray

from waifu2x.errors import OutputError
from waifu2x.formats.film.description import RGB, FilmColours
from waifu2x.formats.film.library import in_short, library
from waifu2x.formats.film.pixels import frame_of
from waifu2x.formats.film.writing.codecs import ENCODERS, X265_QUIET, Encoding, upload
from waifu2x.imaging.orientation import oriented_size
from waifu2x.system.lazy_dataclass import dataclass
from waifu2x.system.machine import usual_scheduling

_STEP = 40
"""Milliseconds between the pictures of a part. Their own times are kept beside it, since Matroska
rounds."""
_DEEPEST = 64
"""A number of pictures larger than any encoder's delay."""


@dataclass(frozen=True)
class Shape:
    """The properties that all parts of a film share."""

    encoding: Encoding
    height: int
    width: int
    tick: Fraction
    rate: Fraction
    aspect: Fraction | None
    colours: FilmColours
    threads: int = 0
    """Threads of the encoder, which change its bytes; 0 for as many as there are cores."""
    orientation: int = 1
    """EXIF's orientation that frames are turned upright by, where the target has no word for it."""

    @property
    def written(self) -> tuple[int, int]:
        """Returns the height and width of frames in the target."""
        return oriented_size(self.height, self.width, self.orientation)

    @property
    def written_aspect(self) -> Fraction | None:
        """Returns the width of a pixel in the target over its height, if known."""
        return 1 / self.aspect if self.aspect and self.orientation >= 5 else self.aspect


class RefusedError(OutputError):
    """An encoder does not open with its options."""


class Encoded(NamedTuple):
    """The times of a part in ticks of the film, in the order of showing."""

    pts: tuple[int, ...]
    durations: tuple[int, ...]
    depth: int
    """Places by which a picture may be coded later than it is shown."""


def decode_times(shown: Sequence[int], depth: int) -> list[int]:
    """Returns the decoding times of pictures in the order of coding. They are the times of showing,
    begun earlier by `depth` pictures."""
    step = shown[1] - shown[0] if len(shown) > 1 else 1
    return [shown[0] - step * (depth - number) for number in range(depth)] + list(shown)


def rank_of(pts: int) -> int:
    """Returns the place of a picture in its part, in the order of showing, by its time
    in the file."""
    return pts // _STEP - _DEEPEST


class PartEncoder:
    """Encodes pictures into Matroska."""

    def __init__(self, file: IO[bytes], shape: Shape) -> None:
        """Raises OutputError for options that the encoder does not know."""
        av = library()
        self._pts: list[int] = []
        self._durations: list[int] = []
        self._coded: list[int] = []
        self._shape = shape
        encoder = ENCODERS[shape.encoding.codec]
        self._container = av.open(
            file, "w", format="matroska", container_options={"fflags": "+bitexact"}
        )
        try:
            self._stream = opened_stream(self._container, encoder.library, shape)
        except BaseException:
            self.abort()
            raise

    def begin(self, file: io.BytesIO) -> bytes:
        """Writes the header into `file`, which the encoder was given; returns it."""
        with encoding(self._shape):
            self._container.start_encoding()
        return file.getvalue()

    def add(self, planes: Sequence[NDArray[Any]], pts: int, duration: int) -> None:
        """Encodes a picture. Raises OutputError."""
        frame = frame_with(planes, self._shape, pts, duration)
        self._pts.append(pts)
        self._durations.append(duration)
        self._encode(frame)

    def close(self) -> Encoded:
        """Flushes the encoder and completes the file. Raises OutputError."""
        self._encode(None)
        ranks = {pts: rank for rank, pts in enumerate(self._pts)}
        try:
            places = [ranks[pts] for pts in self._coded]
        except KeyError:
            places = []
        if sorted(places) != list(range(len(self._pts))):
            raise OutputError(
                f"{self._shape.encoding.codec} gave {len(self._coded)} pictures for "
                f"{len(self._pts)}, or moved them: use another --codec"
            )
        self._container.close()
        depth = max((coded - shown for coded, shown in enumerate(places)), default=0)
        return Encoded(tuple(self._pts), tuple(self._durations), max(0, depth))

    def abort(self) -> None:
        """Closes the file, which is useless."""
        with suppress(Exception):
            self._container.close()

    def _encode(self, frame: Any) -> None:
        with encoding(self._shape):
            for packet in self._stream.encode(frame):
                own = packet.pts * packet.time_base / self._shape.tick
                rank = self._rank(round(own))
                self._coded.append(self._pts[rank])
                packet.time_base = Fraction(1, 1000)
                packet.pts = (rank + _DEEPEST) * _STEP
                packet.dts = (len(self._coded) - 1) * _STEP
                packet.duration = _STEP
                self._container.mux(packet)

    def _rank(self, pts: int) -> int:
        for rank in range(len(self._pts) - 1, -1, -1):
            if self._pts[rank] == pts:
                return rank
        raise OutputError(f"{self._shape.encoding.codec} moves pictures: use another --codec")


def frame_with(planes: Sequence[NDArray[Any]], shape: Shape, pts: int, duration: int) -> Any:
    """Returns a frame of the planes for an encoder, with its times in ticks."""
    frame = frame_of(planes, shape.encoding.pixels)
    taken = shape.encoding.taken
    if frame.format.name != taken:
        frame = frame.reformat(format=taken)  # the same samples, packed otherwise
    frame.pts, frame.time_base, frame.duration = pts, shape.tick, duration
    _mark(frame, shape.colours)
    return frame


@contextmanager
def encoding(shape: Shape) -> Iterator[None]:
    """Raises OutputError for any error of FFmpeg while the context lasts."""
    try:
        yield
    except library().FFmpegError as error:
        raise OutputError(
            f"{shape.encoding.codec} cannot encode a picture: {in_short(error)}"
        ) from error


def check(shape: Shape) -> bytes:
    """Returns the header of a part, with all that a container needs to know of coded pictures.
    Raises OutputError unless the encoder can be opened with these options."""
    av = library()
    # Encoders only warn about their own lists of parameters.
    level = av.logging.get_level()
    av.logging.set_level(av.logging.WARNING)
    try:
        with av.logging.Capture() as messages:
            try:
                header = _header(shape)
            except RefusedError as error:
                raise _culprit(shape, error) from error
    finally:
        av.logging.set_level(level)
    for _, _, message in messages:
        for complaint in _COMPLAINTS:
            if message.startswith(complaint):
                what = message.removeprefix(complaint).strip(" :.\n'")
                raise OutputError(f"{shape.encoding.codec} does not understand {what}")
    return header


def _header(shape: Shape) -> bytes:
    file = io.BytesIO()
    encoder = PartEncoder(file, shape)
    header = encoder.begin(file)
    encoder.abort()
    return header


def _culprit(shape: Shape, error: RefusedError) -> OutputError:
    """Returns the error that names the one option without which the encoder opens, if any."""
    encoding = shape.encoding
    for key, value in encoding.options:
        others = tuple(option for option in encoding.options if option[0] != key)
        with suppress(OutputError):
            _header(replace(shape, encoding=replace(encoding, options=others)))
            given = value.removeprefix(f"{X265_QUIET}:")
            return OutputError(f"{encoding.codec} does not take {key}={given}: use another value")
    return error


_COMPLAINTS = ("Error parsing option", "Unknown option", "Invalid value for")
"""Beginnings of FFmpeg's messages about a refused option of an encoder."""


def opened_stream(container: Any, name: str, shape: Shape) -> Any:
    """Adds a stream with an open encoder to a container. Raises OutputError."""
    av = library()
    colours, encoding = shape.colours, shape.encoding
    options = dict(encoding.options)
    if not encoding.pixels.is_rgb:
        options.setdefault("chroma_sample_location", colours.siting)
    try:
        stream = container.add_stream(name, rate=shape.rate, options=options, hwaccel=upload(name))
    except (av.FFmpegError, ValueError, RuntimeError) as error:
        raise OutputError(f"{encoding.codec} is not built into this PyAV") from error
    context = stream.codec_context
    context.height, context.width = shape.height, shape.width
    context.pix_fmt = encoding.taken
    context.time_base = shape.tick
    context.framerate = shape.rate
    context.thread_type = "AUTO"
    context.thread_count = shape.threads
    if shape.aspect is not None:
        context.sample_aspect_ratio = shape.aspect
    if encoding.pixels.is_rgb:
        context.colorspace = RGB
    else:
        context.colorspace = colours.matrix
        context.color_range = 2 if colours.range == "full" else 1
    context.color_primaries = colours.primaries
    context.color_trc = colours.transfer
    try:
        with usual_scheduling():
            context.open()
    except (av.FFmpegError, ValueError, OSError) as error:
        told = ", ".join(f"{key}={value}" for key, value in encoding.options)
        raise RefusedError(
            f"{encoding.codec} does not take {shape.width}x{shape.height} with these options "
            f"({told}): {in_short(error)}"
        ) from error
    unknown = sorted(context.options)
    if unknown:
        raise OutputError(f"{encoding.codec} has no option {' and '.join(unknown)}")
    return stream


def _mark(frame: Any, colours: FilmColours) -> None:
    """Gives a frame its colours, where prores looks for them."""
    frame.pict_type = 0
    frame.colorspace = colours.matrix
    frame.color_range = 2 if colours.range == "full" else 1
    frame.color_primaries = colours.primaries
    frame.color_trc = colours.transfer
