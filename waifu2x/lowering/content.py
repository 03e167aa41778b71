"""All that decides what a program computes, for keys of what is kept about it."""

from __future__ import annotations

from dataclasses import fields

from waifu2x.lowering.steps import Program
from waifu2x.networks.digests import parts_of


def content(program: Program) -> list[bytes | str]:
    """Parts of a key (`cache.digest`): two programs with the same compute the same."""
    parts: list[bytes | str] = [repr(program.values), program.model.border]
    for step in program.steps:
        parts.append(type(step).__name__)
        for field in fields(step):
            parts += parts_of(getattr(step, field.name))
    return parts
