"""Gated feed-forward layer (SwiGLU, GeGLU, Shazeer 2020)."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from models.blocks.linear import Linear


class GatedMLP:
    """down(activation(gate(x)) · up(x)); gate and up are one matrix of 2 · inner rows, gate first."""

    __slots__ = ("_activation", "_down", "_gate_up", "_inner")

    def __init__(
        self,
        gate_up: Linear,
        down: Linear,
        inner: int,
        activation: Callable[[Tensor], Tensor] = torch.nn.functional.silu,
    ) -> None:
        self._gate_up = gate_up
        self._down = down
        self._inner = inner
        self._activation = activation

    def __call__(self, x: Tensor) -> Tensor:
        """x [tokens, hidden] → [tokens, hidden]."""
        both = self._gate_up(x)  # [tokens, 2 * inner]
        gate, up = both[:, : self._inner], both[:, self._inner :]
        return self._down(self._activation(gate).mul_(up))
