"""Opens a film, and prepares what makes its parts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from waifu2x.api.settings.kinds import LOCAL
from waifu2x.backends import device_numbers
from waifu2x.cli.options.arguments import describe, tell_reduction
from waifu2x.cli.output import report
from waifu2x.errors import ImageError, Sentence
from waifu2x.flows.jobs import STANDARD
from waifu2x.formats.film.description import FilmCrop

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from waifu2x.backends import Pin
    from waifu2x.flows.film.frames.frame_device import OnFrames
    from waifu2x.flows.film.frames.frame_enlarger import FrameEnlarger
    from waifu2x.flows.film.makers.run_maker import RunMaker
    from waifu2x.flows.film.making import MadeFilm
    from waifu2x.flows.film.reading.client import FilmReader
    from waifu2x.flows.film.request import FilmJob, PreparedFilm
    from waifu2x.flows.fleet.supervisor import Fleet
    from waifu2x.networks.model_set import ModelSet


class WantedFilm(NamedTuple):
    """The film that a command line asks for."""

    job: FilmJob
    arguments: dict[str, Any]
    """Those of an Upscaler, whose noise may still be `auto`."""
    crop: FilmCrop | Literal["auto"] | None = None
    """The part that is wanted; auto: all but black bars; None: all."""
    say: Callable[[str], None] = report.say
    """Tells what goes well."""


class ReadyFilm(NamedTuple):
    """An open film, and all decisions about it."""

    reader: FilmReader
    job: FilmJob
    prepared: PreparedFilm
    models: ModelSet
    arguments: dict[str, Any]
    """Those of an Upscaler."""
    enlargers: list[FrameEnlarger]
    """Holds this process's enlarger of frames, once it is open."""
    say: Callable[[str], None]
    """Tells what goes well."""

    def job_of(self, arithmetic: str = "", *, is_gpu: bool = False) -> FilmJob:
        """Returns the job with everything that decides the pixels, the network's arithmetic
        included."""
        from waifu2x.flows.film.automatic import deciding_settings

        settings = deciding_settings(self.arguments, self.models, arithmetic)
        return replace(self.job, has_long_parts=is_gpu, settings=settings)


@contextmanager
def prepared_film(wanted: WantedFilm, *, is_preview: bool = False) -> Iterator[ReadyFilm]:
    """Opens a film, decides how to make it, and tells of that."""
    from waifu2x.backends import Pin
    from waifu2x.cli.film import messages
    from waifu2x.flows.film import automatic
    from waifu2x.flows.film.reading.client import FilmReader
    from waifu2x.flows.film.request import prepare
    from waifu2x.networks import model_set

    models = model_set.find(wanted.arguments["model"])  # before a film is read
    enlargers: list[FrameEnlarger] = []

    def pin(array: NDArray[Any]) -> Pin:
        return enlargers[0].backend.pin(array) if enlargers else Pin()

    with FilmReader(wanted.job.source, pin, start=wanted.job.cut.start) as reader:
        job = _cropped(reader, wanted, is_preview=is_preview)
        film = reader.film
        found = automatic.decided(film, job, wanted.arguments, models)
        job = found.job
        if not found.changes:
            raise ImageError(
                f"{job.source}: nothing to do", "give --noise, a --scale above 1, or both"
            )
        if (found.height, found.width) != found.asked:
            report.tell(
                f"{job.target}: this encoder needs even sides, so it is made"
                f" {found.width}x{found.height}, not {found.asked[1]}x{found.asked[0]}"
            )
        prepared = prepare(reader, job, found.height, found.width)
        if not is_preview:
            for line in _lines(job, film, prepared):
                wanted.say(line)
            for warning in messages.warnings(str(job.source), film, prepared):
                report.tell(warning)
        yield ReadyFilm(reader, job, prepared, models, found.arguments, enlargers, wanted.say)


def result_size(wanted: WantedFilm) -> tuple[int, int, Fraction]:
    """Returns the width and height of a film's result, and how many times as wide as the film it
    is. Raises Waifu2xError."""
    from waifu2x.flows.film import automatic
    from waifu2x.flows.film.reading.client import FilmReader
    from waifu2x.networks import model_set

    models = model_set.find(wanted.arguments["model"])
    with FilmReader(wanted.job.source) as reader:
        job = _cropped(reader, wanted, is_preview=True)
        found = automatic.decided(reader.film, job, wanted.arguments, models)
        return found.width, found.height, Fraction(found.width, reader.film.pictures.width)


def _cropped(reader: FilmReader, wanted: WantedFilm, *, is_preview: bool) -> FilmJob:
    """Crops the pictures as the options say, or tells how that would remove black bars; returns the
    job with the part that is left."""
    from waifu2x.flows.film.automatic import black_bars

    job, asked = wanted.job, wanted.crop
    if asked is None and is_preview:
        return job
    crop = black_bars(reader) if asked in (None, "auto") else asked
    if asked == "auto" and crop is None:
        report.tell(f"{job.source}: it has no black bars, so nothing is cropped")
    if not isinstance(crop, FilmCrop):
        return job
    if asked is None:
        pictures = reader.film.pictures
        sides = {
            "above": crop.top,
            "below": pictures.height - crop.height - crop.top,
            "left": crop.left,
            "right": pictures.width - crop.width - crop.left,
        }
        told = ", ".join(f"{number} {side}" for side, number in sides.items() if number)
        bars = f"{job.source}: it has black bars ({told})"
        report.tell(Sentence(bars, f"use --crop {crop} to remove them"))
        return job
    reader.crop(crop)
    return replace(job, crop=crop)


