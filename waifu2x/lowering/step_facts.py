"""What is asked of a step of any class: what it reads, writes, makes; the same step elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from waifu2x.lowering.ops.attention import (
    AttendPlanes,
    AttendWindows,
    AttentionStep,
    ChannelWeights,
    CrossSums,
    MixPlanes,
)
from waifu2x.lowering.ops.conv import Conv, Depthwise
from waifu2x.lowering.ops.norm import NormPlanes, NormVector
from waifu2x.lowering.ops.planewise import (
    BicubicResize,
    BilinearResize,
    Copy,
    DepthToSpace,
    GatedAdd,
    PlanewiseStep,
    PoolMaxima,
    Rearrange,
    Scale,
    ScaleByMap,
    SpaceToDepth,
)
from waifu2x.lowering.ops.vector import GlobalAvgPool, Linear
from waifu2x.lowering.program import InnerVectorStep, MapStep, Step
from waifu2x.lowering.values import Target, Value, View


def residual_of(step: Step) -> View | None:
    """The map that a step joins to what it makes of its source: added, but for those that
    `is_gated` and `is_multiplied` name; a convolution may then gate the sum."""
    match step:
        case Conv() | Depthwise() | Copy() | DepthToSpace() | Scale() | GatedAdd() | ScaleByMap():
            return step.residual
    return None


def factor_of(step: PlanewiseStep) -> float:
    """The number that a step multiplies all that it makes of its source by."""
    return step.factor if isinstance(step, Copy | DepthToSpace | Scale) else 1.0


def is_gated(step: Step) -> bool:
    """Whether what a step makes of its source also gates it, with its residual."""
    return isinstance(step, GatedAdd) or (isinstance(step, Conv) and step.gated)


def is_multiplied(step: Step) -> bool:
    """Whether a step multiplies what it makes of its source by its residual."""
    return isinstance(step, ScaleByMap) or (isinstance(step, Conv | Depthwise) and step.multiplied)


def vectors_read(step: InnerVectorStep) -> set[int]:
    """The vectors that a step makes another one of."""
    return {step.source, step.squares} if isinstance(step, NormVector) else {step.source}


def factors_of(step: Step) -> set[int]:
    """The vectors that a step which writes a map scales planes by."""
    if isinstance(step, MixPlanes):
        return {step.vector}
    if isinstance(step, Scale):
        return {vector for vector in (step.vector, step.shifts) if vector is not None}
    if isinstance(step, Conv):
        return {vector for vector in (step.factors, step.residual_factors) if vector is not None}
    return set()


def stored_block(step: MapStep) -> int:
    """Pixels of the target, in each direction, that one result of a step is stored as."""
    return step.depth_to_space if isinstance(step, Conv) else 1


def made_planes(step: PlanewiseStep, planes: int) -> int:
    """Planes that a step makes of so many."""
    match step:
        case DepthToSpace():
            return planes // step.block**2
        case SpaceToDepth():
            return planes * step.block**2
    return planes


def reads(step: Step) -> tuple[View, ...]:
    """The maps that a step reads, its source first."""
    if isinstance(step, InnerVectorStep):
        return ()
    if isinstance(step, AttentionStep):
        return step.source, step.keys, step.values
    residual = residual_of(step)
    return (step.source, residual) if residual else (step.source,)


def reads_whole(step: Step) -> bool:
    """Whether a step may read any pixel of its source for any of its target's: an earlier phase
    keeps the source."""
    return isinstance(step, Rearrange)


def writes(step: Step) -> int:
    """The value that a step writes; -1 if it makes a vector."""
    return step.target.value if isinstance(step, MapStep) else -1


def redirected(
    step: Step, view: Callable[[View], View], target: Callable[[Target], Target]
) -> Step:
    """The same step, its maps read by other views and written to another target."""
    match step:
        case Linear() | NormVector() | ChannelWeights():
            return step
        case GlobalAvgPool() | CrossSums():
            return replace(step, source=view(step.source))
        case MixPlanes():
            return replace(step, source=view(step.source), target=target(step.target))
        case AttendWindows() | AttendPlanes():
            keys, values = view(step.keys), view(step.values)
            return replace(
                step,
                source=view(step.source),
                keys=keys,
                values=values,
                target=target(step.target),
            )
        case (
            SpaceToDepth()
            | BicubicResize()
            | BilinearResize()
            | PoolMaxima()
            | Rearrange()
            | NormPlanes()
        ):
            return replace(step, source=view(step.source), target=target(step.target))
        case GatedAdd() | ScaleByMap():
            residual = view(step.residual)
            return replace(
                step, source=view(step.source), target=target(step.target), residual=residual
            )
        case Conv() | Depthwise() | Copy() | DepthToSpace() | Scale():
            added = step.residual and view(step.residual)
            return replace(
                step, source=view(step.source), target=target(step.target), residual=added
            )


def renumbered(step: Step, numbers: Mapping[int, int]) -> Step:
    """The same step, its values found by other numbers where there are any."""
    return redirected(
        step,
        lambda view: replace(view, value=numbers.get(view.value, view.value)),
        lambda target: replace(target, value=numbers.get(target.value, target.value)),
    )


def touched(step: Step) -> set[int]:
    """The values that a step reads or writes."""
    return {view.value for view in reads(step)} | ({writes(step)} - {-1})


def compacted(
    values: Sequence[Value], steps: Sequence[Step], result: int
) -> tuple[tuple[Value, ...], tuple[Step, ...]]:
    """The picture, the values that steps touch in the same order, the result last; and the steps
    with the new numbers of their values."""
    found = {0, result}.union(*map(touched, steps))
    order = [value for value in sorted(found) if value != result] + [result]
    numbers = {old: new for new, old in enumerate(order)}
    kept = tuple(values[value] for value in order)
    return kept, tuple(renumbered(step, numbers) for step in steps)


def label(step: Step) -> str:
    """A step for people: a convolution's planes, and its taps where they are not the usual 3x3."""
    match step:
        case Conv():
            taps = "" if step.taps == 3 else f"{step.taps}x{step.taps} "
            return f"{taps}{step.in_planes} > {step.out_planes}"
        case Depthwise():
            return f"{step.taps}x{step.taps} each of {len(step.weight)}"
        case NormPlanes():
            return f"norm of {len(step.weight)}"
        case Copy():
            return "copy"
        case DepthToSpace():
            return "depth to space"
        case SpaceToDepth():
            return "space to depth"
        case Scale():
            return "scale"
        case GatedAdd():
            return "gate"
        case ScaleByMap():
            return "product"
        case BicubicResize():
            return "resize"
        case BilinearResize():
            return "enlarged to a size"
        case PoolMaxima():
            return f"maxima {step.kernel}x{step.kernel}"
        case Rearrange():
            return "pixels rearranged"
        case AttendWindows():
            return f"attention {step.windows.rows}x{step.windows.columns}"
        case AttendPlanes():
            return f"attention of planes {step.windows.rows}x{step.windows.columns}"
        case CrossSums():
            return "products of planes"
        case ChannelWeights():
            return "weights of planes"
        case MixPlanes():
            return "planes mixed"
        case GlobalAvgPool():
            return "mean"
        case Linear():
            return "linear"
        case NormVector():
            return "norm"
