"""Makes a film of another: missing parts first, then all of them joined."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from waifu2x.backends import Pin, Progress
from waifu2x.errors import ImageError, OutputError
from waifu2x.flows.film import manifest
from waifu2x.flows.film.film_reader import FilmReader
from waifu2x.flows.film.frame_memory import FrameMemory
from waifu2x.flows.film.manifest import PartRecord
from waifu2x.flows.film.parts import EnlargedFrame, FrameSource, PartRun, PartSink, Planes, Step
from waifu2x.flows.film.request import FilmJob, PreparedFilm, settings
from waifu2x.flows.film.stacks import StackedSink, StackedSource
from waifu2x.flows.flow import flow
from waifu2x.formats.film.reader import Ending
from waifu2x.system.files import reason, writing
from waifu2x.system.lazy_dataclass import dataclass

Enlarge = Callable[[Sequence[Planes], Sequence[Planes]], None]
"""Enlarges frames, given as planes in the film's format: writes each result into planes of the
encoder's format, as many as there are frames. Threads share it."""


@dataclass(frozen=True)
class MadeFilm:
    """A film that was made."""

    frames: int
    resumed: int
    """Frames of parts that were there already."""
    computed: int
    """Frames that the network made, in this run."""
    ending: Ending
    lost: tuple[str, ...] = ()
    """What is missing in sounds that were copied from a damaged film, each a clause."""


def parts_folder(target: Path) -> Path:
    """Where the parts of a film are kept until it is complete."""
    return target.with_name(f"{target.name}.parts")


def make_film(
    reader: FilmReader,
    job: FilmJob,
    prepared: PreparedFilm,
    enlarge: Enlarge,
    *,
    in_flight: int = 2,
    stack: int = 1,
    pin: Callable[[NDArray[Any]], Pin] = lambda array: Pin(),
    restart: bool = False,
    keep_parts: bool = False,
    replace: bool = False,
    on_frame: Callable[[Step], None] = lambda step: None,
) -> MadeFilm:
    """Makes a film, or what is missing of it after a run that was killed.

    The parts that are complete stay, whatever happens, until the film is. `in_flight` stacks of
    frames are under way at a time; `pin` is the device's, `Backend.pin`. `on_frame` is told of each
    frame whose result is there; `reader.stages` tells which stage holds the others. Raises
    ImageError, OutputError, BackendError.
    """
    folder = parts_folder(job.target)
    try:
        source = manifest.source_identity(job.source)
    except OSError as error:
        raise ImageError(f"{job.source}: cannot read: {reason(error)}") from error
    manifest.begin(folder, settings(job, prepared, source), restart=restart)
    there = _there(folder)
    resumed = sum(len(told.encoded.pts) for told in there.values())

    shape, stages = prepared.shape, reader.stages
    memory = FrameMemory(shape.encoding.pixels, shape.height, shape.width, pin)

    def work(steps: Sequence[Step], on_progress: Progress) -> Sequence[EnlargedFrame]:
        made = [None if step.is_held else memory.planes() for step in steps]
        frames = [step.frame.planes for step in steps if not step.is_held]
        if frames:
            with stages.at_work("network"):
                enlarge(frames, [planes for planes in made if planes is not None])
        for step in steps:
            on_frame(step)
        return [EnlargedFrame(step, planes) for step, planes in zip(steps, made, strict=True)]

    computed = 0
    ending = Ending()
    with closing(memory):
        for run in _missing(there):
            frames = FrameSource(
                reader,
                prepared.selection,
                run,
                prepared.part_frames,
                job.duplicates,
                in_flight * stack,
            )
            sink = PartSink(folder, shape, prepared.part_frames, stages)
            flow(StackedSource(frames, stack), work, StackedSink(sink), in_flight=in_flight)
            computed += sink.computed
            if run.count is None:
                ending = reader.ending
    there = _there(folder)
    if not there:
        raise ImageError(f"{job.source}: has no frames between --start and --end")
    if manifest.source_identity(job.source) != source:
        raise ImageError(f"{job.source}: has changed meanwhile: do it again, with --restart")
    parts = [
        (manifest.part_path(folder, number), there[number].encoded) for number in sorted(there)
    ]
    try:
        with writing(job.target, replace=replace) as file:
            lost = reader.join(Path(file.name), prepared.shape, prepared.plan, parts, job.cut)
        if not keep_parts:
            shutil.rmtree(folder)
    except OSError as error:
        raise OutputError(f"{job.target}: cannot write: {reason(error)}") from error
    frames_made = sum(len(told.encoded.pts) for told in there.values())
    return MadeFilm(frames_made, resumed, computed, ending, lost)


def _there(folder: Path) -> dict[int, PartRecord]:
    """The parts that are complete, by their numbers."""
    numbers = sorted(
        int(path.stem[5:]) for path in folder.glob("part-*.json") if path.stem[5:].isdecimal()
    )
    found = {}
    for number in numbers:
        told = manifest.recorded(folder, number)
        if told is not None:
            found[number] = told
    return found


def _missing(there: dict[int, PartRecord]) -> Sequence[PartRun]:
    """The runs of parts that are missing, the last of them to the end of the film."""
    runs = []
    following = 0
    for number in sorted(there):
        if number > following:
            runs.append(PartRun(following, number - following, there.get(following - 1)))
        following = number + 1
    runs.append(PartRun(following, None, there.get(following - 1)))
    return runs
