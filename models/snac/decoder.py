"""Latents → sound, as one stack of streaming layers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from models.snac.config import SnacConfig
from models.snac.layers import AddNoise, Chunk, Convolution, Layer, Residual, Snake, Upsample
from models.snac.weights import SnacWeights

_KERNEL = 7
_DILATIONS = (1, 3, 9)


@dataclass(frozen=True, slots=True)
class Decoder:
    """Convolutions, then blocks that each raise the rate; `lag` samples are open while a stream goes on."""

    layers: tuple[Layer, ...]
    lag: int

    def start(self, rows: int) -> tuple[Tensor, ...]:
        """The tails of `rows` streams of which nothing was read."""
        return tuple(layer.start(rows) for layer in self.layers)

    def push(self, latents: Tensor, tails: Sequence[Tensor], chunk: Chunk) -> tuple[Tensor, tuple[Tensor, ...]]:
        """latents [rows, latent, steps] → the samples they determine [rows, n], and the next tails."""
        x, after = latents, []
        for layer, tail in zip(self.layers, tails, strict=True):
            x, kept = layer.push(x, tail, chunk)
            after.append(kept)
        return torch.tanh(x[:, 0]), tuple(after)


class _Stack:
    """Layers as they are put on one another, with rate and lag of what comes out at the top."""

    def __init__(self, config: SnacConfig, weights: SnacWeights) -> None:
        self.config = config
        self.weights = weights
        self.layers: list[Layer] = []
        self.channels = config.latent
        self.rate = 1
        self.lag = 0

    def snake(self, name: str) -> Snake:
        return Snake.of(self.weights.take(f"{name}.alpha", (1, self.channels, 1)))

    def linear(self, name: str, out: int, *, bias: bool = True, snake: Snake | None = None) -> Convolution:
        kernel = self.weights.kernel(name, (out, self.channels, 1))
        return Convolution(
            kernel, self.weights.take(f"{name}.bias", (out,)) if bias else None, self.channels, 1, 1, snake
        )

    def around(self, name: str, out: int, dilation: int = 1, snake: Snake | None = None) -> Convolution:
        """A convolution that reads neighbours: each channel alone where the codec is depthwise."""
        groups = self.channels if self.config.depthwise and out == self.channels else 1
        kernel = self.weights.kernel(name, (out, self.channels // groups, _KERNEL))
        bias = self.weights.take(f"{name}.bias", (out,))
        layer = Convolution(kernel, bias, self.channels, dilation, groups, snake)
        self.lag += layer.reach // 2
        return layer

    def put(self, layer: Layer, channels: int) -> None:
        self.layers.append(layer)
        self.channels = channels

    def block(self, name: str, stride: int, number: int) -> None:
        out = self.channels // 2
        kernel = self.weights.kernel(f"{name}.1", (self.channels, out, 2 * stride))
        bias = self.weights.take(f"{name}.1.bias", (out,))
        self.put(Upsample.of(kernel, bias, self.snake(f"{name}.0")), out)
        self.rate *= stride
        self.lag = self.lag * stride + (stride + 1) // 2
        place = 2
        if self.config.noise:
            self.put(AddNoise(self.linear(f"{name}.{place}.linear", out, bias=False), number, self.rate, self.lag), out)
            place += 1
        for i, dilation in enumerate(_DILATIONS):
            unit = f"{name}.{place + i}.block"
            around = self.around(f"{unit}.1", out, dilation, self.snake(f"{unit}.0"))
            self.put(Residual(around, self.linear(f"{unit}.3", out, snake=self.snake(f"{unit}.2"))), out)


def build_decoder(config: SnacConfig, weights: SnacWeights) -> Decoder:
    """Raises WeightsError for a tensor that is missing or of another shape."""
    stack = _Stack(config, weights)
    names = (f"decoder.model.{i}" for i in range(len(config.strides) + 4))
    if config.depthwise:
        stack.put(stack.around(next(names), config.latent), config.latent)
        stack.put(stack.linear(next(names), config.decoder), config.decoder)
    else:
        stack.put(stack.around(next(names), config.decoder), config.decoder)
    for number, stride in enumerate(config.strides):
        stack.block(f"{next(names)}.block", stride, number)
    snake = stack.snake(next(names))
    stack.put(stack.around(next(names), 1, snake=snake), 1)
    return Decoder(tuple(stack.layers), stack.lag)
