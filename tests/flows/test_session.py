"""Drivers that stay, and several of them on one machine, each in a process of its own."""

from __future__ import annotations

import multiprocessing
import queue
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.helpers.contents import decode, encode, identity_models, noise
from waifu2x.api import Upscaler
from waifu2x.flows.batch.plan import plan
from waifu2x.flows.batch.session import Answer, Session, SessionSettings
from waifu2x.flows.jobs import InFlight, Job, Output
from waifu2x.flows.outcome import Outcome
from waifu2x.formats.table import Quality
from waifu2x.imaging.picture import Picture

PNG = Output("png", Quality(), "fail")


def pictures(folder: Path, count: int) -> list[Job]:
    (folder / "in").mkdir()
    for number in range(count):
        content = encode(Picture(noise(5 + number, 7, 3, seed=number)), "png")
        (folder / f"in/{number}.png").write_bytes(content)
    return list(plan(folder / "in", folder / "out", "png", False).jobs)


def made_by(session: Session, jobs: Sequence[Job]) -> list[Outcome]:
    """The outcomes of jobs; raises the error that has ended the session."""
    answers: queue.SimpleQueue[Answer] = queue.SimpleQueue()
    for job in jobs:
        session.submit(job, answers.put)
    found: list[Outcome] = []
    while len(found) < len(jobs):
        answer = answers.get(timeout=60)
        if isinstance(answer, BaseException):
            raise answer
        if isinstance(answer, Outcome):
            found.append(answer)
    return found


def settings_of(folder: Path, **rest: Any) -> SessionSettings:
    model = str(identity_models(folder / "identity"))
    arguments = {"scale": 2, "model": model, "backend": "numpy"}
    return SessionSettings(arguments, PNG, rest.pop("in_flight", None), 10**6, **rest)


def check(jobs: list[Job]) -> None:
    for job in jobs:
        expected = decode(job.source.read_bytes()).pixels.repeat(2, 0).repeat(2, 1)
        np.testing.assert_array_equal(decode(job.target.read_bytes()).pixels, expected)


def drive(settings: SessionSettings, jobs: list[Job]) -> list[Outcome]:
    """Runs jobs as a process does that has a device of its own."""
    with Upscaler(**settings.arguments) as upscaler:
        session = Session(upscaler, settings)
        outcomes = made_by(session, jobs)
        session.close()
    return outcomes


@pytest.mark.matrix
def test_three_drivers_share_a_machine(tmp_path: Path) -> None:
    """Each with a device and codec processes of its own; only names and outcomes pass."""
    jobs = pictures(tmp_path, 18)
    settings = settings_of(tmp_path, in_flight=InFlight(4, 2), sharing=3)
    context = multiprocessing.get_context("forkserver")
    with ProcessPoolExecutor(3, context) as pool:
        parts = [pool.submit(drive, settings, jobs[part::3]) for part in range(3)]
        outcomes = [outcome for part in parts for outcome in part.result(60)]
    assert {outcome.job for outcome in outcomes} == set(jobs)
    assert [outcome.status for outcome in outcomes] == ["done"] * 18
    check(jobs)


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    settings = settings_of(tmp_path)
    with Upscaler(**settings.arguments) as upscaler:
        session = Session(upscaler, settings)
        yield session
        session.close()


def test_files_may_come_in_groups_from_several_threads(tmp_path: Path, session: Session) -> None:
    jobs = pictures(tmp_path, 12)
    made: list[Outcome] = []
    threads = [
        threading.Thread(target=lambda part=part: made.extend(made_by(session, part)))
        for part in (jobs[:5], jobs[5:6], jobs[6:])
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert {outcome.job for outcome in made} == set(jobs)
    check(jobs)


def test_a_session_that_has_ended_says_why(
    tmp_path: Path, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At once, also to those that come later: another thread of a cluster's worker may."""

    def defective(factor: int, noise: int | None) -> Any:
        raise ZeroDivisionError

    monkeypatch.setattr(session.upscaler.networks.chains, "network", defective)
    jobs = pictures(tmp_path, 2)
    with pytest.raises(ZeroDivisionError):
        made_by(session, jobs[:1])
    with pytest.raises(ZeroDivisionError):
        made_by(session, jobs[1:])
    assert session.broken
