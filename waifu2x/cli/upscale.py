"""`waifu2x upscale INPUT OUTPUT`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from waifu2x.cli import report
from waifu2x.cli.interrupts import heard_at_once
from waifu2x.cli.options import (
    OUTPUT_NAMES,
    CommandWithTta,
    check_folder,
    describe,
    open_upscaler,
    output_of,
    upscale_options,
)
from waifu2x.cli.progress import one_picture
from waifu2x.errors import Waifu2xError
from waifu2x.flows.jobs import ARCHIVES, STANDARD, Job
from waifu2x.formats import table

if TYPE_CHECKING:
    from waifu2x.flows.outcome import Outcome
    from waifu2x.imaging.enlarger import Enlarger

_IN_FLIGHT = 2
"""Pictures of a file: one is computed while the one before it is encoded and the next decoded."""


@click.command(cls=CommandWithTta, short_help="Enlarge and denoise one picture.")
@click.argument("source", metavar="INPUT")
@click.argument("target", metavar="OUTPUT")
@click.option(
    "-f",
    "--format",
    "extension",
    type=click.Choice(table.WRITABLE),
    help="Format of the output; otherwise its file name decides, and png on stdout.",
)
@upscale_options
def upscale(
    source: str,
    target: str,
    extension: str | None,
    max_pixels: int,
    as_json: bool,
    **options: Any,
) -> None:
    """Enlarge and denoise the picture INPUT into the new file OUTPUT; "-" is stdin or stdout."""
    extension = _extension(target, extension)
    output = output_of(extension, **{name: options.pop(name) for name in OUTPUT_NAMES})
    if as_json and target == "-":
        raise click.UsageError("--json and the picture cannot share stdout.")
    job = Job(Path(source), Path(target))
    with _failure_as_json(job, as_json), heard_at_once(), ExitStack() as stack:
        if job.target != STANDARD:
            check_folder(job.target.parent)
        # With NumPy: late, so that a help need not wait for it.
        from waifu2x.flows.outcome import outcome_of
        from waifu2x.flows.upscaling import upscale_file

        def opened() -> Enlarger:
            upscaler = stack.enter_context(open_upscaler(**options))
            report.detail(describe(upscaler))
            return upscaler.enlarger

        with one_picture(job.source.name) as (on_size, on_progress):
            made = upscale_file(
                job,
                output,
                opened,
                max_pixels=max_pixels,
                on_size=on_size,
                on_progress=on_progress,
                in_flight=_IN_FLIGHT,
                on_notice=lambda job, notice: report.tell(f"{source}: {notice}"),
            )
    _finish(outcome_of(job, made), as_json)


def _extension(target: str, chosen: str | None) -> str:
    """The format of the output: the option, or the file name, which must not contradict it."""
    suffix = Path(target).suffix[1:].lower() if target != "-" else ""
    if suffix in table.WRITABLE:
        if chosen and not table.same(chosen, suffix):
            raise click.UsageError(f"--format {chosen} contradicts the file name {target}.")
        return suffix
    if chosen:
        return chosen
    if target == "-":
        return "png"
    if suffix in ARCHIVES:
        raise click.UsageError(
            f"{target}: archives are for `waifu2x batch`: give it the folder that holds them."
        )
    known = ", ".join(table.WRITABLE)
    raise click.UsageError(f"{target}: no known extension ({known}); give one, or --format.")


@contextmanager
def _failure_as_json(job: Job, as_json: bool) -> Iterator[None]:
    """Shows a failed outcome for what ends the work within, where JSON is wanted."""
    try:
        yield
    except (Waifu2xError, MemoryError, OSError) as error:
        if as_json:
            from waifu2x.flows.outcome import Outcome

            message = report.message_of(error)
            report.show(report.json_line(Outcome(job, "failed", 0.0, error=message)))
        raise


def _finish(outcome: Outcome, as_json: bool) -> None:
    if as_json:
        report.show(report.json_line(outcome))
    if outcome.spent:
        report.detail(report.stages_line(outcome.spent))
    if outcome.status == "done":
        report.say(report.success_line(outcome))
    else:
        report.tell(report.text_line(outcome))
