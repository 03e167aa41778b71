"""Outcomes, for people and for programs. People read stderr; stdout is for pictures and JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from waifu2x.batch.outcome import Outcome


def json_line(outcome: Outcome) -> str:
    """An outcome as one line of JSON."""
    document: dict[str, object] = {
        "input": str(outcome.job.source),
        "output": str(outcome.job.target),
        "status": outcome.status,
    }
    if outcome.status in ("done", "copied"):
        document |= {
            "width": outcome.width,
            "height": outcome.height,
            "seconds": round(outcome.seconds, 3),
        }
    if outcome.error:
        document["error"] = outcome.error
    return json.dumps(document)


def text_line(outcome: Outcome) -> str:
    """An outcome as one line of text."""
    job = outcome.job
    if outcome.status == "failed":
        return f"failed   {outcome.error}"
    if outcome.status == "skipped":
        return f"skipped  {job.target} exists"
    if outcome.status == "copied":
        return f"copied   {job.source} -> {job.target} ({outcome.width}x{outcome.height}, as it is)"
    size = f"{outcome.width}x{outcome.height}"
    return f"done     {job.source} -> {job.target} ({size}, {outcome.seconds:.2f} s)"


def stages_line(spent: Mapping[str, float]) -> str:
    """What the seconds went into."""
    return ", ".join(f"{name} {seconds:.2f} s" for name, seconds in spent.items())


def tell(message: str) -> None:
    """A line for people."""
    click.echo(printable(message), err=True)


def printable(message: str) -> str:
    """A message as one line: file names may hold line ends and orders to the terminal."""
    return "".join(
        character if character.isprintable() else ascii(character)[1:-1] for character in message
    )
