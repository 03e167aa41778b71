"""Makes comparison.png: a part of drawn.png by repeated pixels, and by this program at 4x."""

from __future__ import annotations

from pathlib import Path

from PIL import Image

import waifu2x

FOLDER = Path(__file__).parent
PART = (52, 44, 142, 124)
SCALE = 4


def main() -> None:
    drawn = Image.open(FOLDER / "drawn.png").convert("RGB").crop(PART)
    larger = waifu2x.upscale(drawn, scale=SCALE)
    result = Image.new("RGB", (2 * larger.width, larger.height))
    result.paste(drawn.resize(larger.size, Image.Resampling.NEAREST), (0, 0))
    result.paste(larger, (larger.width, 0))
    result.quantize(128, dither=Image.Dither.NONE).save(FOLDER / "comparison.png", optimize=True)


if __name__ == "__main__":
    main()
