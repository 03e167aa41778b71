"""How exact is each operation on each backend and precision of this machine?

    python benchmarks/operations.py > table.md

Prints a table of dB against the definition in float64 (`tests/helpers/obvious.py`): of the worse of
an odd picture and a tiny one, through the networks of one operation that the contract suite runs
(`tests/helpers/operations.py`). Ends with 1 where a value is below what the precision promises.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import numpy as np

from tests.helpers import obvious
from tests.helpers.operations import OPERATIONS
from waifu2x.backends import BACKEND_NAMES, Backend, Precision, open_backend
from waifu2x.backends.call import Call
from waifu2x.errors import BackendError
from waifu2x.networks.model import Model

_SIZES = (37, 42), (2, 3)
_PROMISED = {"fp32": 100.0}
_PROMISED_OTHERWISE = 60.0


def main() -> int:
    backends = {name: backend for name in BACKEND_NAMES if (backend := _opened(name))}
    modes = [(name, precision) for name in backends for precision in _precisions(name)]
    for name, backend in backends.items():
        print(f"`{name}`: {backend.device.name}  ")
    print()
    print("| operation |", " | ".join(f"{name} {precision}" for name, precision in modes), "|")
    print("|---|" + "--:|" * len(modes))
    failed = False
    for operation, make in OPERATIONS.items():
        model, row = make(), list[str]()
        for name, precision in modes:
            found = _decibels(backends[name], precision, model)
            failed |= found < _PROMISED.get(precision, _PROMISED_OTHERWISE)
            row.append(f"{found:.0f}")
        print(f"| {operation} |", " | ".join(row), "|", flush=True)
    return int(failed)


def _opened(name: str) -> Backend | None:
    try:
        return open_backend(name)
    except BackendError as error:
        print(error, file=sys.stderr)
        return None


def _precisions(name: str) -> Sequence[Precision]:
    """The precisions of a backend that compute differently."""
    if name == "cuda":
        return "fp32", "fp16"
    if name == "cpu":
        from waifu2x.backends.cpu.arithmetic import arithmetics

        return tuple(dict.fromkeys(("fp32", *arithmetics())))
    return ("fp32",)


def _decibels(backend: Backend, precision: Precision, model: Model) -> float:
    """The lower of the PSNR of both pictures."""
    network = backend.compile([model], precision)
    rng, found = np.random.default_rng(1), list[float]()
    for size in _SIZES:
        pixels = rng.integers(0, 255, (*size, 3), np.uint8, endpoint=True)
        made = network.run(Call(pixels, np.float32))
        found.append(obvious.psnr(made, obvious.run([model], pixels)))
    network.close()
    return min(found)


if __name__ == "__main__":
    sys.exit(main())
