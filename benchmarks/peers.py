"""The same network in other libraries, as a caller of theirs would set it up.

Each peer takes the padded picture as float32 (1, planes, height, width) and gives the float32
result: conversions of pixels are not counted against it. All use as many threads as ours. ncnn
runs the very files that the network was read from, where they are ncnn's, else files of the same
nodes; the others run a graph in ONNX.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.ncnn_files import ncnn_files
from waifu2x.networks.activations import Activation
from waifu2x.networks.expressions import SIGMOID, SILU, TANH
from waifu2x.networks.model import Model
from waifu2x.networks.nodes import (
    Add,
    Concatenate,
    Convolution,
    Crop,
    Dense,
    Enlarge,
    Gate,
    Interpolate,
    Mean,
    Multiply,
    MultiplyMaps,
    PixelShuffle,
    PixelUnshuffle,
    TransposedConvolution,
)
from waifu2x.system.machine import core_count

Peer = Callable[[NDArray[np.float32]], NDArray[np.float32]]


def padded(model: Model, pixels: NDArray[np.uint8]) -> NDArray[np.float32]:
    """The network's value 0 for a picture (H, W, planes): what peers take."""
    more = [-size % model.multiple for size in pixels.shape[:2]]
    pads = [(model.padding, model.padding + extra) for extra in more]
    modes: dict[str, Any] = {"replicate": "edge", "reflect": "reflect", "zero": "constant"}
    planes = np.pad(pixels, [*pads, (0, 0)], mode=modes[model.border]).transpose(2, 0, 1)
    return np.ascontiguousarray(planes[np.newaxis], np.float32) / np.float32(255)


