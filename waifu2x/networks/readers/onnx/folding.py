"""Operators on numbers that do not depend on pixels: constants and sizes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from waifu2x.networks.readers.limits import ModelBudget
from waifu2x.networks.readers.onnx.messages import OnnxNode
from waifu2x.networks.readers.onnx.tensors import FLOATS, StoredTensor

Array = NDArray[Any]
_MOST_DIMENSIONS = 8


def folded(node: OnnxNode, inputs: Sequence[Array | None], budget: ModelBudget) -> list[Array]:
    """Returns the arrays that a node makes of arrays. Raises ModelError for unknown operators."""
    compute = _KINDS.get(node.op)
    if compute is None:
        raise node.refused("not supported on constants")
    try:
        with np.errstate(all="ignore"):
            made = compute(_Call(node, inputs, budget))
    except (ValueError, IndexError, TypeError, OverflowError, ZeroDivisionError) as error:
        raise node.refused(f"damaged: {str(error)[:80]}") from error
    return made if isinstance(made, list) else [made]


class _Call:
    """A node, its arrays, and the budget of what it makes."""

    def __init__(self, node: OnnxNode, inputs: Sequence[Array | None], budget: ModelBudget) -> None:
        self.node = node
        self.inputs = inputs
        self.budget = budget

    def __getitem__(self, place: int) -> Array:
        found = self.optional(place)
        if found is None:
            raise ValueError("an input is missing")
        return found

    def optional(self, place: int) -> Array | None:
        return self.inputs[place] if place < len(self.inputs) else None

    def take(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Takes an array of this shape from the budget, and returns the shape."""
        whole = tuple(int(each) for each in shape)
        if len(whole) > _MOST_DIMENSIONS or any(each < 0 for each in whole):
            raise ValueError(f"a shape of {whole}")
        self.budget.take_bytes(8 * math.prod(whole))
        return whole

    def broadcast(self) -> list[Array]:
        """Returns all inputs; takes their joint size from the budget."""
        found = [self[place] for place in range(len(self.inputs))]
        self.take(np.broadcast_shapes(*(each.shape for each in found)))
        return found


def axes_of(node: OnnxNode, given: Array | None) -> tuple[int, ...] | None:
    """Returns the axes of an input or, in older files, an attribute; None without any."""
    if given is not None:
        return tuple(int(axis) for axis in given.reshape(-1))
    return node.get("axes", ()) or None


def new_shape(old: Sequence[int], wanted: Sequence[int], *, keeps_zero: bool) -> tuple[int, ...]:
    """Returns the shape that Reshape makes: 0 keeps a length, and -1 takes the rest.

    Raises ValueError for a shape that does not fit.
    """
    if len(wanted) > _MOST_DIMENSIONS:
        raise ValueError(f"{len(wanted)} dimensions")
    made = [
        old[place] if each == 0 and keeps_zero and place < len(old) else int(each)
        for place, each in enumerate(wanted)
    ]
    if made.count(-1) > 1 or any(each < -1 for each in made):
        raise ValueError(f"a shape of {tuple(made)}")
    if -1 in made:
        known = -math.prod(made)
        made[made.index(-1)] = math.prod(old) // known if known > 0 else 0
    if math.prod(made) != math.prod(old):
        raise ValueError(f"{tuple(old)} cannot have the shape {tuple(made)}")
    return tuple(made)


def _binary(function: Callable[[Array, Array], Array]) -> Callable[[_Call], Array]:
    def compute(call: _Call) -> Array:
        left, right = call.broadcast()
        return function(left, right)

    return compute


def _unary(function: Callable[[Array], Array]) -> Callable[[_Call], Array]:
    def compute(call: _Call) -> Array:
        call.take(call[0].shape)
        return function(call[0])

    return compute


