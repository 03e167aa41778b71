"""`waifu2x upscale INPUT OUTPUT`."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import click

from waifu2x import picture
from waifu2x.batch import Job, Outcome, may_write
from waifu2x.cli import report
from waifu2x.cli.options import (
    check_folder,
    check_quality,
    describe,
    existing_policy,
    open_upscaler,
    upscale_options,
)
from waifu2x.errors import ImageError, OutputError


@click.command(short_help="Enlarge and denoise one picture.")
@click.argument("source", metavar="INPUT")
@click.argument("target", metavar="OUTPUT")
@click.option(
    "-f",
    "--format",
    "extension",
    type=click.Choice(picture.EXTENSIONS),
    help="Of the output; otherwise its file name decides, and png on stdout.",
)
@upscale_options
def upscale(
    source: str,
    target: str,
    extension: str | None,
    quality: int | None,
    overwrite: bool,
    skip_existing: bool,
    verbose: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Enlarge and denoise the picture INPUT into the new file OUTPUT; "-" is stdin or stdout."""
    extension = _extension(target, extension)
    check_quality(quality, extension)
    existing = existing_policy(overwrite, skip_existing)
    if as_json and target == "-":
        raise click.UsageError("--json and the picture cannot share stdout.")
    job = Job(Path(source), Path(target))
    start = time.monotonic()
    if target != "-":
        check_folder(job.target.parent)
        if not may_write(job, existing):
            _finish(Outcome(job, "skipped", 0.0), as_json, verbose)
            return
    loaded = _read(source)
    read_at = time.monotonic()
    with open_upscaler(**options) as upscaler:
        if verbose:
            report.tell(describe(upscaler))
        height, width = (size * upscaler.scale for size in loaded.pixels.shape[:2])
        picture.check_output(extension, height, width, loaded.transparent, target)
        ready_at = time.monotonic()
        result = upscaler.picture(loaded)
    done_at = time.monotonic()
    if target == "-":
        _write_stdout(picture.encode(result, extension, quality, "standard output"))
    else:
        replace = existing == "overwrite"
        picture.write(result, job.target, extension, quality, replace=replace)
    end = time.monotonic()
    if verbose:
        report.tell(
            f"read {read_at - start:.2f} s, prepare {ready_at - read_at:.2f} s,"
            f" compute {done_at - ready_at:.2f} s, write {end - done_at:.2f} s"
        )
    _finish(Outcome(job, "done", end - start, height, width), as_json, verbose)


def _extension(target: str, chosen: str | None) -> str:
    """The format of the output: the option, or the file name, which must not contradict it."""
    suffix = Path(target).suffix[1:].lower() if target != "-" else ""
    if suffix in picture.EXTENSIONS:
        if chosen and not picture.same_format(chosen, suffix):
            raise click.UsageError(f"--format {chosen} contradicts the file name {target}.")
        return suffix
    if chosen:
        return chosen
    if target == "-":
        return "png"
    known = ", ".join(picture.EXTENSIONS)
    raise click.UsageError(f"{target}: no known extension ({known}); give one, or --format.")


def _read(source: str) -> picture.Picture:
    if source == "-":
        if sys.stdin is None:
            raise ImageError("standard input: is closed")
        return picture.decode(sys.stdin.buffer.read(), "standard input")
    return picture.read(Path(source))


def _write_stdout(data: bytes) -> None:
    if sys.stdout is None:
        raise OutputError("standard output: is closed")
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def _finish(outcome: Outcome, as_json: bool, verbose: bool) -> None:
    if as_json:
        click.echo(report.json_line(outcome))
    elif verbose or outcome.status == "skipped":
        report.tell(report.text_line(outcome))
