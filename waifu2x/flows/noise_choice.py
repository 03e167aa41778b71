"""`-n auto`: chooses the noise level for each file by the quality of its JPEG."""

from __future__ import annotations

from typing import TYPE_CHECKING

from waifu2x.imaging.enlarger import Enlarger
from waifu2x.imaging.picture import Picture
from waifu2x.system.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from waifu2x.formats.metadata.jpeg_quality import JpegQuality


@dataclass(frozen=True)
class NoiseChoice:
    """The choice for a JPEG."""

    level: int | None
    """The noise level to remove; None to remove none."""
    jpeg: JpegQuality

    def __str__(self) -> str:
        if self.level is None:
            return f"JPEG {self.jpeg}: no noise removal"
        return f"JPEG {self.jpeg}: noise level {self.level}"


def choose(enlarger: Enlarger, picture: Picture) -> tuple[Enlarger, NoiseChoice | None]:
    """Returns the enlarger for the (first) picture of a file, and the choice if there was one.
    There is none if the request names a level or none, or for a file that is no JPEG, from which no
    noise is removed. Raises ImageError for a picture that would grow more than 32 times."""
    if not enlarger.chooses:
        return enlarger, None
    if picture.jpeg is None:
        return enlarger.at_level(None), None
    from waifu2x.formats.metadata.jpeg_quality import quality_of  # late: only JPEGs need it

    quality = quality_of(picture.jpeg)
    level = enlarger.level_for(quality.quality, picture)
    return enlarger.at_level(level), NoiseChoice(level, quality)
