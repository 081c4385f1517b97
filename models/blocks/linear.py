"""Matrix products of a network, behind one protocol: dense weights, 4-bit and 8-bit ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, Protocol

import torch
from torch import Tensor

from models.blocks.quantise import GROUP, Grouped4, Stored, dense, joined4

Kernel = Literal["float32", "bfloat16", "int4"]
DENSE: Mapping[Kernel, torch.dtype] = {"float32": torch.float32, "bfloat16": torch.bfloat16}
"""Kernels of any device, by the type that they compute in; the others are of a CPU."""
# The weight-only kernels of torch, which carry an underscore as operators without autograd do.
_pack4 = torch.ops.aten._convert_weight_to_int4pack_for_cpu  # noqa: SLF001
_product4 = torch.ops.aten._weight_int4pack_mm_for_cpu  # noqa: SLF001
_product8 = torch.ops.aten._weight_int8pack_mm  # noqa: SLF001
_PACK_ROWS = 16  # the 4-bit kernel takes a multiple of 16 output rows


class Linear(Protocol):
    def __call__(self, x: Tensor) -> Tensor:
        """x [tokens, in] of any float type → [tokens, out] of the kernel's own type."""
        ...


class DenseLinear:
    """Weights and result of one float type. Fast for many tokens; a row's last bits depend on the number of rows."""

    __slots__ = ("_bias", "_weight")

    def __init__(self, weight: Tensor, bias: Tensor | None = None, dtype: torch.dtype = torch.float32) -> None:
        self._weight = weight.to(dtype).contiguous()  # [out, in]
        self._bias = bias if bias is None else bias.to(dtype)

    def __call__(self, x: Tensor) -> Tensor:
        return torch.nn.functional.linear(x.to(self._weight.dtype), self._weight, self._bias)


class RowLinear:
    """float32 weights, one product per row: slower, but a row's result does not depend on the other rows."""

    __slots__ = ("_bias", "_weight")

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self._weight = weight.float().contiguous()  # [out, in]
        self._bias = bias if bias is None else bias.float()

    def __call__(self, x: Tensor) -> Tensor:
        rows = [torch.nn.functional.linear(row, self._weight, self._bias) for row in x.float().split(1)]
        return torch.cat(rows)


class Int4Linear:
    """4-bit weights in groups of 32, bfloat16 in and out, sums in float32.

    A row's result does not depend on the other rows. The scale and the middle (minimum + 8 · scale) of each group are
    kept in bfloat16.
    """

    __slots__ = ("_bias", "_out", "_packed", "_scales")

    def __init__(self, weight: Grouped4, bias: Tensor | None = None) -> None:
        self._out, _ = weight.shape
        pad = -self._out % _PACK_ROWS
        codes = torch.nn.functional.pad(weight.codes, (0, 0, 0, pad)).int()
        scale = torch.nn.functional.pad(weight.scale, (0, 0, 0, pad))
        middle = torch.nn.functional.pad(weight.minimum, (0, 0, 0, pad)) + 8 * scale
        self._packed = _pack4(codes, 1)
        self._scales = torch.stack((scale, middle), dim=-1).transpose(0, 1).bfloat16().contiguous()  # [in/32, out, 2]
        self._bias = bias if bias is None else bias.bfloat16()

    def __call__(self, x: Tensor) -> Tensor:
        out: Tensor = _product4(x.bfloat16(), self._packed, GROUP, self._scales)
        if out.shape[1] != self._out:
            out = out[:, : self._out]
        return out if self._bias is None else out + self._bias


class Int8Linear:
    """8-bit weights with one scale per output row, float activations, bfloat16 in and out, sums in float32.

    A row's result does not depend on the other rows.
    """

    __slots__ = ("_bias", "_codes", "_scales")

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        scale = weight.float().abs().amax(dim=1).clamp_min(1e-12) / 127
        self._codes = (weight.float() / scale[:, None]).round_().to(torch.int8)  # [out, in]
        self._scales = scale.bfloat16()  # [out]
        self._bias = bias if bias is None else bias.bfloat16()

    def __call__(self, x: Tensor) -> Tensor:
        out: Tensor = _product8(x.bfloat16(), self._codes, self._scales)
        return out if self._bias is None else out + self._bias


def stacked(weights: Sequence[Stored], kernel: Kernel, bias: Tensor | None = None) -> Linear:
    """One linear layer whose output is that of all `weights` side by side.

    `int4`: 4-bit matrices keep their codes, others are quantised; where the inputs are no multiple of 32, or too few
    outputs for it to matter, products are taken row by row in float32.
    """
    dtype = DENSE.get(kernel)
    if dtype is not None:
        return DenseLinear(torch.cat([dense(w, dtype) for w in weights]), bias, dtype)
    if weights[0].shape[1] % GROUP:
        return RowLinear(torch.cat([dense(w) for w in weights]), bias)
    return Int4Linear(joined4(weights), bias)
