"""Progress as people see it: on terminals of several widths, in logs, after interrupts."""

from __future__ import annotations

import re
import signal
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.helpers.outcomes import done
from tests.helpers.terminals import Terminal
from waifu2x.cli.output import progress, report
from waifu2x.cli.output.progress_line import Figures, clock
from waifu2x.flows.jobs import Job
from waifu2x.flows.outcome import Outcome

LINES = """
import sys, types
from pathlib import Path
from waifu2x.cli.output import drawing, progress, report
from waifu2x.flows.jobs import Job
from waifu2x.flows.outcome import Outcome
from waifu2x.flows.upscaling import Upscaled

drawing._QUIET_SECONDS = 0
now = [100.0]
progress.time = types.SimpleNamespace(monotonic=lambda: now[0])
{before}
with {context} as ({first}, {second}):
    for line in sys.stdin:
        exec(line)
"""
"""A program that does what its standard input says, with progress."""
NAME = "a_long_name_of_some_photo_0012.png"
WARNING = "a warning that takes more than the forty columns of a narrow terminal, surely"


def one(before: str = "", name: str = NAME) -> list[str]:
    context = f"progress.one_picture({name!r})"
    code = LINES.format(context=context, first="on_size", second="on_progress", before=before)
    return ["-c", code]


def many(files: int, before: str = "") -> list[str]:
    jobs = f"[Job(Path(f'{{n:03}}.png'), Path('out')) for n in range({files})]"
    before += f"\njobs = {jobs}"
    context = "progress.many_pictures(jobs)"
    code = LINES.format(context=context, first="on_progress", second="on_outcome, _", before=before)
    return ["-c", code]


def squeezed(text: str) -> str:
    """Removes the line breaks of a narrow screen."""
    return text.replace("\n", "")


WIDTHS = [
    40,
    pytest.param(60, marks=pytest.mark.matrix),
    pytest.param(80, marks=pytest.mark.matrix),
    100,
]


@pytest.mark.parametrize("columns", WIDTHS)
def test_one_line_however_wide_the_terminal_is(columns: int) -> None:
    """With the name, how much is done and the time left; it stays the last line, and goes."""
    with Terminal(one(), columns) as terminal:
        terminal.say("on_size(1000, 2000)")
        terminal.until(lambda: "2.0 Mpixel" in terminal.lines[-1])
        terminal.say("now[0] += 3.7; on_progress(0.37)")
        terminal.until(lambda: "37 %" in terminal.lines[-1])
        (line,) = terminal.lines
        assert re.search(r"37 %  .*0:06 left  .*photo_0012\.png$", line), line
        assert ("Mpixel/s" in line) == (columns >= 60)
        assert ("━" in line) == (columns >= 80)
        assert (NAME in line) == (columns >= 100)
        terminal.say(f"report.tell({WARNING!r})")
        terminal.say("on_progress(0.2)")
        terminal.until(lambda: "57 %" in terminal.lines[-1])
        assert squeezed("\n".join(terminal.lines[:-1])) == WARNING
        assert terminal.end() == 0
        assert squeezed("\n".join(terminal.lines)) == WARNING
        assert not terminal.screen.cursor.hidden


@pytest.mark.parametrize("columns", WIDTHS)
def test_many_messages_leave_no_stale_lines(columns: int) -> None:
    with Terminal(many(298), columns) as terminal:
        for number in range(12):
            terminal.say(f"on_progress(jobs[{number}], 0.5); now[0] += 0.4")
            terminal.say(f"report.tell('message {number}')")
            ended = "error='bad'" if number == 3 else "Upscaled(100, 200, {}, 1.0)"
            terminal.say(f"on_outcome(Outcome(jobs[{number}], {ended}))")
        terminal.say("on_progress(jobs[12], 0.5)")
        terminal.say("on_progress(jobs[13], 0.25)")
        terminal.until(lambda: "12/298  1 failed" in terminal.lines[-1])
        terminal.until(lambda: "1:47 left" in terminal.lines[-1])
        assert terminal.lines[:-1] == [f"message {number}" for number in range(12)]
        last = terminal.lines[-1]
        assert re.search(r"4 %  12/298  1 failed  .*1:47 left", last)
        assert ("012.png, 013.png" in last) == (columns >= 60)
        assert ("2.7/s" in last) == (columns >= 60)
        assert ("─" in last) == (columns >= 80)
        assert terminal.end() == 0
        assert terminal.lines == [f"message {number}" for number in range(12)]


def test_results_on_the_same_terminal_stand_above_the_line() -> None:
    with Terminal(many(3), 100) as terminal:
        terminal.say("on_progress(jobs[0], 0.5); now[0] += 1")
        terminal.until(lambda: "000.png" in terminal.lines[-1])
        terminal.say("report.show('{\"a\": [1]}'); on_progress(jobs[1], 0.5)")
        terminal.until(lambda: "001.png" in terminal.lines[-1])
        assert terminal.lines[:-1] == ['{"a": [1]}']
        assert terminal.end() == 0
        assert terminal.lines == ['{"a": [1]}']


