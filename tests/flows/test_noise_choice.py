"""`-n auto`: the level that a JPEG gets by its quality, and that nothing else changes."""

from __future__ import annotations

import io
import json
import re
import zipfile
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from PIL import Image

import waifu2x
from tests.helpers.contents import identity_models
from waifu2x.cli import cli
from waifu2x.flows.noise_choice import choose
from waifu2x.formats.metadata.jpeg_quality import LUMA, scaled
from waifu2x.imaging.enlarger import Enlarger
from waifu2x.imaging.flatness import flat_share, is_flat
from waifu2x.imaging.picture import JpegCoding, Picture
from waifu2x.imaging.sizes import request
from waifu2x.networks import catalogue, model_set
from waifu2x.networks.chains import ChainFacts, FactTable, models_of
from waifu2x.networks.noise_levels import LIMITS, NoiseLimits, limits_of

RESULTS = Path(__file__).parents[2] / "benchmarks/results/2026-11-22-noise.md"
VGG = "vgg_7/art"
QUALITIES = (20, 50, 75, 88, 99)
"""Where 2x with vgg_7 takes each of its levels, and none."""


def photo(height: int = 16, width: int = 24) -> Image.Image:
    samples = np.random.default_rng(3).integers(0, 256, (height, width, 3), np.uint8)
    return Image.fromarray(samples)


def jpeg(quality: int, image: Image.Image | None = None) -> bytes:
    stream = io.BytesIO()
    (image or photo()).save(stream, "JPEG", quality=quality)
    return stream.getvalue()


def coded(quality: int, height: int = 16, width: int = 24, value: int | None = None) -> Picture:
    """A picture that says of itself that it was a JPEG; of one colour, or of noise."""
    pixels = np.asarray(photo(height, width)) if value is None else np.full((16, 24, 3), value)
    table = scaled(LUMA, quality)
    return Picture(pixels.astype(np.uint8), jpeg=JpegCoding((table, table), 2, "4:2:0"))


def expected(quality: int, name: str = VGG, *, enlarges: bool = True) -> int | None:
    """By the table that the benchmark wrote."""
    text = RESULTS.read_text()
    row = re.search(rf"\| `{name}` \| {2 if enlarges else 1} \| ([^|]*) \|", text)
    assert row is not None
    limits, _, _ = row[1].partition(";")
    for level, limit in re.findall(r"(\d) to (\d+)", limits):
        if quality <= int(limit):
            return int(level)
    return None


class Facts:
    """Chains of a set with levels 0 to 2, which enlarge by powers of 2 in passes of 2."""

    name = "set"

    def __init__(self, *roles: tuple[int | None, int]) -> None:
        self._roles = frozenset(roles)

    def factors(self, scale: Fraction, noise: int | None) -> tuple[int, ...]:
        found = model_set._factors(self._roles, scale, noise)
        if found is None:
            raise waifu2x.ModelError("lacks it")
        return found

    def facts(self, factor: int, noise: int | None) -> ChainFacts:
        if factor == 1 and (noise, 1) not in self._roles:
            raise waifu2x.ModelError("lacks it")
        return ChainFacts(3, factor, 4)


FULL = [(level, factor) for level in (None, 0, 1, 2) for factor in (1, 2)][1:]
BOTH = NoiseLimits(((50, 2), (80, 1)), ((60, 1), (90, 0)), ((50, 2), (95, 0)))


def level(picture: Picture, facts: Any, **size: Any) -> int | None:
    """The noise level that BOTH choose for a picture."""
    asked = Enlarger(
        facts, request(**size), None, lambda calls, on_progress, on_recomputed: [], BOTH
    )
    enlarger, choice = choose(asked, picture)
    assert choice is not None
    assert enlarger.noise == choice.level
    assert not enlarger.chooses
    return choice.level


@pytest.mark.parametrize(
    ("size", "levels"),
    [
        ({"scale": 1}, [2, 2, 1, None, None]),
        ({"scale": 2}, [1, 1, 0, 0, None]),
        ({"scale": "2.4"}, [1, 1, 0, 0, None]),
        ({"width": 24}, [2, 2, 1, None, None]),
        ({"width": 100}, [1, 1, 0, 0, None]),
        # A picture that is reduced loses its artefacts with that.
        ({"scale": "0.5"}, [None] * 5),
        ({"longer_side": 10}, [None] * 5),
        # A picture that keeps its size stays as it is.
        ({"scale": 2, "only_smaller_than": 24}, [None] * 5),
    ],
    ids=str,
)
def test_quality_and_size_choose_the_level(size: dict[str, Any], levels: list[int | None]) -> None:
    assert [level(coded(each), Facts(*FULL), **size) for each in QUALITIES] == levels


def test_flat_colours_have_limits_of_their_own_where_the_size_stays() -> None:
    flat = [coded(each, value=200) for each in QUALITIES]
    assert [level(each, Facts(*FULL), scale=1) for each in flat] == [2, 2, 0, 0, None]
    assert [level(each, Facts(*FULL), scale=2) for each in flat] == [1, 1, 0, 0, None]


