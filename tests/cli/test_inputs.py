"""Which files a command line names, what their results are called, and the commands' helps."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import click
import numpy as np
import pytest
from click.testing import CliRunner, Result
from PIL import Image

import waifu2x
from tests.cli.test_cli import load, tiny
from waifu2x.cli import COMMANDS, cli
from waifu2x.cli.options.option import Option
from waifu2x.flows import naming

Run = Callable[..., Result]
PIXELS = np.random.default_rng(0).integers(0, 256, (8, 12, 3), np.uint8)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Calls the command line in a folder with a.png, b.png and c.jpg, all of 12 x 8."""
    monkeypatch.chdir(tmp_path)
    for name in ("a.png", "b.png", "c.jpg"):
        Image.fromarray(PIXELS).save(name)
    model = tiny()

    def call(*arguments: str, stdin: bytes | None = None) -> Result:
        return CliRunner().invoke(cli, ["-m", model, *arguments], input=stdin)

    return call


@pytest.mark.parametrize(
    ("arguments", "made"),
    [
        (["a.png"], "a-2x.png"),
        (["c.jpg"], "c-2x.jpg"),
        (["-f", "webp", "c.jpg"], "c-2x.webp"),
        (["-s", "4/3", "a.png"], "a-1.33x.png"),
        (["--width", "30", "a.png"], "a-2.5x.png"),
        (["a.png", "x.bmp"], "x.bmp"),
        (["-i", "a.png", "-o", "x.png"], "x.png"),
        (["-o", "x.png", "a.png"], "x.png"),
        (["--output=x.png", "--input=a.png"], "x.png"),
        (["-i", "a.png"], "a-2x.png"),
        (["a.png", "there"], "there/a.png"),
        (["a.png", "new/deep/"], "new/deep/a.png"),
        (["-o", ".", "a.png"], "a-2x.png"),
        (["--name", "{stem}_{scale}x_{width}x{height}_{model}_{noise}{ext}", "a.png"],
         "a_2x_24x16_tiny_auto.png"),
        (["--name", "{stem}.{scale}.webp", "a.png"], "a.2.webp"),
        (["--name", "{{{stem}}}{ext}", "-o", "there", "a.png"], "there/{a}.png"),
    ],
)  # fmt: skip
def test_where_the_result_of_a_picture_goes(run: Run, arguments: list[str], made: str) -> None:
    Path("there").mkdir()
    before = set(Path().rglob("*.*"))
    result = run(*arguments)
    assert (result.exit_code, result.output) == (0, "")
    new = {path.as_posix() for path in Path().rglob("*") if path.is_file()} - {
        path.as_posix() for path in before
    }
    assert new == {made}


def test_without_a_command_upscale_is_meant(run: Run) -> None:
    assert run("a.png", "x.png").exit_code == 0
    model = tiny()
    for arguments in (["a.png", "-m", model, "y.png"], ["upscale", "-m", model, "a.png", "z.png"]):
        assert CliRunner().invoke(cli, arguments).exit_code == 0
    assert Path("x.png").read_bytes() == Path("y.png").read_bytes() == Path("z.png").read_bytes()
    assert "upscale" in CliRunner().invoke(cli, ["a.png", "--help"]).output.partition("\n")[0]
    assert run("-", stdin=Path("a.png").read_bytes()).stdout_bytes[1:4] == b"PNG"