def test_a_window_that_changes_its_size() -> None:
    with Terminal(one(), 100) as terminal:
        terminal.say("on_size(1000, 2000); now[0] += 1; on_progress(0.37)")
        terminal.until(lambda: NAME in terminal.lines[-1])
        terminal.resize(40)
        terminal.until(lambda: terminal.lines[-1].endswith("…ame_of_some_photo_0012.png"[-20:]))
        assert len(terminal.lines) == 1
        terminal.resize(100)
        terminal.until(lambda: "━" in terminal.lines[-1])
        assert len(terminal.lines) == 1
        terminal.end()
        assert terminal.lines == [""]


def test_the_cursor_waits_at_the_beginning_of_the_line() -> None:
    """Where a terminal breaks the line when it is made narrower, all of it is behind the cursor,
    and is cleared from there on."""
    with Terminal(one()) as terminal:
        terminal.say("on_size(1000, 2000); now[0] += 1; on_progress(0.37)")
        terminal.until(lambda: NAME[-9:] in terminal.lines[-1])
        assert (terminal.screen.cursor.x, terminal.screen.cursor.y) == (0, 0)
        terminal.until(lambda: b"\r\x1b[2K\x1b[J" in terminal.written)


def test_wide_characters_and_orders_in_names() -> None:
    with Terminal(one(name="日本語の写真\x1b[31m日本語の写真.png"), 40) as terminal:
        terminal.say("on_size(1000, 2000); now[0] += 1; on_progress(0.37)")
        terminal.until(lambda: "写" in terminal.lines[-1])
        (line,) = terminal.lines
        assert "[31m" in line  # escaped, so it is text
        terminal.end()
        assert terminal.lines == [""]


def test_a_terminal_without_colours_or_unicode() -> None:
    told = {"NO_COLOR": "1", "PYTHONIOENCODING": "ascii"}
    with Terminal(one(name="größe.png"), 100, environment=told) as terminal:
        terminal.say("on_size(1000, 2000); now[0] += 1; on_progress(0.37)")
        terminal.until(lambda: "left" in terminal.lines[-1])
        assert re.match(r"#+-+  37 %  .* left  gr\?\?e\.png$", terminal.lines[-1])
        assert terminal.end() == 0
        assert not re.search(rb"\x1b\[[0-9;]*3[0-7]m", terminal.written)


@pytest.mark.parametrize("told", [{"TERM": "dumb"}, {"CI": "true"}])
def test_logs_that_look_like_terminals(told: dict[str, str]) -> None:
    with Terminal(one(), environment=told) as terminal:
        terminal.say("on_size(1000, 2000); now[0] += 1; on_progress(0.37)")
        terminal.say("report.tell('hello')")
        assert terminal.end() == 0
        assert terminal.written == b"hello\r\n"


def test_work_of_less_than_a_second_shows_nothing() -> None:
    """Nor does it load what would draw it."""
    with Terminal(one("drawing._QUIET_SECONDS = 1000")) as terminal:
        terminal.say("on_size(1000, 2000); now[0] += 1; on_progress(0.37)")
        terminal.say("print('rich' in sys.modules)")
        assert terminal.end() == 0
        assert terminal.written == b"False\r\n"


