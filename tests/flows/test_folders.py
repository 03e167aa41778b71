"""Batches as their users call them: parts, watching, what is tried again, what is told."""

from __future__ import annotations

import errno
import io
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import zipfile
from base64 import b64decode
from collections.abc import Callable, Generator, Iterable
from fractions import Fraction
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from PIL import Image

from tests.helpers.contents import identity_models
from tests.helpers.outcomes import done
from waifu2x.api import Upscaler
from waifu2x.cli import cli
from waifu2x.cli.output import report
from waifu2x.flows.batch import watch
from waifu2x.flows.batch.plan import Plan, plan
from waifu2x.flows.batch.watch import SETTLED, Arrivals
from waifu2x.flows.jobs import Job, Output
from waifu2x.flows.outcome import Outcome, run_one
from waifu2x.flows.picture_work import WorkOptions
from waifu2x.formats import pillow
from waifu2x.formats.preview import SIDE, preview
from waifu2x.formats.table import Quality
from waifu2x.imaging.picture import Picture

ARGUMENTS = ("-m", "identity", "--backend", "numpy")
"""A network that doubles every pixel, without anything to compile."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    identity_models(tmp_path / "identity")
    Path("in").mkdir()
    return tmp_path


def batch(*arguments: str, target: str = "out") -> Result:
    return CliRunner().invoke(cli, ["batch", *ARGUMENTS, *arguments, "in", target])


def picture(name: str, seed: int = 0) -> None:
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 256, (6, 9, 3), np.uint8)
    Image.fromarray(pixels).save(name)


def made(target: str = "out") -> list[str]:
    return sorted(p.relative_to(target).as_posix() for p in Path(target).rglob("*") if p.is_file())


def rows(result: Result) -> dict[str, dict[str, Any]]:
    return {row["input"]: row for row in map(json.loads, result.stdout.splitlines())}


def test_exactly_the_bad_ones_are_listed(folder: Path) -> None:
    for number in range(60):
        picture(f"in/{number % 3}/{number}.png", number)
    bad = [f"in/{number % 3}/{number}.png" for number in (0, 31, 59)]
    for name in bad:
        Path(name).write_bytes(Path(name).read_bytes()[:60])
    result = batch("-r", "--json")
    assert result.exit_code == 1
    assert "57 done, 0 skipped, 3 failed;" in result.stderr
    listed = result.stderr[result.stderr.index("3 failed") :].splitlines()[1:]
    assert sorted(line.split()[1].rstrip(":") for line in listed) == sorted(bad)
    assert {name for name, row in rows(result).items() if row["status"] == "failed"} == set(bad)
    assert len(made()) == 57
    done = next(row for row in rows(result).values() if row["status"] == "done")
    assert {"read", "network", "write"} <= set(done["stages"])
    assert sum(done["stages"].values()) == pytest.approx(done["seconds"], abs=0.01)


def test_only_what_failed_is_tried_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("in/a.png", "in/b.png", "in/sub/c.png", "in/sub/d.png"):
        picture(name)
    good = Path("in/b.png").read_bytes()
    for name in ("in/b.png", "in/sub/d.png"):
        Path(name).write_text("no picture")
    Path("log").write_text(batch("-r", "--json").stdout)
    Path("in/b.png").write_bytes(good)
    Path("out/a.png").unlink()  # which did not fail
    monkeypatch.chdir("in")  # the paths of the lines are those of the first call
    lines = Path("../log").read_text().replace('"in/', f'"{folder}/in/')
    Path("../log").write_text(lines + '{"input": "cut off by a ki')
    call = ["batch", "-m", "../identity", "--backend", "numpy", "-r", "--json", "--retry-failed"]
    result = CliRunner().invoke(cli, [*call, "../log", ".", "../out"])
    assert result.exit_code == 1
    assert {name: row["status"] for name, row in rows(result).items()} == {
        "b.png": "done",
        "sub/d.png": "failed",
    }
    assert made("../out") == ["b.png", "sub/c.png"]
    # The last line about b.png says that it is done, behind the line that was cut off.
    with Path("../log2").open("w") as log:
        log.write(Path("../log").read_text() + result.stdout)
    again = CliRunner().invoke(cli, [*call, "../log2", ".", "../out"])
    assert list(rows(again)) == ["sub/d.png"]


def test_a_folder_that_failed_is_tried_again(folder: Path) -> None:
    picture("in/sub/a.png")
    picture("in/b.png")
    Path("log").write_text('{"input": "in/sub", "status": "failed"}\n\n')
    assert batch("-r", "--retry-failed", "log").exit_code == 0
    assert made() == ["sub/a.png"]


@pytest.mark.parametrize(
    "text",
    [
        "in/a.png\n",
        '{"status": "failed"}\n',
        "[1]\n",
        "\ufeff{}\n",
        "[" * 100_000 + "\n",
        '{"input": "in/a\\u0000.png", "status": "failed"}\n',
        '{"input": "in/\\ud800.png", "status": "failed"}\n',
    ],
)
def test_what_is_no_list_of_failures(folder: Path, text: str) -> None:
    picture("in/a.png")
    Path("log").write_text(text)
    result = batch("--retry-failed", "log")
    assert (result.exit_code, made("in")) == (1, ["a.png"])
    assert result.stderr.startswith("Error: log: line 1 is none that --json writes")
    assert not Path("out").exists()
    assert "Error: gone: cannot read: no such file" in batch("--retry-failed", "gone").stderr


def test_a_failure_behind_links_in_a_circle_is_of_no_folder(folder: Path) -> None:
    picture("in/a.png")
    Path("here").symlink_to("there")
    Path("there").symlink_to("here")
    Path("log").write_text('{"input": "here/a.png", "status": "failed"}\n')
    result = batch("--retry-failed", "log")
    assert (result.exit_code, made()) == (0, []), result.exception
    assert "log: nothing that failed is in in" in result.stderr


def test_parts_of_a_folder_make_the_whole(folder: Path) -> None:
    for number in range(20):
        picture(f"in/{number % 2}/{number}.png", number)
        picture(f"in/{number % 2}/{number}.bmp", number)
    assert batch("-r", target="whole").exit_code == 0
    counts = []
    for number in (1, 2, 3):
        before = set(made()) if Path("out").exists() else set()
        assert batch("-r", "--shard", f"{number}/3").exit_code == 0  # none exists already
        counts.append(len(set(made()) - before))
    assert all(counts)
    assert made() == made("whole")
    assert len(made()) == 40
    for name in made():
        assert Path("out", name).read_bytes() == Path("whole", name).read_bytes()
    assert batch("--shard", "4/3").exit_code == 2


def test_nothing_more_is_begun_after_the_first_failure(folder: Path) -> None:
    for number in range(60):
        picture(f"in/{number:02}.png")
    Path("in/00.png").write_text("no picture")
    result = batch("--fail-fast", "-j", "1:1:1", "--json")
    assert result.exit_code == 1
    match = re.search(r"(\d+) done, 0 skipped, 1 failed, (\d+) not done", result.stderr)
    assert match, result.stderr
    assert int(match[1]) + 1 + int(match[2]) == 60
    assert len(made()) == int(match[1]) < 59
    assert len(rows(result)) == int(match[1]) + 1
    assert "ended at the first failure, as --fail-fast asks for" in result.stderr


def test_a_folder_that_cannot_be_read_is_a_failure_as_well(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    picture("in/a.png")
    picture("in/locked/b.png")
    real = os.scandir

    def scandir(path: Path) -> Any:
        if path.name == "locked":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    result = batch("-r", "--json")
    assert result.exit_code == 1
    assert "1 done, 0 skipped, 1 failed" in result.stderr
    assert rows(result)["in/locked"]["error"] == (
        "in/locked: cannot read the folder: permission denied"
    )
    result = batch("-r", "--overwrite", "--fail-fast")
    assert "0 done, 0 skipped, 1 failed, 1 not done" in result.stderr


def test_outputs_that_are_there_cost_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a network nor a look at each file."""
    for name in ("in/a.png", "in/b.png", "in/sub/c.png"):
        picture(name)
    assert batch("-r").exit_code == 0
    real, looks = Path.stat, list[Path]()

    def stat(path: Path, **options: Any) -> os.stat_result:
        looks.append(path)
        return real(path, **options)

    monkeypatch.setattr(Path, "stat", stat)
    monkeypatch.setattr("waifu2x.cli.workers.opened", None)
    result = batch("-r", "--skip-existing", "--json", "-v")
    assert (result.exit_code, result.stderr) == (0, "0 done, 3 skipped, 0 failed\n")
    assert [row["status"] for row in rows(result).values()] == ["skipped"] * 3
    assert not [path for path in looks if path.suffix == ".png"]


