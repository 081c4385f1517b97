"""Root-mean-square layer norm (Zhang & Sennrich 2019)."""

from __future__ import annotations

import math

import torch
from torch import Tensor


class RMSNorm:
    """x / sqrt(mean(x²) + eps) · weight over the last dimension, in float32.

    Written with four element-wise or row-wise operators: a third of the cost of `torch.rms_norm` on a CPU for one row,
    and a row's result does not depend on the other rows. sqrt(mean + eps) · sqrt(n) = hypot(‖x‖, sqrt(n · eps)).
    """

    __slots__ = ("_floor", "_weight", "weight")

    def __init__(self, weight: Tensor, eps: float) -> None:
        self.weight = weight.float()  # [n]
        n = self.weight.shape[0]
        self._weight = self.weight * math.sqrt(n)
        self._floor = torch.tensor(math.sqrt(n * eps), device=weight.device)

    def __call__(self, x: Tensor) -> Tensor:
        """x [..., n] float32 → [..., n] float32."""
        length = torch.hypot(torch.linalg.vector_norm(x, dim=-1, keepdim=True), self._floor)
        return (x / length).mul_(self._weight)
