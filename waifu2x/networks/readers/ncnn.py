"""ncnn's networks: a .param file, which is the graph as text, and the .bin file of its weights.

Text and weights are held against each other, and nothing is allocated before that. What a Model
cannot express is refused by name.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from waifu2x.networks.model import Model
from waifu2x.networks.readers.limits import read_file
from waifu2x.networks.readers.ncnn_files import BinFile, parse_lines
from waifu2x.networks.readers.ncnn_graph import BlobGraph
from waifu2x.networks.readers.ncnn_layers import add_layer


def read_model(path: Path) -> Model:
    """The network in a .param file and the .bin file beside it.

    Raises ModelError, which names file, line and key, if one cannot be read, they do not fit
    together, or a layer is of a kind that a Model cannot express.
    """
    text = read_file(path)
    return parse(text, read_file(weights_path(path)), str(path))


def weights_path(path: Path) -> Path:
    """The .bin file that belongs to a .param file."""
    return path.with_suffix(".bin")


def parse(text: bytes, weights: bytes, name: str) -> Model:
    """The network in the contents of both files; `name` stands for the .param file in messages."""
    lines = parse_lines(text, name)
    graph = BlobGraph(name, lines, BinFile(weights))
    # The graph refuses numbers that become infinite: no warning need say so before.
    with np.errstate(over="ignore", invalid="ignore"):
        for line in lines:
            add_layer(graph, line)
    return graph.finish()
