"""The decoder's layers over a stream: chunks of any size in, exactly the items that they determine out.

The decoder is not causal: a convolution with symmetric zero padding looks ahead. So a layer reads `tail ‖ chunk`, where
the tail is what it has read before and still needs; at the start of a stream the tail is the layer's own left padding,
at its end the right padding follows the chunk. So the first and the last item see the same zeros as in one pass, and
no convolution is computed twice. A whole sound is one chunk that is both first and last.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn.functional import conv1d, pad

RowNoise = Callable[[int, int, int], Tensor]
"""(block, start, stop) → the noise of one sound for items [start, stop) of that block, [stop - start] float32."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """What all layers know of the chunk they read."""

    last: bool
    before: Sequence[int] = ()  # latent steps that each row has read before it
    noise: Sequence[RowNoise] = ()  # one a row; () = no noise


class Layer(Protocol):
    def start(self, rows: int) -> Tensor:
        """The tail at the beginning of `rows` streams, [rows, channels, items]."""
        ...

    def push(self, x: Tensor, tail: Tensor, chunk: Chunk) -> tuple[Tensor, Tensor]:
        """x [rows, channels, items], maybe 0 items → what is determined now, and the next tail."""
        ...


@dataclass(frozen=True, slots=True)
class Snake:
    """x + sin²(α x) / α (Ziyin et al. 2020); 0 stays 0, so that padding may come before it."""

    alpha: Tensor  # [1, channels, 1]
    inverse: Tensor

    @classmethod
    def of(cls, alpha: Tensor) -> Snake:
        return cls(alpha, (alpha + 1e-9).reciprocal())

    def __call__(self, x: Tensor) -> Tensor:
        return torch.addcmul(x, self.inverse, (self.alpha * x).sin_().square_())


@dataclass(frozen=True, slots=True)
class Convolution:
    """Same-padded convolution of stride 1, after `snake` if there is one."""

    weight: Tensor  # [out, in / groups, kernel]
    bias: Tensor | None
    channels: int  # in
    dilation: int = 1
    groups: int = 1
    snake: Snake | None = None

    @property
    def reach(self) -> int:
        """Items around the one that is computed."""
        return (self.weight.shape[2] - 1) * self.dilation

    def start(self, rows: int) -> Tensor:
        return self.weight.new_zeros(rows, self.channels, self.reach // 2)

    def push(self, x: Tensor, tail: Tensor, chunk: Chunk) -> tuple[Tensor, Tensor]:
        joined = join(x, tail, self.reach // 2, chunk)
        return self.apply(joined), joined[..., max(0, joined.shape[2] - self.reach) :]

    def apply(self, joined: Tensor) -> Tensor:
        """[rows, channels, n] without padding of its own → [rows, out, max(0, n - reach)]."""
        if joined.shape[2] <= self.reach:
            return joined.new_zeros(joined.shape[0], self.weight.shape[0], 0)
        if self.snake is not None:
            joined = self.snake(joined)
        return conv1d(joined, self.weight, self.bias, dilation=self.dilation, groups=self.groups)


@dataclass(frozen=True, slots=True)
class Residual:
    """x + pointwise(snake(around(snake(x)))): one tail serves both branches."""

    around: Convolution
    pointwise: Convolution

    def start(self, rows: int) -> Tensor:
        return self.around.start(rows)

    def push(self, x: Tensor, tail: Tensor, chunk: Chunk) -> tuple[Tensor, Tensor]:
        reach = self.around.reach
        joined = join(x, tail, reach // 2, chunk)
        middle = self.around.apply(joined)
        kept = joined[..., max(0, joined.shape[2] - reach) :]
        if not middle.shape[2]:
            return middle, kept
        return joined[..., reach // 2 : reach // 2 + middle.shape[2]] + self.pointwise.apply(middle), kept


@dataclass(frozen=True, slots=True)
class Upsample:
    """Snake and a transposed convolution of kernel 2 · stride: `stride` items for each one, from it and the one before.

    As one matrix product: for the few items of a chunk on a CPU it is several times faster than the convolution.
    """

    matrix: Tensor  # [in, 2 * out * stride]: the half that falls on an item's own place, the half behind it
    bias: Tensor
    stride: int
    snake: Snake

    @classmethod
    def of(cls, weight: Tensor, bias: Tensor, snake: Snake) -> Upsample:
        """weight [in, out, 2 * stride]."""
        stride = weight.shape[2] // 2
        halves = torch.stack((weight[..., :stride], weight[..., stride:]), dim=1)  # [in, 2, out, stride]
        return cls(halves.flatten(1).contiguous(), bias, stride, snake)

    def start(self, rows: int) -> Tensor:
        return self.matrix.new_zeros(rows, self.matrix.shape[0], 0)

    def push(self, x: Tensor, tail: Tensor, chunk: Chunk) -> tuple[Tensor, Tensor]:
        joined = torch.cat((tail, x), dim=2)
        if not joined.shape[2]:
            return joined.new_zeros(joined.shape[0], len(self.bias), 0), joined
        padding = (self.stride + 1) // 2  # cut from the left of the whole sound
        start = self.stride if tail.shape[2] else padding
        stop = joined.shape[2] * self.stride + (padding if chunk.last else 0)
        return self._everything(self.snake(joined))[..., start:stop], joined[..., -1:]

    def _everything(self, x: Tensor) -> Tensor:
        """[rows, in, n] → what all items give, [rows, out, (n + 1) * stride]."""
        halves = (x.transpose(1, 2) @ self.matrix).unflatten(2, (2, -1, self.stride))  # [rows, n, 2, out, stride]
        total = pad(halves[:, :, 0], (0, 0, 0, 0, 0, 1))  # [rows, n + 1, out, stride]
        total[:, 1:] += halves[:, :, 1]
        return total.transpose(1, 2).flatten(2) + self.bias[:, None]


@dataclass(frozen=True, slots=True)
class AddNoise:
    """x + noise · linear(x). How many items came before follows from the latent steps that were read: it needs no tail.

    `rate` items of this block for a latent step, of which `lag` are open while the stream goes on.
    """

    linear: Convolution
    block: int
    rate: int
    lag: int

    def start(self, rows: int) -> Tensor:
        return self.linear.weight.new_zeros(rows, 0, 0)

    def push(self, x: Tensor, tail: Tensor, chunk: Chunk) -> tuple[Tensor, Tensor]:
        size = x.shape[2]
        if not size or not chunk.noise:
            return x, tail
        starts = [max(0, steps * self.rate - self.lag) for steps in chunk.before]
        rows = zip(chunk.noise, starts, strict=True)
        noise = torch.stack([row(self.block, at, at + size) for row, at in rows]).to(x.device)
        return torch.addcmul(x, noise[:, None, :], self.linear.apply(x)), tail


def join(x: Tensor, tail: Tensor, padding: int, chunk: Chunk) -> Tensor:
    """tail ‖ x, and the right padding on the last chunk."""
    joined = torch.cat((tail, x), dim=2) if tail.shape[2] else x
    return pad(joined, (0, padding)) if chunk.last and padding else joined
