"""The table of settings, and what is written by hand beside it."""

from __future__ import annotations

import inspect
import re
from dataclasses import fields
from importlib import resources
from typing import Any, Literal, get_args, get_origin, get_type_hints

import click
import pytest

import waifu2x
from waifu2x.api.options import FileOptions, UpscalerOptions
from waifu2x.api.settings import kinds
from waifu2x.api.settings.kinds import Kind
from waifu2x.api.settings.setting import HEADINGS, Setting
from waifu2x.api.settings.table import HTTP, TABLE, conflict, of_command
from waifu2x.api.settings.uses import USES, choose
from waifu2x.cli import cli, completions
from waifu2x.networks import catalogue, model_set

COMMANDS = {name for row in TABLE for name in row.commands.split()}


def of_api(kind: str) -> dict[str, Setting]:
    return {row.name: row for row in TABLE if row.api == kind}


def test_keyword_arguments_are_rows() -> None:
    upscaler, file = of_api("upscaler"), of_api("file")
    taken = inspect.signature(waifu2x.Upscaler).parameters.keys()
    assert taken == {*upscaler, "engine"}
    assert get_type_hints(UpscalerOptions).keys() == taken - {"scale", "noise"}
    assert get_type_hints(FileOptions).keys() == {*file, "on_progress"}
    takes = inspect.signature(waifu2x.upscale_file).parameters.keys()
    assert takes - {"source", "target", "options"} == {*file, "scale", "noise", "on_progress"}


def test_keyword_arguments_take_the_words_of_rows() -> None:
    hints = get_type_hints(waifu2x.Upscaler.__init__) | get_type_hints(FileOptions)
    compared = 0
    for name, row in (of_api("upscaler") | of_api("file")).items():
        kind = hints[name]
        options = [kind] if get_origin(kind) is Literal else get_args(kind)
        words = {
            str(word) for each in options if get_origin(each) is Literal for word in get_args(each)
        }
        if row.kind.words and words and name != "noise":
            assert words == {*row.kind.words}, name
            compared += 1
    assert compared == 6  # best_for, fit, precision, compression, depth, to


def test_requests_and_the_form_have_each_row() -> None:
    pytest.importorskip("starlette")
    from waifu2x.serve.job_settings import JobSettings

    names = [row.parameter for row in HTTP]
    assert sorted(names) == sorted(["best_for", *(field.name for field in fields(JobSettings))])
    form = resources.files("waifu2x.serve").joinpath("page/index.html").read_text()
    assert {*names} <= {*re.findall(r'name="(\w+)"', form)}


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_a_command_has_each_name_once(name: str) -> None:
    rows = of_command(name)
    for names in ([row.key for row in rows], [row.name for row in rows],
                  [row.letter for row in rows if row.letter]):  # fmt: skip
        assert len(names) == len({*names})
    options = {f"--{row.key}" for row in rows}
    for row in rows:
        assert row.heading in HEADINGS
        assert row.joint is None or row.joint[0] in options
        assert not row.partner or f"--{row.partner}" in options
        assert (
            not row.completion or row.completion[0] == "." or hasattr(completions, row.completion)
        )
        if row.default is not None:
            assert not row.chooses(row.kind.parse(row.default))
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    assert options <= {option for each in command.params for option in each.opts}


def test_what_excludes_each_other_is_named_once() -> None:
    rows = {row.key: row for row in of_command("upscale")}

    def said(*keys: str, dashes: str = "--") -> str | None:
        return conflict([rows[key] for key in keys], dashes)

    assert said() is None
    assert said("width", "height", "overwrite", "quiet", "fit") is None
    assert said("scale", "width", "height") == "Give one size: --scale or --width and --height."
    assert said("scale", "height", dashes="") == "Give one size: scale or width and height."
    assert (
        said("overwrite", "skip-existing") == "--overwrite and --skip-existing exclude each other."
    )


