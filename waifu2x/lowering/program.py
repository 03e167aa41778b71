"""What an engine runs: convolutions, planewise steps and means over values, in order."""

from __future__ import annotations

from waifu2x.lowering.ops.attention import (
    AttentionStep,
    ChannelWeights,
    CrossSums,
    MixPlanes,
)
from waifu2x.lowering.ops.conv import Conv, Depthwise
from waifu2x.lowering.ops.norm import NormPlanes, NormVector
from waifu2x.lowering.ops.planewise import PlanewiseStep
from waifu2x.lowering.ops.vector import GlobalAvgPool, Linear
from waifu2x.lowering.values import Value
from waifu2x.networks.model import Model
from waifu2x.system.lazy_dataclass import dataclass

MapStep = Conv | Depthwise | NormPlanes | PlanewiseStep | AttentionStep | MixPlanes
"""Steps that write maps."""
PictureSum = GlobalAvgPool | CrossSums
"""Steps that add up over a whole value: they end a phase."""
InnerVectorStep = Linear | NormVector | ChannelWeights
"""Steps that make vectors of vectors."""
VectorStep = PictureSum | InnerVectorStep
"""Steps that write vectors."""
Step = MapStep | VectorStep


@dataclass(frozen=True, eq=False)
class Program:
    """A model, lowered."""

    model: Model
    values: tuple[Value, ...]
    vectors: tuple[int, ...]
    """The sizes of all vectors."""
    steps: tuple[Step, ...]
    """In an order in which each reads what was written before."""
    cuts: tuple[int, ...] = ()
    """The steps with which phases begin, besides those that means end."""

    @property
    def result(self) -> int:
        """The value that becomes pixels, clipped to [0, 1] and rounded as they are stored. Only one
        step writes it, and none reads it."""
        return len(self.values) - 1
