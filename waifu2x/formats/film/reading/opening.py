"""Opens films from untrusted sources, and makes the decoders that they may use.

FFmpeg can read playlists and lists of files, which name other files and addresses. So the format is
chosen here, by the first bytes of the file; FFmpeg is given bytes and no name, and may open nothing
else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any, NoReturn

from waifu2x.errors import ImageError
from waifu2x.formats.film.description import ChromaSiting
from waifu2x.formats.film.library import complaints, in_short, library
from waifu2x.formats.film.pipes import PipeInput

if TYPE_CHECKING:
    from av.container import InputContainer
    from av.video.stream import VideoStream

MAX_STREAMS = 256
"""The most streams of a film; a disc with all its languages has about 50."""
MAX_SIDE = 16384
"""The most pixels of a side of its pictures."""
MAX_RATE = 1000
MAX_SECONDS = 7 * 24 * 3600
MAX_CHAPTERS = 10_000
MAX_ATTACHED = 256 << 20
"""Bytes of all fonts and pictures that are attached to a film."""
SNIFFED = 2048
"""Bytes from the beginning of a file that identify its format."""
DECODERS = (
    "h264,hevc,vvc,libdav1d,av1,vp8,vp9,libvpx,libvpx-vp9,mpeg1video,mpeg2video,mpegvideo,mpeg4,"
    "msmpeg4,msmpeg4v1,msmpeg4v2,h263,h263p,flv,theora,vc1,wmv1,wmv2,wmv3,svq1,svq3,dvvideo,"
    "mjpeg,prores,dnxhd,cfhd,png,ffv1,huffyuv,ffvhuff,utvideo,magicyuv,lagarith,qtrle,rawvideo,"
    "v210,aac,aac_latm,ac3,eac3,dca,truehd,mlp,mp1,mp1float,mp2,mp2float,mp3,mp3float,flac,opus,"
    "libopus,vorbis,libvorbis,alac,wmav1,wmav2,pcm_u8,pcm_s8,pcm_s16le,pcm_s16be,pcm_s24le,pcm_s24be,"
    "pcm_s32le,pcm_s32be,pcm_f32le,pcm_f32be,pcm_f64le,pcm_f64be,pcm_bluray,pcm_dvd,"
    "subrip,srt,ssa,ass,mov_text,webvtt,text,pgssub,dvdsub,dvbsub"
)
"""The decoders that films may use, of the hundreds that FFmpeg has."""


def format_of(head: bytes) -> str | None:
    """Returns FFmpeg's name of the container that the first bytes of a film identify, or None."""
    for offset, mark, name in _SIGNATURES:
        if head[offset : offset + len(mark)] == mark:
            return name
    return "mpegts" if any(_is_mpegts(head, stride) for stride in (188, 192, 204)) else None


def _is_mpegts(head: bytes, stride: int) -> bool:
    """Returns whether packets of MPEG-TS lie in the bytes, all that fit. A recording that was cut
    off begins within one."""
    return any(
        marks.count(_SYNC) == len(marks) >= _LEAST_MARKS
        for marks in (head[begin::stride] for begin in range(stride))
    )


_SYNC = 0x47
"""The first byte of each packet of MPEG-TS."""
_LEAST_MARKS = 4


_SIGNATURES = (
    (0, b"\x1a\x45\xdf\xa3", "matroska"),
    *((4, box, "mov") for box in (b"ftyp", b"moov", b"mdat", b"wide", b"free", b"skip")),
    (0, b"\0\0\1\xba", "mpeg"),
    (8, b"AVI ", "avi"),
    (0, b"FLV\1", "flv"),
    (0, b"OggS", "ogg"),
    (0, b"YUV4MPEG2 ", "yuv4mpegpipe"),
    (0, bytes.fromhex("3026b2758e66cf11a6d900aa0062ce6c"), "asf"),
    (0, b"nut/multimedia container\0", "nut"),
    (0, b"DKIF", "ivf"),
    (0, bytes.fromhex("060e2b34020501010d01020101"), "mxf"),
)


def y4m_siting(head: bytes) -> ChromaSiting | None:
    """Returns the siting of chroma that the first bytes of a y4m file name, if any."""
    for word in head.partition(b"\n")[0].split()[1:]:
        if word in (b"C420", b"C420jpeg"):
            return "center"
        if word == b"C420mpeg2":
            return "left"
        if word == b"C420paldv":
            return "topleft"
    return None


@contextmanager
def opened(
    file: IO[bytes] | PipeInput,
    name: str,
    on_complaints: Callable[[int], None] = lambda count: None,
    *,
    are_frames: bool = False,
) -> Iterator[InputContainer]:
    """Opens a film for reading, within the bounds above. `name` stands for it in messages;
    `on_complaints` is called with the number of faults found while opening it; `are_frames`: it is
    concatenated PNG files. Raises ImageError."""
    av = library()
    kind = "png_pipe" if are_frames else _kind(file, name)
    try:
        with complaints(kind) as heard:
            container = av.open(
                file,
                "r",
                format=kind,
                options={
                    # No other file or address: neither by name nor by a protocol.
                    "protocol_whitelist": "none",
                    "format_whitelist": _whole_name(kind),
                    "codec_whitelist": DECODERS,
                    "max_streams": str(MAX_STREAMS),
                },
                metadata_errors="replace",
                buffer_size=1 << 18,
                io_open=_refuse,
            )
            on_complaints(heard())
    except (av.FFmpegError, ValueError, OSError) as error:
        raise ImageError(f"{name}: damaged, or no film after all: {in_short(error)}") from error
    with container:
        bind_decoders(container)
        _check(container, name)
        try:
            yield container
        finally:
            settle_decoders(container)


