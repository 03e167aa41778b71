"""What is said at the end of the work on a film, however it ends."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from waifu2x.cli.output import report
from waifu2x.errors import Waifu2xError

if TYPE_CHECKING:
    from waifu2x.flows.batch.subset import Shard
    from waifu2x.flows.film.assembly import MadeFilm
    from waifu2x.flows.film.frames.stages import StageTimes
    from waifu2x.flows.film.request import FilmJob, PreparedFilm
    from waifu2x.formats.film.description import Film


def tell_end(
    job: FilmJob,
    prepared: PreparedFilm,
    film: Film,
    made: MadeFilm,
    times: StageTimes,
    seconds: float,
    *,
    as_json: bool,
) -> bool:
    """Says how a film was made, in so many seconds; False if something of it could not be read."""
    from waifu2x.cli.film import words

    found = words.damage(film, made)
    for clause in found:
        report.error(f"{job.source}: {clause}")
    for notice in made.notices:
        report.tell(f"{job.target}: {notice}")
    if line := words.moved(made.ending):
        report.tell(f"{job.source}: {line}")
    report.detail(
        f"at work: decoding {times.decoding:.2f} s, network {times.network:.2f} s, encoding"
        f" {times.encoding:.2f} s"
    )
    report.say(words.done_line(job.target, prepared, made, seconds))
    if as_json:
        document = {
            "status": "damaged" if found else "done",
            "input": str(job.source),
            "output": str(job.target),
            "width": prepared.shape.width,
            "height": prepared.shape.height,
            "codec": prepared.shape.encoding.codec,
            "frames": made.frames,
            "resumed": made.resumed,
            "computed": made.computed,
            "held": made.frames - made.resumed - made.computed,
            "moved": made.ending.moved,
            "damage": found,
            "seconds": round(seconds, 3),
            "stages": {
                name: round(spent, 3)
                for name, spent in times._asdict().items()
                if name != "elapsed"
            },
            "slowest": times.slowest,
        }
        report.show(json.dumps(document))
    return not found


def tell_shard(job: FilmJob, shard: Shard, parts: int, *, as_json: bool) -> None:
    """Says how many parts of a shard are there."""
    from waifu2x.flows.film.parts.begun_film import parts_folder

    folder = parts_folder(job.target)
    report.say(
        f"{folder}: {parts} parts of shard {shard.number} of {shard.parts} are there;"
        f" --join makes {job.target} of all"
    )
    if as_json:
        document = {
            "status": "done",
            "input": str(job.source),
            "output": str(folder),
            "shard": f"{shard.number}/{shard.parts}",
            "parts": parts,
        }
        report.show(json.dumps(document))


@contextmanager
def failure_as_json(source: Path, target: Path, as_json: bool) -> Iterator[None]:
    """Shows what ends the work within, where JSON is wanted."""
    try:
        yield
    except (Waifu2xError, MemoryError, OSError) as error:
        if as_json:
            message = report.message_of(error)
            document = {"status": "failed", "input": str(source), "output": str(target)}
            report.show(json.dumps({**document, "error": message}))
        raise


class Interrupted:
    """What is said when a signal ends the work, once."""

    def __init__(self, target: Path) -> None:
        self._target = target
        self._is_told = False

    @contextmanager
    def told(self) -> Iterator[None]:
        """Tells it where the work within is interrupted."""
        try:
            yield
        except (KeyboardInterrupt, SystemExit):
            self.tell()
            raise

    def tell(self) -> None:
        """Says what is kept, and how to go on."""
        from waifu2x.flows.film.parts.begun_film import parts_folder

        folder = parts_folder(self._target)
        if self._is_told or not folder.is_dir():
            return
        self._is_told = True
        words = [word for word in sys.argv[1:] if word != "--restart"]
        again = shlex.join(["waifu2x", *words])
        report.error(f"{folder} keeps what is done; to go on: {again}")
