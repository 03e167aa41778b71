"""Enlarges the planes of frames: by a network that takes planes, or through arrays of RGB."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from waifu2x.api import Upscaler
from waifu2x.backends import Backend
from waifu2x.backends.call import Call
from waifu2x.backends.engine.engine import Engine
from waifu2x.errors import ModelError
from waifu2x.flows.batch.session import ModelFiles, unpacked
from waifu2x.flows.film.frames.changed_areas import AreaWork
from waifu2x.flows.film.frames.frame_device import FrameDevice, stack_size
from waifu2x.formats.film.description import Film, becomes_sdr
from waifu2x.formats.film.writing.encode import Shape
from waifu2x.formats.metadata.sdr import SdrConversion
from waifu2x.imaging import planar_rgb
from waifu2x.imaging.picture import CodePoints, Picture
from waifu2x.imaging.planar import Matrix, PlanarPicture, PlaneFormat
from waifu2x.system.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from waifu2x.flows.film.frames.frame_source import Planes
    from waifu2x.formats.film.description import FilmColours, Pictures, PixelFormat
    from waifu2x.lowering.plan.box import Box

_MATRICES: dict[int, Matrix] = {
    1: "bt709", 4: "fcc", 5: "bt601", 6: "bt601", 7: "smpte240m", 9: "bt2020",
}  # fmt: skip
"""By the numbers of ITU-T H.273."""
_WAITING = 6
"""Results that may wait for the encoder. A GPU that was idle meanwhile cannot make up for it."""
_CALL = 2e-3
"""Seconds that a call of a network takes by itself."""
_WAITING_BYTES = 256 << 20
"""The most bytes of such results, which are page-locked."""


def plane_format(pixels: PixelFormat, colours: FilmColours) -> PlaneFormat:
    """Returns the meaning of the planes of a film, without that of transparency."""
    is_grey = pixels.planes < 3
    return PlaneFormat(
        pixels.bits,
        "400" if is_grey else pixels.chroma,
        # `upscale` takes grey for luma of BT.601, whatever matrix the film names.
        "rgb" if pixels.is_rgb else "bt601" if is_grey else _MATRICES[colours.matrix],
        colours.range == "full",
        colours.siting,
    )


class FrameEnlarger:
    """Enlarges the frames of one film. Threads may share it. Networks of three planes read and
    write the planes themselves. Results that are resized afterwards, networks of luma, transparent
    frames and HDR that becomes SDR go through float RGB on the host, by the same formulas."""

    def __init__(self, upscaler: Upscaler, pictures: Pictures, shape: Shape) -> None:
        """Raises ImageError, ModelError, BackendError."""
        self.upscaler, self.shape = upscaler, shape
        self._networks = upscaler.networks
        self._enlarger = upscaler.enlarger
        self._pictures = pictures
        pixels = shape.encoding.pixels
        self._source = plane_format(pictures.pixels, pictures.colours)
        self._target = plane_format(pixels, shape.colours)
        self._grey = 0
        """The value of no chroma, where frames are grey and results are not."""
        if pictures.pixels.planes < 3 <= pixels.planes:
            self._target = replace(self._target, subsampling="400", matrix="bt601")
            self._grey = 128 << (pixels.bits - 8)
        self._has_alpha = pictures.pixels.planes in (2, 4)
        self._to_sdr = None
        if becomes_sdr(pictures.colours, shape.colours):
            points = CodePoints(pictures.colours.primaries, pictures.colours.transfer)
            self._to_sdr = SdrConversion(points, pictures.hdr, is_film=True)
        height, width = pictures.height, pictures.width
        self.frames = self._enlarger.frames(height, width)
        """Frames of the window that a result is made of."""
        self._factor = None
        if not (self._has_alpha or self._to_sdr):
            self._factor = self._enlarger.network_factor(height, width, 3)

    @property
    def backend(self) -> Backend:
        return self.upscaler.engine.backend

    def arithmetic(self) -> str:
        """Returns the name of the backend, the arithmetic of its network, and that for
        transparency. Equal ones make equal frames. Raises BackendError, ModelError."""
        factor = self._enlarger.chain_factor(self._pictures.height, self._pictures.width)
        if factor is None:
            return self.backend.name
        chains, noise = self._networks.chains, self._enlarger.noise
        told = f"{self.backend.name}: {chains.network(factor, noise).arithmetic}"
        if self._has_alpha and factor > 1 and noise is not None:
            # Without such a chain, unevenly transparent frames are an error.
            with suppress(ModelError):
                told += f", transparency {chains.network(factor, None).arithmetic}"
        return told

    @property
    def areas(self) -> AreaWork | None:
        """Returns how areas of frames are enlarged; None where only whole frames are: by other ways
        than a network of planes alone, by networks that see the whole picture, and on GPUs. Raises
        BackendError, ModelError."""
        if self._factor is None or self._networks.tta > 1:  # turned parts have other cells
            return None
        if self.backend.device.is_gpu:
            # They plan each size of picture: 720p took an H200 six times as long in areas by vgg_7.
            return None
        support = self._networks.chains.network(self._factor, self._enlarger.noise).support
        if support is None:
            return None
        border = 0.5 if self.backend.name == "cpu" else 1.0
        return AreaWork(self._network, support, _CALL, border)

    def enlarged(self, planes: Planes) -> Picture:
        """Returns the result for a frame, or for the planes of all frames of its window, the
        earliest first. Raises BackendError."""
        if self.frames == 1:
            return self._enlarger.picture(self.picture(planes))
        return self._enlarger.window([self.picture(one) for one in self._window(planes)])

    def picture(self, planes: Planes) -> Picture:
        """Returns a frame as RGB or grey, float32, in SDR if that is made of HDR."""
        pixels = planar_rgb.to_rgb(_planar(planes, self._source))
        if self._to_sdr is not None:
            pixels = self._to_sdr(pixels)
        peak = np.float32((1 << self._source.bits) - 1)
        return Picture(pixels, planes[-1] / peak if self._has_alpha else None)

    def __call__(self, frames: Sequence[Planes], out: Sequence[Planes]) -> Collection[int]:
        """Enlarges frames, each given by the planes of its window, into the planes `out`; returns
        the numbers of those that a network of planes computed again, in wider numbers. Raises
        BackendError."""
        if self._factor is not None:
            return self._network(frames, out)
        for planes, made in zip(frames, out, strict=True):
            self._write(self.enlarged(planes), made)
        self._fill(out)
        return ()

    def _network(
        self, frames: Sequence[Planes], out: Sequence[Planes], inner: Box | None = None
    ) -> Collection[int]:
        """Runs frames, or parts of them, through the network of planes; for `inner`, see Call."""
        assert self._factor is not None
        again: list[int] = []
        network = self._networks.chains.network(self._factor, self._enlarger.noise)
        network.run(
            Call(
                [_planar(one, self._source) for planes in frames for one in self._window(planes)],
                out=[_planar(planes, self._target) for planes in out],
                tile=self._networks.tile,
                tta=self._networks.tta,
                on_recomputed=again.append,
                inner=inner,
            )
        )
        self._fill(out)
        return again

    def _fill(self, out: Sequence[Planes]) -> None:
        """Fills the chroma of results that have none."""
        if self._grey:
            for made in out:
                for chroma in made[1:3]:
                    chroma.fill(self._grey)

    def _window(self, planes: Planes) -> list[Planes]:
        """Returns the planes of each frame of a window."""
        each = len(planes) // self.frames
        return [planes[first : first + each] for first in range(0, len(planes), each)]

    def _write(self, picture: Picture, out: Planes) -> None:
        planar_rgb.from_rgb(picture.pixels, _planar(out, self._target))
        if self._has_alpha:
            peak = (1 << self._target.bits) - 1
            if picture.alpha is None:
                out[-1].fill(peak)
            else:
                np.add(picture.alpha * np.float64(peak), 0.5, out=out[-1], casting="unsafe")


def _planar(planes: Planes, form: PlaneFormat) -> PlanarPicture:
    return PlanarPicture(form, *planes[: 1 if form.is_grey else 3])


def device_of(enlarge: FrameEnlarger, film: Film) -> FrameDevice:
    """Returns the device that enlarges the frames of a film."""
    pictures, backend = film.pictures, enlarge.backend
    stack, waiting = 1, 0
    if backend.name in ("cuda", "opencl", "vulkan"):
        stack = stack_size(pictures.height, pictures.width)
        shape = enlarge.shape
        nbytes = shape.encoding.pixels.nbytes(shape.height, shape.width)
        waiting = min(_WAITING, _WAITING_BYTES // (stack * nbytes))
    return FrameDevice(
        enlarge,
        # One result is being encoded, and one more call fills gaps on the device.
        backend.calls_at_once + 2,
        stack,
        waiting,
        backend.pin,
        enlarge.arithmetic(),
        backend.device.is_gpu,
        f"{backend.name}: {backend.device.name}, {backend.device.detail}",
        enlarge.frames,
        enlarge.areas,
    )


@dataclass(frozen=True)
class UpscalerEnlarging:
    """Opens devices that enlarge frames as an Upscaler does."""

    arguments: Mapping[str, Any]
    model_files: ModelFiles | None = None
    """Files of a model that was not shipped: `model` is a path in their folder."""

    @contextmanager
    def opened(self, film: Film, shape: Shape) -> Iterator[FrameDevice]:
        """Opens an engine without fallback, since parts of another backend would differ."""
        arguments = dict(self.arguments)
        choice = [arguments.pop(name) for name in ("backend", "device", "precision")]
        with (
            unpacked(arguments, self.model_files) as arguments,
            Engine(*choice, fallback=False) as engine,
            Upscaler(engine=engine, **arguments) as upscaler,
        ):
            yield device_of(FrameEnlarger(upscaler, film.pictures, shape), film)