def _kind(file: IO[bytes] | PipeInput, name: str) -> str:
    head = beginning(file)
    kind = format_of(head)
    if kind is None:
        raise ImageError(
            f"{name}: it is not a film that can be read (mkv, mp4, mov, webm, ts, ...)"
        )
    if kind == "mov" and not file.seekable() and _has_late_index(head):
        raise ImageError(
            f"{name}: it is an mp4 or mov whose index is at its end, which a pipe cannot be read"
            " for",
            "give the file by its name",
        )
    return kind


def _has_late_index(head: bytes) -> bool:
    """Returns whether an mp4 or mov has its samples before their index."""
    at = 0
    while at + 8 <= len(head):
        size, box = int.from_bytes(head[at : at + 4]), head[at + 4 : at + 8]
        if box in (b"mdat", b"moov"):
            return box == b"mdat"
        at += max(size, 8)
    return False


def beginning(file: IO[bytes] | PipeInput) -> bytes:
    """Returns the first bytes of a film without moving its position."""
    if isinstance(file, PipeInput):
        return file.beginning(SNIFFED)
    place = file.tell()
    file.seek(0)
    head = file.read(SNIFFED)
    file.seek(place)
    return head


def _whole_name(kind: str) -> str:
    """Returns the demuxer's name, which lists all formats that it reads."""
    return {"matroska": "matroska,webm", "mov": "mov,mp4,m4a,3gp,3g2,mj2"}.get(kind, kind)


def _refuse(url: str, *_: Any, **__: Any) -> NoReturn:
    raise PermissionError(f"a film may not open {url}")


def _check(container: InputContainer, name: str) -> None:
    if len(container.streams) >= MAX_STREAMS:
        raise ImageError(f"{name}: it has more streams than the {MAX_STREAMS} that are read")
    if container.duration is not None and container.duration > MAX_SECONDS * 1_000_000:
        raise ImageError(f"{name}: it claims to last longer than a week: it is damaged")
    if len(container.chapters()) > MAX_CHAPTERS:
        raise ImageError(f"{name}: it has more than {MAX_CHAPTERS} chapters")
    attached = sum(len(one.data) for one in container.streams.attachments)
    if attached > MAX_ATTACHED:
        raise ImageError(f"{name}: it has more than {MAX_ATTACHED >> 20} MiB of attachments")


def bind_decoders(container: InputContainer) -> None:
    """Restricts the decoders of all streams. FFmpeg's own probing is restricted apart."""
    for stream in container.streams:
        context = getattr(stream, "codec_context", None)
        if context is not None:
            context.options = {"codec_whitelist": DECODERS}


def settle_decoders(container: InputContainer) -> None:
    """Waits for a container's decoder threads, before it is closed.

    PyAV holds the GIL while it frees decoders, and a thread that logs a message waits for the GIL:
    a deadlock. Flushing a decoder first releases the GIL.
    """
    for stream in container.streams:
        context = getattr(stream, "codec_context", None)
        if context is not None:
            context.flush_buffers()


def decoder_of(stream: VideoStream) -> str:
    """Returns the decoder that gives all planes: FFmpeg's for VP8 and VP9 drop transparency."""
    codec: str = stream.codec_context.name
    # The demuxer's key is lower case, but a tag of the file may replace it.
    tags = {key.lower(): value for key, value in stream.metadata.items()}
    if tags.get("alpha_mode") == "1" and codec in ("vp8", "vp9"):
        return "libvpx" if codec == "vp8" else "libvpx-vp9"
    return codec


def decoder_like(own: Any, decoder: str) -> Any:
    """Returns a decoder of that name for what another one decodes."""
    context: Any = library().CodecContext.create(decoder, "r")
    context.options = {"codec_whitelist": DECODERS}
    context.extradata, context.codec_tag = own.extradata, own.codec_tag
    context.width, context.height = own.width, own.height
    context.bits_per_coded_sample = own.bits_per_coded_sample
    return context


def new_decoder(stream: VideoStream, name: str) -> Any:
    """Returns a decoder with all cores and no history. `name` stands for the film in messages.
    Raises ImageError for one that films may not use."""
    own: Any = stream.codec_context
    if own is None:
        raise ImageError(
            f"{name}: its pictures are of a codec that is unknown to FFmpeg: the film is damaged, "
            "or has to be converted by the program that it comes from"
        )
    decoder = decoder_of(stream)
    if decoder not in DECODERS.split(","):
        raise ImageError(
            f"{name}: its pictures are coded as {decoder}, which is not read",
            "convert them first, for instance by `ffmpeg -i FILM -c:v ffv1 OUT.mkv`, if you "
            "trust them",
        )
    if decoder != own.name:
        context = decoder_like(own, decoder)
    else:
        context = own
        if context.is_open:
            context.flush_buffers()
    if not context.is_open:
        context.thread_type = "AUTO"
    return context
