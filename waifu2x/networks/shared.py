"""Models that this process has read and still uses, so that none is read or compiled twice."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from weakref import WeakKeyDictionary, WeakValueDictionary

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
