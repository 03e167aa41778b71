"""Pictures through networks: which models, which planes, in what order."""

from __future__ import annotations

import math
import operator
import sys
import threading
from collections.abc import Container, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from waifu2x import alpha as transparency
from waifu2x import colour, model_set
from waifu2x.backends import Network, Precision, Progress, scaled
from waifu2x.backends.pool import open_devices
from waifu2x.dtypes import PIXEL_DTYPES, from_unit, to_unit
from waifu2x.errors import BackendError, ImageError, ModelError
from waifu2x.model import Model
from waifu2x.picture import Picture, from_pil, resize, to_pil

if TYPE_CHECKING:
    from PIL.Image import Image

SCALES = (1, 2, 4, 8, 16, 32)


class Upscaler:
    """A chain of networks, compiled once, for any number of pictures.

    `scale` is a power of two from 1 to 32 and `noise` a level from 0 (weak) to 3 (strong), or None
    for no denoising; the levels that exist depend on the model. `model` is the name of a model set
    or the path of its folder. `backend` is `auto`, or a name that `waifu2x devices` shows, and
    `device` the number of one of its devices, or several, among which the calls of several threads
    are divided. `tile` limits the output pixels worked on at once in each direction; None leaves it
    to the backend, and the result is the same to the bit. `notes` says why `auto` passed over
    better backends, and which model stands in for one that the set lacks.

    Calls may come from several threads. Use it as a context manager, or call `close`, to end its
    threads early.

    Raises ModelError, BackendError, or ValueError for arguments that make no sense.
    """

    def __init__(
        self,
        scale: int = 2,
        noise: int | None = None,
        *,
        model: str = model_set.DEFAULT,
        backend: str = "auto",
        device: int | Sequence[int] = 0,
        precision: Precision = "auto",
        tile: int | None = None,
    ) -> None:
        scale = _integer(scale, SCALES, "a scale of 1, 2, 4, 8, 16 or 32")
        if noise is not None:
            noise = _integer(noise, range(4), "a noise level from 0 to 3 or None")
        if tile is not None:
            tile = _integer(tile, range(1, sys.maxsize), "a tile of at least 1 pixel or None")
        devices = [
            _integer(number, range(sys.maxsize), "a device number from 0 up")
            for number in (device if isinstance(device, Sequence) else [device])
        ]
        if not devices or len(set(devices)) < len(devices):
            raise ValueError(f"Expected different device numbers, but got {device!r}")
        if scale == 1 and noise is None:
            raise ValueError("Nothing to do: expected a scale above 1, a noise level, or both")
        found = model_set.find(model)
        models = found.models(scale, noise)
        made = math.prod(each.scale for each in models)
        if made != scale:
            raise ModelError(f"{found.name}: enlarges {made} times or more, not {scale} times")
        self._planes = models[0].in_planes
        _check_planes(models, self._planes, found.folder)
        self.scale = scale
        self._tile = tile
        self._reach = max(m.offset for m in models)
        notes: list[str] = []
        substitute = found.substitute(scale, noise)
        if substitute:
            notes.append(substitute)
        self.backend = open_devices(backend, devices, notes.append)
        self.notes = tuple(notes)
        self._closed = False
        try:
            self._network = self.backend.compile(models, precision)
        except BaseException:
            self.backend.close()
            raise
        # Transparency is scaled but never denoised; a chain without noise serves both.
        self._alpha_network: Network | None = self._network if noise is None else None
        self._alpha_models = (found, precision)
        self._alpha_lock = threading.Lock()

    def __call__(self, image: Any, *, on_progress: Progress = lambda part: None) -> Any:
        """The image enlarged and denoised, in the kind it came: a NumPy array or a PIL image.

        Arrays are (H, W) or (H, W, C) with 1 to 4 planes: grey, grey and alpha, RGB, RGB and alpha;
        uint8 or uint16 over their range, or float32 in [0, 1]. (N, H, W, C) is N pictures, which
        some backends compute together. The result has the same planes and dtype, `scale` times the
        height and width; a PIL image is turned as its EXIF asks for, and
        comes back without it. `on_progress` is told of each further part of the
        work that is done; the parts add up to 1, and it may raise to stop the work.

        Raises ImageError for any other array or image, ModelError if the picture has transparency
        and there is no model to scale it, and BackendError after `close`.
        """
        if isinstance(image, np.ndarray) and image.ndim == 4 and len(image):
            return self._pictures(image, on_progress)
        if isinstance(image, np.ndarray):
            result = self.picture(_from_array(image), on_progress)
            return _to_array(result, image.ndim)
        if hasattr(image, "mode") and hasattr(image, "info"):
            return self._pil(image, on_progress)
        raise ImageError(f"Expected a NumPy array or a PIL image, but got {type(image).__name__}")

    def picture(self, picture: Picture, on_progress: Progress = lambda part: None) -> Picture:
        """A Picture enlarged and denoised; see `__call__`."""
        if self._closed:
            raise BackendError("this upscaler is closed: make a new one")
        dtype = picture.pixels.dtype
        pixels, alpha = np.ascontiguousarray(picture.pixels), picture.alpha
        uneven = alpha is not None and np.ptp(alpha) > 0
        # Found before the work on the colours, as there may be none.
        network = self._transparency() if uneven and self.scale > 1 else None
        share = 1.0 if network is None else 0.5
        if alpha is not None and not alpha.all():
            unit = to_unit(pixels, np.float32)
            pixels = from_unit(transparency.bleed(unit, alpha, self._reach), dtype)
        result = self._colours(pixels, scaled(on_progress, share))
        if alpha is not None:
            alpha = (
                alpha.repeat(self.scale, 0).repeat(self.scale, 1)
                if network is None
                else self._alpha(network, alpha, scaled(on_progress, 1.0 - share))
            )
        return Picture(result, alpha, picture.icc_profile)

    def close(self) -> None:
        """Frees the device. The upscaler cannot be used after that."""
        self._closed = True
        self.backend.close()

    def __enter__(self) -> Upscaler:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _pil(self, image: Image, on_progress: Progress) -> Image:
        return to_pil(self.picture(from_pil(image), on_progress))

    def _colours(self, pixels: NDArray[Any], on_progress: Progress) -> NDArray[Any]:
        """Grey or RGB through a network of one or three planes."""
        dtype, planes = pixels.dtype, pixels.shape[-1]
        if planes == self._planes:
            return self._run(self._network, pixels, dtype, on_progress)
        if planes == 1:
            rgb = self._run(self._network, pixels.repeat(3, axis=-1), np.float32, on_progress)
            return from_unit(colour.luma(rgb), dtype)
        unit = to_unit(pixels, np.float32)
        luma = self._run(self._network, colour.luma(unit), np.float32, on_progress)
        chroma = resize(colour.chroma(unit), *luma.shape[:2])
        return from_unit(colour.to_rgb(luma, chroma), dtype)

    def _pictures(self, images: NDArray[Any], on_progress: Progress) -> NDArray[Any]:
        """Pictures of one size, together where nothing but the network is to be done."""
        plain = _from_array(images[0]).alpha is None and images.shape[-1] == self._planes
        if self._closed or not plain:
            share = scaled(on_progress, 1 / len(images))
            return np.stack([self(image, on_progress=share) for image in images])
        return self._run(self._network, np.ascontiguousarray(images), images.dtype, on_progress)

    def _transparency(self) -> Network:
        """The models that only scale."""
        with self._alpha_lock:
            if self._alpha_network is None:
                found, precision = self._alpha_models
                try:
                    models = found.models(self.scale, None)
                    _check_planes(models, self._planes, found.folder)
                except ModelError as error:
                    raise ModelError(f"transparency needs a scale model: {error}") from error
                self._alpha_network = self.backend.compile(models, precision)
            return self._alpha_network

    def _alpha(self, network: Network, alpha: NDArray[Any], on_progress: Progress) -> NDArray[Any]:
        """Transparency through models that only scale, the mean of the planes."""
        planes = alpha[..., np.newaxis].repeat(self._planes, axis=-1)
        scaled = self._run(network, planes, np.float32, on_progress)
        return from_unit(scaled.mean(axis=-1), alpha.dtype)

    def _run(
        self, network: Network, pixels: NDArray[Any], dtype: DTypeLike, on_progress: Progress
    ) -> NDArray[Any]:
        """A picture, or several of one size, through a network."""
        return network(pixels, dtype, tile=self._tile, on_progress=on_progress)


