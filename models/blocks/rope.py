"""Rotary position embedding (Su et al. 2021), halves layout: channel i is paired with channel i + dim/2."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from models.blocks.rope_config import RopeConfig


def inverse_frequencies(config: RopeConfig) -> Tensor:
    """[dim / 2] float32, radians per position; computed in float32 as the checkpoints' own code does."""
    exponent = torch.arange(0, config.dim, 2, dtype=torch.int64).float() / config.dim
    frequencies = 1.0 / (config.theta**exponent)
    match config.kind:
        case "default":
            return frequencies
        case "linear":
            return frequencies / config.factor
        case "llama3":
            wavelength = 2 * math.pi / frequencies
            longest = config.original_positions / config.low_freq_factor
            shortest = config.original_positions / config.high_freq_factor
            share = (config.original_positions / wavelength - config.low_freq_factor) / (
                config.high_freq_factor - config.low_freq_factor
            )
            blended = (1 - share) * frequencies / config.factor + share * frequencies
            scaled = torch.where(wavelength > longest, frequencies / config.factor, blended)
            return torch.where(wavelength < shortest, frequencies, scaled)


class Rotation:
    """The angles of one step's positions, shared by all layers."""

    __slots__ = ("cos", "sin")

    def __init__(self, positions: Tensor, frequencies: Tensor) -> None:
        """positions [tokens] int64, frequencies [dim / 2] float32."""
        angles = positions[:, None].float() * frequencies  # [tokens, dim/2]
        cos, sin = angles.cos(), angles.sin()
        self.cos = torch.cat((cos, cos), dim=-1)[:, None, :]  # [tokens, 1, dim]
        self.sin = torch.cat((-sin, sin), dim=-1)[:, None, :]

    def __call__(self, x: Tensor) -> Tensor:
        """x [tokens, heads, dim] float32 → the same, rotated."""
        swapped = x.roll(x.shape[-1] // 2, -1)
        return torch.addcmul(x * self.cos, swapped, self.sin)
