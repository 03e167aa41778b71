"""Completion, by the shells themselves: what the program gets after a TAB."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from waifu2x.cli import cli, completions
from waifu2x.networks import model_set

pytest.importorskip("pexpect")
import pexpect

PICTURES = (
    "my pic.png", "a:b.png", "it's.jpg", "ünï.png", "$x.png", "pic@2x.PNG", "say \"so\".webp",
    "-dash.png", "book.cbz", "sub dir/inner.tif", "run$(touch hacked);`touch hacked`.png",
)  # fmt: skip
OTHERS = ("notes.txt", "mine.toml", "film.mkv", "sub dir/notes.txt", ".hidden.png")
SHELLS = ("bash", "zsh", "fish")
_STUB = """#!/bin/sh
if [ -n "$_WAIFU2X_COMPLETE" ] || [ "$1" = completion ]; then exec {python} -m waifu2x "$@"; fi
printf '[%s]' "$@"; echo
"""
"""The program, which prints its arguments instead of doing anything."""
_BASH = """\
bind 'set enable-bracketed-paste off'; bind 'set show-all-if-ambiguous on'
bind 'set page-completions off'; bind 'set completion-query-items 0'
source <(waifu2x completion bash); PS1='@''@ '
"""
_ZSH = """\
unsetopt prompt_cr prompt_sp; unset zle_bracketed_paste; autoload -U compinit && compinit -D -u
source <(waifu2x completion zsh); PS1='@''@ '
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Makes a folder with pictures and other files, and beside it one with the program."""
    root = tmp_path_factory.mktemp("shells")
    for name in (*PICTURES, *OTHERS):
        path = root / "files" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    (root / "bin").mkdir()
    stub = root / "bin" / "waifu2x"
    stub.write_text(_STUB.format(python=shlex.quote(sys.executable)))
    stub.chmod(0o755)
    (root / "home").mkdir()
    (root / "home" / "at home.png").touch()
    return root / "files"


def environment(folder: Path) -> dict[str, str]:
    """Returns the environment of shells: an empty home folder, and nothing that changes how they
    complete."""
    root, project = folder.parent, str(Path(__file__).parents[2])
    return os.environ | {
        "PATH": f"{root / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join([project, os.environ.get("PYTHONPATH", "")]),
        "HOME": str(root / "home"),
        "ZDOTDIR": str(root / "home"),
        # Not that folder: what fish puts there, a TAB of the others would offer.
        "XDG_CONFIG_HOME": str(root / "settings"),
        "XDG_DATA_HOME": str(root / "settings"),
        "XDG_CACHE_HOME": str(root / "settings"),
        "LC_ALL": "C.UTF-8",
        "TERM": "dumb",
        "INPUTRC": os.devnull,
        "PS1": "> ",
        "WAIFU2X_CONFIG": "",
    }


Complete = Callable[[str], str]
"""Types a line and TAB; the program's arguments, each in brackets, and what came before them."""


def _interactive(folder: Path, command: list[str], setup: str) -> Iterator[Complete]:
    process = pexpect.spawn(
        command[0],
        command[1:],
        env=environment(folder),
        cwd=str(folder),
        encoding="utf-8",
        timeout=120,
        dimensions=(50, 200),
    )
    process.sendline(setup.replace("\n", "; ").rstrip("; "))
    process.expect("@@ ")

    def complete(line: str) -> str:
        process.send(f"{line}\t\r")
        # The line itself may be written several times over.
        process.expect(r"((?:.|\n)*\r?\n)(\[.*\])\r*\n@@ ")
        return str(process.match.group(1) + process.match.group(2))

    try:
        yield complete
    finally:
        process.close(force=True)


@pytest.fixture(scope="module")
def bash(folder: Path) -> Iterator[Complete]:
    if not shutil.which("bash"):
        pytest.skip("bash is not here")
    yield from _interactive(folder, ["bash", "--norc", "--noprofile", "-i"], _BASH)