KINDS: dict[str, tuple[Kind, dict[str, Any], list[str]]] = {
    "pixels": (
        kinds.PIXELS,
        {"1": 1, "0020": 20},
        ["", "0", "-1", "1.0", "1000001", "٣", "9" * 9999],
    ),
    "noise": (kinds.NOISE, {"AUTO": "auto", "0": "0"}, ["", "4", "aut", "0\n"]),
    "scale": (kinds.SCALE, {"1.5": 1.5}, ["", "0", "33", "nan", "1/0", "1e999999999"]),
    "least size": (kinds.LEAST_SIZE, {"20": (20, 20), "30x10": (30, 10)}, ["x", "0x9", "20x"]),
    "size": (kinds.SIZE, {"960x540": (960, 540)}, ["960", "0x9", "9x0", "9x9x9"]),
    "tile": (kinds.TILE, {"auto": None, "16": 16}, ["", "15", "9999999999"]),
    "devices": (kinds.DEVICES, {"all": "all", "0,2": (0, 2)}, ["", "0,0", ",", "a"]),
    "colour": (kinds.COLOUR, {"white": (255,) * 3, "#102030": (16, 32, 48)}, ["", "#12", "whit"]),
    "quality": (kinds.QUALITY, {"like": "like", "100": 100}, ["", "0", "101", "1 "]),
    "time": (kinds.TIME, {"1:02.5": 62.5, "1:00:00": 3600}, ["", "-1", "1:", "1e3"]),
    "crf": (kinds.CRF, {"18": 18, "0.5": 0.5}, ["", "256", "1e1", "-1"]),
    "crop": (kinds.CROP, {"auto": "auto", "8:6:0:1": (8, 6, 0, 1)}, ["", "8:6:0", "0:6:0:0"]),
    "pair": (kinds.PAIR, {"a=b=c": ("a", "b=c"), "a=\n": ("a", "\n")}, ["", "a", "=b"]),
    "shard": (kinds.SHARD, {"1/1": (1, 1), "3/16": (3, 16)}, ["", "2/1", "0/1", "1"]),
    "address": (kinds.ADDRESS, {"local": "local", "tcp://a:1": "tcp://a:1"}, ["", "a:1", "tcp://"]),
    "names": (kinds.NAMES, {"a, b": ["a", "b"]}, ["", "a,,b"]),
}


@pytest.mark.parametrize("name", KINDS)
def test_kinds(name: str) -> None:
    """A value is what its text means; a sentence says what is wrong with any other, and quotes no
    more than a line of it."""
    kind, good, bad = KINDS[name]
    for text, value in good.items():
        assert kind.parse(text) == value
    for text in bad:
        with pytest.raises(ValueError, match=r"^[^\n]{8,200}\.$"):
            kind.parse(text)
        with pytest.raises(ValueError, match=r"\.$"):
            kind.kept(text)


def test_uses_name_what_each_installation_has() -> None:
    for use in USES.values():
        assert re.fullmatch(r"[A-Z][^.]+\.", use.about)
        for name in (use.model, use.film_model):
            known = catalogue.entry(name)
            assert known is not None
            assert known.package in (None, catalogue.WAIFU2X)
            assert use.level in (None, *model_set.find(name).noise_levels)


def test_what_is_given_wins_over_a_use() -> None:
    level = next(use.level for use in USES.values() if use.level is not None)
    (old,) = [name for name, use in USES.items() if use.level == level]
    use = USES[old]
    assert choose(None, None, "auto") == (catalogue.DEFAULT, "auto", None)
    assert choose(None, None, 1, is_film=True) == (catalogue.FILM_DEFAULT, 1, None)
    assert choose(old, None, "auto") == (use.model, level, None)
    assert choose(old, None, "auto", is_film=True) == (use.film_model, level, None)
    assert choose(old, None, None) == (use.model, None, None)
    assert choose(old, None, 0) == (use.model, 0, None)
    said = f"best for {old}: has no effect, since the model vgg_7 is given"
    assert choose(old, "vgg_7", "auto") == ("vgg_7", "auto", said)
    with pytest.raises(ValueError, match=r"a best_for of 'drawings'.* but got 'anime'"):
        choose("anime", None, None)
    with waifu2x.Upscaler(best_for="speed") as upscaler:
        assert "anime4k" in repr(upscaler)
        assert upscaler.notices == ()
    with waifu2x.Upscaler(best_for="speed", model="vgg_7", backend="numpy") as upscaler:
        assert upscaler.notices == (
            "best for speed: has no effect, since the model vgg_7 is given",
        )
