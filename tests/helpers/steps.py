"""Which planewise steps a test looks for."""

from __future__ import annotations

from typing import TypeGuard

from waifu2x.lowering.ops.base import Step
from waifu2x.lowering.ops.planewise import Planewise


def is_copy(step: Step) -> TypeGuard[Planewise]:
    """Whether a step copies a map, or adds another one to it."""
    return isinstance(step, Planewise) and step.is_copy


def is_scale(step: Step) -> TypeGuard[Planewise]:
    """Whether a step scales planes by a vector."""
    return isinstance(step, Planewise) and step.vector is not None
