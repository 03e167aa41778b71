"""The planes of a frame, enlarged: by a network that takes planes, or through arrays of RGB."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from waifu2x.api import Upscaler
from waifu2x.backends import Backend, planar
from waifu2x.imaging.picture import Picture
from waifu2x.imaging.planar import Matrix, PlanarPicture, PlaneFormat, Subsampling
from waifu2x.system.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from waifu2x.flows.film.parts import Planes
    from waifu2x.formats.film.description import Film, FilmColours, Pictures, PixelFormat
    from waifu2x.formats.film.encode import Shape

_MATRICES: dict[int, Matrix] = {
    1: "bt709", 4: "fcc", 5: "bt601", 6: "bt601", 7: "smpte240m", 9: "bt2020",
}  # fmt: skip
"""By the numbers of ITU-T H.273."""
_SUBSAMPLINGS: dict[tuple[int, int], Subsampling] = {
    (1, 1): "444",
    (2, 1): "422",
    (2, 2): "420",
}
"""By columns and rows of luma for a sample of chroma."""


def plane_format(pixels: PixelFormat, colours: FilmColours) -> PlaneFormat:
    """What the first three planes of a film's pictures mean, which are YUV, or what grey would mean
    with chroma of its size."""
    return PlaneFormat(
        pixels.bits,
        _SUBSAMPLINGS[pixels.columns, pixels.rows],
        _MATRICES[colours.matrix],
        colours.range == "full",
        colours.siting,
    )


@dataclass(frozen=True)
class FilmEnlarging:
    """How the frames of a film are enlarged. It can be sent to other processes."""

    arguments: Mapping[str, Any]
    """Those of an Upscaler, but for the device."""
    device: tuple[int, ...] | Literal["all"] = (0,)
    """As for an Upscaler."""

    @contextmanager
    def opened(self, film: Film, shape: Shape) -> Iterator[FrameEnlarger]:
        """What enlarges frames, for as long as the context lasts. Raises ImageError, ModelError,
        BackendError."""
        with Upscaler(**self.arguments, device=self.device) as upscaler:
            yield FrameEnlarger(upscaler, film.pictures, shape)


class FrameEnlarger:
    """What `make_film` takes to enlarge the frames of one film. Threads may share it.

    Where the whole of it is to run a network of three planes on YUV planes, engines read and write
    the planes themselves. All else goes through float RGB on the host, by the same definition:
    results that are resized after the network, networks of luma alone, and frames that are grey,
    RGB or transparent.
    """

    def __init__(self, upscaler: Upscaler, pictures: Pictures, shape: Shape) -> None:
        """Raises ImageError, ModelError, BackendError."""
        self.upscaler = upscaler
        self._networks = upscaler.networks
        self._enlarger = upscaler.enlarger
        self._source, self._source_colours = pictures.pixels, pictures.colours
        self._target, self._target_colours = shape.encoding.pixels, shape.colours
        self._factor = None
        if self._source.planes == self._target.planes == 3 and not (
            self._source.is_rgb or self._target.is_rgb
        ):
            self._factor = self._enlarger.network_factor(pictures.height, pictures.width, 3)

    @property
    def is_direct(self) -> bool:
        """Whether engines read and write the planes themselves."""
        return self._factor is not None

    @property
    def backend(self) -> Backend:
        """What computes."""
        return self.upscaler.engine.backend

    def picture(self, planes: Planes) -> Picture:
        """A frame as RGB or grey, float32."""
        return _picture(planes, self._source, self._source_colours)

    def __call__(self, frames: Sequence[Planes], out: Sequence[Planes]) -> None:
        """Writes the results of frames into as many planes. Raises BackendError."""
        if self._factor is None:
            for planes, made in zip(frames, out, strict=True):
                result = self._enlarger.picture(self.picture(planes))
                _write(result, made, self._target, self._target_colours)
            return
        network = self._networks.chains.network(self._factor, self._enlarger.noise)
        network.run_planes(
            [_planar(planes, self._source, self._source_colours) for planes in frames],
            [_planar(planes, self._target, self._target_colours) for planes in out],
            tile=self._networks.tile,
            tta=self._networks.tta,
        )


def _planar(planes: Planes, pixels: PixelFormat, colours: FilmColours) -> PlanarPicture:
    return PlanarPicture(plane_format(pixels, colours), *planes[:3])


def _picture(planes: Planes, pixels: PixelFormat, colours: FilmColours) -> Picture:
    """A frame as float RGB or grey."""
    peak = np.float32((1 << pixels.bits) - 1)
    alpha = planes[3] / peak if pixels.planes == 4 else None
    if pixels.is_rgb:
        green, blue, red = (plane / peak for plane in planes[:3])
        return Picture(np.stack([red, green, blue], axis=-1), alpha)
    if pixels.planes == 1:
        grey = _with_grey_chroma(planes[0], pixels, colours)
        return Picture(planar.to_rgb(grey)[..., :1], alpha)
    return Picture(planar.to_rgb(_planar(planes, pixels, colours)), alpha)


def _with_grey_chroma(
    luma: NDArray[Any], pixels: PixelFormat, colours: FilmColours
) -> PlanarPicture:
    chroma = np.full_like(luma, 128 << (pixels.bits - 8))
    return _planar([luma, chroma, chroma], pixels, colours)


def _write(picture: Picture, planes: Planes, pixels: PixelFormat, colours: FilmColours) -> None:
    """Writes a result into planes."""
    rgb = picture.pixels
    if rgb.shape[-1] == 1:
        rgb = rgb.repeat(3, axis=-1)
    peak = (1 << pixels.bits) - 1
    if pixels.is_rgb:
        for plane, channel in zip(planes, (1, 2, 0), strict=False):
            plane[:] = np.floor(rgb[..., channel] * np.float64(peak) + 0.5)
    else:
        planar.from_rgb(rgb, _planar(planes, pixels, colours))
    if pixels.planes == 4:
        alpha = np.ones(planes[0].shape) if picture.alpha is None else picture.alpha
        planes[3][:] = np.floor(alpha * np.float64(peak) + 0.5)