def test_a_level_is_taken_only_where_networks_enlarge_no_more_for_it() -> None:
    # 3x in one pass without noise removal, but 4x with it.
    facts = Facts((None, 2), (None, 3), (0, 2), (1, 2))
    assert level(coded(50), facts, scale=3) is None
    assert level(coded(50), facts, scale=4) == 1
    assert level(coded(50), Facts((None, 2), (0, 1)), scale=2) is None
    assert level(coded(50), Facts((None, 2)), scale=1) is None


def test_a_table_of_facts_chooses_as_the_models_do() -> None:
    facts = Facts(*FULL)
    scales = [Fraction(scale) for scale in range(1, 33)]
    table = FactTable.of(facts, {None, *BOTH.levels}, scales)
    for size in ({"scale": 1}, {"scale": 2}, {"width": 77}, {"scale": "0.5"}):
        for quality in (10, 55, 70, 85, 99):
            assert level(coded(quality), table, **size) == level(coded(quality), facts, **size)


def test_what_is_no_jpeg_has_no_choice() -> None:
    asked = Enlarger(
        Facts(*FULL), request(scale=2), None, lambda calls, on_progress, on_recomputed: [], BOTH
    )
    enlarger, choice = choose(asked, Picture(np.zeros((4, 4, 3), np.uint8)))
    assert (enlarger.noise, choice) == (None, None)
    fixed = Enlarger(
        Facts(*FULL), request(scale=2), 1, lambda calls, on_progress, on_recomputed: []
    )
    assert choose(fixed, coded(10)) == (fixed, None)


def test_memory_is_reserved_for_whatever_is_chosen() -> None:
    asked = Enlarger(
        Facts(*FULL), request(scale=1), None, lambda calls, on_progress, on_recomputed: [], BOTH
    )
    assert asked.growth(16, 24) == 1.0
    assert asked.at_level(None).growth(16, 24) == 0.0


def test_limits_are_those_that_were_measured() -> None:
    text = RESULTS.read_text()
    found = re.findall(r"\| `(\S+)` \| (\d) \| ([^|]*) \| testing \|", text)
    assert {name for name, _, _ in found} >= set(LIMITS)
    for name, scale, said in found:
        limits = LIMITS.get(name, NoiseLimits())
        known = [limits.alone, limits.flat] if scale == "1" else [limits.enlarging]
        words = (
            ", ".join(f"{level} to {limit}" for limit, level in each) or "none" for each in known
        )
        assert said == "; flat: ".join(words)


def test_no_measured_picture_loses_by_the_limits() -> None:
    """In the table of the limits, which stands first; what lower ones replaced is told below it."""
    table, _, _ = RESULTS.read_text().partition("\n## ")
    rows = re.findall(r"\| `(\S+)` \|.*\| (\w+) \|.*\| ([+-]\d\.\d\d) \(", table)
    assert {(name, group) for name, group, _ in rows} == {
        (name, group) for name in LIMITS for group in ("deciding", "testing", "unseen")
    }
    assert min(float(least) for _, _, least in rows) >= -0.05


def test_level_3_is_never_chosen_and_finer_jpegs_get_weaker_levels() -> None:
    for limits in LIMITS.values():
        assert limits.levels <= {0, 1, 2}
        for each in (limits.alone, limits.enlarging, limits.flat):
            assert [*each] == sorted(each)
            levels = [level for _, level in each]
            assert levels == sorted(levels, reverse=True)


def test_every_level_that_may_be_chosen_is_there() -> None:
    for name, limits in LIMITS.items():
        entry = catalogue.entry(name)
        assert entry is not None
        if entry.folder is None:
            continue  # its package is not installed
        models = model_set.find(name)
        assert limits_of(models) == limits
        for _, level in limits.enlarging:
            assert models_of(models, 2, level)
        for _, level in limits.alone + limits.flat:
            assert models_of(models, 1, level)


def test_a_set_of_ones_own_has_no_limits(tmp_path: Path) -> None:
    (tmp_path / "vgg_7").mkdir()
    identity_models(tmp_path / "vgg_7" / "art")
    assert limits_of(model_set.find(str(tmp_path / "vgg_7" / "art"))) == NoiseLimits()


@pytest.mark.parametrize("shape", [(7, 100, 3), (100, 7, 3), (8, 8, 1), (1, 1, 3), (999, 17, 3)])
def test_any_size_can_be_looked_at(shape: tuple[int, ...]) -> None:
    assert flat_share(np.zeros(shape, np.uint8)) == (0.0 if min(shape[:2]) < 8 else 1.0)


def test_flat_blocks_are_counted() -> None:
    pixels = np.asarray(photo(160, 160)).copy()
    assert flat_share(pixels) == 0.0
    pixels[:40] = 7
    assert flat_share(pixels) == 0.25
    assert is_flat(pixels)
    pixels[32:40, :8] = np.asarray(photo(8, 8))
    assert not is_flat(pixels)


