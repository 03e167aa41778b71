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
"""By path, kind of change, and state of the file."""
_sources: WeakKeyDictionary[Model, Model] = WeakKeyDictionary()
"""The source of each changed model, held as long as that: they share arrays."""
_reading: dict[object, threading.Lock] = {}
"""Locks held while a model is read that other threads may ask for."""


def shared(path: Path, kind: str = "", change: Callable[[Model], Model] | None = None) -> Model:
    """Returns the model in a file, the same object while it is in use and the file stays.

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
    """Returns the network of the picture with each pixel repeated, as vgg_7 doubles pictures."""
    builder = GraphBuilder(model.name, model.in_planes)
    padding = math.ceil(model.padding / 2)
    value = builder.enlarge(0, 2)
    if 2 * padding > model.padding:
        value = builder.crop(value, 2 * padding - model.padding)
    builder.extend(model.nodes, value)
    return builder.model(model.border, frames=model.frames, surround=model.surround)


def halved(model: Model) -> Model:
    """Returns the network with the mean of each 2x2 pixels of its result."""
    builder = GraphBuilder(model.name, model.in_planes)
    planes = model.out_planes
    weight = np.zeros((planes, planes, 2, 2), np.float32)
    weight[range(planes), range(planes)] = 0.25
    value = builder.extend(model.nodes)
    builder.convolution(value, weight, np.zeros(planes, np.float32), stride=2)
    return builder.model(model.border, frames=model.frames, surround=model.surround)
