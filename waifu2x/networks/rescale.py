"""Networks made to enlarge twice as much, or half as much, as their files do."""

from __future__ import annotations

import math

import numpy as np

from waifu2x.networks.model import (
    Convolution,
    Crop,
    Enlarge,
    Model,
    Node,
    fit_padding,
    leaky,
    moved,
)


def doubled(model: Model) -> Model:
    """The network on the picture with each pixel repeated, as vgg_7 doubles pictures."""
    padding = math.ceil(model.padding / 2)
    before: list[Node] = [Enlarge(0, 2)]
    if 2 * padding > model.padding:
        before.append(Crop(1, 2 * padding - model.padding))
    places = range(len(before), len(before) + len(model.nodes) + 1)
    nodes = (*before, *(moved(node, places) for node in model.nodes))
    return fit_padding(model.name, model.in_planes, nodes, model.border)


def halved(model: Model) -> Model:
    """The network, then the mean of each 2x2 pixels of its result."""
    planes = model.out_planes
    weight = np.zeros((planes, planes, 2, 2), np.float32)
    weight[range(planes), range(planes)] = 0.25
    bias = np.zeros(planes, np.float32)
    mean = Convolution(len(model.nodes), weight, bias, leaky(1.0, planes), stride=2)
    return fit_padding(model.name, model.in_planes, (*model.nodes, mean), model.border)
