"""Processing around networks, apart from them: in one process as in two."""

from __future__ import annotations

import pickle
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.helpers.contents import noise
from waifu2x.api import Upscaler
from waifu2x.backends.call import Call
from waifu2x.errors import ImageError, ModelError
from waifu2x.imaging import processing
from waifu2x.imaging.picture import Picture
from waifu2x.imaging.processing import Processing, finish
from waifu2x.imaging.sizes import request
from waifu2x.networks.chains import ChainFacts, FactTable

ALPHA = np.arange(24 * 17, dtype=np.uint8).reshape(24, 17) // 2
PICTURES = {
    "RGB": Picture(noise(24, 17, 3)),
    "grey": Picture(noise(24, 17, 1)),
    "16 bits": Picture(noise(24, 17, 3, dtype=np.uint16)),
    "transparent": Picture(noise(24, 17, 3), ALPHA),
    "evenly transparent": Picture(noise(24, 17, 3), np.full((24, 17), 9, np.uint8)),
}


@pytest.mark.parametrize(
    "request_",
    [{"scale": 2, "noise": 1}, {"scale": 1.5}, {"width": 40}, {"scale": 0.5}, {"width": 17}],
)
@pytest.mark.parametrize("model", ["vgg_7", "upconv_7/art"])
def test_two_processes_make_what_one_makes(model: str, request_: Any) -> None:
    with Upscaler(**request_, model=model) as upscaler:
        request, level = upscaler.enlarger.request, upscaler.enlarger.noise
        scales = [Fraction(scale) for scale in range(1, 5)]
        table = FactTable.of(upscaler.enlarger.facts, [level], scales)
        elsewhere = Processing(pickle.loads(pickle.dumps(table)), request, level)
        for picture in PICTURES.values():
            whole = upscaler.enlarger.picture(picture)
            prepared = elsewhere.prepare(picture)
            results = []
            for call in prepared.calls:
                network = upscaler.networks.chains.network(call.factor, call.noise)
                results.append(network.run(Call(call.pixels, call.dtype)))
                assert results[-1].shape == call.shape
                assert call.pixels.flags.c_contiguous
            apart = finish(prepared, results)
            np.testing.assert_array_equal(apart.pixels, whole.pixels)
            assert (apart.alpha is None) == (whole.alpha is None)
            if apart.alpha is not None:
                np.testing.assert_array_equal(apart.alpha, whole.alpha)
            shares = sum(call.share for call in prepared.calls) + prepared.finish_share
            assert shares == pytest.approx(1.0)


def test_a_plain_picture_is_not_copied() -> None:
    with Upscaler(2, model="upconv_7/art") as upscaler:
        picture = PICTURES["RGB"]
        prepared = upscaler.enlarger.prepare(picture)
        (call,) = prepared.calls
        assert call.pixels is picture.pixels
        result = np.empty(call.shape, call.dtype)
        assert finish(prepared, [result]).pixels is result


def test_a_table_knows_what_its_set_knows(tmp_path: Path) -> None:
    with Upscaler(width=100, noise=0, model="vgg_7") as upscaler:
        facts = upscaler.enlarger.facts
        scales = [Fraction(scale) for scale in range(1, 33)]
        table = FactTable.of(facts, [0], scales)
        for scale in (*scales, Fraction(1, 3), Fraction(3, 2), Fraction(63, 2)):
            factors = facts.factors(scale, 0)
            assert table.factors(scale, 0) == factors
            for level in (0, None):
                factor = int(np.prod(factors))
                if factor > 1 or level is not None:
                    assert table.facts(factor, level) == facts.facts(factor, level)


class Missing:
    """Facts of a set that has nothing but a denoiser."""

    name = "odd"

    def factors(self, scale: Fraction, noise: int | None) -> tuple[int, ...]:
        if scale > 1:
            raise ModelError("odd: it has no scale model")
        return ()

    def facts(self, factor: int, noise: int | None) -> Any:
        raise ModelError("odd: damaged")


def test_what_a_set_lacks_a_table_says() -> None:
    table = FactTable.of(Missing(), [1], [Fraction(1), Fraction(3, 2)])
    with pytest.raises(ModelError, match=r"^odd: it has no scale model$"):
        table.factors(Fraction(2), 1)
    assert table.factors(Fraction(1), 1) == ()
    with pytest.raises(ModelError, match=r"^odd: damaged$"):
        table.facts(1, 1)


def enlarging(factor: int, **asked: Any) -> Processing:
    """Processing by a chain of one network that enlarges by a factor."""
    chain = ChainFacts(planes=3, scale=factor, radius=0)
    table = FactTable("m", dict.fromkeys([(n, None) for n in range(1, 33)], (factor,)), {})
    table.chains[factor, None] = chain
    return Processing(table, request(**asked), None)


def test_what_is_only_reduced_again_is_refused_by_what_it_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    picture = Picture(np.zeros((1000, 1000, 3), np.uint8))
    free = 1 << 40
    monkeypatch.setattr(processing, "available_memory", lambda: free)
    words = r"a picture of 1000x1000 takes 11\.4 GiB of memory when the model enlarges it 32 times"
    with pytest.raises(ImageError, match=f"{words}, for a result of 2 times; use a model that"):
        enlarging(32, scale=2).prepare(picture)
    # As much for a larger result, or little, is done.
    assert enlarging(32, scale=5).prepare(picture).calls
    assert enlarging(32, scale=32).prepare(picture).calls
    assert enlarging(32, scale=2).prepare(Picture(np.zeros((200, 300, 3), np.uint8))).calls
    free = 8 << 30
    with pytest.raises(ImageError, match=f"{words}, before it is reduced, but 8\\.0 GiB are free"):
        enlarging(32, scale=5).prepare(picture)
    # Not before a resize: what checks results counts those.
    assert enlarging(32, scale=32).prepare(picture).calls
    # Part of a picture takes less.
    assert enlarging(32, width=4000, height=40, fit="cover").prepare(picture).calls