# Through the program.


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder `in` with a JPEG of each quality, named by it, and a PNG."""
    monkeypatch.chdir(tmp_path)
    Path("in").mkdir()
    for quality in QUALITIES:
        Path(f"in/{quality}.jpg").write_bytes(jpeg(quality))
    photo().save("in/a.png")
    return tmp_path


def run(command: str, *arguments: str) -> Result:
    device = ["--backend", "numpy"]
    return CliRunner().invoke(cli, [command, *device, "-m", VGG, *arguments])


def pixels_of(path: str | Path) -> bytes:
    with Image.open(path) as image:
        return image.tobytes()


def test_a_batch_gives_each_picture_its_level(folder: Path) -> None:
    result = run("batch", "--json", "-v", "in", "out")
    assert result.exit_code == 0, result.output
    rows = {Path(row["input"]).stem: row for row in map(json.loads, result.stdout.splitlines())}
    levels = {str(quality): expected(quality) for quality in QUALITIES}
    assert len(set(levels.values())) > 2
    for name, level in levels.items():
        said = {"level": level, "quality": int(name), "subsampling": "4:2:0"}
        assert rows[name]["noise"] == [said]
        option = "none" if level is None else str(level)
        made = run("upscale", "-n", option, f"in/{name}.jpg", f"{name}.png")
        assert made.exit_code == 0, made.output
        assert pixels_of(f"out/{name}.png") == pixels_of(f"{name}.png")
    assert "noise" not in rows["a"]
    removed = [level for level in levels.values() if level is not None]
    assert f"noise removed from {len(removed)} of {len(levels)} JPEGs" in result.stderr


def test_a_png_gives_the_same_bytes_as_without_noise_removal(folder: Path) -> None:
    for name, arguments in {"auto": [], "none": ["-n", "none"]}.items():
        result = run("upscale", *arguments, "in/a.png", f"{name}.png")
        assert (result.exit_code, result.output) == (0, "")
    assert Path("auto.png").read_bytes() == Path("none.png").read_bytes()


def test_upscale_says_what_was_chosen(folder: Path) -> None:
    quiet = run("upscale", "in/75.jpg", "b.png")
    assert (quiet.exit_code, quiet.output) == (0, "")  # where stderr is no terminal
    loud = run("upscale", "-v", "in/75.jpg", "c.png")
    said = f"in/75.jpg: JPEG quality 75 (4:2:0): noise level {expected(75)}"
    assert f"{said}; -n none leaves it as it is\n" in loud.stderr
    fine = run("upscale", "-v", "in/99.jpg", "d.png")
    assert "in/99.jpg: JPEG quality 99 (4:2:0): no noise removal\n" in fine.stderr


def test_pages_of_an_archive_get_a_level_each(folder: Path) -> None:
    with zipfile.ZipFile("in/book.cbz", "w") as archive:
        for quality in (75, 99, 20):
            archive.writestr(f"{quality}.jpg", jpeg(quality))
        archive.write("in/a.png", "a.png")
    for path in Path("in").glob("*.*g"):
        path.unlink()
    result = run("batch", "--json", "-f", "png", "in", "out")
    assert result.exit_code == 0, result.output
    (row,) = map(json.loads, result.stdout.splitlines())
    assert [(page["quality"], page["level"]) for page in row["noise"]] == [
        (quality, expected(quality)) for quality in (75, 99, 20)
    ]


def test_a_scale_of_1_cleans_jpegs_and_copies_the_rest(folder: Path) -> None:
    result = run("batch", "-s", "1", "in", "out")
    assert result.exit_code == 0, result.output
    assert "has no noise that -n auto removes, and stays as it is" in result.stderr
    assert Path("out/a.png").read_bytes() == Path("in/a.png").read_bytes()
    assert pixels_of("out/99.png") == pixels_of("in/99.jpg")
    assert expected(20, enlarges=False) is not None
    assert pixels_of("out/20.png") != pixels_of("in/20.jpg")


def test_a_set_without_noise_levels_enlarges_without_an_error(folder: Path) -> None:
    identity_models(folder / "own")
    result = CliRunner().invoke(
        cli, ["upscale", "--backend", "numpy", "-m", "own", "--json", "in/20.jpg", "b.png"]
    )
    assert result.exit_code == 0, result.output
    (choice,) = json.loads(result.stdout)["noise"]
    assert (choice["level"], choice["quality"]) == (None, 20)


def test_models_are_compared_with_the_level_that_each_would_choose(folder: Path) -> None:
    identity_models(folder / "own")
    arguments = ["compare", "--backend", "numpy", "--models", f"{VGG},./own", "in/20.jpg"]
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert any(line.startswith(VGG) and f"noise {expected(20)}" in line for line in lines)
    assert any("own" in line and "noise" not in line for line in lines)


def test_images_that_were_opened_from_a_jpeg_get_a_level_in_python() -> None:
    with waifu2x.Engine("numpy") as engine:
        given = Image.open(io.BytesIO(jpeg(50)))
        results = {}
        for noise in ("auto", expected(50), None):
            with waifu2x.Upscaler(2, noise=noise, model=VGG, engine=engine) as upscaler:
                results[noise] = upscaler(given).tobytes()
                if noise == "auto":
                    plain = upscaler(np.asarray(given)).tobytes()
    assert results["auto"] == results[expected(50)] != results[None]
    assert plain == results[None]
