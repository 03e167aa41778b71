"""Traces code that computes with integers known later, and compiles it to formulas.

Plans for pictures of two sizes often differ in numbers alone. So planning runs once with a Symbol
in the place of each number that depends on the size, and `Trace` records the arithmetic; the
formula then gives the numbers of any other size in microseconds. Where the code branches on such a
number, the formula checks that it would branch alike, and otherwise returns None.

A Symbol is `times * term + plus`: sums of a size and a constant, the bulk of geometry, are folded,
and comparisons between such sums of one term need no check.
"""

from __future__ import annotations

import math
import operator
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from types import CodeType, FunctionType
from typing import Any, cast

_KEPT_CODE = 512
Formula = Callable[..., Any]
"""A compiled trace: returns the traced results, or None where the traced branches do not hold."""

_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
}


class _Scope:
    """Holds the contents of one formula: its terms, in order, and its conditions."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.values: list[Any] = []
        """The terms' values for the example inputs."""
        self.terms: dict[str, int] = {}
        """The number of each term, by the text that computes it."""
        self.checks: dict[str, None] = {}
        self.named: dict[str, Any] = {}
        """The objects that texts name."""

    def term(self, text: str, value: Any) -> Symbol:
        """Returns the symbol of the term that `text` computes; adds the term if it is new."""
        number = self.terms.setdefault(text, len(self.terms))
        if number == len(self.values):
            self.values.append(value)
        return Symbol(self, number)


class Trace:
    """Traces a computation with numbers known later: a common formula, then parts.

    `common` is traced first; its terms are arguments of the formulas of parts, which are traced one
    by one, once for each set of branches taken. Only one thread may trace.
    """

    def __init__(self) -> None:
        self._common = _Scope("v")
        self._given = _Scope("p")
        self._inputs = 0

    def input(self, value: int) -> int:
        """Returns a symbol for the next argument of the common formula, with an example."""
        self._inputs += 1
        return cast(int, self._common.term(f"i{self._inputs}", value))

    def given(self, value: int) -> int:
        """Returns a symbol for the next argument of the formulas of parts, with an example."""
        place = len(self._given.terms)
        return cast(int, self._given.term(f"p[{place}]", value))

    @contextmanager
    def common(self) -> Iterator[None]:
        """Traces the code within as the computation that parts share."""
        with _tracing(self._common):
            yield

    def common_formula(self, results: Sequence[Any]) -> Formula:
        """Returns a function of the inputs to two tuples: all terms for parts, and the results."""
        scope = self._common
        lines = [f"v{number} = {text}" for number, text in enumerate(scope.terms)]
        terms = "".join(f"v{number}, " for number in range(len(scope.terms)))
        with _tracing(scope):
            made = _text(tuple(results))
        inputs = ", ".join(f"i{number + 1}" for number in range(self._inputs))
        return _compiled(inputs, lines, scope, f"({terms}), {made}", {})

    def part(
        self, terms: Sequence[Any], trace: Callable[[], tuple[Any, dict[str, Any]]]
    ) -> Formula:
        """Returns a function of the common terms and the `given` numbers to the results of a part.

        `terms` are the example values of the common terms. `trace` returns the results, in which
        `Code` stands for objects, and these objects by name.
        """
        self._common.values = list(terms)
        scope = _Scope("t")
        with _tracing(scope):
            results, named = trace()
            made = _text(results)
        lines = [f"t{number} = {text}" for number, text in enumerate(scope.terms)]
        return _compiled("v, p", lines, scope, made, named)


class Code(str):
    """An expression in the text of a formula, to be inserted as it is."""


