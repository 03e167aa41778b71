"""Packages have the same bytes each time, are complete, and work where they are installed."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

import waifu2x

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
PYTHONS = ("3.12", "3.13", "3.14")
PLATFORMS = (
    ("3.11", "x86_64-manylinux_2_28"),
    ("3.14", "x86_64-manylinux_2_28"),
    ("3.11", "aarch64-manylinux_2_28"),
    ("3.14", "aarch64-manylinux_2_28"),
    ("3.11", "x86_64-pc-windows-msvc"),
    ("3.14", "x86_64-pc-windows-msvc"),
    ("3.12", "aarch64-pc-windows-msvc"),  # the first that Numba has wheels for there
    ("3.14", "aarch64-pc-windows-msvc"),
    ("3.11", "aarch64-apple-darwin"),
    ("3.14", "aarch64-apple-darwin"),
    ("3.11", "x86_64-apple-darwin"),
    ("3.13", "x86_64-apple-darwin"),
)


def tool(name: str) -> str:
    """A command of the extra `release`; without it the test is skipped."""
    found = shutil.which(name, path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if found is None:
        pytest.skip(f"{name} is not here: pip install -e '.[release]'")
    return found


def run(*command: str | Path, cwd: Path = ROOT, **environment: str) -> str:
    """The output of a command; the test fails with all of it if the command does."""
    # This tree is not on the path of what is installed.
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        list(map(str, command)),
        cwd=cwd,
        env={**kept, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-6000:]
    return done.stdout


def build(folder: Path) -> tuple[Path, Path]:
    """An sdist, and the wheel made from it."""
    run(
        sys.executable,
        "-m",
        "build",
        "--no-isolation",
        "-o",
        folder,
        SOURCE_DATE_EPOCH="1700000000",
    )
    (sdist,), (wheel,) = folder.glob("*.tar.gz"), folder.glob("*.whl")
    return sdist, wheel


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return build(tmp_path_factory.mktemp("dist"))


def new_venv(folder: Path, python: str = sys.executable) -> Path:
    """A fresh environment's Python."""
    run(python, "-m", "venv", folder)
    return folder / "bin" / "python"


def enlarge(python: Path, folder: Path) -> None:
    """Enlarges a picture as a user does first, away from this tree."""
    cache = folder / "cache"
    cache.mkdir(mode=0o700)
    program = python.with_name("waifu2x")

    def told(*arguments: str) -> str:
        return run(program, *arguments, cwd=folder, WAIFU2X_CACHE_DIR=str(cache))

    assert waifu2x.__version__ in told("--version")
    shutil.copy(ROOT / "examples" / "drawn.png", folder / "in.png")
    told("upscale", "in.png", "out.png")
    assert "480x320" in told("info", "out.png")


def test_twice_the_same_bytes(tmp_path: Path) -> None:
    told = run(sys.executable, "-m", "release.build_twice", tmp_path)
    for path in tmp_path.iterdir():
        assert f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" in told
    assert len(list(tmp_path.iterdir())) == 2


def test_twine_finds_no_fault(built: tuple[Path, Path]) -> None:
    assert run(tool("twine"), "check", "--strict", *built).count("PASSED") == 2


def test_what_is_in_them(built: tuple[Path, Path]) -> None:
    sdist, wheel = built
    name = f"waifu2x_kernels-{waifu2x.__version__}"
    held = set(zipfile.ZipFile(wheel).namelist())
    licences = f"{name}.dist-info/licenses"
    assert {f"{licences}/LICENSE", f"{licences}/models/LICENSE", "waifu2x/py.typed"} <= held
    assert {path.split("/")[0] for path in held} <= {
        "waifu2x",
        f"{name}.dist-info",
        f"{name}.data",
    }
    kernels = {f"waifu2x/kernels/{path.name}" for path in (ROOT / "kernels").iterdir()}
    code = {str(path.relative_to(ROOT)) for path in (ROOT / "waifu2x").rglob("*.py")}
    assert kernels | code <= held
    with tarfile.open(sdist) as archive:
        tops = {path.split("/")[1] for path in archive.getnames() if "/" in path}
    assert {"tests", "docs", "examples", "benchmarks", "kernels", "models", "waifu2x"} <= tops
    assert not tops & {".ci", ".github", ".git", "release", "dist", ".venv"}
    text = zipfile.ZipFile(wheel).read(f"{name}.dist-info/METADATA").decode()
    # Links of the README lead somewhere on the index's page, too.
    assert "](docs/" not in text
    assert f"blob/v{waifu2x.__version__}/docs/" in text


