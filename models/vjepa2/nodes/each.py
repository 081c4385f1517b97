"""A submodule that works call by call, and what its calls read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mstar.errors import Rejected
from mstar.submodule import Call, Output, Outputs, Packed, Step
from mstar.tensors import Value


class Each:
    """`run(call) → outputs of that call`; names in `outputs` that it leaves out carry nothing.

    `stop(call, outputs)` is the verdict.
    """

    def __init__(
        self,
        run: Callable[[Call], Mapping[str, Output]],
        outputs: tuple[str, ...],
        *,
        stop: Callable[[Call, Mapping[str, Output]], bool] = lambda _call, _outputs: False,
        max_batch: int = 16,
    ) -> None:
        self.max_batch = max_batch
        self._run = run
        self._outputs = outputs
        self._stop = stop

    def collate(self, calls: Sequence[Call]) -> Packed:
        return Packed({})

    def forward(self, packed: Packed, step: Step) -> Outputs:
        ran = [self._run(call) for call in step.calls]
        return {
            name: [outputs.get(name) for outputs in ran]
            for name in self._outputs
            if any(outputs.get(name) is not None for outputs in ran)
        }

    def verdict(self, call: Call, outputs: Mapping[str, Output]) -> bool:
        return self._stop(call, outputs)


def tensor(value: Value) -> Tensor:
    """A tensor that another node made. TypeError for anything else."""
    if not isinstance(value, Tensor):
        raise TypeError(f"expected a tensor, got {type(value).__name__}")
    return value


def array(value: Value) -> NDArray[np.float32]:
    """A numpy array that another node made. TypeError for anything else."""
    if not isinstance(value, np.ndarray):
        raise TypeError(f"expected an array, got {type(value).__name__}")
    return value


def numbers(name: str, value: Value, *shape: int) -> NDArray[np.float32]:
    """An input of finite numbers of this shape, −1 = any. Raises Rejected naming the input."""
    try:
        given = np.array(value, np.float32)
    except (TypeError, ValueError):
        raise Rejected(f"{name}: expected numbers, got {type(value).__name__}", param=name) from None
    fits = given.ndim == len(shape) and all(want in {-1, have} for want, have in zip(shape, given.shape, strict=True))
    if not fits:
        wanted = ["any" if want == -1 else want for want in shape]
        raise Rejected(f"{name}: expected numbers of shape {wanted}, got {list(given.shape)}", param=name)
    if not np.isfinite(given).all():
        raise Rejected(f"{name}: not all numbers are finite", param=name)
    return given


def leaving(x: Tensor) -> NDArray[np.float32]:
    """A tensor as it leaves for the client."""
    found: NDArray[np.float32] = x.detach().to("cpu", torch.float32).numpy()
    return found
