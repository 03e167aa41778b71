"""Primaries and tone curves by the numbers of ITU-T H.273, which PNG, AVIF, HEIF and films have.

A picture of PQ or HLG is brighter than paper: its curves show it on a display of 203 cd/m², the
white of ITU-R BT.2408. Brighter parts are compressed as in ITU-R BT.2390, section 5.4.1, each of
red, green and blue alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from waifu2x.imaging.picture import CodePoints, Hdr
from waifu2x.system.lazy_dataclass import dataclass

Curve = Callable[[NDArray[Any]], NDArray[Any]]
"""A tone curve: from values in [0, 1] to light in [0, 1]."""
Chromaticities = tuple[float, ...]
"""x and y of white, red, green and blue."""
BT709, SRGB, PQ, HLG = 1, 13, 16, 18
SRGB_PRIMARIES: Chromaticities = (0.3127, 0.3290, 0.64, 0.33, 0.30, 0.60, 0.15, 0.06)
_C = (0.310, 0.316)
_D65 = (0.3127, 0.3290)
PRIMARIES: dict[int, Chromaticities] = {
    1: SRGB_PRIMARIES,
    4: (*_C, 0.67, 0.33, 0.21, 0.71, 0.14, 0.08),
    5: (*_D65, 0.64, 0.33, 0.29, 0.60, 0.15, 0.06),
    6: (*_D65, 0.630, 0.340, 0.310, 0.595, 0.155, 0.070),
    7: (*_D65, 0.630, 0.340, 0.310, 0.595, 0.155, 0.070),
    8: (*_C, 0.681, 0.319, 0.243, 0.692, 0.145, 0.049),
    9: (*_D65, 0.708, 0.292, 0.170, 0.797, 0.131, 0.046),
    11: (0.314, 0.351, 0.680, 0.320, 0.265, 0.690, 0.150, 0.060),
    12: (*_D65, 0.680, 0.320, 0.265, 0.690, 0.150, 0.060),
    22: (*_D65, 0.630, 0.340, 0.295, 0.605, 0.155, 0.077),
}
"""H.273, table 2. Those of XYZ (10) are no lights."""
_PRIMARY_NAMES = {
    1: "BT.709", 4: "BT.470 M", 5: "BT.601, 625 lines", 6: "BT.601, 525 lines", 7: "SMPTE 240M",
    8: "film", 9: "BT.2020", 11: "DCI-P3", 12: "Display P3", 22: "EBU 3213",
}  # fmt: skip
_TRANSFER_NAMES = {
    1: "BT.709", 4: "gamma 2.2", 5: "gamma 2.8", 6: "BT.601", 7: "SMPTE 240M", 8: "linear",
    13: "sRGB", 14: "BT.2020", 15: "BT.2020", 16: "PQ", 17: "SMPTE 428", 18: "HLG",
}  # fmt: skip
_WHITE = 203.0
"""Luminance of white on paper, in cd/m². ITU-R BT.2408, table 1."""
BRIGHTEST = 1000.0
"""Luminance of a display that pictures of PQ without metadata are made on, and that of HLG."""


CHROMATICITY, LUMINANCE = 50_000, 10_000
"""Parts of one in which files have the chromaticities and the luminance of a mastering display."""


def hdr_of(display: tuple[int, ...], light: tuple[int, ...], unit: int) -> Hdr | None:
    """Returns HDR10's metadata by a file's numbers; None if both are empty.

    `display` is x and y of red, green, blue and white, the greatest and the least luminance;
    `light` is MaxCLL and MaxFALL in parts of a cd/m²; `unit` parts are one.
    """
    if not (display or light):
        return None
    from fractions import Fraction

    return Hdr(
        tuple(Fraction(value, CHROMATICITY) for value in display[:8]),
        tuple(Fraction(value, LUMINANCE) for value in display[:7:-1]),
        (Fraction(light[0], unit), Fraction(light[1], unit)) if light else None,
    )


@dataclass(frozen=True)
class Power:
    """A tone curve that is a power of its values."""

    gamma: float

    def __call__(self, values: NDArray[Any]) -> NDArray[Any]:
        """Returns light in [0, 1] of values in [0, 1]."""
        return np.asarray(np.power(values, self.gamma))


def light_of(curve: Curve, values: NDArray[Any]) -> NDArray[np.float64]:
    """Returns light, cut off to [0, 1], of values in [0, 1], whatever a file gives for a curve."""
    with np.errstate(all="ignore"):
        return np.nan_to_num(np.asarray(curve(values), np.float64)).clip(0, 1)


def srgb_encoded(light: NDArray[Any]) -> NDArray[Any]:
    """Returns sRGB's values, in [0, 1], of light in [0, 1] (IEC 61966-2-1)."""
    return np.where(
        light <= 0.0031308, 12.92 * light, 1.055 * np.maximum(light, 0.0031308) ** (1 / 2.4) - 0.055
    )


def srgb_light(values: NDArray[Any]) -> NDArray[Any]:
    """Returns light, in [0, 1], of sRGB's values in [0, 1]."""
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def _smpte_240m(values: NDArray[Any]) -> NDArray[Any]:
    return np.where(values < 0.0913, values / 4, ((values + 0.1115) / 1.1115) ** (1 / 0.45))


def _smpte_428(values: NDArray[Any]) -> NDArray[Any]:
    return np.minimum(values**2.6 * (52.37 / 48), 1)


