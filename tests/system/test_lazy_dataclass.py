"""Lazy dataclasses behave as the standard library's do."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError, asdict, field, fields, replace
from functools import cached_property
from typing import Any

import pytest

from waifu2x.system import lazy_dataclass

KINDS = [dataclasses.dataclass, lazy_dataclass.dataclass]


def raised(work: Callable[[], object]) -> type[BaseException] | None:
    """Returns the exception that some work raises."""
    try:
        work()
    except Exception as error:
        return type(error)
    return None


def observed(dataclass: Any) -> list[object]:
    """Returns all visible properties of classes that a decorator has made, and of their objects."""

    @dataclass(frozen=True)
    class Plain:
        """Words."""

        number: int
        text: str = "none"

        @cached_property
        def double(self) -> int:
            return 2 * self.number

    @dataclass(frozen=True)
    class Longer(Plain):
        more: float = 0.5

        def __post_init__(self) -> None:
            if self.more < 0:
                raise ValueError

    @dataclass(frozen=True, eq=False, kw_only=True)
    class Named:
        first: int = 1
        second: int  # type: ignore[misc]

    @dataclass(frozen=True)
    class Nothing:
        pass

    @dataclass(frozen=True)
    class Listed:
        values: list[int] = field(default_factory=list)

    @dataclass
    class Open:
        value: int

    one, other, long = Plain(1), Plain(1, "none"), Longer(1)
    named, opened = Named(second=3), Open(1)
    opened.value = 2
    return [
        one == other,
        one == long,
        one == Plain(2),
        long == Longer(1, "none", 0.5),
        hash(one) == hash(other),
        opened == named,  # type: ignore[comparison-overlap]
        {one: 1}[other],
        repr(long).partition("locals>.")[2],
        one.double,
        [(each.name, each.kw_only) for each in fields(Longer)],
        asdict(long),
        replace(long, number=7).number,
        replace(named, first=7).first,
        named == Named(second=3),
        len({named, named, Named(second=3)}),
        Named.first,
        Nothing() == Nothing(),
        Listed().values is Listed().values,
        opened.value,
        Plain.__doc__,
        copy.copy(long) == long,
        raised(lambda: setattr(one, "number", 2)),
        raised(lambda: delattr(one, "number")),
        raised(lambda: hash(opened)),
        raised(lambda: Longer(1, "", -1.0)),
        raised(lambda: replace(long, more=-1.0)),
        raised(lambda: Plain()),  # type: ignore[call-arg]
        raised(lambda: Plain(1, "", 2)),  # type: ignore[call-arg]
        raised(lambda: Plain(1, other=2)),  # type: ignore[call-arg]
        raised(lambda: Plain(1, number=2)),  # type: ignore[misc]
        raised(lambda: Named(1, 2)),
    ]


def test_they_behave_as_the_standard_ones() -> None:
    expected, found = (observed(kind) for kind in KINDS)
    assert found == expected
    assert FrozenInstanceError in found
    assert TypeError in found
    assert ValueError in found


@lazy_dataclass.dataclass(frozen=True)
class Kept:
    """One that pickle finds."""

    number: int
    text: str = ""


def test_one_that_no_init_has_made_is_whole() -> None:
    """Unpickling makes objects without it, maybe the first of their class."""
    data = pickle.dumps(Kept(3, "x"))
    loaded = pickle.loads(data)
    assert loaded == Kept(3, "x")
    assert hash(loaded) == hash(Kept(3, "x"))
    with pytest.raises(FrozenInstanceError):
        loaded.number = 4


def test_a_frozen_class_of_plain_fields_compiles_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object) -> None:
        raise AssertionError("compiles before anybody needs it")

    monkeypatch.setattr(dataclasses, "exec", refuse, raising=False)
    monkeypatch.setattr(lazy_dataclass, "exec", refuse, raising=False)

    @lazy_dataclass.dataclass(frozen=True)
    class Plain:
        number: int

    with pytest.raises(AssertionError):
        Plain(1)
    monkeypatch.undo()
    assert Plain(1).number == 1
