"""What `waifu2x info` says of a film."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from waifu2x.cli.film import words
from waifu2x.cli.output.progress_line import clock
from waifu2x.errors import BackendError, ModelError, OutputError
from waifu2x.flows.film import automatic
from waifu2x.flows.film.rate import measured
from waifu2x.flows.film.reading.client import FilmReader
from waifu2x.flows.film.request import FilmJob, PreparedFilm, prepare
from waifu2x.formats.film import WRITABLE
from waifu2x.formats.film.description import Film
from waifu2x.networks import catalogue, model_set

_SCALE = 2
"""What films are enlarged by, unless something else is asked for."""


def of_film(path: Path) -> tuple[dict[str, Any], list[str]]:
    """What a film holds, what each container would keep of it, and how long the work takes here:
    for programs, and in lines for people.

    Raises ImageError, and UnavailableError where PyAV is missing.
    """
    with FilmReader(path) as reader:
        film, pictures = reader.film, reader.film.pictures
        height, width = pictures.height * _SCALE, pictures.width * _SCALE
        document: dict[str, Any] = {
            "format": film.container,
            "codec": pictures.codec,
            "width": pictures.width,
            "height": pictures.height,
            "rate": float(pictures.rate),
            "frames": words.frame_count(film),
            "seconds": film.seconds,
            "streams": [stream.title for stream in film.others],
            "chapters": film.chapters,
            "enlarged": [width, height],
        }
        every = frozenset(stream.index for stream in film.others)
        lines = [
            words.film_line(film),
            f"colours: {words.colours_line(film)}",
            f"beside pictures: {words.streams_line(film, every) or 'nothing'}",
            f"enlarged {_SCALE}x: {width}x{height}",
        ]
        if pictures.lost:
            document["lost"] = list(pictures.lost)
            lines.append(f"no container here keeps {', '.join(pictures.lost)}")
        some: PreparedFilm | None = None
        document["containers"] = {}
        for container in WRITABLE:
            job = FilmJob(path, path.with_suffix(f".{container}"), drop_unsupported=True)
            try:
                prepared = prepare(reader, job, height, width)
            except OutputError as error:
                document["containers"][container] = {"error": str(error)}
                lines.append(f"as {container}: no: {error}")
                continue
            some = some or prepared
            found = list(prepared.notices)
            document["containers"][container] = {
                "codec": prepared.shape.encoding.codec,
                "lost": found,
            }
            lines.append(f"as {container}: {', '.join(found) or 'everything is kept'}")
        if some is not None:
            more, line = _time(film, some)
            document |= more
            lines.append(line)
    return document, lines


def _time(film: Film, prepared: PreparedFilm) -> tuple[dict[str, Any], str]:
    """How long the network takes for a film."""
    model = catalogue.FILM_DEFAULT
    try:
        noise = automatic.noise_level(film.pictures, model_set.find(model))
        arguments = {"scale": _SCALE, "noise": noise, "model": model}
        found = measured(arguments, film, prepared.shape)
    except (BackendError, ModelError) as error:
        return {"network": {"error": str(error)}}, f"how long it takes is not known: {error}"
    frames = words.frame_count(film)
    document: dict[str, Any] = {"device": found.device, "rate": round(found.frames, 3)}
    rate = (
        f"{found.frames:.3g} frames a second"
        if found.frames >= 1
        else f"{1 / found.frames:.1f} s a frame"
    )
    taken = ""
    if frames is not None:
        document["seconds"] = round(frames / found.frames, 1)
        taken = f"about {clock(frames / found.frames)}, "
    measure = f"measured now on {found.width}x{found.height} pixels"
    return {"network": document}, (
        f"{model} on {found.device}: {taken}{rate} ({measure}), without decoding and encoding"
    )
