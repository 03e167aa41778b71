"""What a network is: a short list of operations, with every size read from the weights."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Enlarge:
    """Repeats every pixel `factor` times in both directions (nearest neighbour)."""

    factor: int


@dataclass(frozen=True, eq=False)
class Convolution:
    """A valid 3x3 cross-correlation, then leaky ReLU."""

    weight: NDArray[np.float32]
    """(out_planes, in_planes, 3, 3)."""
    bias: NDArray[np.float32]
    """(out_planes,)."""
    slope: float
    """Of the leaky ReLU: max(x, slope * x); 1 leaves the result as it is."""

    @property
    def in_planes(self) -> int:
        """Feature maps that it reads."""
        return int(self.weight.shape[1])

    @property
    def out_planes(self) -> int:
        """Feature maps that it makes."""
        return int(self.weight.shape[0])


Operation = Enlarge | Convolution


@dataclass(frozen=True, eq=False)
class Model:
    """A network: planes of a picture in [0, 1] in, planes of a picture out."""

    name: str
    """For messages: the file that it came from."""
    operations: tuple[Operation, ...]
    """In order; an Enlarge stands first or nowhere, and there is at least one Convolution."""

    @property
    def convolutions(self) -> tuple[Convolution, ...]:
        """The layers with weights, in order."""
        return tuple(o for o in self.operations if isinstance(o, Convolution))

    @property
    def in_planes(self) -> int:
        """Planes of the pictures that it takes: 1 or 3 for pictures, anything for tests."""
        return self.convolutions[0].in_planes

    @property
    def out_planes(self) -> int:
        """Planes of the pictures that it makes."""
        return self.convolutions[-1].out_planes

    @property
    def scale(self) -> int:
        """Output pixels for each input pixel, in each direction."""
        scale = 1
        for operation in self.operations:
            scale *= operation.factor if isinstance(operation, Enlarge) else 1
        return scale

    @property
    def offset(self) -> int:
        """Output pixels that valid convolutions lose on each side."""
        return len(self.convolutions)

    @property
    def multiply_adds(self) -> int:
        """Multiply-adds for one output pixel, by the definition of convolution."""
        return sum(int(layer.weight.size) for layer in self.convolutions)

    def enlarged(self, factor: int) -> Model:
        """This model behind a nearest-neighbour enlargement, as vgg_7 doubles a picture."""
        return Model(self.name, (Enlarge(factor), *self.operations))
