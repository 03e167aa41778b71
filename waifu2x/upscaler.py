"""Pictures through networks: which models, which planes, in what order."""

from __future__ import annotations

import math
import operator
import sys
import threading
from collections.abc import Container, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from waifu2x import alpha as transparency
from waifu2x import colour, model_set, sizes
from waifu2x.backends import Network, Precision, Progress, ignore, scaled
from waifu2x.backends.pool import open_devices
from waifu2x.dtypes import PIXEL_DTYPES, from_unit, to_unit
from waifu2x.errors import BackendError, ImageError, ModelError
from waifu2x.model import Model
from waifu2x.pictures.picture import Picture, with_alpha
from waifu2x.pictures.profiles import in_srgb_tone
from waifu2x.sizes import Fit, Plan
from waifu2x.stopwatch import Stopwatch

if TYPE_CHECKING:
    from PIL.Image import Image

_RESIZE_SHARE = 0.05
"""Of the work, where networks have a part in it: for progress."""


@dataclass(frozen=True)
class _Chain:
    """Models one after the other, compiled."""

    network: Network
    planes: int
    """That it takes and makes."""
    reach: int
    """Pixels from which a result may take something."""


class Upscaler:
    """Chains of networks, compiled once each, for any number of pictures.

    How large results are, one of these says: `scale`, any number above 0 and up to 32 (a float
    means the decimal number that it is printed as); `width` and `height`, one of them or both with
    a `fit` (see `sizes.Fit`); `longer_side`; `shorter_side`; or `min_size`, (width, height) that a
    result has at least. Without any of them it is a scale of 2. Networks double a picture until it
    is at least as large, and Lanczos reduces it to the size, which is rounded to the nearest whole
    pixel, halves up. Pictures whose longer side has `only_smaller_than` pixels or more come back as
    they are.

    `noise` is a level from 0 (weak) to 3 (strong), or None for no denoising; the levels that exist
    depend on the model. `tta` is 1, 2, 4 or 8: with more than 1, every network runs on the picture
    turned and mirrored in so many ways, and the mean of the results counts. `model` is the name of
    a model set or the path of its folder. `backend` is `auto`, or a name that `waifu2x devices`
    shows, and `device` the number of one of its devices, or several, among which the calls of
    several threads are divided. `tile` limits the output pixels worked on at once in each
    direction; None leaves it to the backend, and the result is the same to the bit. `notes` says
    why `auto` passed over better backends, and which model stands in for one that the set lacks.

    Calls may come from several threads. Use it as a context manager, or call `close`, to end its
    threads early.

    Raises ModelError, BackendError, or ValueError for arguments that make no sense.
    """

    def __init__(
        self,
        scale: float | Fraction | None = None,
        noise: int | None = None,
        *,
        width: int | None = None,
        height: int | None = None,
        fit: Fit = "inside",
        longer_side: int | None = None,
        shorter_side: int | None = None,
        min_size: tuple[int, int] | None = None,
        only_smaller_than: int | None = None,
        tta: int = 1,
        model: str = model_set.DEFAULT,
        backend: str = "auto",
        device: int | Sequence[int] = 0,
        precision: Precision = "auto",
        tile: int | None = None,
    ) -> None:
        self._request = sizes.request(
            scale,
            width=width,
            height=height,
            fit=fit,
            longer_side=longer_side,
            shorter_side=shorter_side,
            min_size=min_size,
            only_smaller_than=only_smaller_than,
        )
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
        if self._request.scale == 1 and noise is None:
            raise ValueError("Nothing to do: expected a scale above 1, a noise level, or both")
        self._noise = noise
        self._turns = _integer(tta, (1, 2, 4, 8), "a tta of 1, 2, 4 or 8")
        self._tile = tile
        self._precision = precision
        self._set = model_set.find(model)
        self._chains: dict[tuple[int, int | None], _Chain] = {}
        self._chain_lock = threading.Lock()
        # Sizes other than a scale tell only with a picture which networks it goes through.
        fixed = self._request.scale
        factor = self._enlargement(Fraction(2) if fixed is None else fixed)
        if factor > 1 or noise is not None:
            self._models(factor, noise)
        notes: list[str] = []
        substitute = self._set.substitute(1 if fixed is None else factor, noise)
        if substitute:
            notes.append(substitute)
        self.backend = open_devices(backend, devices, notes.append)
        self.notes = tuple(notes)
        self._closed = False
        try:
            if fixed is not None:
                self._chain(factor, noise)
        except BaseException:
            self.backend.close()
            raise

    def __call__(self, image: Any, *, on_progress: Progress = ignore) -> Any:
        """The image enlarged and denoised, in the kind it came: a NumPy array or a PIL image.

        Arrays are (H, W) or (H, W, C) with 1 to 4 planes: grey, grey and alpha, RGB, RGB and alpha;
        uint8 or uint16 over their range, or float32 in [0, 1]. (N, H, W, C) is N pictures, which
        some backends compute together. The result has the same planes and dtype; a PIL image is
        turned as its EXIF asks for, and comes back without it. `on_progress` is told of each
        further part of the work that is done; the parts add up to 1, and it may raise to stop the
        work.

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

    def picture(
        self,
        picture: Picture,
        on_progress: Progress = ignore,
        stopwatch: Stopwatch | None = None,
    ) -> Picture:
        """A Picture enlarged and denoised; see `__call__`. `stopwatch` gets the seconds."""
        if self._closed:
            raise BackendError("this upscaler is closed: make a new one")
        height, width = picture.pixels.shape[:2]
        if self.leaves(height, width):
            on_progress(1.0)
            return picture
        plan = self._plan(height, width)
        spent = stopwatch or Stopwatch()
        with spent("prepare"):
            chain = self._chain(plan.factor, self._noise)
        # What is resized stays float until then.
        dtype = picture.pixels.dtype
        between = dtype if plan.part is None else np.dtype(np.float32)
        resizing = 0.0 if plan.part is None else _RESIZE_SHARE if chain else 1.0
        networks = scaled(on_progress, 1.0 - resizing)
        with spent("network"):
            pixels, alpha = self._through(picture, plan, chain, between, networks)
        if plan.part is not None:
            with spent("resize"):
                pixels, alpha = _resized(pixels, alpha, plan, dtype)
            on_progress(resizing)
        return replace(picture, pixels=pixels, alpha=alpha)

    def result_size(self, height: int, width: int) -> tuple[int, int]:
        """Rows and columns of what becomes of a picture of that size.

        Raises ImageError if it would grow more than 32 times.
        """
        if self._request.leaves(height, width):
            return height, width
        plan = self._plan(height, width)
        return plan.height, plan.width

    def leaves(self, height: int, width: int) -> bool:
        """Whether a picture of that size comes back as it is. Raises ImageError as above."""
        if self._request.leaves(height, width):
            return True
        plan = self._plan(height, width)
        return self._noise is None and plan.part is None and plan.factor == 1

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
        from waifu2x.pictures.pillow import from_pil, to_pil

        return to_pil(in_srgb_tone(from_pil(image), partial(self.picture, on_progress=on_progress)))

    def _through(
        self,
        picture: Picture,
        plan: Plan,
        chain: _Chain | None,
        dtype: DTypeLike,
        on_progress: Progress,
    ) -> tuple[NDArray[Any], NDArray[Any] | None]:
        """Pixels and transparency, by networks in `dtype`, or as they are if there are none."""
        pixels, alpha = np.ascontiguousarray(picture.pixels), picture.alpha
        if chain is None:
            return pixels, alpha
        uneven = alpha is not None and np.ptp(alpha) > 0
        # Found before the work on the colours, as there may be none.
        opacity = self._transparency(plan.factor, chain) if uneven and plan.factor > 1 else None
        share = 1.0 if opacity is None else 0.5
        if alpha is not None and not alpha.all():
            bled = transparency.bleed(to_unit(pixels, np.float32), alpha, chain.reach)
            pixels = from_unit(bled, pixels.dtype)
        result = self._colours(chain, pixels, dtype, scaled(on_progress, share))
        if alpha is None:
            return result, None
        if opacity is not None:
            return result, self._alpha(opacity, alpha, dtype, scaled(on_progress, 1.0 - share))
        return result, alpha.repeat(plan.factor, 0).repeat(plan.factor, 1)

    def _colours(
        self, chain: _Chain, pixels: NDArray[Any], dtype: DTypeLike, on_progress: Progress
    ) -> NDArray[Any]:
        """Grey or RGB through networks of one or three planes."""
        planes = pixels.shape[-1]
        if planes == chain.planes:
            return self._run(chain, pixels, dtype, on_progress)
        if planes == 1:
            rgb = self._run(chain, pixels.repeat(3, axis=-1), np.float32, on_progress)
            return from_unit(colour.luma(rgb), dtype)
        unit = to_unit(pixels, np.float32)
        luma = self._run(chain, colour.luma(unit), np.float32, on_progress)
        from waifu2x import resample

        chroma = resample.bicubic(colour.chroma(unit), *luma.shape[:2])
        return from_unit(colour.to_rgb(luma, chroma), dtype)

    def _pictures(self, images: NDArray[Any], on_progress: Progress) -> NDArray[Any]:
        """Pictures of one size, together where nothing but networks is to be done."""
        _, height, width, planes = images.shape
        plain = _from_array(images[0]).alpha is None and not self._closed
        if plain and not self.leaves(height, width):
            plan = self._plan(height, width)
            chain = self._chain(plan.factor, self._noise)
            if chain and plan.part is None and chain.planes == planes:
                images = np.ascontiguousarray(images)
                return self._run(chain, images, images.dtype, on_progress)
        share = scaled(on_progress, 1 / len(images))
        return np.stack([self(image, on_progress=share) for image in images])

    def _plan(self, height: int, width: int) -> Plan:
        return self._request.plan(height, width, self._enlargement)

    @property
    def passes(self) -> str:
        """What networks a scale takes, for people; empty where only a picture tells."""
        scale = self._request.scale
        factors = () if scale is None else self._set.factors(scale, self._noise)
        if scale is None or not factors:
            return ""
        reduced = "" if math.prod(factors) == scale else f", reduced to {float(scale):g}x"
        return ", then ".join(f"{factor}x" for factor in factors) + reduced

    def _enlargement(self, scale: Fraction) -> int:
        """By how much networks enlarge for a scale."""
        return math.prod(self._set.factors(scale, self._noise))

    def _chain(self, factor: int, noise: int | None) -> _Chain | None:
        """What enlarges so much and denoises; None if that is nothing.

        Raises ModelError, BackendError.
        """
        if factor == 1 and noise is None:
            return None
        with self._chain_lock:
            key = factor, noise
            if key not in self._chains:
                models = self._models(factor, noise)
                network = self.backend.compile(models, self._precision)
                reach = max(model.offset for model in models)
                self._chains[key] = _Chain(network, models[0].in_planes, reach)
            return self._chains[key]

    def _models(self, factor: int, noise: int | None) -> list[Model]:
        """Those of a chain. Raises ModelError."""
        models = self._set.models(factor, noise)
        if noise is None and math.prod(model.scale for model in models) != factor:
            raise ModelError(f"{self._set.folder}: no models that enlarge {factor} times alone")
        planes = models[0].in_planes
        if planes not in (1, 3) or any(model.in_planes != planes for model in models):
            raise ModelError(
                f"{self._set.folder}: its models take {planes} planes, not 1 or 3 alike"
            )
        return models

    def _transparency(self, factor: int, colours: _Chain) -> _Chain:
        """The models that only scale: transparency is never denoised. Raises ModelError."""
        try:
            found = self._chain(factor, None)
            assert found is not None
            if found.planes != colours.planes:
                raise ModelError(
                    f"{self._set.folder}: its models do not all take {colours.planes} planes"
                )
        except ModelError as error:
            raise ModelError(f"transparency needs a scale model: {error}") from error
        return found

    def _alpha(
        self, chain: _Chain, alpha: NDArray[Any], dtype: DTypeLike, on_progress: Progress
    ) -> NDArray[Any]:
        """Transparency through models that only scale, the mean of the planes."""
        planes = alpha[..., np.newaxis].repeat(chain.planes, axis=-1)
        enlarged = self._run(chain, planes, np.float32, on_progress)
        return from_unit(enlarged.mean(axis=-1), dtype)

    def _run(
        self, chain: _Chain, pixels: NDArray[Any], dtype: DTypeLike, on_progress: Progress
    ) -> NDArray[Any]:
        """A picture, or several of one size, through networks."""
        return chain.network(
            pixels, dtype, tile=self._tile, turns=self._turns, on_progress=on_progress
        )


def upscale(
    image: Any,
    scale: float | Fraction | None = None,
    noise: int | None = None,
    **options: Any,
) -> Any:
    """One image enlarged and denoised: arguments as of Upscaler, image as of its calls."""
    with Upscaler(scale, noise, **options) as upscaler:
        return upscaler(image)


def _resized(
    pixels: NDArray[Any], alpha: NDArray[Any] | None, plan: Plan, dtype: DTypeLike
) -> tuple[NDArray[Any], NDArray[Any] | None]:
    """A picture as networks made it, at the size of the plan."""
    from waifu2x import resample  # by Pillow, which few pictures need

    assert plan.part is not None
    size = plan.height, plan.width
    if alpha is not None and np.ptp(alpha) > 0:
        return resample.lanczos_with_alpha(pixels, alpha, plan.part, plan.factor, *size, dtype)
    result = resample.lanczos(pixels, plan.part, plan.factor, *size, dtype)
    return result, None if alpha is None else np.full(size, alpha[0, 0])


def _integer(value: Any, allowed: Container[int], expected: str) -> int:
    """An argument as an int: NumPy's integers are welcome, 2.0 and True are mistakes."""
    try:
        number = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = None
    if number is None or number not in allowed:
        raise ValueError(f"Expected {expected}, but got {value!r}")
    return number


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
    samples = with_alpha(picture)
    return samples[..., 0] if dimensions == 2 else samples
