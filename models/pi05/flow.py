"""Flow matching in Euler steps from noise (time 1) to actions (time 0), held to an earlier chunk where one is given.

Real-time chunking (Black et al. 2025, arXiv 2506.07339): while a chunk is computed the robot goes on with the one
before. Of the new chunk, the rows that will be over by then are frozen to the old one, the rows behind them are drawn
to it with a weight that decays, the rest is free. The pull is the paper's guidance towards the estimate of the finished
actions with the Jacobian of that estimate taken as the identity, so that a step costs one pass and no gradient.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Guide:
    """What a chunk is held to. Rows below `frozen` are those of `target`; the others are drawn by `weights`."""

    target: Tensor  # [horizon, dim] float32, normalised; rows without weight hold nothing
    weights: Tensor  # [horizon] float32 in [0, 1]
    frozen: int = 0


def times(steps: int) -> Tensor:
    """[steps + 1] float32: the time before each step and at the end, summed up in float32 as openpi does."""
    step = torch.tensor(-1.0 / steps)
    found = [torch.tensor(1.0)]
    for _ in range(steps):
        found.append(found[-1] + step)
    return torch.stack(found)


def overlap_weights(horizon: int, frozen: int, overlap: int) -> Tensor:
    """[horizon] float32: 1 for the first `frozen` rows, decaying to 0 at row `overlap` (the paper's equation 5).

    w_i = c_i (e^{c_i} - 1) / (e - 1) with c_i = (overlap - i) / (overlap - frozen + 1).
    """
    rows = torch.arange(horizon)
    share = (overlap - rows) / (overlap - frozen + 1)
    soft = share * torch.expm1(share) / math.expm1(1)
    return torch.where(rows < frozen, 1.0, torch.where(rows < overlap, soft, 0.0))


def advance(actions: Tensor, velocity: Tensor, step: int, steps: int, guide: Guide | None = None) -> Tensor:
    """The chunk after flow step `step` (from 0) of `steps`: [horizon, dim].

    `actions` before the step, `velocity` there (both [horizon, dim]).
    """
    now = 1 - step / steps
    if guide is None:
        return actions - velocity / steps
    finished = actions - now * velocity  # the estimate of the actions at time 0
    done = 1 - now
    pull = steps if step == 0 else min(steps, (done**2 + now**2) / (done * now))
    velocity = velocity - pull * guide.weights[:, None] * (guide.target - finished)
    velocity[: guide.frozen] = (actions - guide.target)[: guide.frozen] / now  # straight from the noise to the target
    moved = actions - velocity / steps
    if step == steps - 1:
        moved[: guide.frozen] = guide.target[: guide.frozen]
    return moved