def onnx_model(model: Model) -> bytes:
    """The network as ONNX, any height and width."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    nodes: list[Any] = []
    tensors: dict[str, NDArray[Any]] = {}

    def add(kind: str, inputs: list[str], result: str, **attributes: Any) -> str:
        nodes.append(helper.make_node(kind, inputs, [result], **attributes))
        return result

    def constant(name: str, value: Any, dtype: type = np.float32) -> str:
        tensors[name] = np.asarray(value, dtype)
        return name

    def activate(source: str, activation: Activation, result: str, *, flat: bool = False) -> None:
        slopes = activation.slopes
        if activation.function == SIGMOID:
            add("Sigmoid", [source], result)
        elif activation.function == TANH:
            add("Tanh", [source], result)
        elif activation.function == SILU:
            add("Mul", [source, add("Sigmoid", [source], f"{result}s")], result)
        elif activation.is_linear:
            add("Identity", [source], result)
        elif (slopes == slopes[0]).all():
            add("LeakyRelu", [source], result, alpha=float(slopes[0]))
        else:
            shape = (1, -1) if flat else (-1, 1, 1)
            add("PRelu", [source, constant(f"{result}s", slopes.reshape(shape))], result)

    for value, node in enumerate(model.nodes, 1):
        result = f"v{value}"
        inputs = [f"v{source}" for source in node.sources]
        match node:
            case Convolution():
                arrays = [constant(f"w{value}", node.weight), constant(f"b{value}", node.bias)]
                pads, strides = [node.padding] * 4, [node.stride] * 2
                add("Conv", [*inputs, *arrays], f"c{value}", pads=pads, strides=strides)
                activate(f"c{value}", node.activation, result)
            case TransposedConvolution():
                weight = constant(f"w{value}", node.weight.transpose(1, 0, 2, 3))
                arrays = [weight, constant(f"b{value}", node.bias)]
                pads, strides = [node.crop] * 4, [node.stride] * 2
                add("ConvTranspose", [*inputs, *arrays], f"c{value}", pads=pads, strides=strides)
                activate(f"c{value}", node.activation, result)
            case Enlarge():
                scales = constant(f"f{value}", [1, 1, node.factor, node.factor])
                modes = {"mode": "nearest", "nearest_mode": "floor"}
                modes["coordinate_transformation_mode"] = "asymmetric"
                add("Resize", [inputs[0], "", scales], result, **modes)
            case PixelShuffle():
                add("DepthToSpace", inputs, result, blocksize=node.factor, mode="CRD")
            case PixelUnshuffle():
                # SpaceToDepth has the planes [dy][dx][plane]; ours are [plane][dy][dx].
                planes = model.shapes[node.source].planes
                add("SpaceToDepth", inputs, f"d{value}", blocksize=node.factor)
                order = np.arange(planes * node.factor**2).reshape(-1, planes).T.ravel()
                add("Gather", [f"d{value}", constant(f"o{value}", order, np.int64)], result, axis=1)
            case Crop():
                edges = [
                    constant(f"{n}{value}", v, np.int64)
                    for n, v in (
                        ("first", [node.pixels] * 2),
                        ("last", [-node.pixels or np.iinfo(np.int64).max] * 2),
                        ("axes", [2, 3]),
                    )
                ]
                add("Slice", [*inputs, *edges], result)
            case Add():
                source = inputs[0]
                if node.factor != 1:
                    factor = constant(f"f{value}", node.factor)
                    source = add("Mul", [source, factor], f"m{value}")
                add("Add", [source, inputs[1]], result)
            case Gate():
                add("Sigmoid", inputs[:1], f"s{value}")
                add("Sub", [f"s{value}", constant(f"h{value}", 0.5)], f"d{value}")
                add("Mul", [add("Add", inputs, f"a{value}"), f"d{value}"], result)
            case Interpolate():
                ratio = node.up / node.down
                scales = constant(f"f{value}", [1, 1, ratio, ratio])
                ways = {"coordinate_transformation_mode": "half_pixel", "mode": "cubic"}
                add("Resize", [inputs[0], "", scales], result, cubic_coeff_a=-0.75, **ways)
            case Concatenate():
                add("Concat", inputs, result, axis=1)
            case Mean():
                add("GlobalAveragePool", inputs, f"g{value}")
                add("Flatten", [f"g{value}"], result)
            case Dense():
                arrays = [constant(f"w{value}", node.weight.T), constant(f"b{value}", node.bias)]
                add("Gemm", [*inputs, *arrays], f"c{value}")
                activate(f"c{value}", node.activation, result, flat=True)
            case MultiplyMaps():
                add("Mul", inputs, result)
            case Multiply():
                shape = constant(f"r{value}", [1, -1, 1, 1], np.int64)
                add("Reshape", [inputs[1], shape], f"x{value}")
                add("Mul", [inputs[0], f"x{value}"], result)
    out = f"v{len(model.nodes)}"

    def info(name: str, planes: int) -> Any:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, planes, None, None])

    graph = helper.make_graph(
        nodes,
        "waifu2x",
        [info("v0", model.in_planes)],
        [info(out, model.out_planes)],
        [numpy_helper.from_array(array, name) for name, array in tensors.items()],
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
        result: NDArray[np.float32] = session.run(None, {"v0": planes})[0]
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


def ncnn(precision: str) -> Callable[[Model], Peer]:
    """ncnn with Winograd, fp32 or with maps in bf16; fp16 is for other processors."""

    def build(model: Model) -> Peer:
        import ncnn

        net = ncnn.Net()
        net.opt.num_threads = core_count()
        net.opt.use_fp16_packed = net.opt.use_fp16_storage = net.opt.use_fp16_arithmetic = False
        net.opt.use_bf16_packed = net.opt.use_bf16_storage = precision == "bf16"
        with tempfile.TemporaryDirectory() as folder:
            param = Path(model.name)
            if param.suffix != ".param":
                param = Path(folder) / "net.param"
                text, weights = ncnn_files(model)
                param.write_text(text)
                param.with_suffix(".bin").write_bytes(weights)
            if net.load_param(str(param)) or net.load_model(str(param.with_suffix(".bin"))):
                raise RuntimeError("ncnn does not take the network")
        first, last = net.input_names()[0], net.output_names()[-1]

        def run(planes: NDArray[np.float32]) -> NDArray[np.float32]:
            extractor = net.create_extractor()
            extractor.input(first, ncnn.Mat(planes[0]))
            _, result = extractor.extract(last)
            made = np.array(result)[np.newaxis]
            if model.border == "reflect" and model.padding and model.scale == 4:
                # Real-CUGAN's: the program adds the picture.
                inner = slice(model.padding, -model.padding)
                made += planes[:, :, inner, inner].repeat(4, 2).repeat(4, 3)
            return made

        return run

    return build


PEERS: dict[str, Callable[[Model], Peer]] = {
    "onnxruntime fp32": onnxruntime_fp32,
    "ncnn fp32": ncnn("fp32"),
    "ncnn bf16": ncnn("bf16"),
    "OpenVINO fp32": openvino("f32"),
    "OpenVINO bf16": openvino("bf16"),
}