def upscale(
    image: Any,
    scale: int = 2,
    noise: int | None = None,
    *,
    model: str = model_set.DEFAULT,
    backend: str = "auto",
    device: int | Sequence[int] = 0,
    precision: Precision = "auto",
    tile: int | None = None,
) -> Any:
    """One image enlarged and denoised: arguments as of Upscaler, image as of its calls."""
    with Upscaler(
        scale,
        noise,
        model=model,
        backend=backend,
        device=device,
        precision=precision,
        tile=tile,
    ) as upscaler:
        return upscaler(image)


def _integer(value: Any, allowed: Container[int], expected: str) -> int:
    """An argument as an int: NumPy's integers are welcome, 2.0 and True are mistakes."""
    try:
        number = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = None
    if number is None or number not in allowed:
        raise ValueError(f"Expected {expected}, but got {value!r}")
    return number


def _check_planes(models: Sequence[Model], planes: int, folder: Path) -> None:
    if planes not in (1, 3) or any(model.in_planes != planes for model in models):
        raise ModelError(f"{folder}: its models take {planes} planes, not 1 or 3 alike")


def _from_array(array: NDArray[Any]) -> Picture:
    planes = array[..., np.newaxis] if array.ndim == 2 else array
    if planes.ndim != 3 or not 1 <= planes.shape[-1] <= 4:
        raise ImageError(f"Expected shape (H, W) or (H, W, 1 to 4), but got {array.shape}")
    if not planes.size:
        raise ImageError(f"Expected at least one pixel, but got shape {array.shape}")
    if array.dtype not in PIXEL_DTYPES:
        raise ImageError(f"Expected uint8, uint16 or float32, but got {array.dtype}")
    if planes.shape[-1] in (2, 4):
        return Picture(planes[..., :-1], planes[..., -1])
    return Picture(planes)


def _to_array(picture: Picture, dimensions: int) -> NDArray[Any]:
    if picture.alpha is not None:
        return np.concatenate([picture.pixels, picture.alpha[..., np.newaxis]], axis=-1)
    return picture.pixels[..., 0] if dimensions == 2 else picture.pixels
