"""Files of waifu2x's JSON, one of Anime4K's networks, that somebody wrote to do harm."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.helpers.onnx_attacks import Attack

SOUND = Path(__file__).parents[2] / "models" / "anime4k" / "s" / "scale2.0x_model.json"


def _attack(what: str, text: str | bytes, *, may_be_read: bool = False) -> Attack:
    content = text if isinstance(text, bytes) else text.encode()
    return Attack(what, content, ".json", may_be_read)


def _of_bytes() -> Iterator[Attack]:
    content = SOUND.read_bytes()
    for part in range(20):
        size = (len(content) - 2) * part // 20
        yield _attack(f"{size} bytes are left", content[:size])
    for part in range(25):
        damaged = bytearray(content)
        damaged[len(content) * part // 25] ^= 1 << part % 8
        yield _attack(f"byte {len(content) * part // 25}", bytes(damaged), may_be_read=True)
    odd = {
        "nothing": b"",
        "a mark, then nothing": b"\xef\xbb\xbf",
        "UTF-7": b"+AFs-",
        "zeros": bytes(1000),
        "half a pair": b'[{"class_name":"\\ud800"}]',
        "a cut gzip": gzip.compress(content)[:-9],
        "a gzip of a gzip": gzip.compress(gzip.compress(content)),
        "a gzip with a wrong sum": gzip.compress(content)[:-8] + bytes(8),
        "a gzip bomb": gzip.compress(bytes(65 << 20), 1),
        "an HTML page": b"<!DOCTYPE html><html></html>",
        "two documents": content * 2,
        "a pickle": b"cos\nsystem\n(S'true'\ntR.",
    }
    for what, damage in odd.items():
        yield _attack(what, damage)
    for depth in (100, 10_000, 1_000_000):
        yield _attack(f"{depth} lists", "[" * depth + "]" * depth)
        yield _attack(f"{depth} open lists", "[" * depth)
        yield _attack(f"{depth} objects", '{"a":' * depth + "0" + "}" * depth)
    for text in ("0", "null", "true", '"x"', "{}", "[]", "[0]", "[[]]", "[null]", "[{}]", "NaN"):
        yield _attack(text, text)
    for digits in (400, 5000, 100_000):
        yield _attack(f"a number of {digits} digits", f'[{{"weight":{"9" * digits}}}]')
    yield _attack("many numbers", b"[" + b"0," * 8_100_000 + b"0]")


def _of_fields() -> Iterator[Attack]:
    sound: list[dict[str, Any]] = json.loads(SOUND.read_text())

    def with_field(layer: int, key: str, value: Any) -> str:
        layers = [dict(each) for each in sound]
        layers[layer][key] = value
        return json.dumps(layers)

    numbers: list[Any] = [
        *(None, True, "x", 0, {}, [], [[]], [1], [[[[1]]]], [[[["x"]]]], [[[[None]]]], [[[[[1]]]]]),
        *([[[[1, 2]], [[1]]]], [[[[1e39]]]], [[[[float("nan")]]]], [[[[float("-inf")]]]]),
        *([[[[1 << 70]]]], "__import__('os').system('true')", "/etc/passwd", [[[["1"]]]]),
    ]
    for layer in (0, len(sound) - 1):
        for value in numbers:
            yield _attack(f"{layer}: weight {value}"[:60], with_field(layer, "weight", value))
        for value in (*numbers[:8], [1e39] * 4, [float("nan")] * 4, [0.0] * 99, [[0.0]] * 4):
            yield _attack(f"{layer}: bias {value}"[:60], with_field(layer, "bias", value))
    fields: list[tuple[str, Any]] = [
        *(("kW", 5), ("kH", 1 << 70), ("kW", "3"), ("nInputPlane", 4), ("nOutputPlane", 1 << 40)),
        *(("nInputPlane", None), ("dW", 2), ("dW", 1.0), ("dW", -1), ("dH", 2), ("dH", [1])),
        *(("padW", 1), ("padH", -1), ("padW", True), ("dilationW", 2), ("adjW", 1), ("adjH", {})),
    ]
    for key, value in fields:
        yield _attack(f"{key} {value}", with_field(1, key, value))
    classes: list[Any] = [
        *("os.system", "nn.Sequential", "nn.SpatialMaxPooling", "", "\x1b[2J", "x" * 100_000),
        *("__import__('os')", "nn.SpatialFullConvolution", "cudnn.X", 3, None, [], {}, True),
    ]
    for value in classes:
        yield _attack(f"class_name {value}"[:60], with_field(1, "class_name", value))
    config = sound[0]["model_config"]
    for value in (0, "x", [], [1], True):
        if value:
            yield _attack(f"config {value}", with_field(0, "model_config", value))
    names: list[Any] = [
        *("anime4k_3x", "anime4k_2X", "anime4k_restore", "vgg_7", "vgg_0", "vgg_99999", "cunet"),
        *(
            "upconv_7",
            "",
            "../../etc/passwd",
            "\x1b[2J",
            "x" * 100_000,
            "anime4k_2x\n",
            4,
            None,
            [],
        ),
        *("__class__", "vgg_-1", "vgg_\u0661"),
    ]
    for value in names:
        made = with_field(0, "model_config", {**config, "arch_name": value})
        yield _attack(f"arch_name {value}"[:60], made)
    for key, value in (
        *(("channels", 4), ("channels", "3"), ("offset", 0), ("offset", 1 << 70), ("gcn", True)),
        *(("scale_factor", 1), ("scale_factor", 1e308), ("scale_factor", None)),
    ):
        made = with_field(0, "model_config", {**config, key: value})
        yield _attack(f"{key} {value}", made)
    for what, layers in {
        "no layer": sound[:0],
        "one layer": sound[:1],
        "without its first": sound[1:],
        "in another order": sound[::-1],
        "each twice": [each for each in sound for _ in range(2)],
        "a thousand last ones": sound + sound[-1:] * 1000,
        "an empty one": [*sound, {}],
        "a list as one": [*sound, []],
    }.items():
        yield _attack(what, json.dumps(layers))


KINDS = {"JSON": _of_bytes, "fields of JSON": _of_fields}
"""The attacks of each kind."""
