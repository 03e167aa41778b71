"""Folders: which picture goes where, and what happens to the others when one fails."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from tests.helpers.contents import encode, identity_models, noise
from tests.helpers.outcomes import run
from waifu2x.api import Upscaler
from waifu2x.errors import BackendError, ImageError
from waifu2x.flows import jobs as rules
from waifu2x.flows import upscaling
from waifu2x.flows.batch.plan import plan
from waifu2x.flows.jobs import InFlight, Job, Output
from waifu2x.flows.outcome import Outcome, run_one
from waifu2x.flows.picture_work import WorkOptions
from waifu2x.formats.base import DecodedFile
from waifu2x.formats.table import Quality
from waifu2x.imaging.picture import Picture
from waifu2x.imaging.streams import Timed

PNG = Output("png", Quality(), "fail")


def touch(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()


def targets(folder: Path, recursive: bool) -> dict[str, str]:
    jobs = plan(folder, folder.parent / "out", "png", recursive).jobs
    out = folder.parent / "out"
    return {
        job.source.relative_to(folder).as_posix(): job.target.relative_to(out).as_posix()
        for job in jobs
    }


def test_plan_takes_pictures_only(tmp_path: Path) -> None:
    touch(tmp_path / "in", "b.JPG", "a.png", "notes.txt", ".hidden.png", "._a.png", "sub/c.webp")
    assert targets(tmp_path / "in", False) == {"a.png": "a.png", "b.JPG": "b.png"}


def test_plan_keeps_the_tree(tmp_path: Path) -> None:
    touch(tmp_path / "in", "a.png", "x/a.png", "x/y/b.tiff", "ünï côde/画像 1.bmp")
    assert targets(tmp_path / "in", True) == {
        "a.png": "a.png",
        "x/a.png": "x/a.png",
        "x/y/b.tiff": "x/y/b.png",
        "ünï côde/画像 1.bmp": "ünï côde/画像 1.png",
    }


def test_plan_gives_every_picture_a_target_of_its_own(tmp_path: Path) -> None:
    touch(tmp_path / "in", "a.jpg", "a.png", "A.webp", "b.jpg", "x/a.jpg")
    touch(tmp_path / "in", "c.png", "c.webp", "c.png.bmp")
    assert targets(tmp_path / "in", True) == {
        "c.png": "c.png.png",
        "c.png.bmp": "c.png.bmp.png",
        "c.webp": "c.webp.png",
        "A.webp": "A.webp.png",
        "a.jpg": "a.jpg.png",
        "a.png": "a.png.png",
        "b.jpg": "b.png",
        "x/a.jpg": "x/a.png",
    }


def test_plan_passes_over_the_output_folder(tmp_path: Path) -> None:
    touch(tmp_path, "a.png", "out/a.png")
    jobs = plan(tmp_path, tmp_path / "out", "png", True).jobs
    assert [job.source for job in jobs] == [tmp_path / "a.png"]


def test_plan_says_what_it_leaves_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    touch(tmp_path / "in", "a.png", "b.txt", "sub/c.png", "locked/d.png")
    (tmp_path / "in/link").symlink_to(tmp_path / "in/sub")
    real = os.scandir

    def scandir(path: Path) -> AbstractContextManager[Iterator[os.DirEntry[str]]]:
        if path.name == "locked":
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    planned = plan(tmp_path / "in", tmp_path / "out", "png", True)
    assert [job.source.name for job in planned.jobs] == ["a.png", "c.png"]
    assert planned.passed_over == 2  # the .txt and the link
    (unreadable,) = planned.unreadable
    assert unreadable.error.endswith("locked: cannot read the folder: permission denied")


def load(path: Path) -> NDArray[np.uint8]:
    """The pixels of a file, which must be whole."""
    with Image.open(path) as image:
        return np.asarray(image)


def make_pictures(folder: Path, count: int, size: int = 20) -> list[Job]:
    folder.mkdir()
    rng = np.random.default_rng(0)
    for index in range(count):
        pixels = rng.integers(0, 256, (size, size + index, 3), np.uint8)
        Image.fromarray(pixels).save(folder / f"{index}.png")
    return list(plan(folder, folder.parent / "out", "png", False).jobs)


@pytest.mark.parametrize("in_flight", [None, InFlight(1, 1), InFlight(5, 2)])
def test_run_makes_what_single_calls_make(tmp_path: Path, in_flight: InFlight | None) -> None:
    jobs = make_pictures(tmp_path / "in", 7)
    output = PNG
    parts: dict[Job, float] = dict.fromkeys(jobs, 0.0)

    def add(job: Job, part: float) -> None:
        parts[job] += part

    with Upscaler(scale=2, model="vgg_7") as upscaler:
        outcomes = list(run(jobs, upscaler, output, in_flight=in_flight, on_progress=add))
        assert {outcome.job for outcome in outcomes} == set(jobs)
        assert all(outcome.status == "done" for outcome in outcomes)
        for job in jobs:
            expected = upscaler(load(job.source))
            np.testing.assert_array_equal(load(job.target), expected)
    assert list(parts.values()) == pytest.approx([1.0] * 7)


def test_one_failure_does_not_concern_the_others(tmp_path: Path) -> None:
    jobs = make_pictures(tmp_path / "in", 4)
    jobs[1].source.write_bytes(b"not a picture")
    jobs[2].source.unlink()
    with Upscaler(scale=2, model="vgg_7") as upscaler:
        outcomes = {outcome.job: outcome for outcome in run(jobs, upscaler, PNG)}
    assert [outcomes[job].status for job in jobs] == ["done", "failed", "failed", "done"]
    assert "1.png: not a picture" in outcomes[jobs[1]].error
    assert "2.png: cannot read: no such file" in outcomes[jobs[2]].error
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["0.png", "3.png"]


def test_existing_outputs(tmp_path: Path) -> None:
    (job,) = make_pictures(tmp_path / "in", 1)
    job.target.parent.mkdir()

    def outcome(existing: rules.Existing) -> Outcome:
        job.target.write_bytes(b"precious")
        with Upscaler(scale=2, model="vgg_7") as upscaler:
            return run_one(
                job, upscaler.enlarger, Output("png", Quality(), existing), WorkOptions(alone=False)
            )

    failed = outcome("fail")
    assert (failed.status, job.target.read_bytes()) == ("failed", b"precious")
    assert "exists already; use --overwrite or --skip-existing" in failed.error
    assert (outcome("skip").status, job.target.read_bytes()) == ("skipped", b"precious")
    assert outcome("overwrite").status == "done"
    assert load(job.target).shape == (40, 40, 3)


def test_the_input_is_never_overwritten(tmp_path: Path) -> None:
    (job,) = make_pictures(tmp_path / "in", 1)
    before = job.source.read_bytes()
    link = tmp_path / "link.png"
    link.symlink_to(job.source)
    with Upscaler(scale=2, model="vgg_7") as upscaler:
        for target in (job.source, link):
            outcome = run_one(
                Job(job.source, target),
                upscaler.enlarger,
                Output("png", Quality(), "overwrite"),
                WorkOptions(alone=False),
            )
            assert outcome.status == "failed"
            assert "is an input itself" in outcome.error
    assert job.source.read_bytes() == before


def test_no_picture_of_a_batch_is_overwritten(tmp_path: Path) -> None:
    """The target of p/p/x.png is p/x.png, which is another input of the batch."""
    inner = make_pictures(tmp_path / "p", 1)[0].source
    (tmp_path / "p/p").mkdir()
    (tmp_path / "p/p/0.png").write_bytes(inner.read_bytes())
    before = inner.read_bytes()
    jobs = plan(tmp_path / "p", tmp_path, "png", True).jobs
    assert any(job.target == inner for job in jobs)
    overwrite = Output("png", Quality(), "overwrite")
    with Upscaler(scale=2, model="vgg_7") as upscaler:
        outcomes = list(run(jobs, upscaler, overwrite, sources=rules.identities(jobs)))
    assert sorted(outcome.status for outcome in outcomes) == ["done", "failed"]
    assert inner.read_bytes() == before


def test_a_file_that_appears_during_the_work_is_kept(tmp_path: Path) -> None:
    (job,) = make_pictures(tmp_path / "in", 1)
    job.target.parent.mkdir()

    def intrude(part: float) -> None:
        job.target.write_bytes(b"precious")

    with Upscaler(scale=2, model="vgg_7") as upscaler:
        outcome = run_one(
            job, upscaler.enlarger, PNG, WorkOptions(on_progress=intrude, alone=False)
        )
    assert "exists already" in outcome.error
    assert [path.read_bytes() for path in job.target.parent.iterdir()] == [b"precious"]


def test_only_plain_files_are_replaced(tmp_path: Path) -> None:
    (job,) = make_pictures(tmp_path / "in", 1)
    job.target.parent.mkdir()
    os.mkfifo(job.target)
    with Upscaler(scale=2, model="vgg_7") as upscaler:
        overwrite = Output("png", Quality(), "overwrite")
        outcome = run_one(job, upscaler.enlarger, overwrite, WorkOptions(alone=False))
    assert "is not a plain file" in outcome.error
    assert job.target.is_fifo()


def test_a_name_that_is_too_long_fails_alone(tmp_path: Path) -> None:
    jobs = make_pictures(tmp_path / "in", 2)
    jobs[0] = Job(jobs[0].source, jobs[0].target.with_name("m" * 300 + ".png"))
    with Upscaler(scale=2, model="vgg_7") as upscaler:
        outcomes = list(run(jobs, upscaler, PNG))
    assert sorted(outcome.status for outcome in outcomes) == ["done", "failed"]


def test_closing_the_iterator_stops_the_work(tmp_path: Path) -> None:
    jobs = make_pictures(tmp_path / "in", 12, size=64)
    with Upscaler(scale=2, model="vgg_7") as upscaler:
        outcomes = run(jobs, upscaler, PNG, in_flight=InFlight(3, 1))
        first = next(outcomes)
        outcomes.close()
    made = list((tmp_path / "out").iterdir())
    assert first.job.target in made
    assert len(made) < len(jobs)
    for path in made:
        load(path)


def test_a_resume_does_not_look_at_all_inputs_for_each_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """10,000 files that are there already: with a look at every input for each, minutes."""
    jobs = [Job(tmp_path / "in.png", tmp_path / "out.png")] * 3
    for path in (jobs[0].source, jobs[0].target):
        path.write_bytes(b"x")
    looks = 0

    class Counted(frozenset):  # type: ignore[type-arg]
        def __iter__(self) -> object:  # type: ignore[override]
            nonlocal looks
            looks += 1
            return super().__iter__()

        def __or__(self, other: object) -> object:  # type: ignore[override]
            nonlocal looks
            looks += 1
            return super().__or__(other)  # type: ignore[operator]

    sources = Counted({(0, number) for number in range(1000)})
    for job in jobs:
        assert not rules.may_write(job, "skip", sources)
    assert looks == 0


def test_a_large_file_is_decoded_while_the_enlarger_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, opening = threading.Event(), threading.Event()

    first = DecodedFile.first

    def decoded(source: DecodedFile) -> Timed:
        begun.set()
        assert opening.wait(30)
        return first(source)

    def opened() -> Any:
        opening.set()
        assert begun.wait(30)
        return upscaler.enlarger

    monkeypatch.setattr(DecodedFile, "first", decoded)
    monkeypatch.setattr(upscaling, "_LARGE_FILE", 1)
    source = tmp_path / "in.png"
    source.write_bytes(encode(Picture(noise(5, 7, 3)), "png"))
    job, output = Job(source, tmp_path / "out.png"), Output("png", Quality(), "fail")
    identity_models(tmp_path / "identity")
    with Upscaler(2, model=str(tmp_path / "identity"), backend="numpy") as upscaler:
        made = upscaling.upscale_file(job, output, opened, WorkOptions())
    assert made is not None
    assert (made.height, made.width) == (10, 14)

    def fails() -> Any:
        opened()
        raise BackendError("no device")

    source.write_bytes(source.read_bytes()[:60])
    with pytest.raises(ImageError, match=r"in\.png: damaged or cut off"):
        upscaling.upscale_file(
            replace(job, target=tmp_path / "other.png"), output, fails, WorkOptions()
        )