@pytest.mark.parametrize("volume", ["QUIET", "NORMAL", "VERBOSE"])
def test_a_log_has_lines_now_and_then_if_it_is_to_say_more(
    volume: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    report.set_volume(report.Volume[volume])
    try:
        with progress.one_picture("a.png") as (on_size, on_progress):
            on_size(1000, 2000)
            for _ in range(7):
                now += 10
                on_progress(0.1)
        jobs = [Job(Path("b.png"), Path("out/b.png"))]
        with progress.many_pictures(jobs) as (on_part, on_outcome, _):
            on_part(jobs[0], 0.5)
            on_outcome(done(jobs[0], 1.5, 10, 20))
    finally:
        report.set_volume(report.Volume.NORMAL)
    expected = (
        "30 %, 0.02 Mpixel/s, 1:10 left: a.png\n"
        "60 %, 0.02 Mpixel/s, 0:40 left: a.png\n"
        "[1/1] done     b.png -> out/b.png (20x10, 1.50 s)\n"
    )
    assert capsys.readouterr().err == (expected if volume == "VERBOSE" else "")


def test_pages_of_an_archive_count_as_pictures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with zipfile.ZipFile(tmp_path / "book.cbz", "w") as book:
        for number in range(200):
            book.writestr(f"{number}.jpg", b"")
        book.writestr("ComicInfo.xml", b"")
    (tmp_path / "bad.zip").write_bytes(b"none")
    now = 100.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    jobs = [Job(tmp_path / name, Path("out")) for name in ("a.png", "book.cbz", "bad.zip")]
    counted = progress._ManyPictures(len(jobs))
    counted.count_pages(jobs)
    counted.advance(jobs[0], 0.0)
    now += 10
    counted.finish(done(jobs[0], 1.0, 10, 20))
    counted.advance(jobs[1], 0.245)
    found = counted.figures()
    assert found.counted == "50/202"
    assert found.names == ["book.cbz (49/200)"]
    assert found.rate == "5.0/s"
    assert found.left == pytest.approx(152 / 5)
    counted.finish(done(jobs[1], 1.0, 10, 20, pictures=200))
    assert counted.figures().counted == "201/202"
    # A file that is skipped takes no time, and promises none.
    counted.finish(Outcome(jobs[2]))
    assert counted.figures().counted == "202/202"


def test_times_as_people_write_them() -> None:
    assert [clock(seconds) for seconds in (0.4, 65, 3600, 36061)] == [
        "0:00", "1:05", "1:00:00", "10:01:01"
    ]  # fmt: skip


def test_no_line_is_longer_than_the_terminal() -> None:
    figures = Figures(["日本語の写真.png", "b.png"], 0.5, "123456/234567", 12, "10.1 s each", 9999)
    for width in range(1, 130):
        line = figures.line(width)
        assert line.cell_len <= width
        assert "\n" not in line.plain
        if width >= 40:
            assert "50 %" in line.plain
            assert "2:46:39 left" in line.plain


UPSCALE, BATCH = ["upscale", "in/a.png", "b.png"], ["batch", "in", "out"]
STUCK = """
import sys
from waifu2x.backends.reference.backend import NumpyNetwork
from waifu2x.cli.output import drawing

drawing._QUIET_SECONDS = 0

def stuck(network, call):
    call.on_progress(0.25)
    sys.stdin.read()

NumpyNetwork.run = stuck
from waifu2x.__main__ import main
main()
"""


@pytest.fixture
def picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "in").mkdir()
    pixels = np.random.default_rng(0).integers(0, 256, (8, 12, 3), np.uint8)
    Image.fromarray(pixels).save(tmp_path / "in/a.png")
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("command", "ending"),
    [
        (UPSCALE, "key"),
        (BATCH, "key"),
        (UPSCALE, "SIGTERM"),
        pytest.param(BATCH, "SIGTERM", marks=pytest.mark.matrix),
        pytest.param(UPSCALE, "hang up", marks=pytest.mark.matrix),
        (BATCH, "hang up"),
    ],
)
def test_an_interrupt_leaves_a_clean_screen(picture: None, command: list[str], ending: str) -> None:
    arguments = ["-c", STUCK, *command, "--backend", "numpy"]
    with Terminal(arguments) as terminal:
        terminal.until(lambda: "a.png" in terminal.lines[-1] and " %" in terminal.lines[-1])
        if ending == "hang up":
            terminal.hang_up()
            assert terminal.process.wait(60) == 128 + signal.SIGHUP
        else:
            if ending == "key":
                terminal.type(b"\x03")
                # The signal comes with that; before, the end of standard input would end the work.
                terminal.until(lambda: b"^C" in terminal.written)
            else:
                terminal.process.send_signal(signal.SIGTERM)
            number = signal.SIGINT if ending == "key" else signal.SIGTERM
            assert terminal.end() == 128 + number
            summary = ["0 done, 0 skipped, 0 failed, 1 not done"] if "batch" in command else []
            word = ["Interrupted."] if ending == "key" else []
            assert terminal.lines == ([*summary, *word] or [""])
            assert not terminal.screen.cursor.hidden
    assert not list(Path().rglob("*.part"))
    assert not Path("b.png").exists()


def test_a_success_is_one_line_on_a_terminal(picture: None) -> None:
    call = ["-m", "waifu2x", "upscale", "--backend", "numpy", "in/a.png"]
    with Terminal([*call, "b.png"]) as terminal:
        assert terminal.end() == 0
        (line,) = terminal.lines
        assert re.fullmatch(r"b\.png: 24x16, \d+\.\d s", line)
    with Terminal([*call, "c.png", "--quiet"]) as terminal:
        assert (terminal.end(), terminal.lines) == (0, [""])
    with Terminal([*call, "nowhere/d.png", "--quiet"]) as terminal:
        assert terminal.end() == 1
        assert terminal.lines[-1].startswith("Error: nowhere: no such folder")


def test_a_batch_ends_with_its_summary_on_a_terminal(picture: None) -> None:
    call = ["-m", "waifu2x", "batch", "--backend", "numpy", "in"]
    with Terminal([*call, "out"]) as terminal:
        assert terminal.end() == 0
        (line,) = terminal.lines
        assert re.fullmatch(r"1 done, 0 skipped, 0 failed; \d+\.\d s, \d\.\d\d Mpixel/s", line)
    with Terminal([*call, "out", "--skip-existing", "--json"]) as terminal:
        assert terminal.end() == 0
        assert terminal.lines[-1] == "0 done, 1 skipped, 0 failed"
        assert '"status": "skipped"' in squeezed("\n".join(terminal.lines))
