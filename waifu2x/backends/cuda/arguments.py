"""Packs arguments of CUDA kernels as C structs, whose fields it reads from the kernels' sources."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple, NewType, Protocol, cast

from waifu2x.backends.gpu.device import source
from waifu2x.backends.gpu.device.flags import Flags
from waifu2x.backends.gpu.device.launch import Arguments
from waifu2x.backends.gpu.device.runtime import Buffer

Address = NewType("Address", int)
"""A device pointer."""

_CODES = {"int": "i", "float": "f", "double": "d"}
"""Format characters of module struct, by C types."""
_STRUCT = re.compile(r"^struct (\w+) \{\n(.*?)^\};", re.DOTALL | re.MULTILINE)
_PARAMETER = re.compile(r"const __grid_constant__ (\w+) \w+")
_FIELDS = re.compile(r"\s*(?:const |unsigned |long )*(\w+)(\*?) ([^;*]+);")
_COMMENT = re.compile(r"//.*")


class _Addressed(Protocol):
    address: int


def address_of(buffer: Buffer | Flags, offset: int = 0) -> Address:
    """Returns the device address of the byte `offset` of a buffer, or of flags."""
    return Address(cast(_Addressed, buffer).address + offset)


class Struct(NamedTuple):
    """A C struct."""

    name: str
    fields: Mapping[str, tuple[str | Struct, bool]]
    """For each field, its format character or struct, and whether it is an array."""

    @property
    def is_wide(self) -> bool:
        """Whether its alignment is that of a pointer."""
        kinds = [kind for kind, _ in self.fields.values()]
        return any(
            kind in ("P", "d") or (not isinstance(kind, str) and kind.is_wide) for kind in kinds
        )


def structs(stem: str, *values: Any) -> Arguments:
    """Packs the arguments of the kernel of `kernels/STEM.cu`: `values` holds a mapping or named
    tuple for each of its structs.

    Each maps names of fields to a number, an address, a buffer, a struct likewise, or a sequence
    of structs; None stands for zeros. Raises TypeError if the names differ from those in C.
    """
    codes: list[str] = []
    found: list[Any] = []
    for struct, value in zip(parameters(stem), values, strict=True):
        _add(struct, value, codes, found)
    return Arguments("".join(codes), found)


def _add(struct: Struct, value: Any, codes: list[str], found: list[Any]) -> None:
    if value is None:
        value = dict.fromkeys(struct.fields)
    given: Mapping[str, Any] = value if isinstance(value, Mapping) else value._asdict()
    if given.keys() != struct.fields.keys():
        differing = ", ".join(sorted(given.keys() ^ struct.fields.keys()))
        raise TypeError(f"struct {struct.name}: {differing}")
    aligned = "0P" if struct.is_wide else ""
    codes.append(aligned)
    for name, (kind, is_array) in struct.fields.items():
        for one in given[name] if is_array else (given[name],):
            if isinstance(kind, str):
                codes.append(kind)
                found.append(0 if one is None else one)
            else:
                _add(kind, one, codes, found)
    codes.append(aligned)


@cache
def parameters(stem: str) -> tuple[Struct, ...]:
    """Returns the structs that the kernel of `kernels/STEM.cu` takes."""
    text = source.read(f"{stem}.cu")
    signature = re.search(rf"^{stem}\(([^)]*)\) \{{", text, re.MULTILINE)
    assert signature is not None, stem
    bodies = dict(_STRUCT.findall(text))
    return tuple(_parsed(name, bodies) for name in _PARAMETER.findall(signature[1]))


def _parsed(name: str, bodies: Mapping[str, str]) -> Struct:
    fields: dict[str, tuple[str | Struct, bool]] = {}
    for kind, pointer, names in _FIELDS.findall(_COMMENT.sub("", bodies[name])):
        code = "P" if pointer else _CODES.get(kind) or _parsed(kind, bodies)
        for field in names.split(", "):
            own, bracket, _ = field.partition("[")
            fields[own] = code, bool(bracket)
    return Struct(name, fields)
