"""A device that enlarges frames as an Upscaler does pictures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from waifu2x.api import Upscaler
from waifu2x.backends.engine.engine import Engine
from waifu2x.flows.batch.session import ModelFiles, unpacked
from waifu2x.flows.film.frames.enlarging import FrameEnlarger
from waifu2x.flows.film.frames.frame_device import FrameDevice
from waifu2x.flows.film.frames.stacks import stack_size
from waifu2x.formats.film.description import Film
from waifu2x.formats.film.writing.encode import Shape
from waifu2x.system.lazy_dataclass import dataclass


def device_of(enlarge: FrameEnlarger, film: Film) -> FrameDevice:
    """The device that enlarges the frames of a film, and how it likes to be fed."""
    pictures, engine = film.pictures, enlarge.upscaler.engine
    backend = engine.backend
    is_gpu = backend.name in ("cuda", "opencl")
    return FrameDevice(
        enlarge,
        # One result is being encoded, and one more call fills what the others leave of a device.
        backend.calls_at_once + 2,
        stack_size(pictures.height, pictures.width) if is_gpu else 1,
        backend.pin,
        enlarge.arithmetic(),
        backend.device.is_gpu,
        f"{backend.name}: {backend.device.name}, {backend.device.detail}",
    )


@dataclass(frozen=True)
class UpscalerEnlarging:
    """How an upscaler enlarges frames: `Enlarging`."""

    arguments: Mapping[str, Any]
    """Those of an Upscaler."""
    model_files: ModelFiles | None = None
    """The files of a model that did not come with waifu2x: `model` is a path in their folder."""

    @contextmanager
    def opened(self, film: Film, shape: Shape) -> Iterator[FrameDevice]:
        """Opens an engine of its own. Another backend never takes its place: its parts would
        differ."""
        arguments = dict(self.arguments)
        choice = [arguments.pop(name) for name in ("backend", "device", "precision")]
        with (
            unpacked(arguments, self.model_files) as arguments,
            Engine(*choice, fallback=False) as engine,
            Upscaler(engine=engine, **arguments) as upscaler,
        ):
            yield device_of(FrameEnlarger(upscaler, film.pictures, shape), film)
