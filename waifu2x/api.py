"""What Python programs use: arguments checked, models found, a device opened, arrays and images."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from fractions import Fraction
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from waifu2x.backends import Precision, Progress, ignore, scaled
from waifu2x.backends.engine import Engine
from waifu2x.errors import BackendError, ImageError
from waifu2x.formats.profiles import in_srgb_tone
from waifu2x.imaging import sizes
from waifu2x.imaging.dtypes import PIXEL_DTYPES
from waifu2x.imaging.enlarger import Enlarger, Networks
from waifu2x.imaging.picture import Picture, with_alpha
from waifu2x.imaging.sizes import Fit
from waifu2x.networks import catalogue, model_set
from waifu2x.networks.chains import EngineChains, models_of
from waifu2x.system.arguments import integer

if TYPE_CHECKING:
    from PIL.Image import Image


class Upscaler:
    """A request: what is made of pictures, on an engine of its own or one that is given.

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
    a model set or the path of its folder. `tile` limits the output pixels worked on at once in each
    direction; None leaves it to the backend, and the result is the same to the bit.

    `engine` is what computes: many upscalers may share one, and it stays open when they are closed.
    Without it an upscaler opens its own, from `backend`, `device` and `precision` as an Engine
    takes them. `notices` says which model stands in for one that the set lacks, and why `auto` left
    out better backends when an engine was opened.

    Calls may come from several threads. Use it as a context manager, or call `close`, to give its
    networks back, and free the device if the engine is its own.

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
        model: str = catalogue.DEFAULT,
        engine: Engine | None = None,
        backend: str | None = None,
        device: int | Sequence[int] | Literal["all"] | None = None,
        precision: Precision | None = None,
        tile: int | None = None,
    ) -> None:
        request = sizes.request(
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
            noise = integer(noise, range(4), "a noise level from 0 to 3 or None")
        if tile is not None:
            tile = integer(tile, range(1, sys.maxsize), "a tile of at least 1 pixel or None")
        opening = {"backend": backend, "device": device, "precision": precision}
        given = [name for name, value in opening.items() if value is not None]
        if engine is not None and given:
            raise ValueError(f"Expected no {' or '.join(given)}: the engine has its own")
        if request.scale == 1 and noise is None:
            raise ValueError("Nothing to do: expected a scale above 1, a noise level, or both")
        tta = integer(tta, (1, 2, 4, 8), "a tta of 1, 2, 4 or 8")
        models = model_set.find(model)
        # Sizes other than a scale tell only with a picture which networks it goes through.
        fixed = request.scale
        factors = models.factors(Fraction(2) if fixed is None else fixed, noise)
        factor = math.prod(factors)
        # Read before a device is opened, and held until they are compiled.
        read = models_of(models, factor, noise) if factor > 1 or noise is not None else None
        substitute = models.substitute(1 if fixed is None else factor, noise)
        notices = [substitute] if substitute else []
        self._own_engine: Engine | None = None
        if engine is None:
            opened = backend or "auto", 0 if device is None else device, precision or "auto"
            engine = self._own_engine = Engine(*opened)
            notices += engine.notices
        engine.check_open()
        self.engine = engine
        """What computes."""
        self.notices = tuple(notices)
        self.passes = "" if fixed is None else _passes(factors, fixed)
        """What networks a scale takes, for people; empty where only a picture tells."""
        self._closed = False
        self._chains = chains = EngineChains(models, self.engine)
        self.networks = Networks(chains, tta, tile)
        """The networks of all pictures."""
        self.enlarger = Enlarger(chains, request, noise, self.networks)
        """What does the work on one picture."""
        try:
            if fixed is not None and (factor > 1 or noise is not None):
                chains.network(factor, noise)
        except BaseException:
            self.close()
            raise
        del read

    def __call__(self, image: Any, *, on_progress: Progress = ignore) -> Any:
        """The image enlarged and denoised, in the kind it came: a NumPy array or a PIL image.

        Arrays are (H, W) or (H, W, C) with 1 to 4 planes: grey, grey and alpha, RGB, RGB and alpha;
        uint8 or uint16 over their range, or float32 in [0, 1], in any byte order. (N, H, W, C) is N
        pictures, which some backends compute together. The result has the same planes and dtype, in
        the machine's byte order; a PIL image is turned as its EXIF asks for, and comes back without
        it. `on_progress` is told of each further part of the work that is done; the parts add up to
        1, and it may raise to stop the work.

        Raises ImageError for any other array or image, also for floats that are NaN or outside
        [0, 1], ModelError if the picture has transparency and there is no model to scale it, and
        BackendError after `close`.
        """
        if self._closed:
            raise BackendError("this upscaler is closed: make a new one")
        if isinstance(image, np.ndarray):
            image = _checked(image)
            if image.ndim == 4:
                return self._pictures(image, on_progress)
            result = self.enlarger.picture(_from_array(image), on_progress)
            return _to_array(result, image.ndim)
        if hasattr(image, "mode") and hasattr(image, "info"):
            return self._pil(image, on_progress)
        raise ImageError(f"Expected a NumPy array or a PIL image, but got {type(image).__name__}")

    def close(self) -> None:
        """Gives its networks back, and frees the device if the engine is its own.

        The upscaler cannot be used after that.
        """
        self._closed = True
        # First, since that waits for pictures that are being computed.
        if self._own_engine is not None:
            self._own_engine.close()
        self._chains.close()

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
        from waifu2x.formats.pillow import from_pil, to_pil

        work = partial(self.enlarger.picture, on_progress=on_progress)
        return to_pil(in_srgb_tone(from_pil(image), work))

    def _pictures(self, images: NDArray[Any], on_progress: Progress) -> NDArray[Any]:
        """Pictures of one size, together where nothing but networks is to be done."""
        if _from_array(images[0]).alpha is None:
            results = self.enlarger.stack(images, on_progress)
            if results is not None:
                return results
        share = scaled(on_progress, 1 / len(images))
        return np.stack(
            [_to_array(self.enlarger.picture(_from_array(image), share), 3) for image in images]
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


def _passes(factors: Sequence[int], scale: Fraction) -> str:
    if not factors:
        return ""
    reduced = "" if math.prod(factors) == scale else f", reduced to {float(scale):g}x"
    return ", then ".join(f"{factor}x" for factor in factors) + reduced


def _checked(array: NDArray[Any]) -> NDArray[Any]:
    """An array of one picture or several, in the machine's byte order. Raises ImageError."""
    if array.ndim not in (2, 3, 4) or (array.ndim > 2 and not 1 <= array.shape[-1] <= 4):
        raise ImageError(
            f"Expected shape (H, W), (H, W, 1 to 4) or (N, H, W, 1 to 4), but got {array.shape}"
        )
    if not array.size:
        raise ImageError(f"Expected at least one pixel, but got shape {array.shape}")
    native = array.dtype.newbyteorder("=")
    if native not in PIXEL_DTYPES:
        raise ImageError(f"Expected uint8, uint16 or float32, but got {array.dtype}")
    if array.dtype.kind == "f":
        low, high = float(array.min()), float(array.max())
        if not (low >= 0 and high <= 1):  # also where they are no numbers
            raise ImageError(
                f"Expected float32 in [0, 1], but got {low:g} to {high:g}: scale or clip it first"
            )
    return array.astype(native, copy=False)


def _from_array(array: NDArray[Any]) -> Picture:
    planes = array[..., np.newaxis] if array.ndim == 2 else array
    if planes.shape[-1] in (2, 4):
        return Picture(planes[..., :-1], planes[..., -1])
    return Picture(planes)


def _to_array(picture: Picture, dimensions: int) -> NDArray[Any]:
    samples = with_alpha(picture)
    return samples[..., 0] if dimensions == 2 else samples
