"""What all layers of the fp32 road have: weights on the device, and kernels that read them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from waifu2x.backends.gpu.road import Map, Source, Target
from waifu2x.backends.gpu.runtime import Kernel, Runtime
from waifu2x.model import Convolution


class PackedLayer:
    """A layer's weights and bias on the device, in whatever order its kernels want; see Layer."""

    def __init__(
        self, runtime: Runtime, weight: NDArray[np.float32], bias: NDArray[np.float32]
    ) -> None:
        """Raises OutOfMemoryError."""
        self._runtime = runtime
        self._kernels: dict[object, Kernel] = {}
        self._weight, self._bias = runtime.allocate(weight.nbytes), runtime.allocate(bias.nbytes)
        runtime.upload(self._weight, weight)
        runtime.upload(self._bias, bias)

    def owns(self, kernel: Kernel) -> bool:
        """See Layer."""
        return any(own is kernel for own in self._kernels.values())

    def close(self) -> None:
        """See Layer."""
        self._weight.release()
        self._bias.release()

    def _queue(
        self,
        kernel: Kernel,
        groups: tuple[int, int, int],
        source: Map | Source,
        target: Map | Target,
    ) -> None:
        self._runtime.launch(
            kernel,
            groups,
            *source.arguments,
            self._weight,
            self._bias,
            *target.arguments,
        )


def padded(
    layer: Convolution, inputs: int, outputs: int
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Weight (outputs, inputs, 3, 3) and bias (outputs,), with zeros for planes that are not."""
    weight = np.zeros((outputs, inputs, 3, 3), np.float32)
    weight[: layer.out_planes, : layer.in_planes] = layer.weight
    bias = np.zeros(outputs, np.float32)
    bias[: layer.out_planes] = layer.bias
    return weight, bias