def test_the_wheel_works_where_it_is_installed(built: tuple[Path, Path], tmp_path: Path) -> None:
    python = new_venv(tmp_path / "venv")
    run(python, "-m", "pip", "install", "-q", f"{built[1]}[all]")
    enlarge(python, tmp_path)
    assert "numpy" in run(python.with_name("waifu2x"), "devices", cwd=tmp_path)


def runs(python: str | Path) -> bool:
    try:
        return subprocess.run([python, "--version"], capture_output=True).returncode == 0
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("version", PYTHONS)
def test_newer_pythons(version: str, built: tuple[Path, Path], tmp_path: Path) -> None:
    kept = Path.home() / ".pyenv" / "versions"  # which answers for none of them by name alone
    candidates: list[str | Path] = [f"python{version}", *kept.glob(f"{version}.*/bin/python")]
    command = next((each for each in candidates if runs(each)), None)
    if command is None:
        pytest.skip(f"Python {version} is not here")
    python = new_venv(tmp_path / "venv", str(command))
    run(python, "-m", "pip", "install", "-q", built[1])
    enlarge(python, tmp_path)


@pytest.mark.parametrize("extra", EXTRAS)
def test_every_extra_resolves(extra: str, tmp_path: Path) -> None:
    python = new_venv(tmp_path / "venv")
    wheels = [] if extra == "pycuda" else ["--only-binary=:all:", "--no-binary=waifu2x-kernels"]
    run(python, "-m", "pip", "install", "-q", "--dry-run", *wheels, f".[{extra}]")


@pytest.mark.parametrize(("version", "platform"), PLATFORMS)
@pytest.mark.parametrize("extra", ["all", "test"])
def test_every_platform_has_wheels(extra: str, version: str, platform: str) -> None:
    resolve = [tool("uv"), "pip", "compile", "-q", "pyproject.toml", "--extra", extra]
    resolve += ["--no-python-downloads", "--only-binary", ":all:"]
    resolve += ["--python-version", version, "--python-platform", platform]
    # The first macOS that PyAV has wheels for on ARM64; without it, uv takes the one before.
    listed = run(*resolve, MACOSX_DEPLOYMENT_TARGET="14.0")
    assert "\nnumba==" in f"\n{listed}"


def test_the_oldest_versions_pass_every_test(tmp_path: Path) -> None:
    python = new_venv(tmp_path / "venv")
    uv, wanted = tool("uv"), tmp_path / "oldest.txt"
    resolve = [uv, "pip", "compile", "-q", "pyproject.toml", "--extra", "all", "--extra", "test"]
    resolve += ["--resolution", "lowest-direct"]
    run(*resolve, "--python", python, "-o", wanted)
    run(uv, "pip", "sync", "-q", "--python", python, wanted)
    run(uv, "pip", "install", "-q", "--python", python, "--no-deps", "-e", ".")
    run(python, "-m", "pytest", "-q", "-n", "auto", "--dist", "worksteal", "-p", "no:cacheprovider")


def test_linters_of_workflows_and_image() -> None:
    run(tool("zizmor"), "--offline", ".")
    schema = [tool("check-jsonschema"), "--builtin-schema"]
    run(*schema, "vendor.github-workflows", *(ROOT / ".github" / "workflows").glob("*.yml"))
    templates = ROOT / ".github" / "ISSUE_TEMPLATE"
    run(*schema, "vendor.github-issue-forms", templates / "bug.yml", templates / "wish.yml")
    run(*schema, "vendor.github-issue-config", templates / "config.yml")
    run(*schema, "vendor.dependabot", ROOT / ".github" / "dependabot.yml")
    run(tool("hadolint"), "Dockerfile")


def by_hand(*command: str | Path) -> None:
    """A script that ends with 77 where this machine lacks what it needs, and says what."""
    done = subprocess.run(
        list(map(str, command)), cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode == 77:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stdout + done.stderr[-6000:]


def test_the_image_is_built_and_enlarges_a_picture() -> None:
    by_hand(ROOT / "release" / "try_image.sh")


def test_arm64_gives_the_same_bits() -> None:
    by_hand(sys.executable, "-m", "tests.by_hand.arm64")
