"""Films and results that the words of `waifu2x video` name: files, folders, numbered pictures."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path

import click

from waifu2x.cli.options.inputs import is_folder
from waifu2x.flows import naming
from waifu2x.flows.jobs import STANDARD, Job
from waifu2x.formats import film
from waifu2x.formats.film.frame_files import frame_pattern, pattern_in


def film_jobs(words: Sequence[str], scale: Fraction | None) -> list[Job]:
    """Returns a job for each film that the words `IN... [OUT|DIR/]` name. `scale` is in the names
    of results beside their films; None: they have another size. Raises UsageError."""
    inputs, output = _sorted(words)
    if str(STANDARD) in inputs and (output is None or len(inputs) > 1 or is_folder(output)):
        raise click.UsageError("- is standard input; give it alone, and a file as OUT.")
    if output is not None and not is_folder(output):
        return [Job(_film(Path(inputs[0])), Path(output))]
    added = "-resized" if scale is None else f"-{naming.shown(scale)}x"

    def target(source: Path) -> Path:
        return _target(source, None if output is None else Path(output), added)

    jobs: dict[str, Job] = {}
    for word in inputs:
        for source in _films(Path(word), target):
            job = Job(source, target(source))
            # As file systems that ignore case compare names.
            name = unicodedata.normalize("NFC", str(job.target).casefold())
            other = jobs.setdefault(name, job)
            if other is not job:
                raise click.UsageError(
                    f"{source}: it is named twice."
                    if other.source == source
                    else f"{other.source} and {source} would both become {job.target}; use two"
                    " folders."
                )
    return list(jobs.values())


def _sorted(words: Sequence[str]) -> tuple[Sequence[str], str | None]:
    """Returns the inputs, and the output if one is named."""
    if len(words) == 1:
        return words, None
    *inputs, output = words
    if len(inputs) > 1 and not is_folder(output):
        raise click.UsageError(
            f"There are {len(words)} names: for several films, end with a folder for the results."
        )
    return inputs, output


def _film(path: Path) -> Path:
    """Returns the film that is meant by the only input: a folder means its numbered pictures."""
    if not path.is_dir():
        return path
    if (pattern := pattern_in(path)) is None:
        raise click.UsageError(
            f"{path}: it has no numbered PNG files; for the films in it, give a folder as OUT."
        )
    return pattern


def _films(path: Path, target: Callable[[Path], Path]) -> list[Path]:
    """Returns the films that a word names. Results of a film in the same folder are none."""
    if not path.is_dir():
        return [path]
    if (pattern := pattern_in(path)) is not None:
        return [pattern]
    found = sorted(
        one
        for one in path.iterdir()
        if film.is_film(one) and one.is_file() and not film.is_text(one)
    )
    results = {target(one) for one in found}
    if not found:
        raise click.UsageError(f"{path}: it has no films, and no numbered PNG files.")
    return [one for one in found if one not in results]


def _target(source: Path, folder: Path | None, added: str) -> Path:
    if frame_pattern(source) is not None:
        if folder is None:
            place = source.parent
            name = f"{place.absolute().name}{added}"
            folder = place.with_name(name) if place.name else Path("..", name)
        return folder / source.name
    suffix = source.suffix[1:].lower()
    extension = suffix if suffix == "gif" else film.result_extension(suffix)
    if folder is None or _is_same(folder, source.parent):
        return source.with_name(f"{source.stem}{added}.{extension}")
    return folder / f"{source.stem}.{extension}"


def _is_same(one: Path, other: Path) -> bool:
    return one.exists() and other.exists() and one.samefile(other)
