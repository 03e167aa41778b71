"""Whether a program is whole: to be asked after each pass.

`verify` has a check for each class of step: planes and resolutions that fit together, views and
targets within their values, vectors that are there. What holds for all steps comes first: whatever
is read was written before, whole; and no plane is written twice. An error names the step, its
class and the field that is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from waifu2x.lowering.ops.attention import (
    AttendPlanes,
    AttendWindows,
    ChannelWeights,
    CrossSums,
    MixPlanes,
)
from waifu2x.lowering.ops.checker import Checker
from waifu2x.lowering.ops.conv import Conv, Depthwise
from waifu2x.lowering.ops.norm import NormPlanes, NormVector
from waifu2x.lowering.ops.planewise import (
    BicubicResize,
    BilinearResize,
    Copy,
    DepthToSpace,
    GatedAdd,
    PoolMaxima,
    Rearrange,
    Scale,
    ScaleByMap,
    SpaceToDepth,
)
from waifu2x.lowering.ops.vector import GlobalAvgPool, Linear
from waifu2x.lowering.ops.verify_attention import (
    check_attention,
    check_cross,
    check_mix,
    check_plane_attention,
    check_weights,
)
from waifu2x.lowering.ops.verify_convs import check_conv, check_depthwise, check_norm
from waifu2x.lowering.ops.verify_planewise import (
    check_bilinear,
    check_depth_to_space,
    check_maxima,
    check_planewise,
    check_rearrange,
    check_resize,
    check_scale,
    check_space_to_depth,
)
from waifu2x.lowering.ops.verify_vectors import check_linear, check_norm_vector, check_pool
from waifu2x.lowering.plan import phases
from waifu2x.lowering.program import MapStep, Program, Step, VectorStep
from waifu2x.lowering.step_facts import reads, writes
from waifu2x.lowering.values import Target


def verify(program: Program) -> None:
    """Raises InvalidProgramError for a program that is not whole."""
    _Verifier(program).check()


class _Verifier(Checker):
    """One walk through a program: what holds for all steps, and the check of each one."""

    def check(self) -> None:
        self._check_values()
        for number, step in enumerate(self.program.steps):
            self.where = f"step {number} ({type(step).__name__})"
            self._check_reads(step)
            if isinstance(step, MapStep):
                self._check_target(step.target)
            _CHECKS[type(step)](self, step)
            if isinstance(step, MapStep):
                self._check_write(step)
            else:
                self._check_vector(step)
        self.where = "program"
        for part, planes in enumerate(self.values[-1].parts):
            done = self.written.get((self.program.result, part), set())
            self.must(len(done) == planes, "steps", "nothing writes the whole result")
        self._check_result_and_cuts()

    # What holds for all.

    def _check_values(self) -> None:
        shapes = self.program.model.shapes
        for number, value in enumerate(self.values):
            self.where = f"value {number}"
            known = 0 <= value.graph < len(shapes)
            self.must(known, "graph", f"the model has no value {value.graph}")
            whole = bool(value.parts) and min(value.parts) > 0
            self.must(whole, "parts", f"{value.parts}")
            shape = shapes[value.graph]
            same = value.resolution == shape.resolution
            self.must(
                same, "resolution", f"{value.resolution}, but {shape.resolution} in the model"
            )
            single = value.space_to_depth == 1 or len(value.parts) == 1
            self.must(single, "space_to_depth", "above 1 with several parts")
            self.must(value.space_to_depth >= 1, "space_to_depth", f"{value.space_to_depth}")
        for number in (0, self.program.result):
            self.where, value = f"value {number}", self.values[number]
            plain = len(value.parts) == 1 and value.space_to_depth == 1
            self.must(plain, "parts", "pixels are stored one by one, in one part")
        self.where = "value 0"
        planes = self.values[0].planes == self.program.model.in_planes
        self.must(planes, "parts", f"{self.values[0].parts}, but the picture has others")
        self.where = f"value {self.program.result}"
        planes = self.values[-1].planes == self.program.model.out_planes
        self.must(planes, "parts", f"{self.values[-1].parts}, but the result has others")

    def _check_reads(self, step: Step) -> None:
        for field, view in zip(("source", "residual"), reads(step), strict=False):
            known = 0 <= view.value < len(self.values)
            self.must(known, field, f"there is no value {view.value}")
            self.must(view.value != self.program.result, field, "reads the result")
            parts = self.values[view.value].parts
            inside = view.first >= 0 and view.parts >= 1 and view.first + view.parts <= len(parts)
            self.must(inside, field, f"parts {view.first} and on, {view.parts}, of {len(parts)}")
            self.must(view.enlarge >= 1, field, f"enlarged {view.enlarge} times")
            for part in range(view.first, view.first + view.parts) if view.value else ():
                done = self.written.get((view.value, part), set())
                whole = len(done) == parts[part]
                self.must(whole, field, f"part {part} of value {view.value} is not written yet")

    def _check_target(self, target: Target) -> None:
        known = 0 < target.value < len(self.values)
        self.must(known, "target", f"no value to write: {target.value}")
        parts = self.values[target.value].parts
        self.must(0 <= target.part < len(parts), "target", f"no part {target.part}")

    def _check_write(self, step: MapStep) -> None:
        target, planes = step.target, self.planes_made(step)
        fills = isinstance(step, Copy | AttendWindows)
        stored = self.values[target.value]
        self.must(fills or not target.plane, "target", "begins within a part")
        most = stored.parts[target.part]
        fits = target.plane >= 0 and target.plane + planes <= most
        self.must(fits, "target", f"{planes} planes from {target.plane} on, of {most}")
        self.must(fills or planes == most, "target", f"{planes} planes of {most}")
        done = self.written.setdefault((target.value, target.part), set())
        own = set(range(target.plane, target.plane + planes))
        self.must(done.isdisjoint(own), "target", "planes that are written twice")
        done |= own
        made = self.resolution_made(step)
        same = made == stored.resolution
        self.must(same, "target", f"resolution {stored.resolution}, but {made} are made")

    def _check_vector(self, step: VectorStep) -> None:
        vectors = self.program.vectors
        known = 0 <= step.vector < len(vectors)
        self.must(known, "vector", f"there is no vector {step.vector}")
        self.must(step.vector not in self.vectors, "vector", "written twice")
        self.vectors.add(step.vector)

    def _check_result_and_cuts(self) -> None:
        steps, cuts = self.program.steps, self.program.cuts
        writers = sum(writes(step) == self.program.result for step in steps)
        self.must(writers == 1, "steps", f"{writers} steps write the result")
        ordered = list(cuts) == sorted({*cuts}) and all(0 < cut < len(steps) for cut in cuts)
        self.must(ordered, "cuts", f"{cuts}")
        for value in phases.crossing(self.program):
            zero = self.values[value].zero_outside
            self.must(
                zero, "steps", f"value {value} is read in a later phase, but not zero outside"
            )
        for cut in cuts:
            both = {writes(s) for s in steps[:cut]} & {writes(s) for s in steps[cut:]} - {-1}
            self.must(not both, "cuts", f"values {both} are written on both sides of {cut}")


_CHECKS: Mapping[type[Step], Callable[[Checker, Any], None]] = {
    Conv: check_conv,
    Depthwise: check_depthwise,
    NormPlanes: check_norm,
    Copy: check_planewise,
    DepthToSpace: check_depth_to_space,
    SpaceToDepth: check_space_to_depth,
    Scale: check_scale,
    GatedAdd: check_planewise,
    ScaleByMap: check_planewise,
    BicubicResize: check_resize,
    BilinearResize: check_bilinear,
    PoolMaxima: check_maxima,
    Rearrange: check_rearrange,
    AttendWindows: check_attention,
    AttendPlanes: check_plane_attention,
    CrossSums: check_cross,
    ChannelWeights: check_weights,
    MixPlanes: check_mix,
    GlobalAvgPool: check_pool,
    Linear: check_linear,
    NormVector: check_norm_vector,
}
