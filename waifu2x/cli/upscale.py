"""`waifu2x upscale INPUT OUTPUT`."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click

from waifu2x import picture
from waifu2x.batch import Outcome, outcome_of
from waifu2x.cli import report
from waifu2x.cli.options import (
    CommandWithTta,
    check_folder,
    check_quality,
    describe,
    existing_policy,
    open_upscaler,
    upscale_options,
)
from waifu2x.cli.progress import one_picture
from waifu2x.pipeline import STANDARD, Job, Output, Stages, make
from waifu2x.upscaler import Upscaler


@click.command(cls=CommandWithTta, short_help="Enlarge and denoise one picture.")
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
    if job.target != STANDARD:
        check_folder(job.target.parent)
    with ExitStack() as stack:

        def opened() -> Upscaler:
            upscaler = stack.enter_context(open_upscaler(**options))
            if verbose:
                report.tell(describe(upscaler))
            return upscaler

        output = Output(extension, quality, existing)
        with one_picture() as (on_size, on_progress):
            made = make(
                job,
                output,
                opened,
                stages=Stages(1, 1, 1),
                on_size=on_size,
                on_progress=on_progress,
            )
    _finish(outcome_of(job, made), as_json, verbose)


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


def _finish(outcome: Outcome, as_json: bool, verbose: bool) -> None:
    if as_json:
        click.echo(report.json_line(outcome))
    if verbose and outcome.spent:
        report.tell(report.stages_line(outcome.spent))
    if not as_json and (verbose or outcome.status in ("skipped", "copied")):
        report.tell(report.text_line(outcome))
