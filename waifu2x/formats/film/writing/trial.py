"""Asks FFmpeg's muxers, before any work, whether they take what a plan says."""

from __future__ import annotations

import io
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from waifu2x.errors import OutputError
from waifu2x.formats.film.library import library
from waifu2x.formats.film.reading.opening import in_short
from waifu2x.formats.film.writing.covers import CoverOf
from waifu2x.formats.film.writing.header import FilmPlan, begin_streams, open_target
from waifu2x.formats.film.writing.picture_stream import PictureTemplate
from waifu2x.formats.film.writing.targets import KeptStream, StreamPlan

if TYPE_CHECKING:
    from av.container import InputContainer


def tried(
    source: InputContainer, plan: FilmPlan, template: PictureTemplate, cover_of: CoverOf
) -> StreamPlan:
    """The streams of a plan as FFmpeg's muxer agrees with it: what it cannot take is among what is
    refused. Raises OutputError where it cannot take even the pictures.
    """

    def trouble(*taken: KeptStream) -> str:
        streams = replace(plan.streams, taken=taken)
        return _trouble(source, plan._replace(streams=streams), template, cover_of)

    found = trouble()
    if found:
        raise OutputError(
            f".{plan.streams.container} cannot hold pictures of {plan.shape.encoding.codec}: "
            f"{found}"
        )
    streams = plan.streams
    if not trouble(*streams.taken):
        return streams
    titles = {stream.index: stream.title for stream in plan.film.others}
    taken: list[KeptStream] = []
    refused = list(streams.refused)
    for one in streams.taken:
        if trouble(*taken, one):
            refused.append((one.index, titles[one.index]))
        else:
            taken.append(one)
    return replace(streams, taken=tuple(taken), refused=tuple(sorted(refused)))


def _trouble(
    source: InputContainer, plan: FilmPlan, template: PictureTemplate, cover_of: CoverOf
) -> str:
    """What is wrong with a plan; empty if nothing is."""
    out: Any = open_target(io.BytesIO(), plan.streams.container)
    try:
        begin_streams(out, source, plan, template, cover_of)
        out.start_encoding()
    except (library().FFmpegError, ValueError) as error:
        return in_short(error)
    finally:
        with suppress(Exception):  # it was a trial
            out.close()
    return ""
