"""A film that is to be made, what enlarges its frames, and who makes its parts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from waifu2x.backends import device_numbers
from waifu2x.cli import report
from waifu2x.cli.arguments import describe, tell_reduction
from waifu2x.cli.machines import LOCAL
from waifu2x.errors import Waifu2xError
from waifu2x.flows.jobs import STANDARD

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from waifu2x.backends import Pin
    from waifu2x.flows.film.enlarging import FrameEnlarger
    from waifu2x.flows.film.film_reader import FilmReader
    from waifu2x.flows.film.request import FilmJob, PreparedFilm
    from waifu2x.flows.film.runs import OnFrames, RunMaker
    from waifu2x.networks.model_set import ModelSet

_SIZES = ("scale", "width", "height")
_DECIDING = ("model", "noise", "tta", "precision")
"""Arguments that decide the pixels, by name."""


class WantedFilm(NamedTuple):
    """What a command line asks for."""

    job: FilmJob
    arguments: dict[str, Any]
    """Those of an Upscaler, whose noise may still be `auto`."""


class ReadyFilm(NamedTuple):
    """A film that is open, and all decisions about it."""

    reader: FilmReader
    job: FilmJob
    prepared: PreparedFilm
    models: ModelSet
    arguments: dict[str, Any]
    """Those of an Upscaler."""
    enlargers: list[FrameEnlarger]
    """What enlarges its frames in this process, once that is open."""

    def job_of(self, backend: str) -> FilmJob:
        """The job, with all that decides the pixels: a backend by its name among it."""
        deciding = [(name, str(self.arguments[name])) for name in _DECIDING]
        deciding += [("backend", backend), ("weights", self.models.digest())]
        return replace(self.job, settings=tuple(deciding))


@contextmanager
def prepared_film(wanted: WantedFilm, *, is_preview: bool = False) -> Iterator[ReadyFilm]:
    """What a command line asks for, ready to be done; what there is to say is told."""
    from waifu2x.backends import Pin
    from waifu2x.cli import film_words
    from waifu2x.flows.film import automatic
    from waifu2x.flows.film.film_reader import FilmReader
    from waifu2x.flows.film.request import prepare
    from waifu2x.imaging import sizes
    from waifu2x.networks import model_set

    job, arguments = wanted.job, dict(wanted.arguments)
    models = model_set.find(arguments["model"])  # before a film is read
    enlargers: list[FrameEnlarger] = []

    def pin(array: NDArray[Any]) -> Pin:
        return enlargers[0].backend.pin(array) if enlargers else Pin()

    with FilmReader(job.source, pin) as reader:
        film = reader.film
        size = film.pictures.height, film.pictures.width
        try:
            request = sizes.request(**{name: arguments[name] for name in _SIZES})
            plan = request.plan(*size, lambda scale: 1)
        except Waifu2xError as error:
            raise type(error)(f"{job.source}: {error}") from error
        if arguments["noise"] == "auto":
            arguments["noise"] = automatic.noise_level(film.pictures, models)
        if arguments["noise"] is None and (plan.height, plan.width) == size:
            raise click.UsageError("Nothing to do: give --noise, a --scale above 1, or both.")
        if job.wish.codec == "auto":
            codec = automatic.hardware_codec(film.pictures, job, plan.height, plan.width)
            job = replace(job, wish=replace(job.wish, codec=codec))
        even = automatic.even_size(film, job, plan.height, plan.width)
        if even != (plan.height, plan.width):
            report.tell(
                f"{job.target}: {even[1]}x{even[0]} instead of {plan.width}x{plan.height}:"
                " the encoder takes even sides alone"
            )
            arguments |= {"scale": None, "height": even[0], "width": even[1], "fit": "exact"}
        prepared = prepare(reader, job, *even)
        if not is_preview:
            for line in _lines(job, film, prepared):
                report.say(line)
            for warning in film_words.warnings(film, prepared):
                report.tell(f"{job.source}: {warning}")
        yield ReadyFilm(reader, job, prepared, models, arguments, enlargers)


@contextmanager
def opened_enlarger(ready: ReadyFilm) -> Iterator[FrameEnlarger]:
    """What enlarges the frames, in this process; what there is to say is told."""
    from waifu2x.api import Upscaler
    from waifu2x.flows.film.enlarging import FrameEnlarger

    film, shape = ready.reader.film, ready.prepared.shape
    arguments = ready.arguments
    with Upscaler(**arguments) as upscaler:
        enlarge = FrameEnlarger(upscaler, film.pictures, shape)
        ready.enlargers.append(enlarge)
        noise = arguments["noise"]
        grows = (shape.height, shape.width) > (film.pictures.height, film.pictures.width)
        unused = ready.models.substitute(1, noise) if grows else None  # it is for other sizes
        for notice in enlarge.upscaler.notices:
            if notice != unused:
                report.tell(notice)
        tell_reduction(**arguments)
        levels = "no denoising" if noise is None else f"noise level {noise}"
        report.say(f"{ready.models.name}, {levels}; {describe(enlarge.upscaler)}")
        yield enlarge


class FilmMaker(NamedTuple):
    """Who makes the parts of a film."""

    make: RunMaker
    backend: str


@contextmanager
def film_maker(ready: ReadyFilm, address: str | None, on_frames: OnFrames) -> Iterator[FilmMaker]:
    """Who makes the parts of a film: this process, one for each of several devices, a cluster."""
    from waifu2x.flows.batch import worker
    from waifu2x.flows.film.device_maker import DeviceMaker
    from waifu2x.flows.film.runs import MadeHere
    from waifu2x.flows.film.upscaler_device import UpscalerEnlarging, device_of

    arguments = ready.arguments
    if address is not None:
        from waifu2x.flows.batch import cluster
        from waifu2x.flows.film.cluster_maker import ClusterMaker

        name, model_files = cluster.packed(arguments["model"])
        enlarging = UpscalerEnlarging({**arguments, "model": name}, model_files)
        with (
            cluster.connected(None if address == LOCAL else address) as client,
            ClusterMaker(
                client,
                ready.reader,
                ready.prepared.shape,
                enlarging,
                on_frames=on_frames,
                on_device=report.say,
                on_news=report.tell,
            ) as made_by_many,
        ):
            yield FilmMaker(made_by_many, made_by_many.backend)
        return
    device = arguments["device"]
    numbers = device_numbers(arguments["backend"]) if device == "all" else device
    if len(numbers) == 1 or not worker.may_start_processes():
        with opened_enlarger(ready) as enlarge:
            made = MadeHere(ready.reader, device_of(enlarge, ready.reader.film), on_frames)
            yield FilmMaker(made, enlarge.backend.name)
        return
    tell_reduction(**arguments)
    with DeviceMaker(
        ready.reader,
        ready.prepared.shape,
        [
            (f"device {number}", UpscalerEnlarging({**arguments, "device": (number,)}))
            for number in numbers
        ],
        on_frames=on_frames,
        on_device=report.say,
        on_news=report.tell,
    ) as made_by:
        yield FilmMaker(made_by, made_by.backend)


def _lines(job: FilmJob, film: Any, prepared: PreparedFilm) -> Iterator[str]:
    """What was found and what will be made of it, before the work."""
    from waifu2x.cli import film_words

    name = "standard input" if job.source == STANDARD else job.source
    yield f"{name}: {film_words.film_line(film)}"
    yield f"colours: {film_words.colours_line(film)}"
    taken = film_words.streams_line(film, frozenset(one.index for one in prepared.plan.taken))
    yield f"copied: {taken or 'nothing'}"
    yield f"{film_words.place(job.target)}: {film_words.result_line(prepared)}"
    if is_live_job(job):
        yield "there are no parts of it: a run that is interrupted begins anew"


def is_live_job(job: FilmJob) -> bool:
    from waifu2x.flows.film.live import is_live

    return is_live(job)
