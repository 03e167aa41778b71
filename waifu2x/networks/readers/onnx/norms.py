"""Norms: operators, and what exporters take apart into means, squares and roots."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from waifu2x.networks.nodes import GroupNorm, LayerNorm
from waifu2x.networks.readers.onnx import views
from waifu2x.networks.readers.onnx.call import Floats, NodeCall
from waifu2x.networks.readers.onnx.values import Constant, DividedMap, NormPart, Value


def layer_normalization(call: NodeCall) -> Value:
    """Adds LayerNormalization over the planes, which are the last axis."""
    view, node = call.view(), call.node
    planes = call.graph.planes(view.source.value)
    axis, count = node.get("axis", -1), len(view.dims)
    if axis not in (-1, count - 1) or not views.is_of_planes(view, count - 1):
        raise node.refused("a norm over other axes than planes: not supported")
    return _normed(call, view, _each(call, 1, planes, 1.0), _each(call, 2, planes, 0.0), _eps(call))


def group_normalization(call: NodeCall) -> Value:
    """Adds GroupNormalization, its factors by plane, or, before opset 21, by group."""
    found, node, graph = call.up_to_its_edges(call.map()), call.node, call.graph
    planes, groups = graph.planes(found.value), node.get("num_groups", 0)
    if groups < 1 or planes % groups:
        raise node.refused(f"damaged: {groups} groups of {planes} planes")
    weight, bias = _each(call, 1, planes, 1.0), _each(call, 2, planes, 0.0)
    made = graph.append(GroupNorm(graph.plain(found), weight, bias, groups, _eps(call)))
    return graph.like(found, made)


def instance_normalization(call: NodeCall) -> Value:
    """Adds InstanceNormalization, of each plane or of groups of planes."""
    view, node, graph = call.view(), call.node, call.graph
    groups = views.groups_of(view)
    if groups is None:
        raise node.refused("a norm of other than groups of planes: not supported")
    planes = graph.planes(call.up_to_its_edges(view.source).value)
    arrays = _each(call, 1, planes, 1.0, groups), _each(call, 2, planes, 0.0, groups)
    made = graph.append(GroupNorm(view.source.value, *arrays, groups, _eps(call)))
    return views.with_source(graph, view, graph.like(view.source, made))


def mean_of_planes(call: NodeCall, axis: int) -> Value:
    """Notes ReduceMean over the planes: the beginning of a norm, or its variance."""
    found, node = call.optional(0), call.node
    if isinstance(found, NormPart) and found.stage == "squared":
        part = replace(found, stage="variance")
    else:
        part = NormPart(call.view(), "mean")
    if not views.is_of_planes(part.source, axis % len(part.source.dims)):
        raise node.refused(f"a mean over axis {axis}: not supported")
    return part


def root(call: NodeCall) -> Value:
    """Notes Sqrt or Reciprocal of a variance."""
    found = call.optional(0)
    if isinstance(found, NormPart):
        if call.node.op == "Sqrt" and found.stage == "spread":
            return replace(found, stage="deviation")
        if call.node.op == "Reciprocal" and found.stage == "deviation":
            return replace(found, stage="inverse")
    raise call.node.refused("supported only in norms")


def power(call: NodeCall) -> Value:
    """Notes Pow of a norm's part; adds a square of other maps."""
    found, exponent = call.optional(0), call.array(1)
    number = float(exponent.reshape(-1)[0]) if exponent is not None and exponent.size == 1 else 0.0
    if isinstance(found, NormPart):
        if found.stage == "centred" and number == 2:
            return replace(found, stage="squared")
        if found.stage == "spread" and number in (0.5, -0.5):
            return replace(found, stage="deviation" if number > 0 else "inverse")
    elif number == 2:
        own = call.map()
        return call.graph.multiplied(own, own)
    raise call.node.refused("a power other than a square, or than a norm's root: not supported")


def of_norm(call: NodeCall) -> Value | None:
    """Returns Add, Sub, Mul or Div of a norm's part; None where neither input is one."""
    left, right = call.optional(0), call.optional(1)
    parts = [isinstance(each, NormPart) for each in (left, right)]
    if not any(parts):
        return None
    stages = [each.stage if isinstance(each, NormPart) else "" for each in (left, right)]
    match call.node.op, stages[0], stages[1]:
        case "Sub", "", "mean" if isinstance(right, NormPart) and call.view() == right.source:
            return replace(right, stage="centred")
        case "Mul", "centred", "centred" if left == right and isinstance(left, NormPart):
            return replace(left, stage="squared")
        case ("Add", "variance", "") | ("Add", "", "variance"):
            part, constant = (left, right) if parts[0] else (right, left)
            if isinstance(constant, Constant) and constant.array.size == 1:
                eps = float(constant.array.reshape(-1)[0])
                assert isinstance(part, NormPart)
                return replace(part, stage="spread", eps=eps)
        case ("Div", "centred", "deviation") | ("Mul", "centred", "inverse"):
            return _whole_norm(call, left, right)
        case "Mul", "inverse", "centred":
            return _whole_norm(call, right, left)
    raise call.node.refused("a mean over planes that is no part of a norm: not supported")


def _whole_norm(call: NodeCall, centred: Value | None, divisor: Value | None) -> Value:
    assert isinstance(centred, NormPart)
    assert isinstance(divisor, NormPart)
    if centred.source != divisor.source:
        raise call.node.refused("it divides by the deviation of another map: not supported")
    if not (math.isfinite(divisor.eps) and divisor.eps > 0):
        raise call.node.refused("a norm without an epsilon: not supported")
    planes = call.graph.planes(centred.source.source.value)
    ones, zeros = np.ones(planes, np.float32), np.zeros(planes, np.float32)
    return _normed(call, centred.source, ones, zeros, divisor.eps)


def _normed(call: NodeCall, view: DividedMap, weight: Floats, bias: Floats, eps: float) -> Value:
    graph = call.graph
    made = graph.append(LayerNorm(view.source.value, weight, bias, eps))
    return views.with_source(graph, view, graph.like(view.source, made))


def _each(call: NodeCall, place: int, planes: int, default: float, groups: int = 0) -> Floats:
    """Returns an input of numbers by plane, or by group; the default where it is left out."""
    found = call.array(place)
    if found is None:
        return np.full(planes, default, np.float32)
    count = groups or found.size
    if found.size != count or not count or planes % count:
        raise call.node.refused(f"damaged: {found.size} numbers for {planes} planes")
    return np.repeat(found.reshape(-1), planes // count)


def _eps(call: NodeCall) -> float:
    eps = call.node.get("epsilon", 1e-5)
    if not (math.isfinite(eps) and eps > 0):
        raise call.node.refused(f"damaged: an epsilon of {eps}")
    return eps
