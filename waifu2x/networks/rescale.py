"""Networks made to enlarge twice as much, or half as much, as their files do."""

from __future__ import annotations

import math

import numpy as np

from waifu2x.networks.builder import GraphBuilder
from waifu2x.networks.model import Model


def doubled(model: Model) -> Model:
    """The network on the picture with each pixel repeated, as vgg_7 doubles pictures."""
    builder = GraphBuilder(model.name, model.in_planes)
    padding = math.ceil(model.padding / 2)
    value = builder.enlarge(0, 2)
    if 2 * padding > model.padding:
        value = builder.crop(value, 2 * padding - model.padding)
    builder.extend(model.nodes, value)
    return builder.model(model.border)


def halved(model: Model) -> Model:
    """The network, then the mean of each 2x2 pixels of its result."""
    builder = GraphBuilder(model.name, model.in_planes)
    planes = model.out_planes
    weight = np.zeros((planes, planes, 2, 2), np.float32)
    weight[range(planes), range(planes)] = 0.25
    value = builder.extend(model.nodes)
    builder.convolution(value, weight, np.zeros(planes, np.float32), stride=2)
    return builder.model(model.border)
