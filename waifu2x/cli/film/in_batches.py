"""Films among the pictures of a batch: each is made as by `waifu2x video`."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from waifu2x.api.settings.table import of_command
from waifu2x.cli.command import WORDS_KEY, Given, in_force, settle
from waifu2x.cli.film.options import wanted_film
from waifu2x.cli.film.work import WantedFilm, made_film, prepared_film, result_size
from waifu2x.cli.output import report
from waifu2x.errors import ImageError, Sentence, Waifu2xError
from waifu2x.flows import naming
from waifu2x.flows.jobs import Job, copy_times, may_write
from waifu2x.flows.naming import Naming
from waifu2x.formats import film
from waifu2x.system import stores

if TYPE_CHECKING:
    from waifu2x.cli.workers import FileWork, OnProgress
    from waifu2x.flows.outcome import Outcome
    from waifu2x.flows.upscaling import Upscaled

FILM_OPTIONS = ("codec", *(row.name for row in of_command("batch") if row.is_of_films))
"""Options of `batch` that are for films alone."""
_OF_PICTURES = frozenset(("depth", "format", "shard", "as_json", "verbose", "quiet"))
"""Options of `batch` that `video` has with another meaning."""
_OF_BATCH = ("words", "preview", "as_json", "overwrite", "shard", "join", "address")
"""Options of `video` that say nothing about the film, or are those of the batch."""
_SIZES = ("width", "height", "longer_side", "shorter_side", "min_size", "max_height")
_LEFT_OUT = {
    "--strip": ("strip", "films keep their metadata"),
    "--fit": ("fit", "films fit inside a size"),
    "--only-smaller-than": ("only_smaller_than", "films are enlarged at any size"),
}
"""Options that people might expect to count for films, and what is done instead."""


class BatchFilms:
    """Makes the films of a batch, by its options and by the settings of `waifu2x video`."""

    def __init__(self, batch: click.Context, address: str | None) -> None:
        """`batch` is the context of the command, `address` that of a cluster."""
        self._batch = batch
        self._address = address
        self.on_count: Callable[[Path, int], None] = lambda source, frames: None
        """Called with the number of a film's frames when its turn comes."""

    @cached_property
    def _video(self) -> click.Context:
        """Returns the context of `waifu2x video` with the options of the batch that it has. Raises
        UsageError for a wrong setting."""
        from waifu2x.cli.commands.video import video

        given: dict[str, Any] = self._batch.meta[WORDS_KEY]
        own: dict[str, Given] = in_force(self._batch)
        words = []
        for option in video.params:
            name, key = str(option.name), max(option.opts, key=len)
            if name in _OF_PICTURES:
                continue
            if name in given:
                words += _words(key, given[name])
            elif name in FILM_OPTIONS and name in own and own[name].key.startswith("batch."):
                words += _words(key, own[name].value)
        context = video.make_context("waifu2x video", [*words, "-"])
        for name in ("verbose", "quiet"):
            del context.params[name]
        settle(context)
        for left_out, (name, done) in _LEFT_OUT.items():
            if self._batch.params[name]:
                report.tell(f"{left_out} is for pictures: {done}")
        return context

    def settings(self) -> list[tuple[str, str]]:
        """Returns what decides the films besides the options of the batch."""
        return [("model of films", self._video.params["model"])]

    def naming(self, template: str) -> Naming:
        """Returns how films are named, by a template that is fit for pictures."""
        params = self._video.params
        known = {"model": naming.of_model(params["model"]), "noise": params["noise"]}
        if all(params[name] is None for name in _SIZES):
            known["scale"] = naming.shown(params["scale"] or Fraction(2))
        if not template.endswith("{ext}"):
            template = f"{Path(template).stem}{{ext}}"

        def size(source: Path) -> tuple[int, int, Fraction]:
            extension = film.result_extension(source.suffix[1:].lower())
            try:
                return result_size(self._wanted(Job(source, source.with_suffix(f".{extension}"))))
            except Waifu2xError as error:
                raise ImageError(error.sentence) from error

        return Naming(template, None, known, size)

    def make(self, job: Job, work: FileWork, on_progress: OnProgress) -> Outcome:
        """Makes a film, or goes on with its parts; returns its outcome."""
        # With NumPy: late, so that a help need not wait for it.
        from waifu2x.flows.outcome import Outcome, outcome_of_error

        try:
            if not may_write(job, work.output.existing, work.sources):
                return Outcome(job)
            made, damage = self._made(job, work, on_progress)
        except Exception as error:
            named = tuple(map(str, (job.source, job.target)))
            if isinstance(error, Waifu2xError) and not error.sentence.startswith(named):
                error = error.of(job.source)
            return outcome_of_error(job, work.output, error)
        said = Sentence(f"{job.source}: {', '.join(damage)}") if damage else ""
        return Outcome(job, made, said)

    def _wanted(self, job: Job) -> WantedFilm:
        options = {n: each for n, each in self._video.params.items() if n not in _OF_BATCH}
        restart, keep_parts = options.pop("restart"), options.pop("keep_parts")
        with self._video.scope(cleanup=False):
            wanted = wanted_film(job, options)
        its = replace(wanted.job, restart=restart, keep_parts=keep_parts)
        return wanted._replace(job=its, say=report.detail)

    def _made(
        self, job: Job, work: FileWork, on_progress: OnProgress
    ) -> tuple[Upscaled, list[str]]:
        """Makes a film; returns its facts, and what of it could not be read."""
        from waifu2x.cli.film.messages import FinishedFilm, frame_count
        from waifu2x.flows.film.trials import before_and_after
        from waifu2x.flows.upscaling import Upscaled

        if stores.is_url(job.source) or stores.is_url(job.target):
            raise ImageError(
                f"{job.source}: films are neither read from URLs nor written there",
                "copy it, and use folders of this machine",
            )
        wanted = self._wanted(job)
        its = replace(wanted.job, overwrite=work.output.existing == "overwrite")
        start = time.monotonic()
        with prepared_film(wanted._replace(job=its)) as ready:
            found = ready.reader.film
            count = frame_count(found)
            self.on_count(job.source, count or 1)

            def add(frames: int, computed: int = 0) -> None:
                on_progress(job, frames / count if count else 0.0)

            made = made_film(ready, self._address, add, add)
            times = ready.reader.stages.times()
        copy_times(job, work.output)
        seconds = time.monotonic() - start
        finished = FinishedFilm(ready.job, ready.prepared, found, made, times, seconds)
        for notice in finished.notices():
            report.tell(notice)
        for line in finished.details():
            report.detail(line)
        height, width = ready.prepared.shape.written
        new = (made.frames - made.resumed - 1) * height * width
        document = finished.document()
        previews = []
        if side := work.output.preview_side:
            with suppress(Waifu2xError):  # the film is made all the same
                previews.append(before_and_after(job.source, job.target, ready.job.crop, side))
        facts = Upscaled(
            height,
            width,
            {},
            seconds,
            previews=tuple(previews),
            further_pixels=new,
            film=document,
        )
        return facts, finished.damage()


def _words(key: str, value: Any) -> list[str]:
    """Returns the words of a command line that give an option its value."""
    if isinstance(value, bool):
        return [key if value else key.replace("--", "--no-", 1)]
    values = value if isinstance(value, list | tuple) else [value]
    return [f"{key}={each}" for each in values]
