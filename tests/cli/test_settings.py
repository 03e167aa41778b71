"""Settings: which of several counts, what a mistake says, and files that are none."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import platformdirs
import pytest
from click.testing import CliRunner, Result
from PIL import Image

from tests.cli.test_cli import tiny
from waifu2x.cli import cli
from waifu2x.cli.options import settings

Run = Callable[..., Result]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Calls the command line in a folder with a.png of 12 x 8, with `config.toml` in force."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WAIFU2X_CONFIG", "config.toml")
    for name in os.environ:
        if name.startswith("WAIFU2X_") and name not in settings.OTHER_VARIABLES:
            monkeypatch.delenv(name)
    pixels = np.random.default_rng(0).integers(0, 256, (8, 12, 3), np.uint8)
    Image.fromarray(pixels).save("a.png")
    tiny()
    write('model = "./tiny"')

    def call(*arguments: str) -> Result:
        return CliRunner().invoke(cli, arguments)

    return call


def write(*lines: str) -> None:
    Path("config.toml").write_text("\n".join(lines))


def size_of(result: Result) -> tuple[int, int]:
    assert result.exit_code == 0, result.output
    row = json.loads(result.stdout)
    return row["width"], row["height"]


def test_command_line_before_variables_before_the_file(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def made(*arguments: str) -> tuple[int, int]:
        return size_of(run("upscale", "--json", "--overwrite", *arguments, "a.png", "b.png"))

    assert made("-m", "./tiny") == (24, 16)
    write('model = "./tiny"', "scale = 1.5")
    assert made() == (18, 12)
    write('model = "./tiny"', "scale = 1.5", "[upscale]", 'scale = "5/4"')
    assert made() == (15, 10)
    monkeypatch.setenv("WAIFU2X_SCALE", "3")
    assert made() == (36, 24)
    assert made("-s", "2") == (24, 16)
    monkeypatch.setenv("WAIFU2X_SCALE", "")  # as good as not set
    assert made() == (15, 10)


@pytest.mark.parametrize(
    ("lines", "arguments", "size"),
    [
        (["width = 30"], ["-s", "2"], (24, 16)),
        (["width = 30", "height = 30", 'fit = "exact"'], [], (30, 30)),
        (["width = 30", "height = 30", 'fit = "exact"'], ["--fit", "inside"], (30, 20)),
        (["width = 30", "height = 30", 'fit = "exact"'], ["--longer-side", "24"], (24, 16)),
        (["width = 30", "height = 30", 'fit = "cover"'], ["--width", "18"], (18, 12)),
        (["width = 30", "[upscale]", "scale = 3"], [], (36, 24)),
    ],
)
def test_a_size_makes_weaker_ones_void(
    run: Run, lines: list[str], arguments: list[str], size: tuple[int, int]
) -> None:
    write('model = "./tiny"', *lines)
    assert size_of(run("upscale", "--json", *arguments, "a.png", "b.png")) == size


def test_a_variable_makes_the_sizes_of_the_file_void(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    write('model = "./tiny"', "width = 30")
    monkeypatch.setenv("WAIFU2X_LONGER_SIDE", "36")
    assert size_of(run("upscale", "--json", "a.png", "b.png")) == (36, 24)


@pytest.mark.parametrize(
    ("lines", "arguments", "made", "said"),
    [
        ([], ["--best-for", "speed"], "anime4k-l auto", ""),
        (['best-for = "speed"'], [], "anime4k-l auto", ""),
        (['best-for = "speed"', "noise = 0"], [], "anime4k-l 0", ""),
        (['model = "./tiny"', "noise = 0"], ["--best-for", "speed"], "anime4k-l auto", ""),
        (['best-for = "speed"'], ["-m", "./tiny"], "tiny auto", ""),
        (
            [],
            ["--best-for", "speed", "-m", "./tiny"],
            "tiny auto",
            "best for speed: has no effect, since the model ./tiny is given",
        ),
    ],
)
def test_a_model_wins_over_a_use_and_a_stronger_use_over_a_model(
    run: Run, lines: list[str], arguments: list[str], made: str, said: str
) -> None:
    write(*lines)
    result = run("upscale", *arguments, "--name", "{model} {noise}{ext}", "a.png", "-o", "made/")
    assert result.exit_code == 0, result.output
    (path,) = Path("made").iterdir()
    assert path.stem == made
    assert said in result.stderr


def test_tables_are_for_one_command(run: Run) -> None:
    Path("in").mkdir()
    Path("a.png").rename("in/a.png")
    write('model = "./tiny"', "[batch]", "scale = 3", "recursive = true")
    assert run("batch", "in", "out").exit_code == 0
    with Image.open("out/a.png") as image:
        assert image.size == (36, 24)
    assert size_of(run("upscale", "--json", "in/a.png", "b.png")) == (24, 16)


def test_what_a_format_cannot_follow_gives_way(run: Run) -> None:
    """As an option it would be an error."""
    write(
        'model = "./tiny"', "quality = 30", 'format = "jpg"', 'compression = "best"', "depth = 16"
    )
    for name in ("b.png", "b.jpg", "b.webp"):
        assert run("upscale", "a.png", name).exit_code == 0
        with Image.open(name) as image:
            assert image.format is not None
            assert image.format.lower() in (name[2:], "jpeg" if name == "b.jpg" else "")
    # The quality holds where there is one.
    write('model = "./tiny"')
    assert run("upscale", "a.png", "plain.jpg").exit_code == 0
    assert Path("b.jpg").stat().st_size < Path("plain.jpg").stat().st_size
    assert run("upscale", "--quality", "30", "a.png", "c.png").exit_code == 2
    assert run("upscale", "--format", "jpg", "a.png", "c.png").exit_code == 2


def test_a_name_for_folders_leaves_a_named_output_alone(run: Run) -> None:
    write('model = "./tiny"', 'name = "{stem}_big.{ext}"')
    assert run("upscale", "a.png", "b.png").exit_code == 0
    assert Path("b.png").exists()
    assert run("upscale", "a.png").exit_code == 0
    assert len(list(Path().glob("a_big*"))) == 1


def test_how_much_is_said(run: Run) -> None:
    """A weaker setting is void before it has changed anything."""
    write('model = "./tiny"', "quiet = true")
    assert run("upscale", "a.png", "b.png").stderr == ""
    assert "networks: 2x" in run("upscale", "-v", "a.png", "c.png").stderr
    write('model = "./tiny"', "verbose = true")
    assert "networks: 2x" in run("upscale", "a.png", "d.png").stderr
    assert run("upscale", "--quiet", "a.png", "e.png").stderr == ""
    assert run("upscale", "--no-verbose", "a.png", "f.png").stderr == ""


def test_flags_are_turned_off_again(run: Run) -> None:
    write('model = "./tiny"', "skip-existing = true")
    Path("b.png").write_bytes(b"precious")
    assert run("upscale", "a.png", "b.png").exit_code == 0
    assert run("upscale", "--no-skip-existing", "a.png", "b.png").exit_code == 1
    assert Path("b.png").read_bytes() == b"precious"
    assert run("upscale", "--overwrite", "a.png", "b.png").exit_code == 0
    assert Path("b.png").read_bytes() != b"precious"


def test_flags_by_variables(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("b.png").write_bytes(b"precious")
    monkeypatch.setenv("WAIFU2X_OVERWRITE", "1")
    assert run("upscale", "a.png", "b.png").exit_code == 1
    monkeypatch.setenv("WAIFU2X_SKIP_EXISTING", "yes")
    assert run("upscale", "a.png", "b.png").exit_code == 0
    assert Path("b.png").read_bytes() == b"precious"
    monkeypatch.setenv("WAIFU2X_SKIP_EXISTING", "perhaps")
    result = run("upscale", "a.png", "b.png")
    assert result.exit_code == 2
    assert result.stderr == "Error: WAIFU2X_SKIP_EXISTING: expected true or false, not 'perhaps'\n"


MISTAKES = {
    "modle = 'x'": "there is no setting modle; did you mean model?",
    "[upscale]\nscal = 2": "there is no setting upscale.scal; did you mean scale?",
    "[upscaling]\nscale = 2": "there is no setting upscaling; did you mean upscale?",
    "upscale = 2": "upscale: expected a table, [upscale]",
    "qwertz = 2": "there is no setting qwertz; see `waifu2x config`",
    "longer_side = 2": "there is no setting longer_side; did you mean longer-side?",
    "overwrite = true": "overwrite cannot be set here: files are replaced only where the command"
    " line itself says so",
    "scale = true": "scale: expected a string or a number, but got true",
    "strip = 1": "strip: expected true or false, but got 1",
    "strip = 'yes'": "strip: expected true or false, but got 'yes'",
    "device = [0, 1]": "device: expected a string or a number, but got a list",
    "scale = 1979-05-27": "scale: expected a string or a number, but got a date or time",
    "[upscale.scale]\na = 1": "upscale.scale: expected a string or a number, but got a table",
    "scale = 'large'": "scale: 'large': expected a number above 0",
    "[upscale]\nscale = inf": "upscale.scale: 'inf': expected a number above 0",
    "width = 0": "width: expected a whole number of pixels from 1",
    "compression = 'bets'": "compression: ",
    "scale = ": "not a TOML file: Invalid value (at",
    "a" + ".a" * 4000 + " = 1": "there is no setting a",
    "x = " + "[" * 9000: "not a TOML file: its values are nested too deep",
    "x = " + "1" * 5000: "not a TOML file: Exceeds the limit",
    "#" * 20000: "too large for settings: more than 16 KiB",
    '"\\u001b[31m" = 1': "there is no setting \\x1b[31m",
}


@pytest.mark.parametrize("text", MISTAKES, ids=lambda text: text[:20])
def test_mistakes_are_told_in_a_sentence(run: Run, text: str) -> None:
    write(text)
    result = run("upscale", "a.png", "b.png")
    assert result.exit_code == 2
    assert result.stderr.count("\n") == 1
    assert result.stderr.startswith("Error: config.toml: ")
    assert MISTAKES[text] in result.stderr
    assert not Path("b.png").exists()


def test_files_that_are_none(run: Run, tmp_path: Path) -> None:
    os.mkfifo("pipe")  # reading it would never end
    Path("latin").write_bytes(b"model = '\xe9'")
    Path("folder").mkdir()
    for name, message in {
        "none": "cannot read the settings: no such file or directory",
        "folder": "cannot read the settings: is a directory",
        "pipe": "cannot read the settings: not a regular file",
        "/dev/zero": "cannot read the settings: not a regular file",
        "latin": "not a TOML file: its text is not UTF-8",
        "a\0b": "cannot read the settings: embedded null byte",
    }.items():
        result = run("upscale", "--config", name, "a.png", "b.png")
        assert result.exit_code == 2
        assert message in result.stderr
        assert result.stderr.count("\n") == 1


def test_the_place_of_the_platform(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WAIFU2X_CONFIG")
    monkeypatch.setattr(platformdirs, "user_config_path", lambda name, *_: tmp_path / "user" / name)
    arguments = ["upscale", "--json", "-m", "./tiny", "a.png"]
    assert size_of(run(*arguments, "b.png")) == (24, 16)
    folder = tmp_path / "user" / "waifu2x-kernels"
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text("scale = 3")
    assert size_of(run(*arguments, "c.png")) == (36, 24)
    assert size_of(run(*arguments, "d.png", "--config", "")) == (24, 16)
    assert size_of(run(*arguments, "e.png", "--config", "config.toml")) == (24, 16)
    # A place that cannot be looked at stops nothing: it may be in the home of another user.
    (folder / "config.toml").unlink()
    (folder / "config.toml").symlink_to("/proc/1/mem" if os.geteuid() else "/none/x")
    assert run(*arguments, "f.png").exit_code == 0


def test_config_shows_each_value_and_its_origin(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    write('model = "./tiny"', "width = 30", "[batch]", "strip = true", "scale = 3")
    monkeypatch.setenv("WAIFU2X_NOISE", "2")
    lines = [line.split() for line in run("config").stdout.splitlines()]
    assert lines[0] == ["settings", "file:", "config.toml"]
    assert ["model", "./tiny", "config.toml"] in lines
    assert ["width", "30", "config.toml"] in lines
    assert ["noise", "2", "WAIFU2X_NOISE"] in lines
    assert ["strip", "false", "default"] in lines
    document = json.loads(run("config", "batch", "--json").stdout)
    rows = {row["setting"]: (row["value"], row["from"]) for row in document["batch"]}
    assert rows["strip"] == (True, "config.toml")
    assert rows["scale"] == ("3", "config.toml")
    assert rows["width"] == (None, "default")  # void, by the table's scale
    assert rows["recursive"] == (False, "default")
    assert not settings.ONE_RUN.keys() & rows.keys()


def test_config_checks_every_table_and_variable(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    write("[batch]", "jobs = 7")
    assert run("upscale", "-m", "./tiny", "a.png", "b.png").exit_code == 0
    result = run("config")
    assert result.exit_code == 2
    assert "config.toml: batch.jobs: '7': expected auto, or three" in result.stderr
    write()
    monkeypatch.setenv("WAIFU2X_MODLE", "x")
    monkeypatch.setenv("WAIFU2X_OVERWRITE", "1")
    told = run("config").stderr.splitlines()
    assert "WAIFU2X_MODLE: it has no effect; did you mean WAIFU2X_MODEL?" in told
    assert any(
        line.startswith("WAIFU2X_OVERWRITE: it has no effect: files are rep") for line in told
    )


def test_no_variable_of_an_option_is_one_of_the_program() -> None:
    variables = set(map(settings.variable_of, settings.KEYS))
    assert not variables & settings.OTHER_VARIABLES.keys()


def test_a_start_without_a_file_loads_no_parser(tmp_path: Path) -> None:
    code = """
