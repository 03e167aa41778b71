"""Folders at URLs: in the memory of this process, and in S3 as a local server speaks it."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from click.testing import CliRunner, Result
from PIL import Image

pytest.importorskip("upath", reason="URLs need universal-pathlib: extra [test]")

from tests.cli.test_cli import tiny
from waifu2x.cli import cli
from waifu2x.system import stores
from waifu2x.system.files import writing


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Returns the working folder, with an empty memory store."""
    monkeypatch.chdir(tmp_path)
    from fsspec.implementations.memory import MemoryFileSystem

    monkeypatch.setattr(MemoryFileSystem, "store", {})
    monkeypatch.setattr(MemoryFileSystem, "pseudo_dirs", [""])
    return tmp_path


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Returns a client of an S3 server in this process, with the buckets pictures and enlarged."""
    s3fs = pytest.importorskip("s3fs", reason="S3 needs s3fs: extra [dev]")
    moto = pytest.importorskip("moto.server", reason="a server of S3 is moto: extra [dev]")
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        patch.setenv("AWS_ACCESS_KEY_ID", "key")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        client = s3fs.S3FileSystem()
        for bucket in ("pictures", "enlarged"):
            client.mkdir(bucket)
        yield client
        server.stop()


def batch(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["batch", *arguments])


def rows(result: Result) -> dict[str, dict[str, Any]]:
    found = (json.loads(line) for line in result.stdout.splitlines())
    return {row["input"]: row for row in found}


def summary(result: Result) -> str:
    """Returns the summary of a batch with one failure, without the time it took."""
    return result.stderr.splitlines()[-2].rpartition(";")[0]


def make_tree(folder: Path) -> None:
    """Pictures whose names are odd, a bad one, an archive, and what is to be passed over."""
    rng = np.random.default_rng(0)
    names = ["a.png", "b.png", "b.webp", "sub/ü #1%20?.png", ".hidden.png", "sub/.x/c.png"]
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = rng.integers(0, 256, (8, 9, 3), np.uint8)
        Image.fromarray(pixels).save(path, lossless=True)
    (folder / "bad.png").write_text("hello")
    (folder / "notes.txt").write_text("hello")
    with zipfile.ZipFile(folder / "book.cbz", "w") as book:
        book.write(folder / "a.png", "page.png")


def uploaded(folder: Path, url: str) -> None:
    cast(Any, stores.located(url)).fs.put(f"{folder}/", url, recursive=True)


def contents(place: str | Path) -> dict[str, bytes]:
    """Returns the contents of all files below a folder or URL, by their names."""
    if isinstance(place, Path):
        files = (path for path in place.rglob("*") if path.is_file())
        return {path.relative_to(place).as_posix(): path.read_bytes() for path in files}
    below = stores.located(place)
    return {name: stores.read_bytes(below / name) for name in stores.listed(below, True)}


def check_a_folder(source: str, target: str) -> None:
    """Checks that a folder at a URL gives what one at paths does, and that other files are left
    alone."""
    make_tree(Path("in"))
    uploaded(Path("in"), source)
    model = ["-r", "--json", "-m", tiny()]
    here = batch(*model, "in", "out")
    there = batch(*model, source, target)
    assert there.exit_code == here.exit_code == 1, there.stderr
    assert contents(target) == contents(Path("out"))
    assert "sub/ü #1%20?.png" in contents(target)
    assert {row["output"] for row in rows(there).values()} == {
        row["output"].replace("out/", f"{target}/", 1) for row in rows(here).values()
    }
    assert f"failed   {source}/bad.png: not a picture" in there.stderr
    assert summary(there) == summary(here)

    down = batch(*model, source, "down")
    assert down.exit_code == 1
    assert contents(Path("down")) == contents(Path("out"))

    again = batch(*model, source, target)
    assert "exists already; use --overwrite or --skip-existing" in again.stderr
    assert "0 done, 0 skipped, 6 failed" in again.stderr
    skipped = batch("--skip-existing", *model, source, target)
    assert "0 done, 5 skipped, 1 failed" in skipped.stderr

    precious = stores.located(target) / "a.png"
    precious.write_bytes(b"precious")
    assert batch("--overwrite", *model, source, target).exit_code == 1
    assert stores.read_bytes(precious) == contents(Path("out"))["a.png"]


def write(
    place: Path, content: bytes, replace: bool | None, then: Callable[[], object] = lambda: None
) -> None:
    with writing(place, replace=replace) as file:
        file.write(content)
        then()


def interrupt() -> None:
    raise KeyboardInterrupt


def check_uploads(target: str) -> None:
    """Checks that a failure leaves nothing, and that nothing is replaced unasked."""
    place = stores.located(target) / "x.png"
    with pytest.raises(KeyboardInterrupt):
        write(place, b"half", True, interrupt)
    assert stores.listed(place.parent, True) == {}
    with pytest.raises(FileExistsError):
        write(place, b"late", False, lambda: place.write_bytes(b"precious"))
    write(place, b"late", None)
    assert stores.read_bytes(place) == b"precious"
    write(place, b"new", True)
    assert stores.listed(place.parent, True) == {"x.png": 3}


def test_a_folder_in_memory(folder: Path) -> None:
    check_a_folder("memory://pictures/in", "memory://pictures/out")


def test_films_are_not_read_from_urls(folder: Path) -> None:
    Path("in").mkdir()
    Image.new("RGB", (3, 3)).save("in/a.png")
    Path("in/b.mkv").write_bytes(b"a film")
    uploaded(Path("in"), "memory://films/in")
    result = batch("-m", tiny(), "memory://films/in", "memory://films/out")
    assert result.exit_code == 1
    assert (
        "memory://films/in/b.mkv: films are neither read from URLs nor written there; copy it, and"
        " use folders of this machine"
    ) in result.stderr
    assert [*contents("memory://films/out")] == ["a.png"]


def test_uploads_in_memory(folder: Path) -> None:
    check_uploads("memory://uploads")


def test_files_at_urls_are_paths(folder: Path) -> None:
    assert stores.located(f"file://{folder}/a b.png") == folder / "a b.png"
    assert stores.located("s3/a.png") == Path("s3/a.png")


@pytest.mark.parametrize(
    ("arguments", "message", "code"),
    [
        (["nonsense://a", "out"], "nonsense://a: no such kind of URL: nonsense", 1),
        (["memory://none", "out"], "memory://none: no such folder", 2),
        (["in", "memory://out", "--copy-times"], "--copy-times is for paths", 2),
        (["memory://in", "memory://in/"], "OUTPUT_DIR must be another folder", 2),
        (["in", "memory://"], "names no bucket; give one, as in memory://bucket/folder", 1),
        (["in", "memory:///"], "names no bucket", 1),
        (["ftp://127.0.0.1:1/in", "out"], "ftp://127.0.0.1:1/in: cannot reach it: ", 1),
    ],
)
def test_wrong_urls(folder: Path, arguments: list[str], message: str, code: int) -> None:
    make_tree(Path("in"))
    uploaded(Path("in"), "memory://in")
    result = batch(*arguments)
    assert result.exit_code == code
    assert result.stderr.splitlines()[-1].startswith("Error: ")
    assert message in result.stderr.splitlines()[-1]
    assert contents("memory://in") == contents(Path("in"))


def test_only_what_is_below_a_url_is_in_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_tree(Path("in"))
    uploaded(Path("in"), "memory://site/in")
    inside = stores.located("memory://site/in")
    found = stores.listed(inside, True)
    other = {"/site/index/a.png": {"size": 1}, "/site/inside.png": {"size": 1}}
    find = type(inside.fs).find  # type: ignore[attr-defined]
    monkeypatch.setattr(
        type(inside.fs),  # type: ignore[attr-defined]
        "find",
        lambda *rest, **named: find(*rest, **named) | other,
    )
    assert len(found) > 5
    assert stores.listed(inside, True) == found


def test_what_stores_say_is_one_line(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*rest: Any, **named: Any) -> Any:
        raise RuntimeError("no credentials:\n  look them up")

    make_tree(Path("in"))
    uploaded(Path("in"), "memory://in")
    monkeypatch.setattr(stores, "_OBJECTS", ("s3", "memory"))
    for method, message in (
        ("isdir", "memory://in: cannot reach it"),
        ("find", "memory://in: cannot list it"),
        ("cat_file", "memory://in/a.png: cannot read"),
        ("get_file", "memory://in/book.cbz"),
        ("put_file", "memory://out/a.png: cannot write"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(f"fsspec.implementations.memory.MemoryFileSystem.{method}", refuse)
            result = batch("--overwrite", "-m", tiny(), "memory://in", "memory://out")
        assert result.exit_code == 1
        assert f"{message}: no credentials: look them up\n" in result.stderr
    monkeypatch.setattr(stores, "_OBJECTS", ("s3", "gs"))
    result = batch("in", "memory://other")
    assert "memory://other: no outputs to memory, where half a file could be seen" in result.stderr
    assert contents("memory://other") == {}


def test_without_the_packages(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("upath", "dask", "distributed"):
        monkeypatch.setitem(__import__("sys").modules, name, None)
    Path("in").mkdir()
    Image.new("RGB", (3, 3)).save("in/a.png")
    install = "more packages; run `pip install 'waifu2x-kernels[cluster]'`\n"
    result = batch("s3://a/b", "out")
    assert (result.exit_code, result.stderr) == (1, f"Error: s3://a/b: URLs need {install}")
    result = batch("--cluster", "local", "in", "out")
    assert (result.exit_code, result.stderr) == (1, f"Error: --cluster needs {install}")


@pytest.mark.matrix
def test_a_folder_in_s3(folder: Path, s3: Any) -> None:
    check_a_folder("s3://pictures/in", "s3://enlarged/out")


@pytest.mark.matrix
def test_uploads_to_s3(folder: Path, s3: Any) -> None:
    check_uploads("s3://enlarged/uploads")
    # In parts, as large files go up: the last request is what makes the object.
    large = stores.located("s3://enlarged/large/x.png")
    content = bytes(s3.default_block_size * 2 + 1)
    with pytest.raises(FileExistsError):
        write(large, content, False, lambda: large.write_bytes(b"precious"))
    assert stores.read_bytes(large) == b"precious"
    write(large, content, True)
    assert stores.read_bytes(large) == content


@pytest.mark.matrix
def test_s3_by_a_cluster(folder: Path, s3: Any, tmp_path: Path) -> None:
    pytest.importorskip("distributed", reason="--cluster needs dask and distributed: extra [dev]")
    from tests.flows.test_cluster import scheduling, working

    make_tree(Path("in"))
    uploaded(Path("in"), "s3://pictures/clustered")
    model = ["-r", "-m", tiny()]
    here = batch(*model, "in", "out")
    with ExitStack() as stack:
        scheduler = stack.enter_context(scheduling(tmp_path))
        stack.enter_context(working(scheduler, "--no-nanny", count=2))
        command = [*model, "--cluster", scheduler, "s3://pictures/clustered", "s3://enlarged/there"]
        there, again, skipped, over = (
            batch(*command),
            batch(*command),
            batch("--skip-existing", *command),
            batch("--overwrite", *command),
        )
    assert there.exit_code == here.exit_code == over.exit_code == 1
    assert contents("s3://enlarged/there") == contents(Path("out"))
    assert summary(there) == summary(here)
    assert "0 done, 0 skipped, 6 failed" in again.stderr
    assert "0 done, 5 skipped, 1 failed" in skipped.stderr
    assert "5 done, 0 skipped, 1 failed" in over.stderr


@pytest.mark.matrix
def test_a_bucket_that_is_not_there(folder: Path, s3: Any) -> None:
    make_tree(Path("in"))
    result = batch("in", "s3://no-such-bucket/out")
    assert result.stderr == "Error: s3://no-such-bucket/out: no such bucket; make it first\n"
