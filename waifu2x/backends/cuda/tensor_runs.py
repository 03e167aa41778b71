"""Which programs matrix units can run."""

from __future__ import annotations

from collections.abc import Sequence

from waifu2x.backends.cuda.tensor_layout import FewLayout, MapLayout
from waifu2x.backends.cuda.tensor_move import moved_planes
from waifu2x.backends.cuda.tensor_pack import PIECE
from waifu2x.backends.cuda.tensor_shape import MOST_SUMS
from waifu2x.lowering.steps import Average, Move, Product, Program


def runs(program: Program, layouts: Sequence[MapLayout | FewLayout]) -> bool:
    """Whether matrix units can run every step of a program."""

    def is_map(value: int) -> bool:
        return 0 < value < program.result and isinstance(layouts[value], MapLayout)

    def is_product(step: Product) -> bool:
        few_in = not is_map(step.source.value)
        few_out = not is_map(step.target.value)
        if step.factor != 1 and step.residual is None:
            return False
        if few_in and few_out:
            return False
        if few_in:
            few = layouts[step.source.value]
            return isinstance(few, FewLayout) and step.taps == 3 and _is_map_residual(step)
        if few_out:
            residual = step.residual
            added = residual is None or (step.shuffle == 1 and not is_map(residual.value))
            return step.taps == 3 and step.out_planes <= MOST_SUMS and added
        return _is_map_residual(step)

    def _is_map_residual(step: Product) -> bool:
        return step.residual is None or is_map(step.residual.value)

    def is_move(step: Move) -> bool:
        views = [step.source, *([step.residual] if step.residual else [])]
        _, moved = moved_planes(program, step)
        return (
            step.shuffle == step.unshuffle == 1
            and step.resize == (1, 1)
            and all(is_map(view.value) for view in views)
            and is_map(step.target.value)
            and step.target.plane % PIECE == 0
            and moved % PIECE == 0
        )

    for step in program.steps:
        match step:
            case Product():
                good = is_product(step)
            case Move():
                good = is_move(step)
            case Average():
                good = is_map(step.source.value)
            case _:
                good = True
        if not good:
            return False
    return True
