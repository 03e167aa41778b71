"""Models one after the other, compiled: what enlarges by a factor and removes noise."""

from __future__ import annotations

import functools
import math
import threading
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Protocol

from waifu2x.errors import ModelError

if TYPE_CHECKING:
    from waifu2x.backends import Backend, Network, Precision
    from waifu2x.networks.model import Model
    from waifu2x.networks.model_set import ModelSet


@dataclass(frozen=True)
class Chain:
    """Models one after the other, ready to run."""

    network: Network
    planes: int
    """That it takes and makes: 1 or 3."""
    scale: int
    reach: int
    """Pixels from which a result may take something."""


class Chains(Protocol):
    """The chains that there are. Calls may come from several threads."""

    name: str
    """Of the model set, for messages."""

    def factors(self, scale: Fraction, noise: int | None) -> tuple[int, ...]:
        """By how much each model enlarges, to reach a scale; see `ModelSet.factors`."""
        ...

    def chain(self, factor: int, noise: int | None) -> Chain:
        """What enlarges so much and denoises. Raises ModelError, BackendError."""
        ...


class CompiledChains:
    """See Chains: of a model set, compiled when they are first asked for."""

    def __init__(self, models: ModelSet, backend: Backend, precision: Precision) -> None:
        self.name = str(models.folder)
        self.factors = functools.cache(models.factors)
        self._set = models
        self._precision: Precision = precision
        self._backend = backend
        self._lock = threading.Lock()
        self._chains: dict[tuple[int, int | None], Chain] = {}

    def chain(self, factor: int, noise: int | None) -> Chain:
        """See Chains."""
        with self._lock:
            key = factor, noise
            if key not in self._chains:
                models = models_of(self._set, factor, noise)
                network = self._backend.compile(models, self._precision)
                scale = math.prod(model.scale for model in models)
                reach = max(model.offset for model in models)
                self._chains[key] = Chain(network, models[0].in_planes, scale, reach)
            return self._chains[key]


def models_of(models: ModelSet, factor: int, noise: int | None) -> list[Model]:
    """Those of a chain. Raises ModelError."""
    found = models.models(factor, noise)
    if noise is None and math.prod(model.scale for model in found) != factor:
        raise ModelError(f"{models.name}: no models that enlarge {factor} times alone")
    planes = found[0].in_planes
    if planes not in (1, 3) or any(model.in_planes != planes for model in found):
        raise ModelError(f"{models.name}: its models take {planes} planes, not 1 or 3 alike")
    return found