def test_several_pictures_by_one_engine(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each keeps its format; one that fails does not stop the others."""
    opened = []
    engine = waifu2x.Engine.__init__

    def opens(self: waifu2x.Engine, *arguments: object, **named: object) -> None:
        opened.append(1)
        engine(self, *arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr("waifu2x.backends.engine.engine.Engine.__init__", opens)
    Path("bad.png").write_text("hello")
    result = run("--json", "a.png", "bad.png", "-i", "c.jpg", "missing.png", "b.png", "-o", "out")
    assert result.exit_code == 1
    assert len(opened) == 1
    rows = {row["input"]: row["status"] for row in map(json.loads, result.stdout.splitlines())}
    assert rows == {
        "a.png": "done",
        "b.png": "done",
        "c.jpg": "done",
        "bad.png": "failed",
        "missing.png": "failed",
    }
    made = {path.name: load(path).format for path in Path("out").iterdir()}
    assert made == {"a.png": "PNG", "b.png": "PNG", "c.jpg": "JPEG"}
    expected = waifu2x.upscale(PIXELS, model=tiny())
    np.testing.assert_array_equal(np.asarray(load("out/b.png")), expected)


def test_existing_outputs_of_several(run: Run) -> None:
    Path("out").mkdir()
    Path("out/a.png").write_bytes(b"precious")
    result = run("a.png", "b.png", "-o", "out")
    assert result.exit_code == 1
    assert "out/a.png: it exists already" in result.stderr
    assert run("--skip-existing", "a.png", "b.png", "-o", "out").exit_code == 0
    assert Path("out/a.png").read_bytes() == b"precious"
    assert run("--overwrite", "a.png", "b.png", "-o", "out").exit_code == 0
    assert load("out/a.png").size == (24, 16)
    # Beside the inputs names differ from theirs; a template that gives theirs back is refused.
    assert run("a.png", "b.png", "-o", ".").exit_code == 0
    assert load("b-2x.png").size == (24, 16)
    own = run("--overwrite", "--name", "{stem}{ext}", "a.png", "b.png", "-o", ".")
    assert own.exit_code == 1
    assert own.stderr.count("is an input itself") >= 2
    np.testing.assert_array_equal(np.asarray(load("a.png")), PIXELS)


def test_names_of_a_batch(run: Run) -> None:
    for name in ("in/x.png", "in/sub/y.png", "in/sub/y.jpg"):
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(PIXELS).save(name)
    command = ["batch", "-r", "-m", tiny(), "-s", "1.5", "-f", "webp", "in", "out"]
    result = CliRunner().invoke(cli, [*command, "--name", "{stem}_{scale}x_{width}{ext}"])
    assert result.exit_code == 0, result.output
    made = sorted(path.relative_to("out").as_posix() for path in Path("out").rglob("*.*"))
    assert made == ["sub/y.jpg_1.5x_18.webp", "sub/y.png_1.5x_18.webp", "x_1.5x_18.webp"]


@pytest.mark.parametrize(
    "template",
    [
        "{stem.__class__}{ext}",
        "{stem[0]}{ext}",
        "{stem!r}{ext}",
        "{stem:>900000000}{ext}",
        "{0}{ext}",
        "{}{ext}",
        "{secret}{ext}",
        "{stem",
        "stem}",
        "../{stem}{ext}",
        "a/{stem}{ext}",
        "a\\{stem}{ext}",
        "{stem}\n{ext}",
        "{stem}\x1b[2J{ext}",
        "{stem}\0{ext}",
        "",
        "..",
        ".",
    ],
)
def test_hostile_templates(template: str) -> None:
    with pytest.raises(ValueError, match=r"\S"):
        naming.check(template)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["a.png", "sub/a.png", "-o", "out"], "a.png and sub/a.png would both become out/a.png"),
        (["a.png", "sub/A.PNG", "-o", "out"], "a.png and sub/A.PNG would both become"),
        (["a.png", "b.png", "a.png", "-o", "out"], "a.png: it is named twice."),
        (["a.png", "b.png", "-o", "out", "--name", "x{ext}"], "without {stem} all results have"),
        (["a.png", "c.jpg", "-o", "c.jpg"], "c.jpg: it is a file; several inputs need a folder."),
        (["a.png", "-o", "x.png", "--name", "{stem}{ext}"], "x.png: --name needs a folder"),
        (["a.png", "-", "-o", "out"], "- is standard input; give it alone."),
    ],
)
def test_names_that_clash_are_said_before_any_work(
    run: Run, arguments: list[str], message: str
) -> None:
    Path("sub").mkdir()
    for name in ("a.png", "A.PNG"):
        Image.fromarray(PIXELS).save(f"sub/{name}")
    result = run(*arguments)
    assert result.exit_code == 2
    assert message in result.stderr
    assert not Path("out").exists()


def commands() -> list[tuple[str, ...]]:
    """Yields the words of every command, nested ones included."""
    found: list[tuple[str, ...]] = [()]
    context = click.Context(cli)
    for name in COMMANDS:
        command = cli.get_command(context, name)
        found.append((name,))
        if isinstance(command, click.Group):
            found += [(name, inner) for inner in command.commands]
    return found


@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_helps_fit_a_page(words: tuple[str, ...]) -> None:
    result = CliRunner().invoke(cli, [*words, "--help"], terminal_width=100)
    lines = result.output.splitlines()
    assert result.exit_code == 0
    assert len(lines) <= 60
    assert max(map(len, lines)) <= 100


@pytest.mark.parametrize("words", [(), ("upscale",)], ids=["all", "upscale"])
def test_the_first_helps_fit_eighty_columns(words: tuple[str, ...]) -> None:
    text = CliRunner().invoke(cli, [*words, "--help"], terminal_width=80).output
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize("command", ["upscale", "batch"])
def test_helps_begin_with_noise_scale_and_model(command: str) -> None:
    text = CliRunner().invoke(cli, [command, "--help"], terminal_width=100).output
    options = [line.strip() for line in text.splitlines() if line.startswith("  -")]
    assert [line.split(",")[0] for line in options[:3]] == ["-n", "-s", "-m"]
    headings = [line for line in text.splitlines() if line.endswith(":") and line[0] != " "]
    assert headings == [
        "Options:",
        "Input and output:",
        "Size (instead of -s):",
        "Result file:",
        "Model and device:",
        "Messages:",
    ]
    # An example before all options.
    assert text.index("waifu2x ", text.index("\n")) < text.index("Options:")
    shown = text.replace("\n", " ")
    context = click.Context(cli)
    found = cli.get_command(context, command)
    assert found is not None
    for parameter in found.params:
        if isinstance(parameter, Option) and parameter.setting.is_of_films:
            continue  # in the help of `video`
        if isinstance(parameter, click.Option):
            assert all(name in shown for name in parameter.opts)


def test_who_asks_first_does_not_decide_how_help_is_called() -> None:
    """click keeps a command's option for help; a bare context knows it by --help alone."""
    for name in cli.list_commands(click.Context(cli)):
        command = cli.get_command(click.Context(cli), name)
        assert command is not None
        command.get_help_option(click.Context(command))
        assert CliRunner().invoke(cli, [name, "-h"]).output.startswith("Usage:"), name