class Symbol:
    """Computes as the int times * term + plus does, or as a float if its term is one."""

    __slots__ = ("_number", "_scope", "plus", "times")

    def __init__(self, scope: _Scope, number: int, times: int = 1, plus: int = 0) -> None:
        self._scope = scope
        self._number = number
        self.times = times
        self.plus = plus

    @property
    def example(self) -> Any:
        """Its value for the example inputs."""
        return self._scope.values[self._number] * self.times + self.plus

    def is_of(self, other: Symbol) -> bool:
        """Returns whether both have the same term."""
        return self._scope is other._scope and self._number == other._number

    def _linear(self, times: int, plus: int) -> Any:
        return Symbol(self._scope, self._number, times, plus) if times else plus

    def __str__(self) -> str:
        """Its text in the formula being traced."""
        scope, number = self._scope, self._number
        name = f"{scope.prefix}{number}"
        if scope is not _current[-1]:
            name = f"{scope.prefix}[{number}]"
        text = name if self.times == 1 else f"{self.times} * {name}"
        return f"({text} + {self.plus})" if self.plus else f"({text})" if self.times != 1 else name

    def __hash__(self) -> int:
        return hash(self._fixed())

    def __index__(self) -> int:
        return int(self._fixed())

    __int__ = __index__

    def __float__(self) -> float:
        return float(self._fixed())

    def __bool__(self) -> bool:
        return not _check("==", self, 0)

    def _fixed(self) -> Any:
        """Returns its value for code that cannot use a symbol: the formula then needs this one."""
        value = self.example
        _check("==", self, value)
        return value

    def __neg__(self) -> Any:
        return self._linear(-self.times, -self.plus)

    def __add__(self, other: Any) -> Any:
        if isinstance(other, int):
            return self._linear(self.times, self.plus + other)
        if isinstance(other, Symbol):
            if self.is_of(other):
                return self._linear(self.times + other.times, self.plus + other.plus)
            plus = self.plus + other.plus
            bare = _made("+", self._linear(self.times, 0), other._linear(other.times, 0))
            return bare + plus if plus else bare
        return _made("+", self, other)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return self + -other

    def __rsub__(self, other: Any) -> Any:
        return -self + other

    def __mul__(self, other: Any) -> Any:
        if isinstance(other, int):
            return self._linear(self.times * other, self.plus * other)
        return _made("*", self, other)

    __rmul__ = __mul__

    def __floordiv__(self, other: Any) -> Any:
        if not isinstance(other, int):
            return _made("//", self, other)
        if self.times % other == 0:
            return self._linear(self.times // other, self.plus // other)
        rest = _made("//", self._linear(self.times, self.plus % other), other)
        return rest + self.plus // other

    def __rfloordiv__(self, other: Any) -> Any:
        return _made("//", other, self)

    def __mod__(self, other: Any) -> Any:
        return self - self // other * other

    def __truediv__(self, other: Any) -> Any:
        return _made("/", self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return _made("/", other, self)

    def __lt__(self, other: Any) -> bool:
        return _check("<", self, other)

    def __le__(self, other: Any) -> bool:
        return _check("<=", self, other)

    def __gt__(self, other: Any) -> bool:
        return _check("<", other, self)

    def __ge__(self, other: Any) -> bool:
        return _check("<=", other, self)

    def __eq__(self, other: object) -> bool:
        return _check("==", self, other) if isinstance(other, int | float | Symbol) else False


_current: list[_Scope] = []
"""The scopes being traced; the last is the current one."""
_lock = threading.RLock()
"""Held by the thread that traces."""


@contextmanager
def _tracing(scope: _Scope) -> Iterator[None]:
    with _lock:
        _current.append(scope)
        try:
            yield
        finally:
            _current.pop()


def example(value: Any) -> Any:
    """Returns a number itself, or a symbol's example value: only for choices that may affect speed,
    never results."""
    return value.example if isinstance(value, Symbol) else value


def larger(one: int, other: int) -> int:
    """Returns the larger number. Unlike with `max`, the formula computes it without a branch."""
    return cast(int, _extreme("max", max, one, other))


def smaller(one: int, other: int) -> int:
    """Returns the smaller number, in the same way."""
    return cast(int, _extreme("min", min, one, other))


def least(values: Sequence[float]) -> int:
    """Returns the index of the first least value. The formula checks only that it is the least,
    while `min` would also have it check each comparison on the way."""
    best = min(range(len(values)), key=lambda number: example(values[number]))
    for number, value in enumerate(values):
        known = value > values[best] if number < best else values[best] <= value
        assert known
    return best


def _extreme(name: str, choose: Callable[[Any, Any], Any], one: Any, other: Any) -> Any:
    if not isinstance(one, Symbol) and not isinstance(other, Symbol):
        return choose(one, other)
    difference = _difference(one, other)
    if difference is not None:
        return other if (difference < 0) == (name == "max") else one
    first, second = sorted((_text(one), _text(other)))
    sign = ">" if name == "max" else "<"
    text = f"{first} if {first} {sign} {second} else {second}"
    return _current[-1].term(text, choose(example(one), example(other)))


def _made(sign: str, left: Any, right: Any) -> Any:
    value = _OPERATORS[sign](example(left), example(right))
    texts = [_text(left), _text(right)]
    if sign in "+*":
        texts.sort()
    return _current[-1].term(f"{texts[0]} {sign} {texts[1]}", value)


def _check(sign: str, left: Any, right: Any) -> bool:
    """Returns the outcome of a comparison, which the formula checks unless it is constant."""
    known = _OPERATORS[sign](example(left), example(right))
    is_open = _difference(left, right) is None
    if is_open and not any(math.isinf(example(side)) for side in (left, right)):
        text = f"{_text(left)} {sign} {_text(right)}"
        _current[-1].checks[text if known else f"not {text}"] = None
    return bool(known)


def _difference(one: Any, other: Any) -> int | None:
    """Returns one - other if that is a constant, else None."""
    if not isinstance(one, Symbol) or not isinstance(other, Symbol):
        return None
    is_constant = one.is_of(other) and one.times == other.times
    return one.plus - other.plus if is_constant else None


def called(name: str, values: Sequence[Any]) -> Code:
    """Returns the code of a call of a named function, for the formula being traced."""
    return Code(f"{name}({', '.join(map(_named, values))})")


def _named(value: Any) -> str:
    """Returns the text of a value; a number becomes a name, so that formulas that differ in it
    share code."""
    if isinstance(value, Symbol | Code):
        return str(value)
    named = _current[-1].named
    name = f"c{len(named)}"
    named[name] = value
    return name


def _text(value: Any) -> str:
    if isinstance(value, tuple):
        return f"({''.join(f'{_text(one)}, ' for one in value)})"
    if isinstance(value, Symbol | Code):
        return str(value)
    try:
        return repr(operator.index(value))
    except TypeError:
        return repr(float(value))


def _compiled(
    inputs: str, lines: Sequence[str], scope: _Scope, result: str, named: dict[str, Any]
) -> Formula:
    body = [*lines]
    if scope.checks:
        body.append(f"if not ({' and '.join(scope.checks)}): return None")
    body.append(f"return {result}")
    source = "\n    ".join((f"def formula({inputs}):", *body))
    return cast(Formula, FunctionType(_code(source), {**scope.named, **named}))


@lru_cache(_KEPT_CODE)
def _code(source: str) -> CodeType:
    """Compiles the source of a function, cached: equal layers of a network share it."""
    found: dict[str, Any] = {}
    # The source holds only names and numbers that this module wrote.
    exec(source, found)
    formula: FunctionType = found["formula"]
    return formula.__code__
