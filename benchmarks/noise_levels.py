"""Which noise level is best for a JPEG, by its quality: what `-n auto` is made from, and its test.

python -m benchmarks.noise_levels measure FILE.json [--set NAME ...] [--backend NAME]
python -m benchmarks.noise_levels report FILE.json ...  limits, and how they do, as Markdown
                                                            (needs: pip install -e ".[bench]")

A truth is halved (2x) or not (1x), saved as JPEG of each quality, with and without chroma
subsampling, and made by each set without noise removal and with each of its levels. Figures are
PSNR in dB of 8-bit RGB against the truth. The pictures are those of benchmarks/noise_pictures.py.
"""

from __future__ import annotations

import argparse
import io
import json
import math
import operator
import statistics
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

import waifu2x
from benchmarks import noise_pictures, unseen_pictures
from benchmarks.noise_pictures import Truth
from benchmarks.quality import halved
from benchmarks.sprites import Pixels
from waifu2x.backends.engine.engine import Engine
from waifu2x.errors import ModelError
from waifu2x.imaging.flatness import FLAT, flat_share
from waifu2x.networks import model_set
from waifu2x.networks.noise_levels import Limits, NoiseLimits

Row = dict[str, Any]

QUALITIES = (30, 40, 50, 60, 70, 75, 80, 85, 90, 93, 95, 98)
SUBSAMPLINGS = {0: "4:4:4", 2: "4:2:0"}
SCALES = (1, 2)
LEVELS = (0, 1, 2)
"""The levels that may be chosen."""
MARGIN = 0.2
"""dB that a level has to gain on every deciding picture, for those that it has not seen."""
LOSS = 0.05
"""dB that a level may lose on any picture."""
CLOSE = 0.1
"""Invisible difference of means in dB: the weaker level invents less."""
SETS = ("cunet/art", "upconv_7/art", "upconv_7/photo", "vgg_7/art", "cugan/se")


def measure(name: str, engine: Engine, pictures: Sequence[str] | None) -> Iterator[Row]:
    """A row for each picture, scale and coding: PSNR by level, `none` among them."""
    levels = [None, *model_set.find(name).noise_levels]
    groups = {
        "deciding": noise_pictures.deciding(),
        "testing": noise_pictures.testing(),
        "unseen": unseen_pictures.unseen(),
    }
    for scale in SCALES:
        upscalers = {}
        for level in levels:
            if scale > 1 or level is not None:
                try:
                    upscalers[level] = waifu2x.Upscaler(scale, level, model=name, engine=engine)
                except ModelError as error:
                    print(error, file=sys.stderr)
        for group, truths in groups.items():
            for truth in truths:
                if pictures and truth.name not in pictures:
                    continue
                for quality in QUALITIES:
                    for subsampling in SUBSAMPLINGS:
                        given = _coded(truth, scale, quality, subsampling)
                        found = {} if scale > 1 else {"none": _psnr(given, truth.pixels)}
                        for level, upscaler in upscalers.items():
                            key = "none" if level is None else str(level)
                            found[key] = _psnr(upscaler(given), truth.pixels)
                        yield {
                            "set": name,
                            "scale": scale,
                            "group": group,
                            "kind": truth.kind,
                            "picture": truth.name,
                            "quality": quality,
                            "subsampling": SUBSAMPLINGS[subsampling],
                            "flat": round(flat_share(given), 3),
                            "psnr": found,
                        }


def _coded(truth: Truth, scale: int, quality: int, subsampling: int) -> Pixels:
    pixels = truth.pixels
    for _ in range(scale.bit_length() - 1):
        pixels = halved(pixels)
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "JPEG", quality=quality, subsampling=subsampling)
    return np.asarray(Image.open(stream))


def _psnr(pixels: Pixels, truth: Pixels) -> float:
    error = float(np.mean((pixels.astype(float) - truth) ** 2))
    return round(10 * math.log10(255**2 / max(error, 1e-10)), 4)


def limits_of(rows: Sequence[Row]) -> NoiseLimits:
    """The limits of one set, by the deciding pictures; lower where another loses by them."""
    alone = [row for row in rows if row["scale"] == 1]
    enlarged = [row for row in rows if row["scale"] > 1]
    flat = [row for row in alone if row["flat"] >= FLAT]
    return NoiseLimits(choose(alone), choose(enlarged), choose(flat))