@contextmanager
def opened_enlarger(ready: ReadyFilm) -> Iterator[FrameEnlarger]:
    """Opens the enlarger of frames in this process, and tells of it. No other backend replaces one
    that stops working: its frames would differ within the film."""
    from waifu2x.api import Upscaler
    from waifu2x.backends.engine.engine import Engine
    from waifu2x.flows.film.frames.frame_enlarger import FrameEnlarger

    film, shape = ready.reader.film, ready.prepared.shape
    arguments = dict(ready.arguments)
    choice = [arguments.pop(name) for name in ("backend", "device", "precision")]
    with (
        Engine(*choice, fallback=False) as engine,
        Upscaler(engine=engine, **arguments) as upscaler,
    ):
        enlarge = FrameEnlarger(upscaler, film.pictures, shape)
        ready.enlargers.append(enlarge)
        noise = arguments["noise"]
        grows = (shape.height, shape.width) > (film.pictures.height, film.pictures.width)
        unused = ready.models.substitute(1, noise) if grows else None  # it is for other sizes
        for notice in (*engine.notices, *upscaler.notices):
            if notice != unused:
                report.tell(notice)
        tell_reduction(**ready.arguments)
        levels = "no denoising" if noise is None else f"noise level {noise}"
        ready.say(f"{ready.models.name}, {levels}; {describe(enlarge.upscaler)}")
        yield enlarge


class FilmMaker(NamedTuple):
    """Makes the parts of a film."""

    make: RunMaker
    arithmetic: str
    is_gpu: bool


@contextmanager
def film_maker(ready: ReadyFilm, address: str | None, on_frames: OnFrames) -> Iterator[FilmMaker]:
    """Opens a maker of parts: this process, a process for each of several devices, or a cluster."""
    from waifu2x.flows.film.frames.frame_enlarger import UpscalerEnlarging, device_of
    from waifu2x.flows.film.makers.by_fleet import MOST, PARTS_STAY, FilmOpening, MakerByFleet
    from waifu2x.flows.film.makers.run_maker import MakerHere
    from waifu2x.flows.film.parts import part_files
    from waifu2x.flows.fleet.process_worker import ProcessWorker
    from waifu2x.flows.fleet.processes import may_start_processes
    from waifu2x.flows.fleet.supervisor import Fleet, Hooks, Policy

    arguments, shape = ready.arguments, ready.prepared.shape
    source, film = ready.reader.path, ready.reader.film
    hooks = Hooks(
        on_opened=lambda name, opened: ready.say(f"{name}: {opened.described}"),
        on_news=report.tell,
    )
    if address is not None:
        from waifu2x.flows.batch.session import packed
        from waifu2x.flows.fleet import cluster

        name, model_files = packed(arguments["model"])
        enlarging = UpscalerEnlarging({**arguments, "model": name}, model_files)
        identity = part_files.source_identity(source.absolute())
        opening = FilmOpening(source.absolute(), film, shape, enlarging, identity)
        policy = cluster.policy("parts", f"{PARTS_STAY}: run again to go on")
        with (
            cluster.connected(None if address == LOCAL else address) as client,
            cluster.fleet_of(client, opening, policy, hooks, seconds=0.0) as fleet,
        ):
            yield _made_by(fleet, MakerByFleet(ready.reader, fleet, on_frames, MOST))
        return
    device = arguments["device"]
    numbers = device_numbers(arguments["backend"]) if device == "all" else device
    if len(numbers) == 1 or not may_start_processes():
        with opened_enlarger(ready) as enlarge:
            device = device_of(enlarge, film)
            made = MakerHere(ready.reader, device, on_frames)
            yield FilmMaker(made, device.arithmetic, device.is_gpu)
        return
    tell_reduction(**arguments)

    def worker(number: int) -> ProcessWorker:
        enlarging = UpscalerEnlarging({**arguments, "device": (number,)})
        opening = FilmOpening(source, film, shape, enlarging)
        return ProcessWorker(f"device {number}", opening)

    policy = Policy("parts", resume=PARTS_STAY)
    with closing(Fleet(map(worker, numbers), policy, hooks)) as fleet:
        fleet.open()
        yield _made_by(fleet, MakerByFleet(ready.reader, fleet, on_frames))


def made_film(
    ready: ReadyFilm, address: str | None, on_frames: OnFrames, on_resumed: Callable[[int], None]
) -> MadeFilm:
    """Makes the missing parts of a film, and joins all. `on_resumed` is called with the frames that
    are there already, which are told of. Raises Waifu2xError."""
    from waifu2x.cli.film import messages
    from waifu2x.flows.film.making import make_film

    def resume(frames: int) -> None:
        on_resumed(frames)
        if frames:
            report.tell(messages.resumed_line(ready.job.target, frames, ready.reader.film))

    with film_maker(ready, address, on_frames) as maker:
        job = ready.job_of(maker.arithmetic, is_gpu=maker.is_gpu)
        return make_film(
            maker.make,
            ready.reader,
            job,
            ready.prepared,
            on_resumed=resume,
            on_notice=report.tell,
        )


def _made_by(fleet: Fleet, maker: RunMaker) -> FilmMaker:
    assert fleet.opened is not None
    return FilmMaker(maker, fleet.opened.arithmetic, fleet.opened.is_gpu)


def _lines(job: FilmJob, film: Any, prepared: PreparedFilm) -> Iterator[str]:
    from waifu2x.cli.film import messages
    from waifu2x.flows.film.making import is_live

    name = "standard input" if job.source == STANDARD else job.source
    yield f"{name}: {messages.film_line(film)}"
    yield f"colours: {messages.colours_line(film)}"
    taken = messages.streams_line(film, frozenset(one.index for one in prepared.plan.taken))
    yield f"copied: {taken or 'nothing'}"
    yield f"{report.place(job.target)}: {messages.result_line(prepared)}"
    if is_live(job):
        yield "parts: none; an interrupted run begins anew"
