"""The same network in other libraries, as a caller of theirs would set it up.

Each peer takes the enlarged and padded picture as float32 (1, planes, height, width) and gives the
float32 result: conversions of pixels are not counted against it. All use as many threads as ours.
"""

from __future__ import annotations

import struct
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from waifu2x.backends.cpu.isa import core_count
from waifu2x.model import Model

Peer = Callable[[NDArray[np.float32]], NDArray[np.float32]]


def onnx_model(model: Model) -> bytes:
    """The network as ONNX, any height and width."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    nodes, tensors, name = [], [], "in"
    for index, layer in enumerate(model.convolutions):
        tensors += [
            numpy_helper.from_array(layer.weight, f"w{index}"),
            numpy_helper.from_array(layer.bias, f"b{index}"),
        ]
        last = index == len(model.convolutions) - 1
        result = "out" if last else f"c{index}"
        nodes.append(helper.make_node("Conv", [name, f"w{index}", f"b{index}"], [result]))
        name = result
        if not last:
            nodes.append(helper.make_node("LeakyRelu", [name], [f"r{index}"], alpha=layer.slope))
            name = f"r{index}"
    shape = [1, model.in_planes, None, None]
    graph = helper.make_graph(
        nodes,
        "waifu2x",
        [helper.make_tensor_value_info("in", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("out", TensorProto.FLOAT, shape)],
        tensors,
    )
    built = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(built)
    serialized: bytes = built.SerializeToString()
    return serialized


def onnxruntime_fp32(model: Model) -> Peer:
    """onnxruntime's CPU provider."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = core_count()
    session = onnxruntime.InferenceSession(
        onnx_model(model), options, providers=["CPUExecutionProvider"]
    )

    def run(planes: NDArray[np.float32]) -> NDArray[np.float32]:
        result: NDArray[np.float32] = session.run(None, {"in": planes})[0]
        return result

    return run


def openvino(precision: str) -> Callable[[Model], Peer]:
    """OpenVINO's CPU plugin at f32 or bf16."""

    def build(model: Model) -> Peer:
        import openvino as ov

        core = ov.Core()
        if precision == "bf16" and "BF16" not in core.get_property(
            "CPU", "OPTIMIZATION_CAPABILITIES"
        ):
            raise ImportError("this processor has no bf16")
        settings: dict[str, Any] = {
            "INFERENCE_PRECISION_HINT": precision,
            "INFERENCE_NUM_THREADS": core_count(),
            "PERFORMANCE_HINT": "LATENCY",
        }
        compiled = core.compile_model(core.read_model(onnx_model(model)), "CPU", settings)
        request = compiled.create_infer_request()

        def run(planes: NDArray[np.float32]) -> NDArray[np.float32]:
            result: NDArray[np.float32] = next(iter(request.infer([planes]).values()))
            return result

        return run

    return build


def ncnn_fp32(model: Model) -> Peer:
    """ncnn, fp32 with Winograd: its default without the 16-bit options."""
    import ncnn

    count = len(model.convolutions)
    lines = ["7767517", f"{count + 1} {count + 1}", "Input in 0 1 in"]
    blob, name = b"", "in"
    for index, layer in enumerate(model.convolutions):
        result = "out" if index == count - 1 else f"c{index}"
        leaky = "" if index == count - 1 else f" 9=2 -23310=1,{layer.slope}"
        lines.append(
            f"Convolution conv{index} 1 1 {name} {result} 0={layer.out_planes} 1=3 5=1"
            f" 6={layer.weight.size}{leaky}"
        )
        blob += struct.pack("<I", 0) + layer.weight.tobytes() + layer.bias.tobytes()
        name = result
    net = ncnn.Net()
    net.opt.num_threads = core_count()
    net.opt.use_fp16_packed = net.opt.use_fp16_storage = net.opt.use_fp16_arithmetic = False
    net.opt.use_bf16_storage = False
    with tempfile.TemporaryDirectory() as folder:
        param, weights = Path(folder) / "net.param", Path(folder) / "net.bin"
        param.write_text("\n".join(lines) + "\n")
        weights.write_bytes(blob)
        if net.load_param(str(param)) or net.load_model(str(weights)):
            raise RuntimeError("ncnn does not take the network")

    def run(planes: NDArray[np.float32]) -> NDArray[np.float32]:
        extractor = net.create_extractor()
        extractor.input("in", ncnn.Mat(planes[0]))
        _, result = extractor.extract("out")
        return np.array(result)[np.newaxis]

    return run


PEERS: dict[str, Callable[[Model], Peer]] = {
    "onnxruntime fp32": onnxruntime_fp32,
    "ncnn fp32": ncnn_fp32,
    "OpenVINO fp32": openvino("f32"),
    "OpenVINO bf16": openvino("bf16"),
}