def choose(known: Sequence[Row]) -> Limits:
    """Up to which quality each level is best.

    A level must gain MARGIN on every deciding picture and lose at most LOSS on any other; the best
    is the weakest whose mean over the deciding is CLOSE to the highest. Where two neighbouring
    qualities differ the limit is halfway, and the last one is a quality that was measured.
    """
    limits: list[tuple[int, int]] = []
    before: tuple[int, int] | None = None
    for quality in QUALITIES:
        gains: dict[int, list[float]] = {}
        lost = set()
        for row in known:
            if row["quality"] == quality:
                for level in LEVELS:
                    if str(level) in row["psnr"] and (before is None or level <= before[1]):
                        gain = row["psnr"][str(level)] - row["psnr"]["none"]
                        if row["group"] == "deciding":
                            gains.setdefault(level, []).append(gain)
                        elif gain < -LOSS:
                            lost.add(level)
        safe = [level for level, each in gains.items() if min(each) >= MARGIN and level not in lost]
        means = {level: statistics.mean(gains[level]) for level in safe}
        close = [level for level in safe if means[level] >= max(means.values()) - CLOSE]
        best = min(close, default=None)
        if before is not None and best != before[1]:
            limits.append((before[0] if best is None else (before[0] + quality) // 2, before[1]))
        if best is None:
            break
        before = quality, best
    else:
        assert before is not None
        limits.append(before)
    return tuple(limits)


def judge(rows: Sequence[Row], scale: int, group: str, limits: NoiseLimits) -> list[str]:
    """Cells of a table: means over all codings by `auto`, none and each level; what `auto` gains
    on the picture and coding where it gains least."""
    found = [row for row in rows if row["scale"] == scale and row["group"] == group]
    auto = []
    for row in found:
        is_flat = partial(operator.ge, row["flat"], FLAT)
        level = limits.level(row["quality"], enlarges=scale > 1, is_flat=is_flat)
        auto.append(row["psnr"]["none" if level is None else str(level)])
    gains = [psnr - row["psnr"]["none"] for psnr, row in zip(auto, found, strict=True)]
    fixed = {
        key: statistics.mean(row["psnr"][key] for row in found)
        for key in ("none", "0", "1", "2", "3")
        if key in found[0]["psnr"]
    }
    best = max(fixed, key=lambda key: fixed[key])
    mean = statistics.mean(auto)
    worst = found[gains.index(min(gains))]
    return [
        f"{mean:.2f}",
        f"{fixed['none']:.2f}",
        f"{fixed[best]:.2f} ({best})",
        f"{mean - fixed[best]:+.2f}",
        f"{min(gains):+.2f} ({worst['picture']}, {worst['quality']}, {worst['subsampling']})",
    ]


def gains(rows: Sequence[Row], scale: int) -> Iterator[list[str]]:
    """Rows of a table: what each level gains at each quality, on all drawings and photos."""
    for quality in QUALITIES:
        cells = [str(quality)]
        for kind in ("drawing", "photo"):
            for level in ("0", "1", "2", "3"):
                each = [
                    row["psnr"][level] - row["psnr"]["none"]
                    for row in rows
                    if (row["scale"], row["quality"], row["kind"]) == (scale, quality, kind)
                    and level in row["psnr"]
                ]
                cells.append(f"{statistics.mean(each):+.2f}" if each else "")
        yield cells


def report(rows: Sequence[Row]) -> None:
    """Prints limits and how they do, as Markdown."""
    sets = list(dict.fromkeys(row["set"] for row in rows))
    print(
        "| set | scale | limits | pictures | auto | none | best fixed | difference | least gain |"
    )
    print("|---|---|---|---|--:|--:|--:|--:|---|")
    for name in sets:
        own = [row for row in rows if row["set"] == name]
        limits = limits_of(own)
        print(f"`{name}`: {limits}", file=sys.stderr)
        for scale in SCALES:
            chosen = [limits.alone, limits.flat] if scale == 1 else [limits.enlarging]
            said = "; flat: ".join(
                ", ".join(f"{level} to {limit}" for limit, level in each) or "none"
                for each in chosen
            )
            for group in ("deciding", "testing", "unseen"):
                cells = judge(own, scale, group, limits)
                print(f"| `{name}` | {scale} | {said} | {group} | {' | '.join(cells)} |")
    for name in sets:
        for scale in SCALES:
            print(f"\n`{name}`, {scale}x: dB gained by levels 0 to 3, drawings then photos\n")
            print("| JPEG quality | 0 | 1 | 2 | 3 | 0 | 1 | 2 | 3 |")
            print("|--:" * 9 + "|")
            for cells in gains([row for row in rows if row["set"] == name], scale):
                print(f"| {' | '.join(cells)} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("command", choices=["measure", "report"])
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--set", action="append")
    parser.add_argument("--picture", action="append", help="only these; others stay as they are")
    parser.add_argument("--backend", default="cpu")
    arguments = parser.parse_args()
    rows: list[Row] = []
    for file in arguments.files:
        rows += json.loads(file.read_text()) if file.exists() else []
    if arguments.command == "report":
        report(rows)
        return
    with Engine(arguments.backend) as engine:
        for name in arguments.set or SETS:
            made = list(measure(name, engine, arguments.picture))
            new = {(row["set"], row["picture"]) for row in made}
            rows = [row for row in rows if (row["set"], row["picture"]) not in new] + made
    arguments.files[0].write_text("[\n" + ",\n".join(map(json.dumps, rows)) + "\n]\n")


if __name__ == "__main__":
    main()
