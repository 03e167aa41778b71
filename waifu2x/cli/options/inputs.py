"""Inputs and outputs that a command line names, names of results, and mistakes in them."""

from __future__ import annotations

import os
import sys
import unicodedata
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, NoReturn

import click

from waifu2x.cli.command import is_of_settings
from waifu2x.cli.options.arguments import check_folder
from waifu2x.errors import ExistsError, ImageError, OutputError
from waifu2x.flows.jobs import (
    ARCHIVES,
    ARCHIVES_READ,
    STANDARD,
    Existing,
    Job,
    is_archive,
    make_folder,
    may_write,
    result_extension,
)
from waifu2x.flows.naming import BESIDE, ELSEWHERE, Naming
from waifu2x.formats import film, table
from waifu2x.system import stores
from waifu2x.system.arguments import nearest

_TAKEN = frozenset((*table.READABLE, *ARCHIVES_READ))
_STANDARD = str(STANDARD)
_ENTRIES = 10_000
"""The most names of a folder among which a mistyped one is looked for."""


class Words(NamedTuple):
    """The inputs and the output that a command line names."""

    inputs: tuple[str, ...]
    output: str | None
    """A file or a folder; None: results go beside their inputs."""
    are_two: bool = False
    """Whether input and output are just two words, which might both be meant as inputs."""


def words_of(words: Sequence[str], inputs: Sequence[str], output: str | None) -> Words:
    """Sorts the words of `IN [OUT]`, of -i and of -o into inputs and the output. Raises UsageError
    if they are ambiguous, or there is no input."""
    if not (inputs or words):
        raise click.UsageError(
            "Give a picture: `waifu2x in.png` or `waifu2x in.png out.png`; `waifu2x --help` has"
            " more."
        )
    if output is None and inputs and words:
        raise click.UsageError(f"{words[0]}: give the output with -o, since the input has -i.")
    if output is None and len(words) == 2:
        return Words((words[0],), words[1], True)
    found = (*inputs, *words)
    if output is None and len(found) > 1:
        raise click.UsageError(
            f"There are {len(found)} inputs; give a folder for the results, with -o DIR."
        )
    if _STANDARD in found and len(found) > 1:
        raise click.UsageError("- is standard input; give it alone.")
    return Words(found, _STANDARD if output is None and found == (_STANDARD,) else output)


def is_folder(word: str) -> bool:
    """Returns whether an output means a folder: it exists as one, or ends in a slash."""
    ends = tuple(filter(None, (os.sep, os.altsep)))
    return word.endswith(ends) or Path(word).is_dir()


def check_names(words: Words) -> None:
    """Raises UsageError for an empty name, a URL, and a folder among several inputs."""
    if "" in (*words.inputs, words.output):
        raise click.UsageError("A file's name is empty: is a variable of the shell not set?")
    for name in words.inputs:
        if len(words.inputs) > 1 and Path(name).is_dir():
            raise click.UsageError(
                f"{name}: it is a folder; use `waifu2x batch` for what is in it."
            )
        if scheme := stores.scheme(name):
            hint = "give its path" if scheme == "file" else "download it first, and give the file"
            if scheme not in ("http", "https", "ftp", "file"):
                hint = "use `waifu2x batch` for folders at URLs"
            raise click.UsageError(f"{name}: it is a URL, not a file; {hint}.")
    if words.output is not None and (scheme := stores.scheme(words.output)):
        raise click.UsageError(f"{words.output}: it is a URL; use `waifu2x batch` to write there.")
    if words.inputs == (_STANDARD,) and sys.stdin is not None and sys.stdin.isatty():
        raise click.UsageError("- is standard input, which is a terminal; send a picture with <.")
    if words.output == _STANDARD and sys.stdout is not None and sys.stdout.isatty():
        raise click.UsageError("- is standard output, which is a terminal; send it on with > or |.")


def check_no_films(words: Words) -> None:
    """Raises UsageError for an input that is a film, by its name, and for one that is to become
    one."""
    output = words.output
    makes_film = output is not None and Path(output).suffix[1:].lower() in film.WRITABLE
    for name in words.inputs:
        if film.is_film(name) and Path(name).is_file():
            made = output if makes_film or (output or "").lower().endswith(".gif") else "OUT"
            raise click.UsageError(f"{name}: it is a film; use `waifu2x video {name} {made}`.")
        if makes_film and film.is_animation(Path(name)):
            raise click.UsageError(f"{output}: it is a film; use `waifu2x video {name} {output}`.")
    if makes_film:
        raise click.UsageError(f"{output}: it is a film, but {words.inputs[0]} is a picture.")


def check_input(name: str, output: str | None) -> None:
    """Raises ImageError for an input that is no file, with a guess at what was meant."""
    path = Path(name)
    try:
        if path.is_dir():
            raise ImageError(f"{name}: it is a folder", f"try `waifu2x batch {name} OUTPUT_DIR`")
        if name == _STANDARD or path.exists():
            return
    except (OSError, ValueError):
        return  # reading it will say why it cannot be read
    _refuse_missing(path, output)


