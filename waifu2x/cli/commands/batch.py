"""`waifu2x batch INPUT_DIR OUTPUT_DIR`."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from waifu2x.cli import completions
from waifu2x.cli.command import Command, is_of_settings
from waifu2x.cli.film.in_batches import FILM_OPTIONS, BatchFilms
from waifu2x.cli.options.arguments import OUTPUT_NAMES, check_format, naming_of, output_of
from waifu2x.cli.options.settings import takes_settings
from waifu2x.cli.output import report
from waifu2x.cli.output.batch_messages import BatchOptions, Files, make
from waifu2x.flows.batch.subset import Shard
from waifu2x.flows.jobs import Output
from waifu2x.flows.naming import ELSEWHERE
from waifu2x.formats import film
from waifu2x.system import stores

# Imports of NumPy come late: completions and helps need not wait for it.
if TYPE_CHECKING:
    from waifu2x.flows.batch.plan import Plan


class _Location(click.ParamType[Path]):
    """An argument that is a path, or a URL of files."""

    name = "path"

    def convert(self, value: Any, parameter: Any, context: Any) -> Path:
        """Returns the path or URL of an argument. Raises StoreError for an unusable URL."""
        return value if isinstance(value, Path) else stores.located(value)


@click.command(cls=Command, short_help="Enlarge and denoise the pictures and films of a folder.")
@click.argument("folder", metavar="INPUT_DIR", type=_Location(), shell_complete=completions.folders)
@click.argument(
    "target", metavar="OUTPUT_DIR", type=_Location(), shell_complete=completions.folders
)
@takes_settings("batch")
def batch(
    folder: Path,
    target: Path,
    recursive: bool,
    shard: Shard | None,
    retried: Path | None,
    watching: bool,
    template: str | None,
    **options: Any,
) -> None:
    """Enlarge and denoise the pictures and films in INPUT_DIR into OUTPUT_DIR, which is made.

    \b
    waifu2x batch -r pictures/ large/
    waifu2x batch -r --skip-existing pictures/ large/   go on after an interruption
    waifu2x batch --watch inbox/ large/                 whatever arrives

    Either may be a URL (s3://bucket/folder). A bad file does not stop the others.
    """
    from waifu2x.flows.batch.plan import plan

    for each in FILM_OPTIONS:
        del options[each]  # BatchFilms finds them in the context
    run = BatchOptions(**{name: options.pop(name) for name in BatchOptions._fields})
    pages = options.pop("format")
    extension = pages or "png"
    output = output_of(extension, **{name: options.pop(name) for name in OUTPUT_NAMES})
    output = replace(output, pages=pages)
    if is_of_settings("copy_times") and any(map(stores.is_url, (folder, target))):
        output = replace(output, copy_times=False)
    _check(folder, target, output, watching)
    check_format(extension)
    if run.address is not None:  # workers have working folders of their own
        folder, target = folder.absolute(), target.absolute()
    if watching and output.existing == "fail":
        output = replace(output, existing="skip")
    failures = None
    if retried is not None:
        from waifu2x.flows.batch.subset import Failures

        failures = Failures(retried, folder)

    named = template or ELSEWHERE
    naming = naming_of(named, extension, run.max_pixels, several=True, **options)
    films = BatchFilms(click.get_current_context(), run.address)

    def name(source: Path, stem: str, kind: str) -> str:
        own = films.naming(named) if film.is_film(source) else naming
        return own.name(source, stem, kind)

    def look() -> Plan:
        return plan(folder, target, extension, recursive, name)

    def is_chosen(source: str, _: str) -> bool:
        mine = shard is None or shard.holds(source)
        return mine and (failures is None or failures.holds(source))

    if watching:
        films.settings()  # a mistake in them ends the program now, or not at all
    planned = look()
    if not (planned.jobs or planned.unreadable or watching):
        hint = "" if recursive else "; for folders in it give --recursive"
        report.tell(f"{folder}: no pictures and no films here{hint}")
        return
    wanted = planned.jobs.where(is_chosen)
    if failures is not None and not wanted:
        report.tell(f"{retried}: nothing that failed is in {folder}")
    has_films = watching or any(film.is_film(source) for source, _ in planned.jobs.names)
    more = look if watching else None
    files = Files(planned, wanted, more, is_chosen, films if has_films else None)
    if not make(files, options, output, run):
        sys.exit(1)


def _check(folder: Path, target: Path, output: Output, watching: bool) -> None:
    urls = [stores.is_url(each) for each in (folder, target)]
    if not (stores.is_folder(folder) if urls[0] else folder.is_dir()):
        raise click.UsageError(_no_folder(folder, target))
    if folder == target or (not any(urls) and target.exists() and target.samefile(folder)):
        raise click.UsageError("OUTPUT_DIR must be another folder than INPUT_DIR.")
    if output.copy_times and any(urls):
        raise click.UsageError("--copy-times is for paths: URLs have dates of their own.")
    if watching and any(urls):
        raise click.UsageError("--watch is for paths, not for URLs.")
    if watching and target.resolve() in folder.resolve().parents:
        raise click.UsageError("--watch: INPUT_DIR must not be in OUTPUT_DIR.")


def _no_folder(folder: Path, target: Path) -> str:
    """Describes a missing folder of inputs, with a guess at what was meant."""
    if not stores.is_url(folder) and folder.is_file():
        return f"{folder}: it is a file, not a folder; try `waifu2x {folder} OUT`."
    swapped = not stores.is_url(target) and target.is_dir()
    hint = f", but {target} is there: the input comes before the output" if swapped else ""
    return f"{folder}: no such folder{hint}."
