"""Outcomes, for people and for programs. People read stderr; stdout is for pictures and JSON.

On stderr, `error` always writes; `tell`, warnings, unless --quiet; `say`, what went well, on a
terminal only, or with --verbose; `detail` with --verbose.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import IntEnum
from typing import TYPE_CHECKING

import click

from waifu2x.errors import LESS_MEMORY, OutputError, Waifu2xError, printable
from waifu2x.system.files import reason

if TYPE_CHECKING:
    from pathlib import Path

    from waifu2x.flows.jobs import Job
    from waifu2x.flows.outcome import Outcome, Tally
    from waifu2x.flows.upscaling import Upscaled


def json_line(outcome: Outcome) -> str:
    """Formats an outcome as one line of JSON."""
    document: dict[str, object] = {
        "input": str(outcome.job.source),
        "output": str(outcome.job.target),
        "status": outcome.status,
    }
    made = outcome.made
    if made is not None and made.film is not None:
        document |= made.film
    elif made is not None:
        document |= {
            "width": made.width,
            "height": made.height,
            "pictures": made.pictures,
            "seconds": round(made.seconds, 3),
            "stages": {name: round(seconds, 4) for name, seconds in made.spent.items()},
        }
        if made.recomputed:
            document["recomputed"] = made.recomputed
        if made.choices:
            document["noise"] = [
                {
                    "level": choice.level,
                    "quality": choice.jpeg.quality,
                    "subsampling": choice.jpeg.subsampling,
                }
                for choice in made.choices
            ]
    if outcome.error:
        document["error"] = outcome.error
    return json.dumps(document)


@contextmanager
def failure_as_json(document: dict[str, str], as_json: bool) -> Iterator[None]:
    """Adds an error that ends the block to a document and shows it, if JSON is wanted."""
    try:
        yield
    except (Waifu2xError, MemoryError, OSError) as error:
        if as_json:
            show(json.dumps({**document, "error": message_of(error)}))
        raise


def text_line(outcome: Outcome) -> str:
    """Formats an outcome as one line of text."""
    job = outcome.job
    if outcome.error:
        return f"{outcome.status:8} {outcome.error}"
    if (made := outcome.made) is None:
        return f"skipped  {job.target} exists"
    if made.copied:
        return f"copied   {job.source} -> {job.target} ({made.width}x{made.height}, as it is)"
    return f"done     {job.source} -> {job.target} ({_pictures(made)}, {made.seconds:.2f} s)"


def success_line(job: Job, made: Upscaled) -> str:
    """Describes how a file was made, in a few words."""
    return f"{place(job.target)}: {_pictures(made)}, {made.seconds:.1f} s"


def _pictures(made: Upscaled) -> str:
    if made.film is not None:
        return f"{frames(made.film['frames'])}, {made.width}x{made.height}"
    count = f"{made.pictures} pictures, " if made.pictures > 1 else ""
    return f"{count}{made.width}x{made.height}"


def frames(count: int) -> str:
    """Returns a number of frames for people."""
    return "1 frame" if count == 1 else f"{count} frames"


def place(target: Path) -> str:
    """Returns a target for people."""
    return "standard output" if str(target) == "-" else str(target)


def noise_lines(source: Path, made: Upscaled, *, verbose: bool) -> list[str]:
    """Describes the choices of `-n auto` for a file, or for pages of an archive. With `verbose`,
    names all pages, also those left as they are."""
    found = made.choices
    if verbose or len(found) == 1:
        shown = [choice for choice in found if verbose or choice.level is not None]
        return [f"{source}: {choice}{_hint(choice.level)}" for choice in shown]
    line = noise_summary(Counter(choice.level for choice in found))
    return [f"{source}: {line}"] if line else []


def noise_summary(levels: Mapping[int | None, int]) -> str:
    """Describes how many JPEGs had which noise level removed; empty for none."""
    total = sum(levels.values())
    removed = {level: count for level, count in levels.items() if level is not None}
    if not removed:
        return ""
    each = ", ".join(f"level {level}: {removed[level]}" for level in sorted(removed))
    many = f"{sum(removed.values())} of {total} JPEGs"
    return f"noise removed from {many} ({each}){_hint(0)}"


def recomputed_line(count: int) -> str:
    """Describes how many pictures were computed again in fp32; empty for none."""
    if not count:
        return ""
    pictures = "1 picture was" if count == 1 else f"{count} pictures were"
    return f"{pictures} computed again in fp32: values too large for 16 bits"


def _hint(level: int | None) -> str:
    return "" if level is None else "; -n none leaves it as it is"


def stages_line(spent: Mapping[str, float]) -> str:
    """Describes the seconds of each stage."""
    return ", ".join(f"{name} {seconds:.2f} s" for name, seconds in spent.items())


def stages_table(tally: Tally) -> list[str]:
    """Describes the seconds of each stage, of all pictures together, a line each."""
    total, made = sum(tally.spent.values()), tally.counts["done"] + tally.counts["copied"]
    if not total or not made:
        return []
    wide = max(map(len, tally.spent))
    return [
        f"where the time went: {total:.2f} s of work, {tally.seconds:.2f} s on the clock",
        *(
            f"  {name:{wide}}  {seconds:9.2f} s  {100 * seconds / total:3.0f} %"
            f"  {1000 * seconds / made:8.1f} ms a picture"
            for name, seconds in tally.spent.items()
        ),
    ]


def summary(tally: Tally, passed_over: int, left: int) -> str:
    """Describes how a batch ended; `left` files were not begun, or were dropped."""
    counts = tally.counts
    parts, inside = [f"{counts['done']} done"], []
    if tally.pictures and (tally.films or tally.pictures > counts["done"]):
        inside.append("1 picture" if tally.pictures == 1 else f"{tally.pictures} pictures")
    if tally.films:
        films = "1 film" if tally.films == 1 else f"{tally.films} films"
        inside.append(f"{films} of {frames(tally.frames)}")
    parts[0] += f" ({', '.join(inside)})" if inside else ""
    parts += [f"{counts['damaged']} damaged"] if counts["damaged"] else []
    parts += [f"{counts['copied']} copied"] if counts["copied"] else []
    parts += [f"{counts['skipped']} skipped", f"{len(tally.failed)} failed"]
    parts += [f"{left} not done"] if left else []
    files = "1 file that is no picture and no film"
    if passed_over > 1:
        files = f"{passed_over} files that are no pictures and no films"
    others = f"; skipped {files}" if passed_over else ""
    rate = f"; {tally.seconds:.1f} s, {tally.rate:.2f} Mpixel/s" if tally.pixels else ""
    return ", ".join(parts) + others + rate


class Volume(IntEnum):
    """How much is written to standard error."""

    QUIET = 0
    NORMAL = 1
    VERBOSE = 2


_volume = Volume.NORMAL


def set_volume(volume: Volume) -> None:
    global _volume
    _volume = volume


def is_verbose() -> bool:
    """Returns whether details are told."""
    return _volume is Volume.VERBOSE


def is_quiet() -> bool:
    """Returns whether only errors are told."""
    return _volume is Volume.QUIET


def is_terminal() -> bool:
    """Returns whether a person reads standard error; a log of CI is none, even if it is a
    terminal."""
    return sys.stderr is not None and sys.stderr.isatty() and not os.environ.get("CI")


def _echo(line: str) -> None:
    click.echo(line, err=True)


_write: Callable[[str], None] = _echo


def write_by(write: Callable[[str], None] | None) -> None:
    """Sends every line for standard error to `write`, which makes room in a drawing; None: as
    before."""
    global _write
    _write = write or _echo


def error(message: str) -> None:
    """Writes a line about a failure to standard error."""
    _write(printable(message))


def tell(message: str) -> None:
    """Writes a line that people should read, such as a warning, to standard error."""
    if not is_quiet():
        error(message)


def say(message: str) -> None:
    """Writes a line about a success."""
    if is_verbose() or (is_terminal() and not is_quiet()):
        error(message)


def detail(message: str) -> None:
    """Writes a line with more detail."""
    if is_verbose():
        error(message)


def show(text: str) -> None:
    """Writes requested output to standard output, with a line break. Raises OutputError, or
    BrokenPipeError if the reader has gone."""
    try:
        if _write is not _echo and sys.stdout is not None and sys.stdout.isatty():
            _write(text)  # the drawing makes room for it
        else:
            click.echo(text)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputError(f"standard output: cannot write: {reason(error)}") from error


def message_of(error: Waifu2xError | MemoryError | OSError) -> str:
    """Returns a sentence that says what is wrong, and what to do."""
    if isinstance(error, MemoryError):
        return f"not enough memory for this picture: {LESS_MEMORY}"
    if isinstance(error, OSError):
        return f"{error.filename}: {reason(error)}" if error.filename else reason(error)
    return str(error)
