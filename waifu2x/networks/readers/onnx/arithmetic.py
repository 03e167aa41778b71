"""Functions of each value, and sums and products of maps and constants."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from waifu2x.networks.activations import Activation
from waifu2x.networks.expressions import LEAKY, Arithmetic, Operator
from waifu2x.networks.readers.onnx import elementwise as functions
from waifu2x.networks.readers.onnx import views
from waifu2x.networks.readers.onnx.call import NodeCall
from waifu2x.networks.readers.onnx.norms import of_norm
from waifu2x.networks.readers.onnx.values import NOTHING, Constant, DividedMap, MapValue, Value


def activation(call: NodeCall) -> Value:
    """Applies a function to each value."""
    (found, view), node = call.elements(), call.node
    constants = 0.0, 0.0
    match node.op:
        case "LeakyRelu":
            constants = node.get("alpha", 0.01), 0.0
        case "HardSigmoid":
            constants = node.get("alpha", 0.2), node.get("beta", 0.5)
        case "Gelu":
            call.only("approximate", "none")
        case "Clip":
            bounds = [call.array(place) for place in (1, 2)]
            low, high = (None if each is None else float(each.reshape(-1)[0]) for each in bounds)
            constants = (
                node.get("min", -math.inf) if low is None else low,
                node.get("max", math.inf) if high is None else high,
            )
    inner = functions.expression_of(found.pending)
    if inner is None:
        found = call.graph.like(found, call.graph.plain(found))
        inner = functions.expression_of(NOTHING)
    assert inner is not None
    made = functions.applied(node.op, inner, constants)
    if made is None:
        raise node.refused("not supported")
    return call.again(replace(found, pending=replace(NOTHING, function=made)), view)


def prelu(call: NodeCall) -> Value:
    """Applies PRelu, of one slope or one for each plane."""
    found, slopes = call.map(), call.array(1)
    planes = call.graph.planes(found.value)
    if slopes is None or slopes.size not in (1, planes):
        raise call.node.refused("slopes by pixel: not supported")
    function = Activation(LEAKY, np.resize(slopes.reshape(-1), planes))
    return call.graph.like(found, call.graph.activated(call.graph.plain(found), function))


_OPERATORS: dict[str, Operator] = {"Add": "+", "Sub": "-", "Mul": "*", "Div": "/"}


def arithmetic(call: NodeCall) -> Value:
    """Applies Add, Sub, Mul or Div to maps, or to a map and constants."""
    node = call.node
    if len(call.inputs) != 2:
        raise node.refused("damaged: expected two inputs")
    norm = of_norm(call)
    if norm is not None:
        return norm
    operator = _OPERATORS[node.op]
    constants = [isinstance(each, Constant) for each in call.inputs]
    if any(constants):
        return _with_constant(call, operator, is_first=constants[0])
    (left, view), (right, other) = call.elements(0), call.elements(1)
    if (view is None) != (other is None) or (view and other and not _are_alike(view, other)):
        raise node.refused("maps of different shapes: not supported")
    return call.again(_of_maps(call, operator, left, right), view)


def _are_alike(view: DividedMap, other: DividedMap) -> bool:
    """Returns whether both views pair the same numbers of their maps."""
    return replace(view, source=other.source) == other


def _of_maps(call: NodeCall, operator: Operator, left: MapValue, right: MapValue) -> MapValue:
    node, graph = call.node, call.graph
    together = _together(left, right, operator)
    if together is not None:
        return together
    vectors = [graph.is_vector(each.value) for each in (left, right)]
    if left.shown != right.shown and not (operator == "*" and any(vectors)):
        raise node.refused("maps of different sizes: not supported")
    match operator:
        case "+":
            return graph.sum(left, right, 1.0)
        case "-":
            return graph.sum(left, right, -1.0)
        case "*":
            return graph.multiplied(left, right)
    raise node.refused("a map divided by a map: not supported")


def _with_constant(call: NodeCall, operator: Operator, *, is_first: bool) -> Value:
    found, view = call.elements(int(is_first))
    constant = call.array(int(not is_first))
    assert constant is not None
    planes = call.graph.planes(found.value)
    axis = -3
    if view is not None:
        count = len(view.dims)
        axis = next((n - count for n in range(count) if views.is_of_planes(view, n)), 0)
    by_plane = (1,) * (constant.ndim + axis) + (planes,) + (1,) * (-axis - 1)
    if constant.size != 1 and constant.shape != by_plane:
        raise call.node.refused(f"a constant of the shape {constant.shape}: not supported")
    values = tuple(constant.reshape(-1).tolist())
    if operator == "/" and not is_first and 0.0 in values:
        raise call.node.refused("damaged: a division by zero")
    made = functions.with_constant(operator, found.pending, values, is_first=is_first)
    if made is None:
        found = call.graph.like(found, call.graph.plain(found))
        made = functions.with_constant(operator, NOTHING, values, is_first=is_first)
    if made is None or not all(map(math.isfinite, made.factors + made.shifts)):
        raise call.node.refused("numbers that are too large, or divided by a map")
    return call.again(replace(found, pending=made), view)


def _together(left: MapValue, right: MapValue, operator: Operator) -> MapValue | None:
    """Returns two functions of one map as one; None for others."""
    if replace(left, pending=NOTHING) != replace(right, pending=NOTHING):
        return None
    if left.pending.function is None and right.pending.function is None:
        return None
    first, second = map(functions.expression_of, (left.pending, right.pending))
    if first is None or second is None:
        return None
    made = Arithmetic(operator, first, second)
    return replace(left, pending=replace(NOTHING, function=made))
