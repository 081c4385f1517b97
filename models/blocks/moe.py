"""Mixture of experts with a softmax router (Qwen3-MoE)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from models.blocks.linear import Linear


class MixtureOfExperts:
    """Each token goes through its `top_k` most probable experts, weighted by their router probability.

    `normalise`: the chosen experts' weights sum to 1 (`norm_topk_prob`). Every token's sum is taken in expert order, so
    that it does not depend on the other tokens.
    """

    __slots__ = ("_experts", "_normalise", "_router", "_top_k")

    def __init__(
        self, router: Linear, experts: Sequence[Callable[[Tensor], Tensor]], top_k: int, normalise: bool
    ) -> None:
        self._router = router
        self._experts = tuple(experts)
        self._top_k = top_k
        self._normalise = normalise

    def __call__(self, x: Tensor) -> Tensor:
        """x [tokens, hidden] → [tokens, hidden] float32."""
        probabilities = self._router(x).float().softmax(dim=-1)  # [tokens, experts]
        weights, chosen = probabilities.topk(self._top_k, dim=-1)  # [tokens, top_k]
        if self._normalise:
            weights = weights / weights.sum(dim=-1, keepdim=True)
        out = torch.zeros(x.shape, dtype=torch.float32, device=x.device)
        for expert in chosen.unique().tolist():
            token, slot = (chosen == expert).nonzero(as_tuple=True)
            share = weights[token, slot, None]  # [hits, 1]
            out.index_add_(0, token, self._experts[expert](x[token]).float() * share)
        return out