def _refuse_missing(path: Path, output: str | None) -> NoReturn:
    missing = f"{path}: cannot read: no such file or directory"
    if output is not None and output != _STANDARD and Path(output).is_file():
        raise ImageError(f"{missing}, but {output} is there: the input comes before the output")
    try:
        with os.scandir(path.parent) as entries:
            some = [entry.name for entry, _ in zip(entries, range(_ENTRIES), strict=False)]
    except OSError:
        some = []
    stems = {Path(name).stem: name for name in some if Path(name).suffix[1:].lower() in _TAKEN}
    near = nearest(path.stem, stems)
    raise ImageError(missing, f"did you mean {path.parent / stems[near]}?" if near else "")


def check_job(job: Job, words: Words, existing: Existing) -> None:
    """Raises an error for a job that cannot be done, as far as is known at once. Makes the folder
    of its target if it was named with a slash at its end."""
    check_input(words.inputs[0], words.output)
    if job.target == STANDARD:
        return
    folder = job.target.parent
    if words.output is not None and job.target != Path(words.output):
        make_folder(folder)
    check_folder(folder)
    try:
        may_write(job, existing)
    except ExistsError as error:
        if not words.are_two:
            raise
        raise ExistsError(error.path, f"{error.remedy}, or -o DIR if both are inputs") from error


def jobs_of(words: Words, naming: Callable[[str], Naming], template: str | None) -> list[Job]:
    """Returns a job for each input.

    `naming` makes names by a template; `template` is the one that is asked for. Raises UsageError
    for inputs whose results would have one name, and for an output that is no folder where one is
    needed.
    """
    output, several = words.output, len(words.inputs) > 1
    if output is not None and several and Path(output).is_file():
        raise click.UsageError(f"{output}: it is a file; several inputs need a folder.")
    if output is not None and several and not is_folder(output) and _names_a_file(output):
        raise click.UsageError(
            f"{output}: it names a file, but there are {len(words.inputs)} inputs; give a folder."
        )
    if output is not None and (output == _STANDARD or not (several or is_folder(output))):
        if template is not None and not is_of_settings("template"):
            raise click.UsageError(f"{output}: --name needs a folder; end it in a slash.")
        return [Job(Path(words.inputs[0]), Path(output))]
    jobs: list[Job] = []
    by_target: dict[str, Path] = {}
    for name in words.inputs:
        source = Path(name)
        folder = source.parent if output is None else Path(output)
        usual = BESIDE if _same(folder, source.parent) else ELSEWHERE
        job = Job(source, folder / _name(naming(template or usual), source))
        # As file systems that ignore case compare names.
        target = unicodedata.normalize("NFC", str(job.target).casefold())
        other = by_target.setdefault(target, source)
        if other is not source:
            raise click.UsageError(
                f"{source}: it is named twice."
                if other == source
                else f"{other} and {source} would both become {job.target}; use two folders."
            )
        jobs.append(job)
    return jobs


def _names_a_file(output: str) -> bool:
    return Path(output).suffix[1:].lower() in (*table.WRITABLE, *ARCHIVES)


def _name(naming: Naming, source: Path) -> str:
    suffix = source.suffix[1:].lower()
    name = naming.name(source, extension=result_extension(suffix))
    if Path(name).name != name:
        raise OutputError(
            f"{source}: its result cannot be called {name!r}", "choose another --name"
        )
    return name


def _same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:
        return False


def _check_archives(job: Job) -> None:
    """Raises UsageError unless source and target are both archives."""
    if not is_archive(job.source):
        raise click.UsageError(
            f"{job.target}: an archive is made of another one only; {job.source} is none."
        )
    if job.target.suffix[1:].lower() not in ARCHIVES:
        raise click.UsageError(
            f"{job.target}: {job.source} is an archive: its result ends in .cbz or .zip, too."
        )


def extension_of(job: Job, chosen: str | None) -> str | None:
    """Returns the format of an output, by the option or the file name, which must agree. None is
    for an archive whose pages keep their formats. Raises UsageError."""
    target = job.target
    name = str(target)
    suffix = target.suffix[1:].lower() if target != STANDARD else ""
    if is_archive(job.source) or suffix in ARCHIVES:
        _check_archives(job)
        return chosen
    if suffix in table.WRITABLE:
        if chosen and not table.same(chosen, suffix) and not is_of_settings("format"):
            raise click.UsageError(f"--format {chosen} contradicts the file name {name}.")
        return suffix
    if chosen:
        return chosen
    if target == STANDARD:
        return "png"
    usual = dict.fromkeys(table.of(each).extensions[0] for each in table.WRITABLE)
    near = nearest(suffix, table.WRITABLE) if suffix else None
    if near:
        hint = f"did you mean .{near}?"
    elif suffix:
        hint = f"use one of {', '.join(usual)}."
    else:
        hint = "end it in .png, say, or in a slash if it is a folder."
    raise click.UsageError(f"{name}: it names no format; {hint}")
