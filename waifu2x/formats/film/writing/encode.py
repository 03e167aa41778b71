"""Encodes the parts of a film."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from numpy.typing import NDArray

from waifu2x.backends.cpu.compile.host import has
from waifu2x.errors import OutputError
from waifu2x.formats.film.description import RGB, FilmColours
from waifu2x.formats.film.library import in_short, library
from waifu2x.formats.film.pixels import frame_of
from waifu2x.formats.film.writing.codecs import ENCODERS, X265_QUIET, Encoding, upload
from waifu2x.imaging.orientation import oriented_size
from waifu2x.system.lazy_dataclass import dataclass
from waifu2x.system.machine import usual_scheduling

if TYPE_CHECKING:
    from av.packet import Packet

_STEP = 40
"""Milliseconds between the pictures of a part. Their own times are kept beside it, since Matroska
rounds."""
_DEEPEST = 64
"""A number of pictures larger than any encoder's delay."""
_NO_PICTURES = bytes.fromhex("1f43b675 83 e78100")
"""A cluster of Matroska without packets: FFmpeg refuses a file without any."""
_BESIDE = "matroska_block_additional"
"""FFmpeg's name of what lies beside a coded picture: the transparency of VP8 and VP9."""

_PARAMETERS = "x264-params"
_STEADY = "asm=avx2"
"""In AVX-512, x264's mbtree reads memory that it has not written, unless a row has a multiple of
eight blocks of 16x16: the same pictures would become other bytes in each run."""


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
    def usual_duration(self) -> int:
        """Returns the ticks for which a picture is shown, where nothing else tells."""
        return round(1 / self.rate / self.tick)

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


class CodedPicture(NamedTuple):
    """A picture as an encoder gives it, with times in ticks of the film."""

    data: bytes
    pts: int
    dts: int
    duration: int
    is_keyframe: bool
    transparency: bytes = b""
    """Data that Matroska keeps beside the picture; empty for most codecs."""

    def packet(self, tick: Fraction) -> Packet[Any]:
        """Returns it for a muxer; a tick is in seconds."""
        packet: Packet[Any] = library().Packet(self.data)
        packet.time_base, packet.pts, packet.dts = tick, self.pts, self.dts
        packet.duration, packet.is_keyframe = self.duration, self.is_keyframe
        if self.transparency:
            side = library().packet
            kind = side.packet_sidedata_type_from_literal(_BESIDE)
            beside = side.PacketSideData(kind, len(self.transparency))
            beside.update(self.transparency)
            packet.set_sidedata(beside)
        return packet


class PictureTemplate(NamedTuple):
    """The parameters of a coded stream."""

    file: bytes | Path
    """Matroska: a part, or the header of one."""
    extradata: bytes | None = None
    """Replaces that of the file, where packets do not come from Matroska."""


