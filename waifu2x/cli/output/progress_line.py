"""Formats progress as one line of any width."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from waifu2x.errors import printable
from waifu2x.system.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from rich.text import Text

_GAP = "  "
_LEAST_NAME = 8
"""The least columns of a name that are of use."""
_MOST_NAME = 30
"""Columns of names that are worth more than a bar."""
_LEAST_BAR = 10
_BAR_SHARE = 4
"""The bar takes one of this many columns."""


@dataclass(frozen=True)
class Figures:
    """The progress of the work."""

    names: Sequence[str] = ()
    """Files under way, the most important first."""
    part: float | None = None
    """The finished part; None if it is unknown."""
    counted: str = ""
    """The number of finished pictures, if there are several."""
    failed: int = 0
    rate: str = ""
    left: float | None = None
    """Seconds that the rest takes; None if they are unknown."""
    stage: str = ""
    """The current stage, where the rest says nothing of it."""

    def text(self) -> str:
        """Returns the figures in words, for a log."""
        told = [text for _, text in self._fields()]
        return ", ".join(told) + (f": {', '.join(self.names)}" if self.names else "")

    def line(self, width: int, *, ascii_only: bool = False) -> Text:
        """Returns the figures for a terminal, in at most `width` columns. If there are too few, it
        leaves out the least important first: the bar, the rate, the names, the count."""
        from rich.text import Text

        fields, names = dict(self._fields()), [printable(name) for name in self.names]
        if ascii_only:
            names = [name.encode("ascii", "replace").decode() for name in names]
        for dropped in ("rate", "stage", "counted"):
            # A rate is worth less than a name, and a name less than a count.
            if _room(width, fields) >= (_LEAST_NAME if names and dropped == "rate" else 0):
                break
            fields.pop(dropped, None)
        wanted = min(_width(", ".join(names)), _MOST_NAME) + len(_GAP) if names else 0
        line = Text(end="")
        bar, rest = self._bar(min(_room(width, fields) - wanted, width // _BAR_SHARE), ascii_only)
        line.append(bar, style="cyan")
        line.append(rest, style="dim")
        for name, text in fields.items():
            line.append((_GAP if line else "") + text, style="red" if name == "failed" else "")
        room = width - line.cell_len - len(_GAP)
        if names and room >= _LEAST_NAME:
            line.append(_GAP + _fitted(names, room, "~" if ascii_only else "…"), style="bold")
        line.truncate(max(width, 0), overflow="crop")
        return line

    def _fields(self) -> list[tuple[str, str]]:
        part = None if self.part is None else f"{math.floor(100 * min(self.part, 1.0)):2} %"
        fields = {
            "part": part,
            "counted": self.counted,
            "failed": f"{self.failed} failed" if self.failed else "",
            "rate": self.rate,
            "left": None if self.left is None else f"{clock(self.left)} left",
            "stage": self.stage,
        }
        return [(name, text) for name, text in fields.items() if text]

    def _bar(self, columns: int, ascii_only: bool) -> tuple[str, str]:
        """Returns the full and the empty part of the bar; both empty if there are too few
        columns."""
        if self.part is None or columns < _LEAST_BAR:
            return "", ""
        full = math.floor(columns * min(self.part, 1.0))
        done, rest = "#-" if ascii_only else "━─"
        return done * full, rest * (columns - full)


def clock(seconds: float) -> str:
    """Formats a time like 0:05 or 1:02:03."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def rate_text(rate: float) -> str:
    """Formats a rate: how many a second, or the seconds of one if that is longer."""
    return f"{rate:.1f}/s" if rate >= 1 else f"{1 / rate:.1f} s each"


def _room(width: int, fields: Mapping[str, str]) -> int:
    """Returns the columns that are left beside fields, and a gap behind them."""
    return width - sum(len(text) + len(_GAP) for text in fields.values())


def _width(text: str) -> int:
    """Returns the columns of a text: some characters take two."""
    from rich.cells import cell_len

    return cell_len(text)


def _fitted(names: Sequence[str], width: int, cut: str) -> str:
    """Returns the names that fit; of the first at least its end, where names differ."""
    first = names[0]
    if _width(first) > width:
        while first and _width(first) >= width:
            first = first[1:]
        return cut + first
    fitted = first
    for name in names[1:]:
        if _width(longer := f"{fitted}, {name}") > width:
            break
        fitted = longer
    return fitted
