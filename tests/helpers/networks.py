"""Networks that nothing is compiled for, and that tell how they are used."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from numpy.typing import NDArray

from waifu2x.api import Upscaler
from waifu2x.backends.call import Call


class Doubling:
    """A network that repeats pixels, and counts who is in it at once."""

    def __init__(
        self,
        meanwhile: Callable[[], object] = lambda: None,
        is_again: Callable[[NDArray[Any]], bool] = lambda picture: False,
    ) -> None:
        """`is_again` says which pictures are said to be computed again."""
        self.meanwhile = meanwhile
        self.is_again = is_again
        self.lock = threading.Lock()
        self.inside = self.most = 0
        self.shapes: list[tuple[int, ...]] = []

    def run(self, call: Call[NDArray[Any]]) -> NDArray[Any]:
        pixels, out = call.source, call.out
        with self.lock:
            self.inside += 1
            self.most = max(self.most, self.inside)
            self.shapes.append(pixels.shape)
        try:
            self.meanwhile()
            call.on_progress(1.0)
            larger = pixels.repeat(2, axis=-3).repeat(2, axis=-2)
            if out is None:
                out = larger
            else:
                out[...] = larger
            for number, picture in enumerate(pixels if pixels.ndim == 4 else [pixels]):
                if self.is_again(picture):
                    call.on_recomputed(number)
            return out
        finally:
            with self.lock:
                self.inside -= 1

    def close(self) -> None:
        """Nothing is to be freed."""


def use_network(upscaler: Upscaler, network: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Puts another network into the place of all that an upscaler has."""
    chains = upscaler.networks.chains
    monkeypatch.setattr(chains, "network", lambda factor, noise: network)
