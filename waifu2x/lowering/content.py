"""All that decides what a program computes, for keys of what is kept about it."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np

from waifu2x.lowering.steps import Program
from waifu2x.networks.activations import Activation


def content(program: Program) -> list[bytes | str]:
    """Parts of a key (`cache.digest`): two programs with the same compute the same."""
    parts: list[bytes | str] = [repr(program.values), program.model.border]
    for step in program.steps:
        parts.append(type(step).__name__)
        for field in fields(step):
            parts += _parts(getattr(step, field.name))
    return parts


def _parts(value: Any) -> list[bytes | str]:
    match value:
        case np.ndarray():
            return [repr(value.shape), value.tobytes()]
        case Activation():
            return [repr(value.function), value.slopes.tobytes()]
        case _:
            return [repr(value)]
