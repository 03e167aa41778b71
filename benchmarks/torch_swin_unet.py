"""swin_unet in PyTorch, as its own program runs it: linear layers of pixels with planes innermost,
windows by rolls and reshapes, a mask made at every shifted block.

A peer for attention_peers.py: the same arithmetic as our graph, so that results can be compared.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch.nn import functional

WINDOW = 6


class SwinUnet(torch.nn.Module):  # type: ignore[misc]
    """The network of weights by name, as they are in its file, for pictures that are padded."""

    def __init__(self, weights: dict[str, Any]) -> None:
        super().__init__()
        for key, value in weights.items():
            self.register_buffer(_name(key), torch.from_numpy(np.asarray(value, np.float32).copy()))
        rows, columns = np.divmod(np.arange(WINDOW**2), WINDOW)
        apart = (rows[:, None] - rows) * (2 * WINDOW - 1) + columns[:, None] - columns
        self.register_buffer("places", torch.from_numpy(apart - apart.min()))
        self.scale = int((len(weights["unet.to_image.proj.weight"]) // 3) ** 0.5)

    def forward(self, picture: Any) -> Any:
        """The output for pictures (n, 3, rows, columns)."""
        value = functional.leaky_relu(self._convolution(picture, "patch.0"), 0.1)
        value = functional.leaky_relu(self._convolution(value, "patch.2"), 0.1)
        wide = self._blocks(value[:, :, 6:-6, 6:-6].permute(0, 2, 3, 1), "swin1")
        half = self._blocks(self._reduced(wide, "down1"), "swin2")
        value = self._blocks(self._reduced(half, "down2"), "swin3")
        value = self._blocks(self._enlarged(value, "up2") + half, "swin4")
        value = self._blocks(self._enlarged(value, "up1") + wide, "swin5")
        made = self._linear(value, "to_image.proj").permute(0, 3, 1, 2)
        return torch.pixel_shuffle(made, self.scale)

    def _of(self, key: str) -> Any:
        return getattr(self, _name(f"unet.{key}"))

    def _convolution(self, value: Any, key: str, stride: int = 1) -> Any:
        weight, bias = self._of(f"{key}.weight"), self._of(f"{key}.bias")
        return functional.conv2d(value, weight, bias, stride)

    def _linear(self, value: Any, key: str) -> Any:
        return functional.linear(value, self._of(f"{key}.weight"), self._of(f"{key}.bias"))

    def _reduced(self, value: Any, key: str) -> Any:
        made = self._convolution(value.permute(0, 3, 1, 2), f"{key}.conv", 2)
        return made.permute(0, 2, 3, 1)

    def _enlarged(self, value: Any, key: str) -> Any:
        made = self._linear(value, f"{key}.proj").permute(0, 3, 1, 2)
        return torch.pixel_shuffle(made, 2).permute(0, 2, 3, 1)

    def _blocks(self, value: Any, key: str) -> Any:
        block = 0
        while hasattr(self, _name(f"unet.{key}.block.{block}.attn.qkv.weight")):
            inner = f"{key}.block.{block}"
            value = value + self._attention(value, f"{inner}.attn", WINDOW // 2 * (block % 2))
            hidden = functional.gelu(self._linear(value, f"{inner}.mlp.0"))
            value = value + self._linear(hidden, f"{inner}.mlp.3")
            block += 1
        return value

    def _attention(self, value: Any, key: str, shift: int) -> Any:
        rows, columns, planes = value.shape[1:]
        table = self._of(f"{key}.relative_position_bias_table")
        heads = table.shape[1]
        down, across = (shift if length > WINDOW else 0 for length in (rows, columns))
        value = torch.roll(value, (-down, -across), (1, 2)) if shift else value
        cut = value.view(rows // WINDOW, WINDOW, columns // WINDOW, WINDOW, planes)
        cut = cut.permute(0, 2, 1, 3, 4).reshape(-1, WINDOW**2, planes)
        qkv = self._linear(cut, f"{key}.qkv").reshape(len(cut), WINDOW**2, 3, heads, -1)
        queries, keys, values = qkv.permute(2, 0, 3, 1, 4)
        logits = queries * (planes // heads) ** -0.5 @ keys.transpose(2, 3)
        logits = logits + table[self.places].permute(2, 0, 1)
        if down or across:
            mask = self._mask(value, rows, columns, down, across)
            logits = (logits.view(1, *logits.shape) + mask[None, :, None]).view(logits.shape)
        made = (logits.softmax(3) @ values).transpose(1, 2).reshape(cut.shape)
        made = self._linear(made, f"{key}.proj")
        made = made.view(rows // WINDOW, columns // WINDOW, WINDOW, WINDOW, planes)
        made = made.permute(0, 2, 1, 3, 4).reshape(1, rows, columns, planes)
        return torch.roll(made, (down, across), (1, 2)) if shift else made

    def _mask(self, like: Any, rows: int, columns: int, down: int, across: int) -> Any:
        """(windows, queries, keys): -100 between pixels that the roll has brought together."""
        regions = like.new_zeros((rows, columns))
        bands = [
            [(0, -WINDOW), (-WINDOW, -moved), (-moved, None)] if moved else [(0, None)]
            for moved in (down, across)
        ]
        for count, (top, bottom) in enumerate(bands[0]):
            for other, (left, right) in enumerate(bands[1]):
                regions[top:bottom, left:right] = 3 * count + other
        cut = regions.view(rows // WINDOW, WINDOW, columns // WINDOW, WINDOW)
        cut = cut.permute(0, 2, 1, 3).reshape(-1, WINDOW**2)
        return (cut[:, None] != cut[:, :, None]).to(like) * -100


def _name(key: str) -> str:
    return key.replace(".", "_")


def fp16(weights: dict[str, Any]) -> Any:
    """A peer by weights: see torch_peers.Peer."""
    built = SwinUnet(weights).cuda().eval().half().to(memory_format=torch.channels_last)
    return built, lambda planes: planes.half().to(memory_format=torch.channels_last)