def test_what_a_killed_run_left_is_swept(folder: Path) -> None:
    """Killed while it writes, for certain: what it waits for there is a pipe's end."""
    picture("in/sub/a.png")
    script = (
        "import os, signal\n"
        "os.fsync = lambda descriptor: os.kill(os.getpid(), signal.SIGKILL)\n"
        "from waifu2x.cli import cli\n"
        f"cli.main(['batch', *{ARGUMENTS!r}, '-r', 'in', 'out'], standalone_mode=False)"
    )
    killed = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    (left,) = made()
    assert left.endswith(".part")
    other = Path("out/sub/.waifu2x-00000000-0123456789ab.part")
    other.touch()  # of a machine that may be at work
    result = batch("-r", "--skip-existing")
    assert result.exit_code == 0
    assert "out: 1 unfinished file of a killed run removed" in result.stderr
    assert made() == [f"sub/{other.name}", "sub/a.png"]


def full_disk(descriptor: int) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_is_known(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    picture("in/a.png")
    (job,) = plan(Path("in"), Path("out"), "png", False).jobs
    with Upscaler(2, model="identity", backend="numpy") as upscaler:
        for error, known in ((errno.ENOSPC, True), (errno.EDQUOT, True), (errno.EIO, False)):

            def fail(descriptor: int, error: int = error) -> None:
                raise OSError(error, os.strerror(error))

            monkeypatch.setattr(os, "fsync", fail)
            outcome = run_one(
                job, upscaler.enlarger, Output("png", Quality(), "fail"), WorkOptions(alone=False)
            )
            assert (outcome.status, outcome.disk_full) == ("failed", known)
    assert made() == []


def test_a_full_disk_ends_the_batch(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files under way may fail, too; no more are begun."""
    for number in range(30):
        picture(f"in/{number:02}.png")

    def run(jobs: Iterable[Job], *others: Any, **named: Any) -> Generator[Outcome]:
        for number, job in enumerate(jobs):
            if number < 5:
                yield done(job, 0.1, 12, 18)
            else:
                message = f"{job.target}: cannot write: no space left on device"
                yield Outcome(job, error=message, disk_full=True)

    monkeypatch.setattr("waifu2x.flows.batch.driver.run", run)
    result = batch()
    assert result.exit_code == 1
    lines = result.stderr.splitlines()
    at = lines.index("out: the disk is full; make room and go on with --skip-existing")
    assert lines[at + 1].startswith("5 done, 0 skipped, 1 failed, 24 not done;")
    assert lines[at + 2 :] == ["failed   out/05.png: cannot write: no space left on device"]


def test_what_another_run_makes_meanwhile_is_skipped(folder: Path) -> None:
    """Two runs with --skip-existing may share a folder."""
    picture("in/a.png")
    (job,) = plan(Path("in"), Path("out"), "png", False).jobs
    Path("out").mkdir()

    def intrude(part: float) -> None:
        job.target.write_bytes(b"theirs")

    with Upscaler(2, model="identity", backend="numpy") as upscaler:
        output = Output("png", Quality(), "skip")
        outcome = run_one(
            job, upscaler.enlarger, output, WorkOptions(on_progress=intrude, alone=False)
        )
    assert (outcome.status, made(), job.target.read_bytes()) == ("skipped", ["a.png"], b"theirs")


class Html(HTMLParser):
    """Parses a page as a browser would: its texts, links and pictures, in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.texts: list[str] = []
        self.links: list[str] = []
        self.images: list[bytes] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.tags.append(tag)
        if tag == "a":
            self.links.append(found["href"] or "")
        if tag == "img":
            kind, _, data = (found["src"] or "").partition(",")
            assert (kind, found["loading"]) == ("data:image/jpeg;base64", "lazy")
            self.images.append(b64decode(data, validate=True))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


NAMED = ("bad.png", "a.png")
"""In the order in which the report has them."""


def test_a_report_to_look_through(folder: Path) -> None:
    evil = 'in/<script>alert("1")<&.png'
    Image.new("RGB", (9, 6), (200, 30, 90)).save("in/a.png")
    Image.new("RGB", (9, 6), "navy").save(evil)
    raw = os.fsdecode(b"in/\xff#?.png")
    Image.new("RGB", (9, 6), "yellow").save(raw)
    Path("in/bad.png").write_text("no picture")
    result = batch("--report", "page.html")
    assert result.exit_code == 1
    text = Path("page.html").read_text(encoding="utf-8")
    page = Html(text)
    assert page.tags.count("script") == 1  # its own
    assert "3 done, 0 skipped, 1 failed" in "".join(page.texts)
    places = [next(at for at, each in enumerate(page.texts) if name in each) for name in NAMED]
    assert places == sorted(places)
    assert page.links[0] == "in/bad.png"
    assert {"in/a.png", "out/a.png", "in/%FF%23%3F.png"} <= set(page.links)
    assert any('<script>alert("1")<&.png' in each for each in page.texts)
    # Each as a thumbnail, before and after: as many pixels as there are, and what is in them.
    assert len(page.images) == 9
    for first in range(0, 9, 3):
        shown = [Image.open(io.BytesIO(data)) for data in page.images[first : first + 3]]
        assert [image.size for image in shown] == [(18, 12)] * 3
        means = [np.asarray(image, float).mean(axis=(0, 1)) for image in shown]
        np.testing.assert_allclose(means[1:], [means[0]] * 2, atol=3)
    # It is made anew; another file is not.
    assert batch("--overwrite", "--report", "page.html").exit_code == 1
    Path("diary.html").write_text("<p>Dear diary")
    result = batch("--overwrite", "--report", "diary.html")
    assert "diary.html: it exists already, and is no report" in result.stderr
    assert Path("diary.html").read_text() == "<p>Dear diary"
    assert "cannot write" in batch("--overwrite", "--report", "no/where.html").stderr
    assert sorted(p.name for p in folder.iterdir()) == [
        "diary.html",
        "identity",
        "in",
        "out",
        "page.html",
    ]


def test_an_interrupted_run_has_a_report_and_a_summary(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("in/a.png", "in/b.png", "in/c.png"):
        picture(name)

    def run(jobs: Iterable[Job], *others: Any, **named: Any) -> Generator[Outcome]:
        yield done(next(iter(jobs)), 0.1, 12, 18)
        raise KeyboardInterrupt

    monkeypatch.setattr("waifu2x.flows.batch.driver.run", run)
    result = batch("--report", "page.html")
    assert result.exit_code == 1  # click's own; `main` makes it 130
    assert "1 done, 0 skipped, 0 failed, 2 not done" in result.stderr
    assert "1 done, 0 skipped, 0 failed, 2 not done" in Path("page.html").read_text()


def test_a_report_where_the_terminal_is_gone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(message: str) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    picture("in/a.png")
    monkeypatch.setattr(report, "_write", gone)
    Path("in/bad.png").write_text("no picture")
    assert batch("--report", "page.html").exit_code == 1
    assert Path("page.html").read_text().endswith("</html>\n")


@pytest.mark.parametrize(
    ("shape", "dtype", "size"),
    [
        ((1000, 3000, 3), np.uint8, (192, 64)),
        ((1, 5000, 1), np.uint16, (192, 1)),
        ((7, 5, 3), np.float32, (5, 7)),
    ],
)
def test_thumbnails(shape: tuple[int, int, int], dtype: Any, size: tuple[int, int]) -> None:
    most = 1 if dtype == np.float32 else np.iinfo(dtype).max
    pixels = np.zeros(shape, dtype)
    pixels[:, shape[1] // 2 :] = most
    with Image.open(io.BytesIO(preview(Picture(pixels), 480).thumbnail)) as image:
        assert image.format == "JPEG"
        assert image.size == size
        assert max(image.size) <= SIDE
        levels = np.atleast_3d(np.asarray(image)).astype(float).mean(axis=(0, 2))
    assert levels[0] < 20
    assert levels[-1] > 235
    clear = Picture(pixels, np.zeros(shape[:2], dtype))
    with Image.open(io.BytesIO(preview(clear, 480).thumbnail)) as image:
        assert np.asarray(image).min() > 250


def arrivals(existing: frozenset[str] = frozenset()) -> Callable[[float], list[str]]:
    """Names the files that are whole at a time of the clock. `at` sets the age of a file."""

    def look() -> Plan:
        return plan(Path("in"), Path("out"), "png", True)

    watched = Arrivals(look, done=existing)
    return lambda now: [job.source.name for job in watched.whole(now, now)]


def at(name: str, when: float, content: bytes = b"x") -> None:
    Path(name).parent.mkdir(exist_ok=True)
    Path(name).write_bytes(content)
    os.utime(name, (when, when))


def test_what_was_there_is_whole_and_what_arrives_is_waited_for(folder: Path) -> None:
    whole = arrivals(frozenset(("done.png",)))
    at("in/old.png", 100)
    at("in/done.png", 100)
    at("in/fresh.png", 999.5)
    assert whole(1000) == ["old.png"]
    at("in/sub/new.png", 1000.5)
    assert whole(1000 + SETTLED) == ["fresh.png"]
    assert whole(1000 + 2 * SETTLED) == ["new.png"]
    assert whole(1000 + 9 * SETTLED) == []


def test_what_still_grows_is_not_whole(folder: Path) -> None:
    whole = arrivals()
    assert whole(1000) == []
    # Also one whose date is an old one from the start, as of a copy that keeps dates.
    for step in range(5):
        at("in/slow.png", 500, b"x" * step)
        assert whole(1001 + step * SETTLED) == []
    assert whole(1001 + 5 * SETTLED) == ["slow.png"]
    # A changed file is new: its date, its size, or that it is another file of that name.
    at("in/slow.png", 501, b"x" * 4)
    assert whole(1100) == []
    assert whole(1100 + SETTLED) == ["slow.png"]
    at("in/other", 501, b"x" * 4)
    Path("in/other").rename("in/slow.png")
    assert whole(1200) == []
    assert whole(1200 + SETTLED) == ["slow.png"]
    Path("in/slow.png").unlink()
    assert whole(1300) == []
    at("in/slow.png", 501, b"x" * 4)
    assert whole(1301) == []
    assert whole(1301 + SETTLED) == ["slow.png"]


def test_a_folder_that_cannot_be_read_for_a_while(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A network drive: what was done is not new when it comes back."""
    told: list[str] = []
    watched = Arrivals(
        lambda: plan(Path("in"), Path("out"), "png", True),
        on_unreadable=lambda outcome: told.append(outcome.error),
    )
    at("in/sub/a.png", 100)
    assert len(watched.whole(1000, 1000)) == 1
    real = os.scandir
    with monkeypatch.context() as patch:

        def scandir(path: Path) -> Any:
            if path.name == "sub":
                raise OSError(errno.EIO, "Input/output error", str(path))
            return real(path)

        patch.setattr(os, "scandir", scandir)
        for now in (1001.0, 1002.0):
            assert not len(watched.whole(now, now))
    assert told == ["in/sub: cannot read the folder: input/output error"]
    for now in (1003.0, 1003.0 + SETTLED):
        assert not len(watched.whole(now, now))


def test_watching_until_interrupted(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There, failed, arrived, mended: then Ctrl-C, which is no failure."""
    monkeypatch.setattr(watch, "SETTLED", 0.05)
    monkeypatch.setattr(watch, "_PAUSE", 0.02)
    picture("in/there.png")
    picture("in/done.png")
    Path("out").mkdir()
    Path("out/done.png").write_bytes(b"precious")
    Path("in/bad.png").write_text("no picture")

    def wait_for(condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 60
        while not condition() and time.monotonic() < deadline:
            time.sleep(0.01)

    def arrive() -> None:
        wait_for(Path("out/there.png").exists)
        picture("in/sub/new.png")
        wait_for(Path("out/sub/new.png").exists)
        picture("whole.png")
        Path("whole.png").rename("in/bad.png")
        wait_for(Path("out/bad.png").exists)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=arrive)
    thread.start()
    result = batch("-r", "--watch", "--json", "-v", "--report", "page.html")
    thread.join()
    assert result.exit_code == 0, result.stderr
    assert made() == ["bad.png", "done.png", "sub/new.png", "there.png"]
    assert Path("out/done.png").read_bytes() == b"precious"
    statuses = [
        (row["input"], row["status"]) for row in map(json.loads, result.stdout.splitlines())
    ]
    assert statuses[0] == ("in/done.png", "skipped")
    assert sorted(statuses[1:3]) == [("in/bad.png", "failed"), ("in/there.png", "done")]
    assert statuses[3:] == [("in/sub/new.png", "done"), ("in/bad.png", "done")]
    assert "3 done, 1 skipped, 0 failed;" in result.stderr
    assert len(Html(Path("page.html").read_text()).images) == 9
    assert signal.getsignal(signal.SIGINT) == signal.default_int_handler


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--retry-failed", "log", "in", "out"], "--retry-failed and --watch exclude each other"),
        (["in", "."], "--watch: INPUT_DIR must not be in OUTPUT_DIR"),
    ],
)
def test_wrong_watching(folder: Path, arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(cli, ["batch", *ARGUMENTS, "--watch", *arguments])
    assert result.exit_code == 2
    assert message in result.stderr


def test_kills_and_a_resume_come_to_what_peace_does(folder: Path) -> None:
    """Kills among pictures and archives, and within a film."""
    films = pytest.importorskip("tests.helpers.films")
    for number in range(40):
        picture(f"in/{number:02}.png", number)
    with zipfile.ZipFile("in/book.cbz", "w") as book:
        for number in range(9):
            book.write(f"in/{number:02}.png")
    slow = {"rate": Fraction(1), "times": range(0, 150_000, 1000)}  # a part has ten frames
    films.film(Path("in/long.mkv"), size=(16, 24), sounds=[("aac", 0.1)], **slow)
    assert batch("-c", "ffv1", target="peace").exit_code == 0
    parts = Path("out/long.mkv.parts")
    moments: list[Callable[[], bool]] = [
        lambda: len(made()) > 9,
        lambda: len([*parts.glob("part-*.json")]) > 2,
    ]
    for is_far in moments:
        arguments = ["batch", *ARGUMENTS, "-c", "ffv1", "--skip-existing", "in", "out"]
        process = subprocess.Popen([sys.executable, "-m", "waifu2x", *arguments], stderr=-1)
        deadline = time.monotonic() + 60
        while not (Path("out").is_dir() and is_far()):
            assert time.monotonic() < deadline
            assert process.poll() is None, process.communicate()
        process.kill()
        process.communicate()  # ends when no process holds its standard error
    again = batch("-c", "ffv1", "--json", "--skip-existing")
    assert again.exit_code == 0
    assert rows(again)["in/long.mkv"]["resumed"] >= 30
    assert made() == made("peace")
    for name in made():
        assert Path("out", name).read_bytes() == Path("peace", name).read_bytes()


@pytest.mark.parametrize("name", ["waifu2x-device", "waifu2x-codec", "waifu2x-jobs"])
def test_no_thread_can_be_started(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    picture("in/a.png")
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name.startswith(name):
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    result = batch()
    assert result.exit_code == 1
    assert isinstance(result.exception, SystemExit)
    assert "no thread can be started; free some memory" in result.stderr
    assert "fault of waifu2x" not in result.stderr


def test_a_library_that_cannot_be_loaded_fails_its_pictures_alone(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a decoder's, where no memory is left to map it."""
    picture("in/a.bmp")
    picture("in/b.png")
    monkeypatch.setitem(sys.modules, "waifu2x.formats.pillow.read", None)
    monkeypatch.delattr(pillow, "read", raising=False)
    result = batch()
    assert result.exit_code == 1
    assert "in/a.bmp: a library cannot be loaded: " in result.stderr
    assert "damaged" not in result.stderr
    assert "fault of waifu2x" not in result.stderr
    assert made() == ["b.png"]


@pytest.mark.skipif(sys.platform == "win32", reason="Windows starts each process by itself")
def test_where_no_process_can_be_started_threads_do_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a free descriptor, the process that starts others ends at once."""
    from multiprocessing import forkserver

    def end() -> None:
        raise EOFError

    for number in range(60):
        picture(f"in/{number}.png", number)
    monkeypatch.setattr(forkserver, "ensure_running", end)
    monkeypatch.setattr(forkserver, "connect_to_new_process", lambda fds: end())
    result = batch()
    assert result.exit_code == 0, result.output
    assert len(made()) == 60