import sys
from waifu2x.cli import cli
try:
    cli.main(["upscale", "none.png", "b.png"], standalone_mode=False)
except Exception as error:
    assert "none.png" in str(error), error
assert "tomllib" not in sys.modules
"""
    environment = os.environ | {"XDG_CONFIG_HOME": str(tmp_path)}
    environment.pop("WAIFU2X_CONFIG", None)
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)


def test_errors_name_the_settings_that_they_speak_of(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    write('model = "./tiny"', "strip = true", "[upscale]", "noise = 2")
    result = run("upscale", "a.png", "b.png")
    assert result.exit_code == 1
    assert result.stderr.endswith(" (noise = 2 comes from config.toml)\n")
    write('model = "./none"')
    assert run("upscale", "a.png", "b.png").stderr.endswith(
        " (model = ./none comes from config.toml)\n"
    )
    write('model = "./tiny"')
    monkeypatch.setenv("WAIFU2X_WIDTH", "20")
    monkeypatch.setenv("WAIFU2X_LONGER_SIDE", "30")
    assert run("upscale", "a.png", "b.png").stderr == (
        "Error: Give one size: --width and --height or --longer-side (width = 20 comes from"
        " WAIFU2X_WIDTH; longer-side = 30 comes from WAIFU2X_LONGER_SIDE)\n"
    )
    # An option of the command line itself has no origin to name.
    monkeypatch.delenv("WAIFU2X_WIDTH")
    assert "comes from" not in run("upscale", "-m", "none", "a.png", "b.png").stderr
