"""Dataclasses whose methods are made when they are first needed.

The standard decorator writes and compiles five or six functions, which takes a third of a
millisecond for a frozen class. A process that computes one picture defines a hundred classes and
uses some twenty of them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Any

__all__ = ["dataclass"]

if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(cls=None, /, **options):
        """Does what `dataclasses.dataclass` does, ten times as fast for a frozen class of plain
        fields. All other classes are left to it."""
        if cls is None:
            return lambda cls: dataclass(cls, **options)
        if _is_plain(cls, options):
            return _lazy(cls, options)
        return dataclasses.dataclass(cls, **options)


_OWN = {"frozen", "eq", "kw_only"}


def _is_plain(cls: type, options: dict[str, bool]) -> bool:
    """Returns whether a class is frozen and its fields have nothing but defaults."""
    return (
        bool(options.get("frozen"))
        and options.keys() <= _OWN
        and not any(isinstance(value, dataclasses.Field) for value in vars(cls).values())
        and not any("InitVar" in str(kind) for kind in cls.__annotations__.values())
    )


def _lazy(cls: type, options: dict[str, bool]) -> type:
    kw_only = options.get("kw_only", False)
    dataclasses.dataclass(cls, init=False, repr=False, eq=False, kw_only=kw_only)

    def first(self: Any, *values: Any, **named: Any) -> None:
        # Sets it in this class, even if a subclass is made.
        cls.__init__ = made = _init(cls)  # type: ignore[misc]
        made(self, *values, **named)

    methods: dict[str, Callable[..., Any]] = {
        "__init__": first,
        "__repr__": _repr,
        "__setattr__": _refuse,
        "__delattr__": _refuse,
    }
    if options.get("eq", True):
        methods |= {"__eq__": _eq, "__hash__": _hash}
    for name, method in methods.items():
        if name not in vars(cls) or vars(cls)[name] is None:
            setattr(cls, name, method)
    return cls


def _init(cls: type) -> Callable[..., None]:
    """Returns the function that takes a value for each field."""
    fields = dataclasses.fields(cls)
    defaults = {
        f"default_{field.name}": field.default
        for field in fields
        if field.default is not dataclasses.MISSING
    }
    takes = [
        f"{field.name}=default_{field.name}" if f"default_{field.name}" in defaults else field.name
        for field in sorted(fields, key=lambda field: bool(field.kw_only))
    ]
    first_named = sum(not field.kw_only for field in fields)
    if first_named < len(fields):
        takes.insert(first_named, "*")
    lines = [f"def __init__({', '.join(['self', *takes])}):", " own_fields_ = self.__dict__"]
    lines += [f" own_fields_[{field.name!r}] = {field.name}" for field in fields]
    if hasattr(cls, "__post_init__"):
        lines.append(" self.__post_init__()")
    made: dict[str, Any] = {}
    exec("\n".join(lines), defaults, made)
    init: Callable[..., None] = made["__init__"]
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    return init


def _values(one: Any) -> Any:
    cls = type(one)
    get = vars(cls).get("_dataclass_values")
    if get is None:
        names = [field.name for field in dataclasses.fields(cls)]
        get = cls._dataclass_values = attrgetter(*names) if names else lambda one: ()
    return get(one)


def _eq(self: Any, other: object) -> Any:
    if type(other) is not type(self):
        return NotImplemented
    return _values(self) == _values(other)


def _hash(self: Any) -> int:
    return hash(_values(self))


def _repr(self: Any) -> str:
    values = ", ".join(
        f"{field.name}={getattr(self, field.name)!r}" for field in dataclasses.fields(self)
    )
    return f"{type(self).__qualname__}({values})"


def _refuse(self: Any, name: str, *value: Any) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot change field {name!r}")
