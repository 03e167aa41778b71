"""Films made in this process, by a function that enlarges frames."""

from __future__ import annotations

from typing import Any

from waifu2x.flows.film.frames.frame_device import Enlarge, FrameDevice
from waifu2x.flows.film.makers.run_maker import MakerHere
from waifu2x.flows.film.making import MadeFilm, make_film
from waifu2x.flows.film.reading.client import FilmReader
from waifu2x.flows.film.request import FilmJob, PreparedFilm


def make_film_here(
    reader: FilmReader,
    job: FilmJob,
    prepared: PreparedFilm,
    enlarge: Enlarge,
    *,
    in_flight: int = 2,
    **options: Any,
) -> MadeFilm:
    """Makes a film of stacks of one frame, `in_flight` of them under way at a time."""
    maker = MakerHere(reader, FrameDevice(enlarge, in_flight))
    return make_film(maker, reader, job, prepared, **options)
