"""Names results by a template."""

from __future__ import annotations

import math
import string
from collections.abc import Callable, Mapping
from contextlib import closing
from fractions import Fraction
from pathlib import Path

from waifu2x.errors import ImageError
from waifu2x.formats import table
from waifu2x.imaging.sizes import Request
from waifu2x.system.lazy_dataclass import dataclass

BESIDE = "{stem}-{scale}x{ext}"
"""The template of results beside their inputs."""
ELSEWHERE = "{stem}{ext}"
"""The template of results in another folder."""
FIELDS = ("stem", "scale", "ext", "width", "height", "model", "noise")
"""The fields of templates: the input's name without extension; the factor of enlargement; the
extension with its dot; the result's size in pixels; the model; and the noise option, where `auto`
stays `auto`, since names are known before a picture is read."""
_FALLBACK = "png"
"""The extension of results whose input's format cannot be written."""

ResultSize = Callable[[Path], tuple[int, int, Fraction]]
"""Returns columns, rows and factor of a source's result. Raises ImageError."""


def check(template: str) -> None:
    """Raises ValueError for a template that does not name exactly one file."""
    fields = fields_of(template)
    if not template or not any((fields, _literal(template).strip(". "))):
        raise ValueError(f"{template!r} names no file; try '{BESIDE}'")
    if any(separator in template for separator in "/\\"):
        raise ValueError(f"{template!r} is no file name; give its folder to -o")
    if not _literal(template).isprintable():
        raise ValueError(f"{template!r} has characters that cannot be seen")


def fields_of(template: str) -> frozenset[str]:
    """Returns the fields of a template. Raises ValueError for unknown ones."""
    try:
        parts = list(string.Formatter().parse(template))
    except ValueError as error:
        raise ValueError(f"{template!r}: a brace is not closed, or not opened") from error
    known = " ".join(f"{{{name}}}" for name in FIELDS)
    for _, name, form, conversion in parts:
        if name is not None and (name not in FIELDS or form or conversion):
            raise ValueError(f"{template!r}: the fields are {known}, as they stand here")
    return frozenset(name for _, name, _, _ in parts if name is not None)


def _literal(template: str) -> str:
    return "".join(text for text, _, _, _ in string.Formatter().parse(template))


@dataclass(frozen=True)
class Naming:
    """Names of results."""

    template: str
    """Valid by `check`."""
    extension: str | None
    """Extension of all results; None: each source's own, or png if it cannot be written."""
    known: Mapping[str, str]
    """Values of the fields that are the same for all results."""
    result_size: ResultSize
    """Computes the fields that depend on a source's size."""

    def name(self, source: Path, stem: str | None = None, extension: str | None = None) -> str:
        """Returns the name of a source's result. `stem` and `extension` replace the source's. If a
        size is needed and the source cannot be read, it is 0: making the result will tell why."""
        values = dict(self.known)
        values["stem"] = source.stem if stem is None else stem
        values["ext"] = f".{extension or self.extension_of(source)}"
        if fields_of(self.template) - values.keys():
            try:
                width, height, scale = self.result_size(source)
            except ImageError:
                width, height, scale = 0, 0, Fraction(0)
            values = {"width": str(width), "height": str(height), "scale": shown(scale)} | values
        return self.template.format_map(values)

    def extension_of(self, source: Path) -> str:
        """Returns the extension of a source's result."""
        if self.extension is not None:
            return self.extension
        suffix = source.suffix[1:].lower()
        return suffix if suffix in table.WRITABLE else _FALLBACK


def size_by(request: Request, max_pixels: int) -> ResultSize:
    """Returns a function that computes result sizes from the headers of sources of at most
    `max_pixels`."""

    def result_size(source: Path) -> tuple[int, int, Fraction]:
        from waifu2x.formats.read import content, open_content  # with NumPy, as late as can be

        with closing(open_content(content(source), str(source), max_pixels)) as opened:
            rows, columns, _ = opened.header.extents[0]
        if request.leaves(rows, columns):
            return columns, rows, Fraction(1)
        planned = request.plan(rows, columns, math.ceil)
        return planned.width, planned.height, Fraction(planned.width, columns)

    return result_size


def shown(scale: Fraction) -> str:
    """Returns a scale as in names: 2, 1.5, 1.33."""
    return f"{round(float(scale), 2):g}"


def of_model(name: str) -> str:
    """Returns a model's name, or that of its file or folder, as file names can contain it."""
    path = Path(name)
    plain = path.stem if path.suffix else path.name
    return "-".join(path.parts) if len(path.parts) == 2 and not path.exists() else plain