@pytest.fixture(scope="module")
def old_bash(folder: Path) -> Iterator[Complete]:
    """Runs bash without the features that the one of macOS (3.2) lacks."""
    if not shutil.which("bash"):
        pytest.skip("bash is not here")
    command = ["bash", "--norc", "--noprofile", "-i"]
    yield from _interactive(folder, command, f"enable -n compopt mapfile\n{_BASH}")


@pytest.fixture(scope="module")
def zsh(folder: Path) -> Iterator[Complete]:
    if not shutil.which("zsh"):
        pytest.skip("zsh is not here")
    yield from _interactive(folder, ["zsh", "-f", "-i"], _ZSH)


@pytest.fixture(scope="module")
def zsh_with_a_file(folder: Path) -> Iterator[Complete]:
    """Runs zsh with the script as a file of $fpath, which it loads at the first TAB."""
    if not shutil.which("zsh"):
        pytest.skip("zsh is not here")
    functions = folder.parent / "functions"
    functions.mkdir()
    script = CliRunner().invoke(cli, ["completion", "zsh"]).stdout
    (functions / "_waifu2x").write_text(script)
    setup = _ZSH.replace("source <(waifu2x completion zsh)", "true")
    yield from _interactive(folder, ["zsh", "-f", "-i"], f"fpath+=({functions})\n{setup}")


@pytest.fixture(scope="module")
def fish(folder: Path) -> Callable[[str], set[str]]:
    """Returns fish's completions of a line; fish quotes the one that it inserts."""
    if not shutil.which("fish"):
        pytest.skip("fish is not here")
    script = folder.parent / "waifu2x.fish"
    script.write_text(CliRunner().invoke(cli, ["completion", "fish"]).stdout)

    def complete(line: str) -> set[str]:
        done = subprocess.run(
            ["fish", "-N", "-c", f"source {script}; complete -C $argv[1]", line],
            env=environment(folder),
            cwd=folder,
            capture_output=True,
            text=True,
            check=True,
            stdin=subprocess.DEVNULL,
        )
        return {each.partition("\t")[0] for each in done.stdout.splitlines()}

    return complete


USUAL = [
    ("waifu2x upscale my", ["upscale", "my pic.png"]),
    ("waifu2x my", ["my pic.png"]),
    ("waifu2x devi", ["devices"]),
    ("waifu2x upscale --model=cun", ["upscale", "--model=cunet/art"]),
]
MORE = [
    ("waifu2x batch -m cun", ["batch", "-m", "cunet/art"]),
    ("waifu2x -m cun", ["-m", "cunet/art"]),
    ("waifu2x upscale --lon", ["upscale", "--longer-side"]),
    ("waifu2x --lon", ["--longer-side"]),
    ("waifu2x upscale -f web", ["upscale", "-f", "webp"]),
    ("waifu2x upscale --backend nu", ["upscale", "--backend", "numpy"]),
    ("waifu2x upscale -g al", ["upscale", "-g", "all"]),
    ("waifu2x upscale --config mi", ["upscale", "--config", "mine.toml"]),
    ("waifu2x upscale --config=mi", ["upscale", "--config=mine.toml"]),
    ("waifu2x config compa", ["config", "compare"]),
    ("waifu2x models remo", ["models", "remove"]),
    ("waifu2x models info vgg", ["models", "info", "vgg_7/art"]),
    ("waifu2x compare --models cunet/art,vgg", ["compare", "--models", "cunet/art,vgg_7/art"]),
    ("waifu2x info my\\ pic.png pic", ["info", "my pic.png", "pic@2x.PNG"]),
    ("waifu2x upscale my\\ pic.png --tta bo", ["upscale", "my pic.png", "--tta", "book.cbz"]),
    ("waifu2x upscale a:", ["upscale", "a:b.png"]),
    ("waifu2x upscale it", ["upscale", "it's.jpg"]),
    ("waifu2x upscale ün", ["upscale", "ünï.png"]),
    ("waifu2x upscale \\$", ["upscale", "$x.png"]),
    ("waifu2x upscale pic@", ["upscale", "pic@2x.PNG"]),
    ("waifu2x upscale say", ["upscale", 'say "so".webp']),
    ("waifu2x upscale run", ["upscale", "run$(touch hacked);`touch hacked`.png"]),
    ("waifu2x upscale 'my", ["upscale", "my pic.png"]),
    ('waifu2x upscale "my', ["upscale", "my pic.png"]),
    ("waifu2x upscale sub\\ dir/", ["upscale", "sub dir/inner.tif"]),
    ("waifu2x upscale ~/", ["upscale", "{home}/at home.png"]),
    ("waifu2x upscale $HOME/", ["upscale", "{home}/at home.png"]),
    ("waifu2x upscale note", ["upscale", "note"]),
    ("waifu2x batch my", ["batch", "my"]),
    ("waifu2x video -c ff", ["video", "-c", "ffv1"]),
    ("waifu2x video fil", ["video", "film.mkv"]),
    ("waifu2x upscale -- -da", ["upscale", "--", "-dash.png"]),
    ("FOO=1 waifu2x upscale -m cun", ["upscale", "-m", "cunet/art"]),
]
LINES = [*USUAL, *(pytest.param(*each, marks=pytest.mark.matrix) for each in MORE)]