def opened_part(file: bytes | Path) -> Any:
    """Opens a part, or the header of one, for reading, without FFmpeg's probing."""
    opened = io.BytesIO(file) if isinstance(file, bytes) else f"file:{file}"
    unread = {"probesize": "32", "analyzeduration": "1"}
    return library().open(opened, "r", format="matroska", options=unread)


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
    """Encodes the pictures of a part, as Matroska or for another muxer."""

    def __init__(
        self,
        file: IO[bytes],
        shape: Shape,
        take: Callable[[CodedPicture], None] | None = None,
    ) -> None:
        """Begins a part in `file`. With `take`, which is called with each coded picture, the file
        gets no more than the header. Raises OutputError for options that the encoder does not
        know."""
        av = library()
        self._shape, self._take = shape, take
        self._waiting: dict[int, int] = {}
        """The ranks of pictures that are not yet coded, by their times."""
        self._added = self._coded = self._depth = 0
        encoder = ENCODERS[shape.encoding.codec]
        self._container = av.open(
            file, "w", format="matroska", container_options={"fflags": "+bitexact"}
        )
        try:
            self._stream = opened_stream(self._container, encoder.library, shape)
        except BaseException:
            self.abort()
            raise

    def add(self, planes: Sequence[NDArray[Any]], pts: int, duration: int) -> None:
        """Encodes a picture, whose times are in ticks. Raises OutputError, and what `take` does."""
        self._waiting[pts] = self._added
        self._added += 1
        self._encode(frame_with(planes, self._shape, pts, duration))

    def close(self) -> int:
        """Flushes the encoder and completes the file. Returns the places by which a picture may be
        coded later than it is shown. Raises OutputError, and what `take` does."""
        self._encode(None)
        if self._waiting:
            raise OutputError(
                f"{self._shape.encoding.codec} gave {self._coded} pictures for {self._added}",
                "use another --codec",
            )
        if self._take is None:
            self._container.close()
        else:
            self.abort()
        return self._depth

    def abort(self) -> None:
        """Closes the file, which is useless."""
        with suppress(Exception):
            self._container.close()

    def template(self, file: io.BytesIO) -> PictureTemplate:
        """Begins `file`, which the encoder was given. Returns the parameters of coded pictures.
        Raises OutputError."""
        with encoding(self._shape):
            self._container.start_encoding()
        extradata = self._stream.codec_context.extradata if self._take is not None else None
        return PictureTemplate(file.getvalue() + _NO_PICTURES, extradata)

    def _encode(self, frame: Any) -> None:
        """Encodes a picture; None flushes the encoder."""
        has_begun = self._coded > 0
        given: list[CodedPicture] = []
        with encoding(self._shape):
            for packet in self._stream.encode(frame):
                pts = round(packet.pts * packet.time_base / self._shape.tick)
                rank = self._waiting.pop(pts, None)
                if rank is None:
                    codec = self._shape.encoding.codec
                    raise OutputError(f"{codec} moves pictures", "use another --codec")
                self._depth = max(self._depth, self._coded - rank)
                self._coded += 1
                if self._take is None:
                    self._mux(packet, rank)
                else:
                    given.append(self._picture(packet, pts))
        if self._take is None:
            return
        if frame is None and not has_begun:
            # x265 leaves decoding times uninitialised for fewer pictures than it reorders.
            times = decode_times(sorted(one.pts for one in given), self._depth) if given else []
            given = [one._replace(dts=dts) for one, dts in zip(given, times, strict=False)]
        for one in given:
            self._take(one)

    def _mux(self, packet: Any, rank: int) -> None:
        packet.time_base = Fraction(1, 1000)
        packet.pts = (rank + _DEEPEST) * _STEP
        packet.dts = (self._coded - 1) * _STEP
        packet.duration = _STEP
        self._container.mux(packet)

    def _picture(self, packet: Any, pts: int) -> CodedPicture:
        unit = packet.time_base / self._shape.tick
        return CodedPicture(
            bytes(packet),
            pts,
            pts if packet.dts is None else round(packet.dts * unit),
            round((packet.duration or 0) * unit) or self._shape.usual_duration,
            packet.is_keyframe,
            bytes(packet.get_sidedata(_BESIDE)) if packet.has_sidedata(_BESIDE) else b"",
        )


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


def check(shape: Shape) -> PictureTemplate:
    """Returns all that a container needs to know of coded pictures. Raises OutputError unless the
    encoder can be opened with these options."""
    av = library()
    # Encoders only warn about their own lists of parameters.
    level = av.logging.get_level()
    av.logging.set_level(av.logging.WARNING)
    try:
        with av.logging.Capture() as messages:
            try:
                template = _template(shape)
            except RefusedError as error:
                raise _culprit(shape, error) from error
    finally:
        av.logging.set_level(level)
    for _, _, message in messages:
        for complaint in _COMPLAINTS:
            if message.startswith(complaint):
                what = message.removeprefix(complaint).strip(" :.\n'")
                raise OutputError(f"{shape.encoding.codec} does not understand {what}")
    return template


def _template(shape: Shape) -> PictureTemplate:
    file = io.BytesIO()
    encoder = PartEncoder(file, shape)
    template = encoder.template(file)
    encoder.abort()
    return template


def _culprit(shape: Shape, error: RefusedError) -> OutputError:
    """Returns the error that names the one option without which the encoder opens, if any."""
    encoding = shape.encoding
    for key, value in encoding.options:
        others = tuple(option for option in encoding.options if option[0] != key)
        with suppress(OutputError):
            _template(replace(shape, encoding=replace(encoding, options=others)))
            given = value.removeprefix(f"{X265_QUIET}:")
            return OutputError(f"{encoding.codec} does not take {key}={given}", "use another value")
    return error


_COMPLAINTS = ("Error parsing option", "Unknown option", "Invalid value for")
"""Beginnings of FFmpeg's messages about a refused option of an encoder."""


def opened_stream(container: Any, name: str, shape: Shape) -> Any:
    """Adds a stream with an open encoder to a container. Raises OutputError."""
    av = library()
    colours, encoding = shape.colours, shape.encoding
    options = dict(encoding.options)
    if name == "libx264" and has("avx512bw"):
        options[_PARAMETERS] = ":".join(filter(None, (_STEADY, options.get(_PARAMETERS))))
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
