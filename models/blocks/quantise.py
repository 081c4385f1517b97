"""Weights in groups along the input dimension: 4 bits with scale and minimum, 8 bits with scale."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

GROUP = 32
_ROWS = 4096  # rows quantised at once: bounds the temporaries
_SHRINK = (1.0, 0.95, 0.9, 0.85, 0.8, 0.75)


@dataclass(frozen=True, slots=True)
class Grouped4:
    """weight[o, i] = codes[o, i] · scale[o, i // 32] + minimum[o, i // 32] (the values of a GGUF Q4_1 block)."""

    codes: Tensor  # [out, in] uint8, 0..15
    scale: Tensor  # [out, in / 32] float32
    minimum: Tensor  # [out, in / 32] float32

    @property
    def shape(self) -> tuple[int, int]:
        return self.codes.shape[0], self.codes.shape[1]

    def dense(self) -> Tensor:
        """[out, in] float32."""
        grouped = self.codes.unflatten(1, (-1, GROUP)).float()
        values: Tensor = grouped * self.scale[..., None] + self.minimum[..., None]
        return values.flatten(1)


@dataclass(frozen=True, slots=True)
class Grouped8:
    """weight[o, i] = codes[o, i] · scale[o, i // 32] (the values of a GGUF Q8_0 block)."""

    codes: Tensor  # [out, in] int8
    scale: Tensor  # [out, in / 32] float32

    @property
    def shape(self) -> tuple[int, int]:
        return self.codes.shape[0], self.codes.shape[1]

    def dense(self) -> Tensor:
        """[out, in] float32."""
        values: Tensor = self.codes.unflatten(1, (-1, GROUP)).float() * self.scale[..., None]
        return values.flatten(1)


Stored = Tensor | Grouped4 | Grouped8
"""A matrix as its checkpoint holds it; a Tensor is of any float type."""


def dense(weight: Stored, dtype: torch.dtype = torch.float32) -> Tensor:
    """The values of a stored matrix or vector; a tensor of this type as it is."""
    return weight.to(dtype) if isinstance(weight, Tensor) else weight.dense().to(dtype)


def moved(weight: Stored, device: torch.device) -> Stored:
    """The same on a device."""
    match weight:
        case Grouped4(codes, scale, minimum):
            return Grouped4(codes.to(device), scale.to(device), minimum.to(device))
        case Grouped8(codes, scale):
            return Grouped8(codes.to(device), scale.to(device))
        case _:
            return weight.to(device)


def rows(weight: Stored, index: Tensor) -> Tensor:
    """index [n] int64 → those rows of a stored matrix, [n, in] float32."""
    match weight:
        case Grouped4(codes, scale, minimum):
            return Grouped4(codes[index], scale[index], minimum[index]).dense()
        case Grouped8(codes, scale):
            return Grouped8(codes[index], scale[index]).dense()
        case _:
            return weight[index].float()


def joined4(weights: Sequence[Stored]) -> Grouped4:
    """The rows of all `weights` one after another: 4-bit matrices keep their codes, others are quantised."""
    parts = [w if isinstance(w, Grouped4) else quantise4(dense(w)) for w in weights]
    if len(parts) == 1:
        return parts[0]
    return Grouped4(
        torch.cat([p.codes for p in parts]), torch.cat([p.scale for p in parts]), torch.cat([p.minimum for p in parts])
    )


def quantise4(weight: Tensor) -> Grouped4:
    """[out, in] float, `in` a multiple of 32 → nearest codes between a searched minimum and maximum per group.

    Tried per group: the full range and ranges shrunk around its middle, each with scale and minimum refitted by least
    squares to the codes it gave; kept is the one of least squared error, with scale and middle as bfloat16 holds them.
    """
    return joined4([_quantise4(part) for part in weight.split(_ROWS)])


def _quantise4(weight: Tensor) -> Grouped4:
    groups = weight.float().unflatten(1, (-1, GROUP))  # [out, groups, 32]
    low, high = groups.amin(-1, keepdim=True), groups.amax(-1, keepdim=True)
    middle, half = (low + high) / 2, (high - low) / 2
    best = torch.full_like(low, torch.inf)
    codes = torch.zeros_like(groups)
    scale, minimum = torch.zeros_like(low), torch.zeros_like(low)
    for shrink in _SHRINK:
        step = (half * (2 * shrink / 15)).clamp_min(1e-12)
        tried = _codes(groups, step, middle - half * shrink)
        for tried_step, tried_low in ((step, middle - half * shrink), _refit(groups, tried, step)):
            kept_step, kept_low = _as_stored(tried_step, tried_low)
            fitted = _codes(groups, kept_step, kept_low)
            error = (fitted * kept_step + kept_low - groups).square_().sum(-1, keepdim=True)
            better = error < best
            best = torch.where(better, error, best)
            codes = torch.where(better, fitted, codes)
            scale = torch.where(better, kept_step, scale)
            minimum = torch.where(better, kept_low, minimum)
    return Grouped4(codes.flatten(1).to(torch.uint8), scale.squeeze(-1), minimum.squeeze(-1))


def _codes(groups: Tensor, step: Tensor, low: Tensor) -> Tensor:
    return ((groups - low) / step).round_().clamp_(0, 15)


def _refit(groups: Tensor, codes: Tensor, step: Tensor) -> tuple[Tensor, Tensor]:
    """Least-squares scale and minimum of given codes; the old scale where all codes are equal."""
    code_mean, mean = codes.mean(-1, keepdim=True), groups.mean(-1, keepdim=True)
    spread = codes - code_mean
    variance = spread.square().sum(-1, keepdim=True)
    fitted = (spread * (groups - mean)).sum(-1, keepdim=True) / variance.clamp_min(1e-12)
    fitted = torch.where((variance > 0) & (fitted > 0), fitted, step)
    return fitted, mean - fitted * code_mean


def _as_stored(step: Tensor, low: Tensor) -> tuple[Tensor, Tensor]:
    """Round scale and middle (low + 8 · scale) to bfloat16, the types the 4-bit kernel reads."""
    kept = step.bfloat16().float()
    return kept, (low + 8 * step).bfloat16().float() - 8 * kept


def quantise8(weight: Tensor) -> Grouped8:
    """[out, in] float, `in` a multiple of 32 → nearest codes between minus and plus each group's largest magnitude."""
    groups = weight.float().unflatten(1, (-1, GROUP))  # [out, in / 32, 32]
    scale = groups.abs().amax(-1).clamp_min(1e-12) / 127
    return Grouped8((groups / scale[..., None]).round_().flatten(1).to(torch.int8), scale)