@pytest.mark.parametrize(("line", "arguments"), LINES)
@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_line_after_tab(
    request: pytest.FixtureRequest, folder: Path, shell: str, line: str, arguments: list[str]
) -> None:
    made = request.getfixturevalue(shell)(line).rpartition("\n")[2]
    home = str(folder.parent / "home")
    assert made == "".join(f"[{each.format(home=home)}]" for each in arguments)


@pytest.mark.parametrize(
    ("line", "arguments"),
    [
        USUAL[0],
        USUAL[3],
        *(pytest.param(*each, marks=pytest.mark.matrix) for each in MORE if "$HOME" not in each[0]),
    ],
)
def test_line_after_tab_in_the_bash_of_macos(
    old_bash: Complete, folder: Path, line: str, arguments: list[str]
) -> None:
    made = old_bash(line).rpartition("\n")[2]
    home = str(folder.parent / "home")
    assert made == "".join(f"[{each.format(home=home)}]" for each in arguments)


@pytest.mark.parametrize(("line", "arguments"), LINES)
def test_what_fish_offers(fish: Callable[[str], set[str]], line: str, arguments: list[str]) -> None:
    found = fish(line)
    last = arguments[-1].replace("{home}", line.rpartition(" ")[2].rstrip("/"))
    assert (last in found) if last not in line else not found


@pytest.mark.matrix
def test_zsh_loads_the_script_by_itself(zsh_with_a_file: Complete) -> None:
    for _ in range(3):
        made = zsh_with_a_file("waifu2x upscale my")
        assert made.rpartition("\n")[2] == "[upscale][my pic.png]"


@pytest.mark.matrix
@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_the_program_by_its_path(request: pytest.FixtureRequest, folder: Path, shell: str) -> None:
    made = request.getfixturevalue(shell)("../bin/waifu2x upscale my")
    assert made.rpartition("\n")[2] == "[upscale][my pic.png]"


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_choices_are_listed(request: pytest.FixtureRequest, shell: str) -> None:
    listed = request.getfixturevalue(shell)("waifu2x upscale -m upconv_7/")
    assert {"upconv_7/art", "upconv_7/photo"} <= set(listed.split())
    if shell == "zsh":
        assert re.search(r"upconv_7/art +-- -n 0,1,2,3; 2x; ", listed)


@pytest.mark.matrix
def test_fish_lists_what_may_follow(fish: Callable[[str], set[str]]) -> None:
    assert fish("waifu2x batch ") == {"sub dir/"}
    assert {each for each in fish("waifu2x upscale ") if not each.startswith(".")} == {
        each if "/" not in each else "sub dir/" for each in PICTURES
    }
    assert {"upscale", "batch", "completion", "my pic.png"} <= fish("waifu2x ")


