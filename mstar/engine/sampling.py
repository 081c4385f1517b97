"""Choosing tokens from logits: greedy or at random, each row by its own request's settings.

A random draw is a number in [0, 1) made from (seed, position of the token, draw of that step) alone, looked up in the
row's cumulative distribution. On a CPU rows are processed one by one, so a row's token does not depend on its batch
mates. On a device, where every operator and every number read costs the time of many, they are processed together.
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
        """logits [calls, vocab] → ids [calls] int64, of the host."""
        if logits.shape[0] != len(self._draws):
            raise ValueError(f"{logits.shape[0]} rows of logits for {len(self._draws)} calls")
        ids = self._one_by_one(logits) if logits.device.type == "cpu" else self._together(logits)
        self._uses += 1
        return ids

    def _one_by_one(self, logits: Tensor) -> Tensor:
        rows = [self._penalised(draw, logits[i]) for i, draw in enumerate(self._draws)]
        ids = [
            row.argmax() if draw.sampling.temperature == 0 else _draw(row, draw.sampling, self._uniform(draw))
            for draw, row in zip(self._draws, rows, strict=True)
        ]
        return torch.stack(ids)

    def _together(self, logits: Tensor) -> Tensor:
        """What all rows may need is read at once: the best token, the one at the row's number, and the leading ones."""
        logits = self._all_penalised(logits)
        best = logits.argmax(-1, keepdim=True)
        if all(draw.sampling.temperature == 0 for draw in self._draws):
            return best[:, 0].cpu()
        device, vocab = logits.device, logits.shape[1]
        numbers = [self._uniform(draw) for draw in self._draws]
        heats = [[draw.sampling.temperature or 1.0] for draw in self._draws]
        weights = torch.softmax(logits.double() / torch.tensor(heats, dtype=torch.float64).to(device), dim=-1)
        at = torch.tensor(numbers, dtype=torch.float64).to(device)[:, None]
        count = min(vocab, max(_leading(draw.sampling, vocab) for draw in self._draws))
        shares, leaders = torch.topk(weights, count)
        read = torch.cat((best.double(), _pick_rows(weights, at).double(), shares, leaders.double()), dim=1).cpu()
        chosen = []
        for row, (draw, own) in enumerate(zip(self._draws, read, strict=True)):
            sampling = draw.sampling
            if sampling.temperature == 0 or _plain(sampling):
                chosen.append(own[1 if sampling.temperature else 0].long())
                continue
            most = _leading(sampling, vocab)
            found = _among(own[2 : 2 + most], own[2 + count :][:most].long(), sampling, numbers[row])
            chosen.append(_draw(logits[row], sampling, numbers[row]).cpu() if found is None else found)
        return torch.stack(chosen)

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

    def _all_penalised(self, logits: Tensor) -> Tensor:
        """The same for all rows at once."""
        rows, ids, penalties = [], [], []
        for row, draw in enumerate(self._draws):
            if draw.sampling.repetition_penalty != 1.0:
                seen = np.unique(draw.generated)
                ids.append(seen[(seen >= 0) & (seen < logits.shape[1])])
                rows.append(np.full(len(ids[-1]), row))
                penalties.append(np.full(len(ids[-1]), draw.sampling.repetition_penalty, np.float32))
        if not sum(map(len, ids)):
            return logits
        where = torch.from_numpy(np.stack((np.concatenate(rows), np.concatenate(ids)))).to(logits.device)
        penalty = torch.from_numpy(np.concatenate(penalties)).to(logits.device)
        known = logits[where[0], where[1]]
        return logits.index_put((where[0], where[1]), torch.where(known > 0, known / penalty, known * penalty))


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
    if _plain(sampling):
        return _pick(weights, u)
    found = _among(*torch.topk(weights, _leading(sampling, weights.shape[0])), sampling, u)
    if found is None:
        found = _cut_and_picked(*torch.sort(weights, descending=True, stable=True), sampling, u)
    return found


def _plain(sampling: Sampling) -> bool:
    """Whether any token may be drawn."""
    return not sampling.top_k and sampling.top_p >= 1.0


def _leading(sampling: Sampling, vocab: int) -> int:
    """How many of the most probable tokens are looked at first."""
    return min(sampling.top_k or _NUCLEUS, vocab)


def _among(best: Tensor, ids: Tensor, sampling: Sampling, u: float) -> Tensor | None:
    """The token at `u` among the most probable ones; None if they do not hold enough of all to be cut to `top_p`.

    best [n] float64: their share of all tokens, falling; ids [n].
    """
    if sampling.top_p < 1.0 and not sampling.top_k and float(best.sum()) < sampling.top_p:
        return None
    return _cut_and_picked(best, ids, sampling, u)


def _cut_and_picked(best: Tensor, ids: Tensor, sampling: Sampling, u: float) -> Tensor:
    """The token at `u` of what `top_p` leaves of these."""
    if sampling.top_p < 1.0:
        share = best / best.sum() if sampling.top_k else best
        before = share.cumsum(0) - share
        best = best[before < sampling.top_p]
    return ids[_pick(best, u)]


def _pick(weights: Tensor, u: float) -> Tensor:
    """Index of the first weight whose cumulative share exceeds `u`; weights [n] float64, not all 0."""
    cumulative = weights.cumsum(0)
    place = torch.searchsorted(cumulative, cumulative[-1] * u, right=True)
    return place.clamp_(max=weights.shape[0] - 1)


def _pick_rows(weights: Tensor, at: Tensor) -> Tensor:
    """The same for every row: weights [rows, n], at [rows, 1] → [rows, 1]."""
    cumulative = weights.cumsum(1)
    place = torch.searchsorted(cumulative, cumulative[:, -1:] * at, right=True)
    return place.clamp_(max=weights.shape[1] - 1)


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
