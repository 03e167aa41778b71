"""A request for upscaled pictures, applied to arrays and images."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Any,
    Literal,
    NoReturn,
    TypeGuard,
    TypeVar,
    Unpack,
    overload,
)

import numpy as np
from numpy.typing import NDArray

from waifu2x.api.options import FileOptions, FilePath, OnProgress, progress_of
from waifu2x.api.settings import uses
from waifu2x.api.settings.uses import UseName
from waifu2x.backends import Precision, Progress, scaled
from waifu2x.backends.engine.closing import when_idle
from waifu2x.backends.engine.engine import Engine
from waifu2x.errors import BackendError
from waifu2x.flows.noise_choice import choose
from waifu2x.formats.metadata.profiles import in_srgb_tone
from waifu2x.imaging import sizes
from waifu2x.imaging.arrays import ArrayLike, as_array, checked, from_picture, to_picture
from waifu2x.imaging.blend import Blend, Mask
from waifu2x.imaging.enlarger import Enlarger, Networks
from waifu2x.imaging.sizes import Fit
from waifu2x.networks import model_set
from waifu2x.networks.chains import EngineChains, models_of
from waifu2x.networks.noise_levels import limits_of
from waifu2x.system.arguments import integer

if TYPE_CHECKING:
    from PIL.Image import Image

    from waifu2x.api.files import UpscaledFile

_Pixel = TypeVar("_Pixel", np.uint8, np.uint16, np.float32)


class Upscaler:
    """Enlarges and denoises any number of pictures in one way, with networks that stay compiled.

    One of these gives the size of results: `scale`; `width` or `height` or both; `longer_side`;
    `shorter_side`; `min_size`. Without any it is a scale of 2. Networks enlarge a picture until it
    is at least as large, and Lanczos reduces it to the size, which is rounded to the nearest whole
    pixel, halves up.

    Threads may share an upscaler. It cannot be pickled: make one in each process. Use it as a
    context manager, or call `close`, to free its networks, and the device if it opened one.

    Args:
        scale: Output pixels per input pixel in each direction: a number above 0 and up to 32, such
            as 2, 1.5 or Fraction(4, 3). A float means the decimal number that it is printed as. 1
            only denoises.
        noise: The level of noise to remove, from 0 (weak) to 3 (strong); None for no denoising.
            `list_models` shows which levels a model has. "auto" chooses for each PIL image that was
            opened from a JPEG, by its quality, and is None for other images and for arrays.
        width: Width of the result in pixels; alone, the proportions stay.
        height: Height of the result in pixels; alone, the proportions stay.
        fit: What `width` and `height` together mean. "inside": the largest result that fits into
            them. "cover": exactly that size, cropped evenly. "exact": exactly that size, stretched.
        longer_side: The longer side of the result in pixels.
        shorter_side: The shorter side of the result in pixels.
        min_size: The least (width, height) of the result in pixels; nothing is ever reduced.
        only_smaller_than: Pictures whose longer side has at least this many pixels stay as they
            are.
        strength: The share of the networks in results, from 0 to 1; the rest is the picture as
            Lanczos enlarges it.
        mask: A grey picture, the file of one, or an array (H, W): the share of the networks in each
            pixel, which `strength` multiplies. White is all, black is none. It has the proportions
            of the pictures, or else those of their results, and any size.
        tta: 1, 2, 4 or 8. With more than 1, each network runs on that many turned and mirrored
            versions of the picture, and the mean counts: a little better, for that many times
            the work.
        model: The name of a model set, as `list_models` shows them, or the path of a model file or
            of a folder of models. None: the one for `best_for`, or else cunet/art.
        best_for: What the model is chosen for, unless one is given: "drawings", "photos",
            "old-films" or "speed". It also decides what a `noise` of "auto" means.
        engine: The engine that computes. It may be shared, and stays open when the upscaler is
            closed. Without one, the upscaler opens its own.
        backend: "auto", "cuda", "opencl", "vulkan", "cpu" or "numpy", if there is no `engine`.
        device: The number of a device of the backend, several numbers, or "all".
        precision: "auto", the fastest that keeps 60 dB; "fp32", which keeps 100 dB; "fp16", "bf16"
            or "int16" where the backend has them.
        tile: About how many output pixels are worked on at once in each direction; None leaves it
            to the backend. Results are the same to the bit.

    Raises:
        ModelError: The model is not there, is damaged, or lacks what is asked for.
        BackendError: The device cannot be used, or its memory is too small for the model.
        ValueError: An argument makes no sense.

    Examples:
        >>> with waifu2x.Upscaler(scale=2, noise=1) as upscaler:
        ...     larger = [upscaler(image) for image in images]
        >>> images[0].shape, larger[0].shape
        ((9, 16, 3), (18, 32, 3))
    """

    def __init__(
        self,
        scale: float | Fraction | None = None,
        noise: int | Literal["auto"] | None = None,
        *,
        width: int | None = None,
        height: int | None = None,
        fit: Fit = "inside",
        longer_side: int | None = None,
        shorter_side: int | None = None,
        min_size: tuple[int, int] | None = None,
        only_smaller_than: int | None = None,
        strength: float = 1.0,
        mask: FilePath | ArrayLike | Mask | None = None,
        tta: int = 1,
        model: str | os.PathLike[str] | None = None,
        best_for: UseName | None = None,
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
        blend = _blend(strength, mask)
        if blend is not None:
            request = replace(request, blend=blend)
        model, noise, said = uses.choose(best_for, model, noise)
        chooses, level = noise == "auto", None
        if not (noise is None or chooses):
            level = integer(noise, range(4), "a noise level from 0 to 3, auto or None")
        if tile is not None:
            tile = integer(tile, range(1, sys.maxsize), "a tile of at least 1 pixel or None")
        opening = {"backend": backend, "device": device, "precision": precision}
        given = [name for name, value in opening.items() if value is not None]
        if engine is not None and given:
            raise ValueError(f"Expected no {' or '.join(given)}: the engine has its own")
        if request.scale == 1 and level is None and not chooses:
            raise ValueError("Nothing to do: expected a scale above 1, a noise level, or both")
        tta = integer(tta, (1, 2, 4, 8), "a tta of 1, 2, 4 or 8")
        models = model_set.find(os.fspath(model))
        # Only for a scale are the networks known before the picture.
        fixed = request.scale
        factors = models.factors(Fraction(2) if fixed is None else fixed, level)
        factor = math.prod(factors)
        # Read before a device is opened.
        read = models_of(models, factor, level) if factor > 1 or level is not None else None
        substitute = models.substitute(1 if fixed is None else factor, level)
        notices = [each for each in (said, substitute) if each]
        self._own_engine: Engine | None = None
        if engine is None:
            opened = backend or "auto", 0 if device is None else device, precision or "auto"
            engine = self._own_engine = Engine(*opened)
            notices += engine.notices
        engine.check_open()
        self.engine = engine
        """The engine that computes."""
        self.notices = tuple(notices)
        """Sentences on a use that counts for nothing, on a model that stands in for one that the
        set lacks, and on why `auto` left out better backends when the engine was opened."""
        self.passes = "" if fixed is None else _passes(factors, fixed)
        """The networks that a scale takes, for people; empty if only a picture tells."""
        self._closed = False
        self._chains = chains = EngineChains(models, self.engine)
        if read is not None:
            chains.keep(factor, level, read)
        self.networks = Networks(chains, tta, tile)
        """The networks of all pictures."""
        limits = limits_of(models) if chooses else None
        self.enlarger = Enlarger(chains, request, level, self.networks, limits)
        """Does the work on one picture."""
        self._name = f"{models.name}: {request}{'' if noise is None else f', noise {noise}'}"
        try:
            # If the picture decides the level, it may need another network alone.
            is_known = limits is None or not limits.levels
            if fixed is not None and is_known and (factor > 1 or level is not None):
                chains.network(factor, level)
        except BaseException:
            self.close()
            raise

    @overload
    def __call__(self, image: Image, *, on_progress: OnProgress | None = None) -> Image: ...
    @overload
    def __call__(
        self, image: NDArray[_Pixel], *, on_progress: OnProgress | None = None
    ) -> NDArray[_Pixel]: ...
    @overload
    def __call__(
        self, image: ArrayLike, *, on_progress: OnProgress | None = None
    ) -> NDArray[np.uint8 | np.uint16 | np.float32]: ...
    def __call__(
        self, image: Image | ArrayLike, *, on_progress: OnProgress | None = None
    ) -> Image | NDArray[Any]:
        """Enlarges and denoises one picture, or a stack of pictures of one size.

        Args:
            image: A PIL image, whose current frame counts; a NumPy array; or an
                array of another library, by `__dlpack__`, `__array__` or `__array_interface__`, in
                the memory of the processor. Arrays are (H, W) or (H, W, C) with 1 to 4 planes:
                grey, grey and alpha, RGB, RGB and alpha. (N, H, W, C) is N pictures, which GPUs
                compute together. uint8 and uint16 over their range, or float32 in [0, 1], in any
                byte order. Floats that lie outside by 1/255 at most are clipped.
            on_progress: Called with each further part of the work; the parts add up to 1, so
                `tqdm(total=1).update` serves. It may be called by other threads, one at a time. To
                stop the work, raise an exception in it, which comes out of this call.

        Returns:
            A PIL image for one, upright, with its colour profile and no other metadata. Otherwise a
            NumPy array, also for arrays of other libraries, with the dimensions, planes and dtype
            of the image, in the machine's byte order.

        Raises:
            ImageError: An array of another shape or dtype, floats that are NaN or outside [0, 1], a
                PIL image of an unsuitable mode, or a picture that would grow more than 32 times.
            ModelError: The picture has transparency and there is no model to scale it.
            BackendError: After `close`, or where the device fails or its memory is too small.

        Examples:
            >>> with waifu2x.Upscaler(scale=2) as upscaler:
            ...     larger = upscaler(image)
            >>> larger.shape, larger.dtype
            ((18, 32, 3), dtype('uint8'))
        """
        self._check_open()
        told = progress_of(on_progress)
        if _is_pil(image):
            return self._pil(image, told)
        array = checked(as_array(image))
        if array.ndim == 4:
            return self._pictures(array, told)
        return from_picture(self.enlarger.picture(to_picture(array), told), array.ndim)

    def upscale_file(
        self, source: FilePath, target: FilePath, **how: Unpack[FileOptions]
    ) -> UpscaledFile:
        """Makes one file of pictures from another, as `waifu2x.upscale_file` does.

        Args:
            source: The file to read.
            target: The file to make. Its extension says the format.
            how: Keyword arguments of `waifu2x.upscale_file` that are about the files: format,
                quality, compression, depth, to, background, strip, copy_times, overwrite,
                max_pixels, on_progress.

        Returns:
            The size of the result, how long it took, the noise level, and what there is to say.

        Raises:
            Waifu2xError: ImageError, OutputError, ModelError or BackendError, as the function says.
            ValueError: An argument makes no sense, or the format does not have it.

        Examples:
            >>> with waifu2x.Upscaler(scale=2) as upscaler:
            ...     for path in sorted(Path().glob("*.png")):
            ...         made = upscaler.upscale_file(path, f"large/{path.stem}.webp")
            >>> made.path.as_posix()
            'large/drawing.webp'
        """
        self._check_open()
        from waifu2x.api.files import upscaled

        return upscaled(source, target, lambda: self, **how)

    def close(self) -> None:
        """Frees its networks, and the device if the upscaler opened it; closing again does nothing.

        Waits for calls that are under way. Later ones raise BackendError. In `on_progress` it
        returns at once: the call comes to its end, or raises BackendError where more of its picture
        is to be computed, and memory is freed then.
        """
        self._closed = True
        # First, since it waits for pictures that are being computed.
        if self._own_engine is not None:
            self._own_engine.close()
        when_idle(self._chains.close)

    def __enter__(self) -> Upscaler:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        where = "closed" if self._closed else f"on {self.engine.backend.name}"
        return f"<Upscaler {self._name}, {where}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("cannot pickle an Upscaler; make one in each process")

    def _check_open(self) -> None:
        if self._closed:
            raise BackendError("this upscaler is closed", "make a new one")

    def _pil(self, image: Image, on_progress: Progress) -> Image:
        from waifu2x.formats.pillow.images import from_pil, jpeg_coding, to_pil

        picture = replace(from_pil(image), jpeg=jpeg_coding(image))
        enlarger, _ = choose(self.enlarger, picture)
        work = partial(enlarger.picture, on_progress=on_progress)
        return to_pil(in_srgb_tone(picture, work))

    def _pictures(self, images: NDArray[Any], on_progress: Progress) -> NDArray[Any]:
        """Enlarges pictures of one size, together if nothing but networks is needed."""
        if to_picture(images[0]).alpha is None:
            results = self.enlarger.stack(images, on_progress)
            if results is not None:
                return results
        share = scaled(on_progress, 1 / len(images))
        return np.stack(
            [from_picture(self.enlarger.picture(to_picture(image), share), 3) for image in images]
        )


def _blend(strength: float, mask: FilePath | ArrayLike | Mask | None) -> Blend | None:
    """Returns the share of networks, None for all. Raises ValueError, and ImageError for a mask
    that is no picture."""
    if isinstance(strength, bool) or not (isinstance(strength, int | float) and 0 <= strength <= 1):
        raise ValueError(f"Expected a strength from 0 to 1, but got {strength!r}")
    if isinstance(mask, str | os.PathLike):
        from waifu2x.formats.mask import read_mask

        mask = read_mask(Path(mask))
    elif mask is not None and not isinstance(mask, Mask):
        from waifu2x.formats.mask import mask_of
        from waifu2x.formats.pillow.images import from_pil

        picture = from_pil(mask) if _is_pil(mask) else to_picture(checked(as_array(mask)))
        mask = mask_of(picture, "mask")
    return None if strength == 1 and mask is None else Blend(float(strength), mask)


def _is_pil(image: object) -> TypeGuard[Image]:
    # Who has a PIL image has imported PIL.Image; others need not wait for it.
    pil = sys.modules.get("PIL.Image")
    return pil is not None and isinstance(image, pil.Image)


def _passes(factors: Sequence[int], scale: Fraction) -> str:
    if not factors:
        return ""
    reduced = "" if math.prod(factors) == scale else f", reduced to {float(scale):g}x"
    return ", then ".join(f"{factor}x" for factor in factors) + reduced