def test_completion_loads_nothing_heavy(folder: Path) -> None:
    """A TAB takes what the imports take: none of those is among them that take long."""
    code = """
import atexit, sys
atexit.register(lambda: print("\\n", *sys.modules))
from waifu2x.__main__ import main
main()
"""
    for line in ("waifu2x ", "waifu2x batch -m c", "waifu2x -g ", "waifu2x compare --models c"):
        asked = {"_WAIFU2X_COMPLETE": "bash_complete", "COMP_LINE": line, "COMP_WORD": ""}
        done = subprocess.run(
            [sys.executable, "-c", code],
            env=environment(folder) | asked,
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.startswith(("words\n", "files\n")), done.stderr
        loaded = set(done.stdout.splitlines()[-1].split())
        assert not loaded & {"numpy", "numba", "PIL", "rich", "pyopencl", "tomllib"}


def test_devices_are_those_that_the_system_lists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def offered(*words: str) -> list[str]:
        line = shlex.join(["waifu2x", "upscale", *words])
        asked = {"_WAIFU2X_COMPLETE": "bash_complete", "COMP_LINE": line, "COMP_WORD": words[-1]}
        done = CliRunner(env=asked).invoke(cli, [], complete_var="_WAIFU2X_COMPLETE")
        return done.stdout.splitlines()

    from waifu2x.cli.commands import completion

    completion.register()
    for number in range(3):
        (tmp_path / f"0000:0{number}:00.0").mkdir()
    monkeypatch.setattr(completions, "_NVIDIA", tmp_path)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert offered("-g", "") == ["words", "0", "1", "2", "all"]
    assert offered("-g", "0,1,") == ["words", "0,1,2"]
    assert offered("--backend", "cpu", "-g", "") == ["words", "0", "all"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,0")
    assert offered("-g", "") == ["words", "0", "1", "all"]


def test_names_of_models_that_are_orders_to_a_shell_are_not_offered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An archive that is imported may name its sets as it likes."""
    names = ("mine/plain-1.0", "mine/$(touch hacked)", "mine/`id`", "mine/a;b", "mine/two words")
    sets = [SimpleNamespace(name=name, noise_levels=[1], scales=[2]) for name in names]
    monkeypatch.setattr(model_set, "available", lambda: sets)
    assert [item.value for item in completions._model_sets()] == ["mine/plain-1.0"]


def test_names_that_no_shell_can_be_sent_hide_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (b"\xff.png", b"two\nlines.png", "at 9.41\u202fAM.png".encode(), b"plain.png"):
        Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name)).touch()
    monkeypatch.chdir(tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "waifu2x"],
        env=environment(tmp_path)
        | {"_WAIFU2X_COMPLETE": "bash_complete", "COMP_LINE": "waifu2x info ", "COMP_WORD": ""},
        capture_output=True,
        check=True,
    )
    assert done.stdout.decode().split("\n")[:-1] == ["files", "at 9.41\u202fAM.png", "plain.png"]


@pytest.mark.parametrize("shell", SHELLS)
def test_scripts_are_sound(shell: str, tmp_path: Path) -> None:
    """Each shell parses its script, and has nothing to say of it."""
    if not shutil.which(shell):
        pytest.skip(f"{shell} is not here")
    script = tmp_path / "script"
    script.write_text(CliRunner().invoke(cli, ["completion", shell]).stdout)
    done = subprocess.run([shell, "-n", str(script)], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")


def test_a_shell_has_to_be_named() -> None:
    done = CliRunner().invoke(cli, ["completion"])
    assert done.exit_code == 2
    assert done.stderr == ("Error: bash|zsh|fish is missing: `waifu2x completion bash|zsh|fish`.\n")
    done = CliRunner().invoke(cli, ["completion", "csh"])
    assert done.stderr == "Error: expected bash, zsh or fish, not 'csh'.\n"
