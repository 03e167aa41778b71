"""Outcomes as lines and as JSON."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest

from tests.helpers.outcomes import done
from waifu2x.cli.output.report import json_line
from waifu2x.cli.output.reporter import BatchReporter
from waifu2x.flows.jobs import Job
from waifu2x.flows.outcome import Outcome

JOB = Job(Path("a.png"), Path("b.png"))


def test_what_was_computed_again_is_counted(capsys: pytest.CaptureFixture[str]) -> None:
    """In JSON for each file, and in the summary, for people, of all."""
    reporter = BatchReporter(4, 0, None, as_json=True)
    with reporter:
        for count in (0, 1, 2):
            reporter.add(done(JOB, 1.0, 4, 6, pictures=3, recomputed=count))
        reporter.add(Outcome(JOB, error="a.png: damaged"))
    told = capsys.readouterr()
    assert [json.loads(line).get("recomputed") for line in told.out.splitlines()] == [
        *(None, 1, 2),
        None,
    ]
    assert "3 pictures were computed again in fp32: values too large for 16 bits" in (
        told.err.splitlines()
    )


def test_processes_tell_all_of_an_outcome() -> None:
    """The process of a codec tells all of a file, and so does the process of a device."""
    outcome = done(JOB, 1.5, 4, 6, recomputed=2, pictures=3, further_pixels=7)
    assert pickle.loads(pickle.dumps(outcome)) == outcome
    assert "recomputed" in json_line(outcome)
