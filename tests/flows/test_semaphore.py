"""Memory for pictures, by bytes."""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.helpers.contents import decode, encode, encoded, identity_models, noise
from waifu2x.api import Upscaler
from waifu2x.flows.batch.semaphore import MemorySemaphore, needed_bytes
from waifu2x.formats.read import extent
from waifu2x.imaging.picture import Picture


def test_memory_is_granted_in_order_and_never_beyond_its_size() -> None:
    semaphore = MemorySemaphore(10)
    order: list[int] = []
    sizes = [6, 4, 7, 1, 30, 2, 8]
    for size in sizes:
        semaphore.acquire(size, partial(order.append, size))
    assert order == [6, 4]  # 1 would fit beside them, but 7 came before
    given_back = 0
    while given_back < len(sizes):
        semaphore.release(order[given_back])
        given_back += 1
        inside = order[given_back:]
        assert sum(inside) <= 10 or inside == [30]  # which nobody else is beside
    assert order == sizes


def test_who_has_gone_waits_no_more() -> None:
    semaphore = MemorySemaphore(10)
    order: list[str] = []
    first, large, small = (partial(order.append, name) for name in ("first", "large", "small"))
    semaphore.acquire(8, first)
    semaphore.acquire(9, large)
    semaphore.acquire(2, small)
    assert order == ["first"]
    assert semaphore.withdraw(large)
    assert order == ["first", "small"]  # whom only the large one kept waiting
    assert not semaphore.withdraw(first)


def test_nothing_is_lost_whatever_the_order() -> None:
    chance = random.Random(0)
    semaphore = MemorySemaphore(100)
    granted: list[int] = []
    waiting = 0
    for _ in range(2000):
        if chance.random() < 0.5:
            size = chance.randrange(1, 150)
            semaphore.acquire(size, partial(granted.append, size))
            waiting += 1
        elif granted:
            semaphore.release(granted.pop(chance.randrange(len(granted))))
            waiting -= 1
        assert sum(granted) <= 100 or len(granted) == 1
        assert bool(granted) == bool(waiting)
    while granted:
        semaphore.release(granted.pop())
        waiting -= 1
    assert waiting == 0


@pytest.mark.parametrize("extension", ["png", "jpg", "gif", "bmp", "tiff", "webp", "ppm", "tga"])
@pytest.mark.parametrize("planes", [1, 3])
def test_files_tell_how_much_memory_they_take(extension: str, planes: int) -> None:
    content = encode(Picture(noise(20, 31, planes)), extension)
    found = extent(content)
    assert found is not None
    assert (found.height, found.width) == (20, 31)
    decoded = decode(content).pixels
    assert found.nbytes >= decoded.nbytes or decoded.shape[-1] > planes


def test_the_memory_of_a_picture_counts_its_result(tmp_path: Path) -> None:
    model = str(identity_models(tmp_path / "identity"))
    content = encode(Picture(noise(100, 300, 3)), "png")
    pixels = 100 * 300 * 3
    with Upscaler(2, model=model, backend="numpy") as upscaler:
        assert needed_bytes(content, upscaler.enlarger) == len(content) + pixels * (1 + 4)
        assert needed_bytes(b"no picture", upscaler.enlarger) >= 10
    with Upscaler(1.5, model=model, backend="numpy") as resized:
        assert needed_bytes(content, resized.enlarger) > len(content) + pixels * 4 * 4
    # The decoder finds out that a picture is refused for its size.
    with Upscaler(width=99999, model=model, backend="numpy") as refusing:
        assert needed_bytes(content, refusing.enlarger) == len(content) + pixels


@pytest.mark.parametrize(
    ("form", "many"),
    [("PNG", False), ("JPEG", False), ("BMP", False), ("TIFF", True), ("GIF", True)],
)
def test_the_memory_of_a_file_counts_pictures_under_way(
    form: str, many: bool, tmp_path: Path
) -> None:
    frames = [Image.fromarray(noise(20, 30, 3, seed=number)) for number in range(2)]
    more: dict[str, Any] = {"save_all": True, "append_images": frames[1:]} if many else {}
    content = encoded(frames[0], form, **more)
    with Upscaler(2, model=str(identity_models(tmp_path / "i")), backend="numpy") as upscaler:
        alone = needed_bytes(content, upscaler.enlarger) - len(content)
        together = needed_bytes(content, upscaler.enlarger, 3) - len(content)
    assert together == (4 * alone if many else alone)


def test_frames_of_a_png_count_as_those_of_others(tmp_path: Path) -> None:
    frames = [Image.fromarray(noise(20, 30, 3, seed=number)) for number in range(2)]
    content = encoded(frames[0], "PNG", save_all=True, append_images=frames[1:])
    with Upscaler(2, model=str(identity_models(tmp_path / "i")), backend="numpy") as upscaler:
        alone = needed_bytes(content, upscaler.enlarger) - len(content)
        assert needed_bytes(content, upscaler.enlarger, 3) - len(content) == 4 * alone
