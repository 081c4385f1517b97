"""Choosing tokens from logits: greedy or at random, each row by its own request's settings.

A random draw is a number in [0, 1) made from (seed, position of the token, draw of that step) alone, looked up in the
row's cumulative distribution. Rows are processed one by one, so a row's token does not depend on its batch mates.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from mstar.errors import Rejected
from mstar.submodule import Sampling
from mstar.tensors import Value

_NUCLEUS = 256  # most probable tokens looked at first for top_p; all of them if these do not hold enough mass


@dataclass(frozen=True, slots=True)
class Draw:
    """How one row of logits becomes a token.

    `generated` are the keys that the request itself added after its prompt; the repetition penalty applies to them.
    """

    sampling: Sampling
    seed: int = 0
    position: int = 0  # of the token to be drawn, in its sequence
    generated: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=np.int64))


class RowSampler:
    """The sampler of one step: row i of the logits is drawn by `draws[i]`. Every further use in a step draws anew."""

    def __init__(self, draws: Sequence[Draw]) -> None:
        self._draws = draws
        self._uses = 0

    def __call__(self, logits: Tensor) -> Tensor:
        """logits [calls, vocab] → ids [calls] int64."""
        if logits.shape[0] != len(self._draws):
            raise ValueError(f"{logits.shape[0]} rows of logits for {len(self._draws)} calls")
        rows = [self._penalised(draw, logits[i]) for i, draw in enumerate(self._draws)]
        ids = [
            row.argmax() if draw.sampling.temperature == 0 else _draw(row, draw.sampling, self._uniform(draw))
            for draw, row in zip(self._draws, rows, strict=True)
        ]
        self._uses += 1
        return torch.stack(ids)

    def _uniform(self, draw: Draw) -> float:
        return uniform(draw.seed, draw.position, self._uses)

    @staticmethod
    def _penalised(draw: Draw, logits: Tensor) -> Tensor:
        """The logits; those of generated tokens divided by the penalty if positive, else multiplied (CTRL, §4.1)."""
        penalty = draw.sampling.repetition_penalty
        if penalty == 1.0 or not len(draw.generated):
            return logits
        seen = np.unique(draw.generated)
        ids = torch.from_numpy(seen[(seen >= 0) & (seen < logits.shape[0])]).to(logits.device)
        known = logits[ids]
        return logits.index_copy(0, ids, torch.where(known > 0, known / penalty, known * penalty))


def uniform(*words: int) -> float:
    """A number in [0, 1) that looks random and depends on the words alone (splitmix64 over them)."""
    mask = (1 << 64) - 1
    state = 0
    for word in words:
        state = (state + (word & mask) + 0x9E3779B97F4A7C15) & mask
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & mask
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & mask
        state ^= state >> 31
    return (state >> 11) / (1 << 53)


def _draw(logits: Tensor, sampling: Sampling, u: float) -> Tensor:
    """logits [vocab] → id, 0-dim int64: the token at `u` of the distribution that temperature, top_k, top_p leave."""
    weights = torch.softmax(logits.double() / sampling.temperature, dim=-1)
    if not sampling.top_k and sampling.top_p >= 1.0:
        return _pick(weights, u)
    vocab = weights.shape[0]
    count = min(sampling.top_k or _NUCLEUS, vocab)
    best, ids = torch.topk(weights, count)
    if sampling.top_p < 1.0:
        if not sampling.top_k and float(best.sum()) < sampling.top_p:
            best, ids = torch.sort(weights, descending=True, stable=True)
        share = best / best.sum() if sampling.top_k else best
        before = share.cumsum(0) - share
        best = best[before < sampling.top_p]
    return ids[_pick(best, u)]


def _pick(weights: Tensor, u: float) -> Tensor:
    """Index of the first weight whose cumulative share exceeds `u`; weights [n] float64, not all 0."""
    cumulative = weights.cumsum(0)
    place = torch.searchsorted(cumulative, cumulative[-1] * u, right=True)
    return place.clamp_(max=weights.shape[0] - 1)


def resolve_sampling(defaults: Sampling, settings: Mapping[str, Value]) -> Sampling:
    """The component's sampling with a request's settings of the same names over it. Raises Rejected with the field."""
    top_k = _number(settings, "top_k", defaults.top_k, lambda x: x >= 0 and x == int(x), "an integer ≥ 0")
    return Sampling(
        temperature=_number(settings, "temperature", defaults.temperature, lambda x: x >= 0, "a number ≥ 0"),
        top_k=int(top_k),
        top_p=_number(settings, "top_p", defaults.top_p, lambda x: 0 < x <= 1, "a number in (0, 1]"),
        repetition_penalty=_number(
            settings, "repetition_penalty", defaults.repetition_penalty, lambda x: x > 0, "a number > 0"
        ),
    )


def _number(
    settings: Mapping[str, Value], name: str, default: float, allowed: Callable[[float], bool], wanted: str
) -> float:
    value = settings.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or not allowed(value):
        raise Rejected(f"{name} must be {wanted}, got {value!r}", param=f"settings.{name}")
    return float(value)
