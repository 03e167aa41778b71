"""Chains of models that run in turn, to enlarge by a factor and remove noise."""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Iterable
from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from waifu2x.backends.call import closed_network
from waifu2x.errors import ModelError
from waifu2x.networks.frame_windows import WindowNetwork
from waifu2x.system.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from waifu2x.backends import Network
    from waifu2x.backends.engine.engine import Engine
    from waifu2x.networks.model import Model
    from waifu2x.networks.model_set import ModelSet


class ChainFacts(NamedTuple):
    """Facts of a chain that need no run."""

    planes: int
    """Planes that it takes and makes: 1 or 3."""
    scale: int
    """How many times it enlarges, on each side."""
    radius: int
    """Receptive-field radius: how many pixels away an input pixel may change an output pixel."""
    frames: int = 1
    """Frames of a film that it takes, to make the middle one; their planes count once."""


class Facts(Protocol):
    """The chains of a model set, as far as they are known without a device."""

    @property
    def name(self) -> str:
        """Returns the model set's name, for messages."""

    def factors(self, scale: Fraction, noise: int | None) -> tuple[int, ...]:
        """Returns by how much each model of a chain enlarges, to reach `scale`.

        The same as `ModelSet.factors`. Raises ModelError.
        """

    def facts(self, factor: int, noise: int | None) -> ChainFacts:
        """Returns the facts of the chain that enlarges `factor` times and removes `noise`.

        Raises ModelError.
        """


class Chains(Facts, Protocol):
    """Chains with networks that run them. Calls may come from several threads."""

    def network(self, factor: int, noise: int | None) -> Network:
        """Returns the network that enlarges `factor` times and removes `noise`, compiled at first
        use.

        Raises ModelError, BackendError.
        """


class EngineChains:
    """Runs the chains of a model set on an engine. Keeps networks from first use to `close`."""

    def __init__(self, models: ModelSet, engine: Engine) -> None:
        self.name = str(models.folder)
        self.factors = models.factors
        self._set = models
        self._engine = engine
        self._lock = threading.Lock()
        self._read: dict[tuple[int, int | None], tuple[list[Model], ChainFacts]] = {}
        self._networks: dict[tuple[int, int | None], Network] = {}
        self._is_closed = False

    def keep(self, factor: int, noise: int | None, models: list[Model]) -> None:
        """Takes the models of a chain that have been read already."""
        with self._lock:
            self._read[factor, noise] = models, _facts(models)

    def facts(self, factor: int, noise: int | None) -> ChainFacts:
        """Returns a chain's facts; reads its models at first use. Raises ModelError."""
        return self._chain(factor, noise)[1]

    def network(self, factor: int, noise: int | None) -> Network:
        """Returns a chain's network, which the engine compiles at first use.

        Raises ModelError, and BackendError, after `close` too.
        """
        key = factor, noise
        with self._lock:
            if key in self._networks:
                return self._networks[key]
        # Outside the lock: other chains and threads need not wait for this one.
        models = self._chain(factor, noise)[0]
        network = self._engine.network(models)
        if models[0].frames > 1:
            network = WindowNetwork(network, models[0])
        with self._lock:
            if not self._is_closed and key not in self._networks:
                self._networks[key] = network
                return network
            kept = self._networks.get(key)
        network.close()
        if kept is None:
            raise closed_network()
        return kept

    def close(self) -> None:
        """Gives all networks back to the engine."""
        with self._lock:
            self._is_closed = True
            networks, self._networks = list(self._networks.values()), {}
        for network in networks:
            network.close()

    def _chain(self, factor: int, noise: int | None) -> tuple[list[Model], ChainFacts]:
        key = factor, noise
        with self._lock:
            if key not in self._read:
                models = models_of(self._set, factor, noise)
                self._read[key] = models, _facts(models)
            return self._read[key]


@dataclass(frozen=True)
class FactTable:
    """Facts written down for another process, which needs neither models nor a device.

    Where a chain is missing, it has the message of the ModelError.
    """

    name: str
    scales: dict[tuple[int, int | None], tuple[int, ...] | str]
    """`factors` of whole scales and noise levels."""
    chains: dict[tuple[int, int | None], ChainFacts | str]

    @classmethod
    def of(
        cls, facts: Facts, levels: Iterable[int | None], scales: Iterable[Fraction]
    ) -> FactTable:
        """Returns the facts for pictures that grow by one of `scales`, with or without
        transparency, and have one of the noise `levels` removed."""
        whole: dict[tuple[int, int | None], tuple[int, ...] | str] = {}
        chains: dict[tuple[int, int | None], ChainFacts | str] = {}
        for scale, noise in itertools.product({math.ceil(each) for each in scales}, levels):
            try:
                whole[scale, noise] = factors = facts.factors(Fraction(scale), noise)
            except ModelError as error:
                whole[scale, noise] = str(error)
                continue
            for key in {(math.prod(factors), noise), (math.prod(factors), None)} - {(1, None)}:
                if key not in chains:
                    try:
                        chains[key] = facts.facts(*key)
                    except ModelError as error:
                        chains[key] = str(error)
        return cls(facts.name, whole, chains)

    def factors(self, scale: Fraction, noise: int | None) -> tuple[int, ...]:
        """Returns the factors of the next whole scale: chains have no others. Raises ModelError."""
        return _known(self.scales[math.ceil(scale), noise])

    def facts(self, factor: int, noise: int | None) -> ChainFacts:
        """Returns the facts of a chain. Raises ModelError."""
        return _known(self.chains[factor, noise])


_Known = TypeVar("_Known")


def _known(found: _Known | str) -> _Known:
    if isinstance(found, str):
        raise ModelError(found)
    return found


def _facts(models: list[Model]) -> ChainFacts:
    scale = math.prod(model.scale for model in models)
    frames = models[0].frames
    planes, radius = models[0].in_planes // frames, max(model.offset for model in models)
    return ChainFacts(planes, scale, radius, frames)


def models_of(models: ModelSet, factor: int, noise: int | None) -> list[Model]:
    """Returns the models of a chain, in the order in which they run. Raises ModelError."""
    found = models.models(factor, noise)
    if noise is None and math.prod(model.scale for model in found) != factor:
        raise ModelError(f"{models.name}: no models that enlarge {factor} times alone")
    frames = max(model.frames for model in found)
    if frames > 1 and len(found) > 1:
        raise ModelError(
            f"{models.name}: a network that takes {frames} frames runs alone, not in a chain of"
            f" {len(found)}",
            "choose a scale and a noise level that one network is enough for",
        )
    planes = found[0].in_planes // frames
    each = {(model.in_planes, model.out_planes) for model in found}
    if planes not in (1, 3) or each != {(planes * frames, planes)}:
        raise ModelError(
            f"{models.name}: its models take {planes} planes and make {found[-1].out_planes}, not"
            " 1 or 3 alike"
        )
    return found