def _divided(left: Array, right: Array) -> Array:
    """Returns a quotient; that of whole numbers is rounded toward 0."""
    if left.dtype.kind != "i" or right.dtype.kind != "i":
        return left / right
    if not right.all():
        raise ValueError("a division by zero")
    return np.sign(left) * np.sign(right) * (abs(left) // abs(right))


def _cast(call: _Call) -> Array:
    call.take(call[0].shape)
    kind = call.node.get("to", 1)
    if kind in FLOATS:
        return call[0].astype(np.float32)
    if kind in (2, 3, 6, 7):
        return call[0].astype(np.int64)
    if kind == 9:
        return call[0].astype(bool)
    raise ValueError(f"a cast to kind {kind}")


def _constant(call: _Call) -> Array:
    for key, value in call.node.attributes.items():
        if isinstance(value, StoredTensor):
            return value.read()
        if key in ("value_float", "value_floats"):
            return np.array(value, np.float32)
        if key in ("value_int", "value_ints"):
            return np.array(value, np.int64)
    raise ValueError("a constant without a number")


def _constant_of_shape(call: _Call) -> Array:
    value = call.node.attributes.get("value")
    filling = value.read() if isinstance(value, StoredTensor) else np.zeros(1, np.float32)
    shape = call.take(_whole(call[0]))
    return np.full(shape, filling.reshape(-1)[0])


def _reshape(call: _Call) -> Array:
    keeps_zero = not call.node.get("allowzero", 0)
    shape = new_shape(call[0].shape, _whole(call[1]), keeps_zero=keeps_zero)
    if not call[0].flags.c_contiguous:  # a view, whose numbers are copied
        call.take(shape)
    return np.reshape(call[0], shape)


def _whole(numbers: Array) -> tuple[int, ...]:
    if numbers.size > _MOST_DIMENSIONS:
        raise ValueError(f"{numbers.size} dimensions")
    return tuple(int(each) for each in np.ravel(numbers))


def _unsqueeze(call: _Call) -> Array:
    axes = axes_of(call.node, call.optional(1)) or ()
    if call[0].ndim + len(axes) > _MOST_DIMENSIONS:
        raise ValueError(f"{call[0].ndim + len(axes)} dimensions")
    return np.expand_dims(call[0], axes)


def _squeeze(call: _Call) -> Array:
    return np.squeeze(call[0], axes_of(call.node, call.optional(1)))


def _gather(call: _Call) -> Array:
    axis, data, places = call.node.get("axis", 0), call[0], call[1]
    call.take((*data.shape[:axis], *places.shape, *data.shape[axis:][1:]))
    return np.take(data, places, axis)


def _concat(call: _Call) -> Array:
    call.take((sum(each.size for each in call.inputs if each is not None),))
    return np.concatenate(
        [call[place] for place in range(len(call.inputs))], call.node.get("axis", 0)
    )


def _slice(call: _Call) -> Array:
    found = call[0]
    for axis, begin, end, step in slices_of(call.node, call.inputs):
        places: list[Any] = [slice(None)] * found.ndim
        # Ends far below zero mean all, backward.
        places[axis] = slice(begin, None if step < 0 and end < -found.shape[axis] else end, step)
        found = found[tuple(places)]
    return found


def slices_of(node: OnnxNode, inputs: Sequence[Array | None]) -> list[tuple[int, int, int, int]]:
    """Returns axis, begin, end and step of each cut of a Slice."""
    given = [None if each is None else [int(n) for n in each.reshape(-1)] for each in inputs[1:]]
    given += [None] * (4 - len(given))
    begins = given[0] if given[0] is not None else list(node.get("starts", ()))
    ends = given[1] if given[1] is not None else list(node.get("ends", ()))
    axes = given[2] if given[2] is not None else list(node.get("axes", ()) or range(len(begins)))
    steps = given[3] if given[3] is not None else [1] * len(begins)
    if not len(begins) == len(ends) == len(axes) == len(steps) <= _MOST_DIMENSIONS:
        raise node.refused("damaged: begins, ends, axes and steps of different number")
    if not all(steps):
        raise node.refused("damaged: a step of 0")
    return list(zip(axes, begins, ends, steps, strict=True))


def _transpose(call: _Call) -> Array:
    order = call.node.get("perm", ()) or tuple(reversed(range(call[0].ndim)))
    if sorted(order) != list(range(call[0].ndim)):
        raise ValueError(f"axes {order[:8]}")
    return call[0].transpose(order)


def _expand(call: _Call) -> Array:
    shape = np.broadcast_shapes(call[0].shape, tuple(int(n) for n in call[1].reshape(-1)[:9]))
    return np.broadcast_to(call[0], call.take(shape))


def _range(call: _Call) -> Array:
    begin, end, step = (call[place].reshape(-1)[0] for place in range(3))
    call.take((max(0, math.ceil((end - begin) / step)),))
    return np.arange(begin, end, step)


def _where(call: _Call) -> Array:
    test, yes, no = call.broadcast()
    return np.where(test, yes, no)


def _identity(call: _Call) -> Array:
    return call[0]


_KINDS: dict[str, Callable[[_Call], Array | list[Array]]] = {
    "Constant": _constant,
    "ConstantOfShape": _constant_of_shape,
    "Identity": _identity,
    "Cast": _cast,
    "Reshape": _reshape,
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
    "Squeeze": _squeeze,
    "Gather": _gather,
    "Concat": _concat,
    "Slice": _slice,
    "Expand": _expand,
    "Range": _range,
    "Where": _where,
    "Add": _binary(lambda a, b: a + b),
    "Sub": _binary(lambda a, b: a - b),
    "Mul": _binary(lambda a, b: a * b),
    "Div": _binary(_divided),
    "Mod": _binary(np.mod),
    "Pow": _binary(np.power),
    "Equal": _binary(np.equal),
    "Less": _binary(np.less),
    "Greater": _binary(np.greater),
    "Max": _binary(np.maximum),
    "Min": _binary(np.minimum),
    "And": _binary(np.logical_and),
    "Or": _binary(np.logical_or),
    "Not": _unary(np.logical_not),
    "Neg": _unary(np.negative),
    "Abs": _unary(np.abs),
    "Sqrt": _unary(np.sqrt),
    "Floor": _unary(np.floor),
    "Ceil": _unary(np.ceil),
}
