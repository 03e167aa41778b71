"""Twelve pictures for benchmarks/noise_levels.py, 288x288 each, that no limit had seen before.

All are CC0 or in the public domain: Kenney's sprites that arcade comes with, drawings made here,
and photos of scikit-image's wheel. They were chosen before any of them was measured.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter, ImageFont

from benchmarks.noise_pictures import SIDE, Truth, photo
from benchmarks.sprites import Pixels, package, scene, sprite

_FINE = 4
"""How many times larger drawings are made and then reduced, so that edges are smooth."""


def unseen() -> list[Truth]:
    """The pictures of this group."""
    made = {
        "harbour": scene("harbour", 3, SIDE // 3),
        "convoy": scene("convoy", 3, SIDE // 3),
        "gradients": _gradients(),
        "tones": _tones(),
        "scan": _scan(),
        "logo": _logo(),
        "screen": _screen(),
        "blocks": _blocks(),
    }
    return [
        *(Truth(name, "drawing", np.ascontiguousarray(pixels)) for name, pixels in made.items()),
        photo("cell", 150, 120),
        photo("clock_motion", 0, 60),
        photo("ihc", 100, 150),
        photo("text", 0, 80),
    ]


def _font(name: str, size: int) -> ImageFont.FreeTypeFont:
    folder = package("arcade") / "resources" / "system" / "fonts" / "ttf" / "Liberation"
    return ImageFont.truetype(folder / f"Liberation_{name}_Regular.ttf", size)


def _reduced(image: Image.Image) -> Pixels:
    return np.asarray(image.convert("RGB").resize((SIDE, SIDE), Image.Resampling.BOX))


def _gradients() -> Pixels:
    """A sky, a glow and a ramp of hues, without an edge but for one horizon."""
    y, x = np.mgrid[0:SIDE, 0:SIDE] / SIDE
    glow = np.exp(-((x - 0.7) ** 2 + (y - 0.35) ** 2) * 18)
    sky = np.stack([40 + 150 * y, 70 + 120 * y, 150 + 70 * y], axis=-1)
    sky += glow[..., np.newaxis] * np.array([120.0, 90.0, 10.0])
    hues = np.stack([128 + 90 * np.sin(6.28 * (x + third / 3)) for third in range(3)], axis=-1)
    picture = np.where((y > 0.72)[..., np.newaxis], hues * (1.4 - y)[..., np.newaxis], sky)
    return np.clip(np.round(picture), 0, 255).astype(np.uint8)


def _dots(step: float, share: float) -> NDArray[np.bool_]:
    """A screen tone at 45 degrees: dots `step` fine pixels apart, of that share of the area."""
    y, x = np.mgrid[0 : SIDE * _FINE, 0 : SIDE * _FINE]
    across, down = (x + y) / 2**0.5 % step - step / 2, (x - y) / 2**0.5 % step - step / 2
    tone: NDArray[np.bool_] = across**2 + down**2 < share * step**2 / np.pi
    return tone


def _tones() -> Pixels:
    """A panel of a comic: screen tones under a figure of lines, and speed lines."""
    side = SIDE * _FINE
    tone = np.full((side, side), 255, np.uint8)
    tone[: side // 2][_dots(40.0, 0.15)[: side // 2]] = 0
    tone[side // 2 :][_dots(28.0, 0.4)[side // 2 :]] = 0
    page = Image.fromarray(tone)
    pen = ImageDraw.Draw(page)
    pen.ellipse((300, 220, 860, 860), fill=255, outline=0, width=16)
    for left in (430, 640):
        pen.ellipse((left, 440, left + 110, 580), fill=0)
        pen.ellipse((left + 24, 462, left + 60, 498), fill=255)
    pen.arc((480, 600, 680, 760), 20, 160, 0, 14)
    for lock in range(9):
        root = 330 + 60 * lock
        pen.polygon([(root, 400), (root + 34, 190), (root + 70, 390)], fill=0)
    for ray in range(16):
        pen.line((1152, 40 + 18 * ray, 900 - 9 * ray, 300 + 8 * ray), 0, 5)
    pen.rectangle((20, 20, 1131, 1131), outline=0, width=16)
    return _reduced(page)


def _scan() -> Pixels:
    """A printed page as a scanner sees it: blurred, yellow, shaded, with grain."""
    page = Image.new("L", (SIDE, SIDE), 255)
    pen = ImageDraw.Draw(page)
    lines = (
        "It was the best of times, it",
        "was the worst of times, it",
        "was the age of wisdom, it",
        "was the age of foolishness,",
        "it was the epoch of belief,",
        "it was the epoch of incre-",
        "dulity, it was the season of",
        "Light, it was the season of",
        "Darkness, it was the spring",
    )
    for row, line in enumerate(lines):
        pen.text((18, 16 + 29 * row), line, 20, _font("Serif", 20))
    ink = np.asarray(page.rotate(0.7, fillcolor=255).filter(ImageFilter.GaussianBlur(0.8))) / 255
    rng = np.random.default_rng(22)
    paper = 0.96 - 0.14 * np.linspace(0, 1, SIDE)[np.newaxis] ** 3
    grey = (ink * 0.85 + 0.12) * paper + rng.normal(0, 0.012, ink.shape)
    picture: NDArray[np.float64] = grey[..., np.newaxis] * np.array([250.0, 240.0, 214.0])
    return np.clip(np.round(picture), 0, 255).astype(np.uint8)


def _logo() -> Pixels:
    """Flat colours with smooth edges, and a word."""
    side = SIDE * _FINE
    image = Image.new("RGB", (side, side), (255, 255, 255))
    pen = ImageDraw.Draw(image)
    pen.rounded_rectangle((140, 90, 1010, 760), 160, fill=(16, 70, 160))
    pen.ellipse((250, 200, 700, 650), fill=(250, 200, 20))
    pen.polygon([(560, 640), (960, 640), (760, 220)], fill=(226, 40, 52))
    pen.pieslice((420, 300, 640, 520), 30, 300, fill=(255, 255, 255))
    pen.line((200, 700, 950, 700), fill=(255, 255, 255), width=22)
    pen.text((140, 800), "norwind", (16, 70, 160), _font("Sans", 250))
    return _reduced(image)


def _screen() -> Pixels:
    """A window of a program: small text, icons, thin lines."""
    image = Image.new("RGB", (SIDE, SIDE), (246, 246, 248))
    pen = ImageDraw.Draw(image)
    pen.rectangle((0, 0, SIDE, 25), fill=(52, 58, 70))
    pen.text((10, 5), "notes.txt - Editor", (238, 238, 238), _font("Sans", 13))
    for index, colour in enumerate([(228, 80, 70), (240, 190, 60), (90, 190, 90)]):
        pen.ellipse((230 + 18 * index, 8, 240 + 18 * index, 18), fill=colour)
    code = (
        "def area(width, height):",
        "    # in pixels",
        "    return width * height",
        "",
        "for name in sorted(names):",
        "    if name.startswith('_'):",
        "        continue",
        "    print(name, area(*sizes))",
    )
    for row, line in enumerate(code):
        pen.text((8, 34 + 20 * row), str(row + 1), (160, 160, 170), _font("Mono", 13))
        colour = (120, 130, 120) if "#" in line else (40, 44, 60)
        pen.text((30, 34 + 20 * row), line, colour, _font("Mono", 13))
    pen.line((24, 26, 24, 205), (210, 210, 216))
    pen.rectangle((8, 212, 279, 279), fill=(255, 255, 255), outline=(180, 184, 196))
    for index in range(4):
        icon = sprite(f"items/key{('Blue', 'Green', 'Red', 'Yellow')[index]}")
        icon = icon.resize((48, 48), Image.Resampling.BOX)
        image.paste(icon, (20 + 64 * index, 222), icon)
    return np.asarray(image)


def _blocks() -> Pixels:
    """Sprites of a coarse game: each of their pixels is a block of 4x4."""
    side = SIDE // 4
    blocks = Image.new("RGB", (side, side), (92, 148, 252))
    names = ("alien/alienBlue_walk1", "enemies/fly", "enemies/slimeGreen", "tiles/rock")
    for index, name in enumerate(names):
        drawn = sprite(name).resize((32, 32), Image.Resampling.NEAREST)
        blocks.paste(drawn, (index % 2 * 36 + 2, index // 2 * 36 + 2), drawn)
    return np.asarray(blocks.resize((SIDE, SIDE), Image.Resampling.NEAREST))