_DISPLAYED = Power(2.4)
"""The curve of displays for BT.709 and its kin: ITU-R BT.1886."""
_CURVES: dict[int, Curve] = {
    1: _DISPLAYED, 4: Power(2.2), 5: Power(2.8), 6: _DISPLAYED, 7: _smpte_240m, 8: Power(1.0),
    11: _DISPLAYED, 12: _DISPLAYED, SRGB: srgb_light, 14: _DISPLAYED, 15: _DISPLAYED,
    17: _smpte_428,
}  # fmt: skip


def is_hdr(points: CodePoints | None) -> bool:
    """Returns whether the transfer characteristics are PQ's or HLG's."""
    return points is not None and points.transfer in (PQ, HLG)


def is_wide(points: CodePoints | None) -> bool:
    """Returns whether colours are HDR, or of the wide primaries of BT.2020 and P3."""
    return is_hdr(points) or (points is not None and points.primaries in (9, 11, 12))


def is_known(points: CodePoints | None) -> bool:
    """Returns whether these are colours that can be computed."""
    return points is not None and (
        points.primaries in PRIMARIES and (points.transfer in _CURVES or is_hdr(points))
    )


def name_of(points: CodePoints) -> str:
    """Returns the name of colours, such as `BT.2020, PQ`; numbers where H.273 has no name."""
    primaries = _PRIMARY_NAMES.get(points.primaries, f"primaries {points.primaries}")
    transfer = _TRANSFER_NAMES.get(points.transfer, f"transfer {points.transfer}")
    if points.transfer == SRGB and points.primaries in (1, 12):
        name = "sRGB" if points.primaries == 1 else primaries
    else:
        name = primaries if primaries == transfer else f"{primaries}, {transfer}"
    return name if points.full_range else f"{name}, narrow range"


def curve_of(points: CodePoints, hdr: Hdr | None = None) -> Curve:
    """Returns the tone curve of known colours; that of PQ and HLG ends at white on paper.

    `hdr` tells how bright a picture of PQ is.
    """
    if points.transfer == PQ:
        whole = _shown(pq_light, _brightest(hdr))
    elif points.transfer == HLG:
        whole = _shown(_hlg_light, BRIGHTEST)
    else:
        whole = _CURVES[points.transfer]
    if points.full_range:
        return whole
    return lambda values: whole(np.clip((values * 255 - 16) / 219, 0, 1))


def pq_light(values: NDArray[Any]) -> NDArray[Any]:
    """Returns the luminance, in cd/m², of PQ's values in [0, 1]. ITU-R BT.2100, table 4."""
    root = np.asarray(values, np.float64) ** (1 / _M2)
    return np.asarray(
        10000 * (np.maximum(root - _C1, 0) / (_C2 - _C3 * root)) ** (1 / _M1), np.float64
    )


def pq_encoded(light: NDArray[Any] | float) -> NDArray[Any]:
    """Returns PQ's values in [0, 1] of luminance in cd/m², at most 10,000."""
    power = (np.asarray(light, np.float64) / 10000) ** _M1
    return np.asarray(((_C1 + _C2 * power) / (1 + _C3 * power)) ** _M2)


_M1, _M2 = 2610 / 16384, 2523 / 4096 * 128
_C1, _C2, _C3 = 3424 / 4096, 2413 / 4096 * 32, 2392 / 4096 * 32


def _hlg_light(values: NDArray[Any]) -> NDArray[Any]:
    """Returns the luminance, in cd/m², of HLG's values on a display of 1000, each colour alone."""
    return np.asarray(BRIGHTEST * hlg_scene(values) ** 1.2)


def hlg_scene(values: NDArray[Any]) -> NDArray[Any]:
    """Returns the scene's light, in [0, 1], of HLG's values in [0, 1]. ITU-R BT.2100, table 5."""
    a, b, c = 0.17883277, 0.28466892, 0.55991073
    return np.where(values <= 0.5, values**2 / 3, (np.exp((values - c) / a) + b) / 12)


def _brightest(hdr: Hdr | None) -> float:
    if hdr is not None and hdr.light and hdr.light[0] > 0:
        found = float(hdr.light[0])
    elif hdr is not None and hdr.luminance and hdr.luminance[1] > 0:
        found = float(hdr.luminance[1])
    else:
        found = BRIGHTEST
    return min(max(found, _WHITE), 10000.0)


def _shown(luminance: Curve, brightest: float) -> Curve:
    """Returns a curve whose light is 1 at white on paper, its own part compressed from a knee on.

    BT.2390, section 5.4.1, with black at 0.
    """
    peak = float(pq_encoded(brightest))
    white = float(pq_encoded(_WHITE)) / peak
    knee = 1.5 * white - 0.5

    def curve(values: NDArray[Any]) -> NDArray[Any]:
        seen = np.minimum(pq_encoded(luminance(values)) / peak, 1)
        t = np.maximum(seen - knee, 0) / max(1 - knee, 1e-9)
        bent = (
            (2 * t**3 - 3 * t**2 + 1) * knee
            + (t**3 - 2 * t**2 + t) * (1 - knee)
            + (3 * t**2 - 2 * t**3) * white
        )
        return np.asarray(pq_light(np.where(seen < knee, seen, bent) * peak) / _WHITE)

    return curve
