"""Weights that are being learned, and the way down."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

Say = Callable[[str], None]
"""Is told how it goes, a line at a time."""
WARM_STEPS = 100
SPREAD = 0.02
"""Standard deviation of fresh weights."""
EVERY = 250
"""Steps between two lines of progress."""


class Learned:
    """Weights that a network takes, and that are trained: `parameters` by name."""

    dtype = torch.float32

    def __init__(self, seed: int) -> None:
        self.parameters: dict[str, nn.Parameter] = {}
        self._generator = torch.Generator().manual_seed(seed)

    def take(self, name: str, *shape: int) -> Tensor:
        if "norm" in name:
            values = torch.full(shape, float(name.endswith("weight")))
        elif len(shape) == 1:
            values = torch.zeros(shape)
        else:
            values = torch.randn(shape, generator=self._generator) * SPREAD
        self.parameters[name] = nn.Parameter(values)
        return self.parameters[name]

    def within(self, *prefixes: str) -> list[nn.Parameter]:
        """Those whose names begin with one of these."""
        return [parameter for name, parameter in self.parameters.items() if name.startswith(prefixes)]


def descent(
    parameters: list[nn.Parameter], rate: float, steps: int, loss: Callable[[], Tensor]
) -> Iterator[tuple[int, float]]:
    """AdamW with a warm-up and a cosine; gives every so often the step and the mean loss since the last."""
    optimiser = torch.optim.AdamW(parameters, lr=rate, weight_decay=1e-3)
    total = 0.0
    for step in range(1, steps + 1):
        warm = min(1.0, step / WARM_STEPS)
        for group in optimiser.param_groups:
            group["lr"] = rate * warm * (0.5 + 0.5 * math.cos(math.pi * step / steps))
        value = loss()
        optimiser.zero_grad(set_to_none=True)
        value.backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimiser.step()
        total += float(value.detach())
        if step % EVERY == 0 or step == steps:
            yield step, total / (EVERY if step % EVERY == 0 else step % EVERY)
            total = 0.0
