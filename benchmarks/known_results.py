"""Adds this machine's results of fixed pictures to the table that `waifu2x bench --verify` reads.

python benchmarks/known_results.py [--backend cpu] [--device 0] [MODEL ...]
WAIFU2X_CPU_ISA=avx2 python benchmarks/known_results.py --backend cpu

Every network of the models is computed, of all installed ones without a name, by auto and fp32. A
result that breaks its promise is not added, and the script ends with status 1. Where this kind of
machine had other results, they are replaced: run it for every kind of machine at hand after a
change that changes bits. Install the extras cugan, realesrgan and span first.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from waifu2x.backends import BACKEND_NAMES
from waifu2x.backends.engine.engine import Engine
from waifu2x.flows import known_results
from waifu2x.flows.known_results import TABLE, KnownResults
from waifu2x.networks import model_set

WIDTHS = (22, 8, 9, 5, 16)
"""Characters of the table's columns before the last."""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--backend", choices=BACKEND_NAMES, default="cpu")
    parser.add_argument("--device", type=int, default=0)
    parser.add_argument("models", nargs="*")
    arguments = parser.parse_args()
    shipped = [each.name for each in model_set.available() if model_set.is_shipped(each.name)]
    opened = [
        Engine(arguments.backend, arguments.device, mode, fallback=False)
        for mode in known_results.PROMISED
    ]
    kind = known_results.kind_of(opened[0].backend)
    wrong = 0
    for name in arguments.models or shipped:
        known = known_results.read()
        for judgement in known_results.judged(name, opened, known, every=True):
            print(*judgement.key, judgement.mode, judgement.digest, judgement.distance, flush=True)
            if judgement.is_right:
                add(known, judgement.key, judgement.digest, kind)
            else:
                wrong += 1
        write(known)
    if wrong:
        sys.exit(f"{wrong} results break their promise")


def add(known: KnownResults, key: known_results.Key, digest: str, kind: str) -> None:
    """Notes what a kind of machine makes, instead of what it made before."""
    found = known.setdefault(key, {})
    for other in list(found):
        found[other] = [each for each in found[other] if each != kind]
        if not found[other]:
            del found[other]
    found[digest] = sorted({*found.get(digest, ()), kind})


def write(known: KnownResults) -> None:
    """Writes the table anew, below the lines that explain it."""
    lines = [line for line in TABLE.read_text(encoding="utf-8").splitlines() if line[:1] == "#"]
    for key in sorted(known):
        for digest, kinds in sorted(known[key].items()):
            cells = [cell.ljust(width) for cell, width in zip((*key, digest), WIDTHS, strict=True)]
            lines.append("  ".join([*cells, "; ".join(kinds)]))
    TABLE.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
