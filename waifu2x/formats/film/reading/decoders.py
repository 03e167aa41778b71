"""The decoders that films may use, and where one is made."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from waifu2x.errors import ImageError
from waifu2x.formats.film.library import library

if TYPE_CHECKING:
    from av.container import InputContainer
    from av.video.stream import VideoStream

DECODERS = (
    "h264,hevc,vvc,libdav1d,av1,vp8,vp9,libvpx,libvpx-vp9,mpeg1video,mpeg2video,mpegvideo,mpeg4,"
    "msmpeg4,msmpeg4v1,msmpeg4v2,h263,h263p,flv,theora,vc1,wmv1,wmv2,wmv3,svq1,svq3,dvvideo,"
    "mjpeg,prores,dnxhd,cfhd,png,ffv1,huffyuv,ffvhuff,utvideo,magicyuv,lagarith,qtrle,rawvideo,"
    "v210,aac,aac_latm,ac3,eac3,dca,truehd,mlp,mp1,mp1float,mp2,mp2float,mp3,mp3float,flac,opus,"
    "libopus,vorbis,libvorbis,alac,wmav1,wmav2,pcm_u8,pcm_s16le,pcm_s16be,pcm_s24le,pcm_s24be,"
    "pcm_s32le,pcm_s32be,pcm_f32le,pcm_f32be,pcm_f64le,pcm_bluray,pcm_dvd,"
    "subrip,srt,ssa,ass,mov_text,webvtt,text,pgssub,dvdsub,dvbsub"
)
"""Decoders that films need. FFmpeg has hundreds of others, of formats that nobody looks after."""


def bind_decoders(container: InputContainer) -> None:
    """Lets no stream of a container be decoded by any other. FFmpeg's own look at a film, when it
    is opened, has to be bound besides."""
    for stream in container.streams:
        context = getattr(stream, "codec_context", None)
        if context is not None:
            context.options = {"codec_whitelist": DECODERS}


def settle_decoders(container: InputContainer) -> None:
    """Waits for the threads of a container's decoders, before it is closed.

    PyAV frees decoders while it holds Python's lock, which a thread that has a complaint waits for:
    each would wait for the other for ever. It gives the lock up while a decoder is flushed.
    """
    for stream in container.streams:
        context = getattr(stream, "codec_context", None)
        if context is not None:
            context.flush_buffers()


def decoder_of(stream: VideoStream) -> str:
    """The decoder that gives all of its planes: FFmpeg's own for VP8 and VP9 drop transparency."""
    codec: str = stream.codec_context.name
    # The demuxer's own key is of small letters, but a tag of the file is found in its place.
    tags = {key.lower(): value for key, value in stream.metadata.items()}
    if tags.get("alpha_mode") == "1" and codec in ("vp8", "vp9"):
        return "libvpx" if codec == "vp8" else "libvpx-vp9"
    return codec


def new_decoder(stream: VideoStream, name: str) -> Any:
    """A decoder with all cores, that knows nothing of what was decoded before.

    `name` stands for the film in messages. Raises ImageError for one that films may not use.
    """
    own: Any = stream.codec_context
    if own is None:
        raise ImageError(
            f"{name}: its pictures are of a codec that is unknown to FFmpeg: the film is damaged, "
            "or has to be converted by the program that it comes from"
        )
    decoder = decoder_of(stream)
    if decoder not in DECODERS.split(","):
        raise ImageError(
            f"{name}: its pictures are coded as {decoder}, which is not read: convert them first, "
            "for instance by `ffmpeg -i FILM -c:v ffv1 OUT.mkv`, if you trust them"
        )
    if decoder != own.name:
        context = library().CodecContext.create(decoder, "r")
        context.extradata = own.extradata
        context.options = {"codec_whitelist": DECODERS}
    else:
        context = own
        if context.is_open:
            context.flush_buffers()
    if not context.is_open:
        context.thread_type = "AUTO"
    return context
