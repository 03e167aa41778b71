"""Folders by the workers of a cluster, against what a local run makes: real schedulers and workers,
each a process of its own."""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from PIL import Image

pytest.importorskip("distributed", reason="--cluster needs dask and distributed: extra [dev]")
pytest.importorskip("upath")

from distributed import Client

import waifu2x
from tests.cli.test_cli import leftovers, program, tiny
from tests.flows.test_session import made_by
from tests.helpers.contents import identity_models
from tests.helpers.odd_workers import DEADLY
from waifu2x.api import Upscaler
from waifu2x.cli import cli
from waifu2x.errors import ClusterError
from waifu2x.flows.batch.by_fleet import FileTask, SessionOpening
from waifu2x.flows.batch.plan import plan
from waifu2x.flows.batch.session import Session, SessionSettings, packed
from waifu2x.flows.fleet import cluster
from waifu2x.flows.fleet.supervisor import Fleet, Hooks
from waifu2x.flows.jobs import Output
from waifu2x.flows.outcome import Outcome
from waifu2x.formats.table import Quality

pytestmark = [pytest.mark.matrix]

SECONDS = 120
"""After which whatever a test waits for will not come."""
MODEL = ["-m", "vgg_7"]


def wait_for(condition: Callable[[], Any]) -> Any:
    """The condition's result, as soon as it is true."""
    deadline = time.monotonic() + SECONDS
    while not (result := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return result


@contextmanager
def dask(*arguments: str, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process of Dask's, until the context ends."""
    root = str(Path(waifu2x.__file__).parent.parent)
    process = subprocess.Popen(
        [sys.executable, "-m", "dask", *arguments],
        env={**os.environ, "PYTHONPATH": root, **environment},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        process.terminate()
        process.wait(SECONDS)


@contextmanager
def scheduling(folder: Path, **environment: str) -> Iterator[str]:
    """The address of a scheduler without workers."""
    file = folder / "scheduler.json"
    arguments = ["--port", "0", "--no-dashboard", "--scheduler-file", str(file)]
    with dask("scheduler", "--host", "127.0.0.1", *arguments, **environment):
        yield wait_for(lambda: file.exists() and file.read_text() and _address(file))


def _address(file: Path) -> str | None:
    try:
        return str(json.loads(file.read_text())["address"])
    except ValueError:  # not yet whole
        return None


@contextmanager
def working(
    address: str, *arguments: str, count: int = 1, **environment: str
) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Workers that a scheduler knows."""
    with ExitStack() as stack:
        client = stack.enter_context(Client(address, set_as_default=False))
        before = len(client.nthreads())
        options = ["--nthreads", "1", "--memory-limit", "0", "--no-dashboard", *arguments]
        started = [
            stack.enter_context(dask("worker", address, *options, **environment))
            for _ in range(count)
        ]
        client.wait_for_workers(before + count, timeout=SECONDS)
        yield started


@pytest.fixture(scope="module")
def scheduler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with scheduling(tmp_path_factory.mktemp("scheduler")) as address:
        yield address


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working one."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def make_pictures(folder: Path, count: int, size: int = 20) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    for index in range(count):
        pixels = rng.integers(0, 256, (size, size + index % 7, 3), np.uint8)
        Image.fromarray(pixels).save(folder / f"{index:03}.png")


def batch(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["batch", *arguments])


def rows(result: Result, base: str) -> dict[str, dict[str, object]]:
    """Maps inputs, by their places in a folder `in`, to their rows of `--json` without times, in
    which outputs are relative to `base`."""
    found = {}
    for line in result.stdout.splitlines():
        row = json.loads(line)
        said = {key: row.get(key) for key in ("status", "width", "height", "error")}
        said["output"] = row["output"].removeprefix(base)
        found[row["input"].rpartition("in/")[2]] = said
    return found


def contents(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.suffix != ".part"
    }


def test_a_worker_is_killed_in_the_middle(folder: Path, scheduler: str) -> None:
    make_pictures(Path("in"), 100)
    make_pictures(Path("in/deeper"), 20)
    Path("in/bad.png").write_text("hello")
    Path("in/cut.png").write_bytes(Path("in/000.png").read_bytes()[:600])
    model = ["-m", tiny()]
    here = batch("-r", "--json", *model, str(folder / "in"), str(folder / "here"))
    total = len(contents(folder / "here"))
    with working(scheduler, "--no-nanny", count=2) as workers:
        left: list[int] = []

        def kill() -> None:
            wait_for(lambda: len(list(Path("there").glob("*.png"))) >= 20)
            workers[0].kill()
            left.append(total - len(contents(folder / "there")))

        killer = threading.Thread(target=kill)
        killer.start()
        there = batch("-r", "--json", *model, "--cluster", scheduler, "in", "there")
        killer.join()
        assert workers[0].wait(SECONDS) == -signal.SIGKILL
    assert left[0] > 0, "killed too late"
    assert there.exit_code == here.exit_code == 1
    assert rows(there, f"{folder}/there") == rows(here, f"{folder}/here")
    assert contents(folder / "there") == contents(folder / "here")
    assert "120 done, 0 skipped, 2 failed" in there.stderr
    assert sorted(there.stderr.splitlines()[-2:]) == sorted(here.stderr.splitlines()[-2:])


@contextmanager
def fleet_of(
    client: Client, folder: Path, model: str = "vgg_7", **changes: Any
) -> Iterator[tuple[Fleet, list[FileTask]]]:
    """A fleet of a cluster, and the pictures of folder/in."""
    name, model_files = packed(model)
    arguments = {"scale": 2, "noise": None, "model": name, "backend": "auto", "device": "all"}
    arguments |= {"precision": "auto", **changes.pop("arguments", {})}
    settings = SessionSettings(arguments, Output("png", Quality(), "fail"), None, 10**6)
    folders = folder / "in", folder / "out"
    opening = SessionOpening(settings, model_files, **{"folders": folders, **changes})
    policy = cluster.policy("files", "what is finished stays")
    tasks = [FileTask(job, 1.0) for job in plan(*folders, "png", False).jobs]
    with cluster.fleet_of(client, opening, policy, Hooks()) as fleet:
        yield fleet, tasks


def test_batches_that_share_a_folder_share_a_worker(folder: Path) -> None:
    make_pictures(Path("in"), 3)
    identity_models(folder / "identity")
    jobs = list(plan(folder / "in", folder / "out", "png", False).jobs)
    settings = SessionSettings({}, Output("png", Quality(), "fail"), None, 10**6)
    with Upscaler(2, model=str(folder / "identity"), backend="numpy") as upscaler:
        session = Session(upscaler, settings)
        outcomes: list[Outcome] = []
        threads = [
            threading.Thread(target=lambda: outcomes.extend(made_by(session, jobs)), daemon=True)
            for _ in range(2)
        ]
        with session._lock:  # so that all is given before anything is told
            for thread in threads:
                thread.start()
        for thread in threads:
            thread.join(SECONDS)
            assert not thread.is_alive()
        session.close()
    assert len(outcomes) == 6
    assert [outcome.status for outcome in outcomes].count("done") >= 3
    assert len(list(Path("out").iterdir())) == 3


def test_what_a_lost_worker_has_finished_counts_and_stays(folder: Path, scheduler: str) -> None:
    make_pictures(Path("in"), 2)
    Path("in/001.png").rename(Path("in") / DEADLY)
    odd = {"ODD_WORKER": f"dies-once:{folder / 'out'}"}
    with working(scheduler, "--no-nanny", "--preload", "tests.helpers.odd_workers", count=2, **odd):
        result = batch("--json", *MODEL, "--cluster", scheduler, "in", "out")
    found = rows(result, "")
    assert {name: row["width"] for name, row in found.items()} == {"000.png": 40, DEADLY: 42}
    assert {row["status"] for row in found.values()} == {"done"}, result.stderr
    assert Path("seen").read_text() == f"000.png {Path('out/000.png').stat().st_ino}"


def test_a_file_that_kills_its_workers_fails_alone(folder: Path) -> None:
    make_pictures(Path("in"), 4)
    Path("in/001.png").rename(Path("in") / DEADLY)
    with (
        scheduling(folder, DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES="0") as scheduler,
        working(scheduler, "--preload", "tests.helpers.odd_workers", ODD_WORKER="dies"),
    ):
        result = batch("--json", *MODEL, "--cluster", scheduler, "in", "out")
    assert result.exit_code == 1
    statuses = {name: row["status"] for name, row in rows(result, "").items()}
    assert statuses == dict.fromkeys(["000.png", "002.png", "003.png"], "done") | {DEADLY: "failed"}
    assert f"{DEADLY}: it crashed 3 workers in a row" in result.stderr


def test_a_broken_device_hands_its_files_to_others(folder: Path, scheduler: str) -> None:
    make_pictures(Path("in"), 12)
    odd = ("--no-nanny", "--preload", "tests.helpers.odd_workers")
    with working(scheduler, *odd, ODD_WORKER="broken"):
        alone = batch("--json", *MODEL, "--cluster", scheduler, "in", "out")
        with working(scheduler, "--no-nanny"):
            both = batch("--json", "-v", *MODEL, "--cluster", scheduler, "in", "out")
    assert {row["status"] for row in rows(alone, "").values()} == {"failed"}
    assert "0 done, 0 skipped, 12 failed" in alone.stderr
    assert "not made, since no worker is left that works" in alone.stderr
    assert "12 done, 0 skipped, 0 failed" in both.stderr
    assert both.stderr.count("gets no more files") <= 1


def test_weights_travel(folder: Path, scheduler: str) -> None:
    """A model of the user's own, which workers do not have."""
    make_pictures(Path("in"), 3)
    model = tiny()
    batch("-m", model, "in", "here")
    Path("out").mkdir()
    with (
        working(scheduler, "--no-nanny"),
        Client(scheduler, set_as_default=False) as client,
        fleet_of(client, folder, model) as (fleet, tasks),
    ):
        Path(model).rename("elsewhere")
        outcomes = list(fleet.run(tasks))
    assert [outcome.status for outcome in outcomes] == ["done"] * 3
    assert contents(folder / "out") == contents(folder / "here")


def test_outputs_that_exist(folder: Path, scheduler: str) -> None:
    make_pictures(Path("in"), 3)
    Path("out").mkdir()
    Path("out/001.png").write_text("precious")
    command = [*MODEL, "--json", "--cluster", scheduler, "in", "out"]
    with working(scheduler, "--no-nanny"):
        skipped = batch("--skip-existing", *command)
        failed = batch(*command)
        Path("out/sub").mkdir()
        over = batch("--overwrite", "-v", *command)
    statuses = {name: row["status"] for name, row in rows(skipped, "").items()}
    assert statuses == {"000.png": "done", "001.png": "skipped", "002.png": "done"}
    assert skipped.exit_code == 0
    assert (failed.exit_code, failed.stderr.count("exists already; use --overwrite")) == (1, 3)
    assert (over.exit_code, "3 done" in over.stderr) == (0, True)
    assert Path("out/001.png").read_bytes()[:4] == b"\x89PNG"


def test_no_input_is_overwritten(folder: Path, scheduler: str) -> None:
    """Nor one of another group: the target of p/p/000.png is p/000.png."""
    make_pictures(Path("p"), 1)
    make_pictures(Path("p/p"), 1)
    before = Path("p/000.png").read_bytes()
    with working(scheduler, "--no-nanny"):
        result = batch("-r", "--overwrite", *MODEL, "--cluster", scheduler, "p", ".")
    assert "000.png: it is an input itself" in result.stderr
    assert Path("p/000.png").read_bytes() == before


def test_interrupt_cancels_what_is_left(folder: Path, scheduler: str) -> None:
    make_pictures(Path("in"), 40, size=150)
    with (
        working(scheduler, "--no-nanny"),
        Client(scheduler, set_as_default=False) as client,
    ):
        process = program("batch", *MODEL, "--cluster", scheduler, "in", "out")
        wait_for(lambda: list(Path("out").glob("*.png")) or process.poll() is not None)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=SECONDS)
        assert (process.returncode, "Traceback" in errors) == (130, False), errors
        assert errors.endswith("Interrupted.\n")
        wait_for(lambda: not any(client.run(known).values()))
        made = contents(folder / "out")
    assert 0 < len(made) < 40
    assert not leftovers(folder)
    for name in made:
        with Image.open(folder / "out" / name) as image:
            assert np.asarray(image).shape[0] == 300


def known(dask_worker: Any) -> int:
    """How many tasks a worker knows, those among them that it has not begun: between two it runs
    none. Dask calls it there."""
    return len(dask_worker.state.tasks)


def test_local(folder: Path) -> None:
    make_pictures(Path("in"), 5)
    here = batch(*MODEL, "--json", "in", "here")
    process = program("batch", *MODEL, "--json", "-v", "--cluster", "local", "in", "there")
    lines, errors = process.communicate(timeout=SECONDS)
    assert process.returncode == here.exit_code == 0
    assert contents(folder / "there") == contents(folder / "here")
    assert len(lines.splitlines()) == 5
    assert "5 done, 0 skipped, 0 failed;" in errors
    assert "Warning" not in errors
    assert "worker tcp://127.0.0.1:" in errors
    assert ": cpu: " in errors


def test_what_a_cluster_can_lack(
    folder: Path, scheduler: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_pictures(Path("in"), 1)

    def error(address: str, code: int = 1) -> str:
        result = batch(*MODEL, "--cluster", address, "in", "out")
        if not isinstance(result.exception, SystemExit):
            raise AssertionError(result) from result.exception
        assert result.exit_code == code
        assert code == 2 or len(result.stderr.splitlines()) == 1
        assert "Traceback" not in result.stderr
        said: str = result.stderr.splitlines()[-1]
        # A Client without a scheduler closes when it is collected, and Dask hangs if another one
        # starts at that moment.
        del result
        gc.collect()
        return said

    for address in ("nowhere", "tcp://host", "8786", "nonsense://127.0.0.1:1"):
        assert "expected local, or like tcp://host:8786" in error(address, 2)
    monkeypatch.setattr(cluster, "_CONNECT_SECONDS", 0.5)
    assert "Error: tcp://127.0.0.1:1: no scheduler answers" in error("tcp://127.0.0.1:1")
    assert "no scheduler answers" in error("tcp://no.such.host.invalid:8786")
    assert "not the address of a scheduler" in error("tls://127.0.0.1:1")
    monkeypatch.undo()
    monkeypatch.chdir(folder)

    def close(client: Client) -> None:
        was_closed = client.status == "closed"  # Dask closes again what is collected
        closed(client)
        if not was_closed:
            raise AssertionError

    closed = Client.close
    with monkeypatch.context() as patch:
        patch.setattr(Client, "close", close)
        assert f"has no workers; start some with `dask worker {scheduler}`" in error(scheduler)
    with working(scheduler, "--no-nanny"), monkeypatch.context() as patch:
        patch.setattr(Client, "close", close)
        patch.setattr(cluster, "__version__", "9.9")
        expected = f"has waifu2x {waifu2x.__version__}, not 9.9; install 9.9 there"
        assert expected in error(scheduler)


def test_workers_that_do_not_fit(
    folder: Path, scheduler: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_pictures(Path("in"), 2)
    Path("out").mkdir()
    nowhere = {"folders": (folder / "in", folder / "nowhere")}
    cuda = {"arguments": {"backend": "cuda"}}
    wrong: list[tuple[dict[str, Any], str]] = [
        (nowhere, "worker tcp://.*nowhere: it does not see this folder; give one that all"),
        (cuda, "worker tcp://.*: backend cuda needs"),
        ({}, r"worker tcp://.*: it has waifu2x .*, not 9\.9; install the same"),
    ]
    with (
        working(scheduler, "--no-nanny"),
        Client(scheduler, set_as_default=False) as client,
    ):
        for changes, message in wrong:
            if not changes:
                monkeypatch.setattr(cluster, "__version__", "9.9")
            with (
                pytest.raises(ClusterError, match=message),
                fleet_of(client, folder, **changes),
            ):
                pass
    assert not list(Path("out").iterdir())


def test_a_scheduler_that_goes_away(folder: Path) -> None:
    make_pictures(Path("in"), 40, size=100)
    Path("out").mkdir()
    with ExitStack() as stack:
        machine = ExitStack()
        stack.push(machine)
        address = machine.enter_context(scheduling(folder))
        stack.enter_context(working(address, "--no-nanny"))
        with (
            cluster.connected(address) as client,
            fleet_of(client, folder) as (fleet, tasks),
        ):
            outcomes = fleet.run(tasks)
            first: Outcome = next(outcomes)
            assert first.status == "done"
            machine.close()
            with pytest.raises(ClusterError, match="lost the scheduler; what is finished stays"):
                list(outcomes)


def test_groups_are_worth_about_a_second() -> None:
    """By the measured rate, but no more than twice the last: one lucky file says little."""
    rate = cluster.RateEstimator()
    budgets = []
    for _ in range(6):
        cost = max(rate.budget, 1000.0)
        rate.learn(cost, cost / 20_000.0)
        budgets.append(rate.budget)
    assert budgets == [2000, 4000, 8000, 16_000, 20_000, 20_000]
    rate.learn(20_000, 10.0)
    assert rate.budget == 2000
