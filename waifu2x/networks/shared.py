"""Models that this process has read and still uses, so that none is read or compiled twice."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from pathlib import Path
from weakref import WeakKeyDictionary, WeakValueDictionary

import numpy as np

from waifu2x.networks.builder import GraphBuilder
from waifu2x.networks.digests import file_states
from waifu2x.networks.model import Model
from waifu2x.networks.readers import content_files, read_model

_lock = threading.Lock()
_models: WeakValueDictionary[object, Model] = WeakValueDictionary()
"""By path, what was made of the file, and what the file system tells of it."""
_sources: WeakKeyDictionary[Model, Model] = WeakKeyDictionary()
"""What each changed model was made of, held as long as that is: they have the same arrays."""
_reading: dict[object, threading.Lock] = {}
"""Held by who reads a model that others may ask for meanwhile."""


def shared(path: Path, kind: str = "", change: Callable[[Model], Model] | None = None) -> Model:
    """The model in a file, the same object for as long as anybody holds it and the file stays.

    `change` makes another model of it, which is shared under the name `kind`. A file that was
    written anew is read anew. Raises ModelError as `read_model` does.
    """
    key = (str(path), kind, file_states(content_files(path)))
    with _lock:
        found = _models.get(key)
        if found is not None:
            return found
        reading = _reading.setdefault(key, threading.Lock())
    with reading:
        try:
            with _lock:
                found = _models.get(key)
            if found is None:
                found = read_model(path) if change is None else _changed(shared(path), change)
                with _lock:
                    _models[key] = found
            return found
        finally:
            with _lock:
                _reading.pop(key, None)


def _changed(source: Model, change: Callable[[Model], Model]) -> Model:
    made = change(source)
    with _lock:
        _sources[made] = source
    return made


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
