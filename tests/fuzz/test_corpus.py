"""Every file of the corpus, through the targets that Atheris runs."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pytest

from tests.fuzz.targets import TARGETS, Target, UnexpectedError, corpus
from tests.helpers.limits import memory_limit
from tests.helpers.model_fuzz import MOST_MEMORY
from waifu2x.errors import ImageError
from waifu2x.formats.base import in_words
from waifu2x.formats.limits import Budget


@pytest.mark.parametrize("name", TARGETS)
def test_only_refusals(name: str) -> None:
    target, files = TARGETS[name], sorted(corpus(name).iterdir())
    if target.needs:
        pytest.importorskip(target.needs)
    assert files
    for path in files:
        if path.name.startswith("sound"):
            # A target that refused what is sound would find nothing.
            target.read(path.read_bytes())
    with memory_limit(MOST_MEMORY), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for path in files:
            try:
                target(path.read_bytes())
            except Exception as error:
                raise AssertionError(path.name) from error


def _refuse(data: bytes) -> None:
    raise ImageError(data.decode())


def _convert(data: bytes) -> None:
    if int(data) < 0:
        raise ValueError("Expected no sign.")


def _miss(data: bytes) -> None:
    raise KeyError(data)


@pytest.mark.parametrize(
    ("read", "data"), [(_refuse, b"p: damaged"), (_convert, b"1"), (_convert, b"-1")]
)
def test_a_refusal_is_let_through(read: Callable[[bytes], None], data: bytes) -> None:
    Target(read, (ImageError, ValueError))(data)


@pytest.mark.parametrize(
    ("read", "data"),
    [(_refuse, b""), (_convert, b"x"), (_miss, b"x")],
)
def test_a_fault_is_not(read: Callable[[bytes], None], data: bytes) -> None:
    with pytest.raises((UnexpectedError, KeyError)):
        Target(read, (ImageError, ValueError))(data)


def test_a_hidden_fault_is_none_either() -> None:
    """Decoders' errors become sentences, and with them a fault of the program's own would."""

    def read(data: bytes) -> None:
        with in_words("p", "damaged"):
            Budget(None)  # type: ignore[arg-type]

    with pytest.raises(UnexpectedError, match="a fault"):
        Target(read, (ImageError,))(b"")
