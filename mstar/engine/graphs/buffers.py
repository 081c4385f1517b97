"""Tensors that a captured graph reads: they stay where they are, a step's own are copied into them."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from mstar.engine.graphs.buckets import Bucket


class Buffers:
    """One for each named tensor of a step, as long as the bucket: a tensor's first axis counts tokens, or else rows."""

    def __init__(self, bucket: Bucket, tensors: Mapping[str, Tensor], sizes: tuple[int, int]) -> None:
        """`sizes`: rows and tokens of the step that `tensors` are of. Raises ValueError for an axis that is neither."""
        self._bucket = bucket
        self.tensors: Mapping[str, Tensor] = {
            name: torch.zeros(
                (self._length(tensor, sizes), *tensor.shape[1:]), dtype=tensor.dtype, device=tensor.device
            )
            for name, tensor in tensors.items()
        }

    def fill(self, tensors: Mapping[str, Tensor]) -> None:
        """Copy a step's tensors in, zeros behind them. Raises ValueError for other names."""
        if tensors.keys() != self.tensors.keys():
            raise ValueError(f"a step of {sorted(tensors)} for a graph of {sorted(self.tensors)}")
        for name, tensor in tensors.items():
            buffer = self.tensors[name]
            buffer[: len(tensor)].copy_(tensor, non_blocking=True)
            buffer[len(tensor) :].zero_()

    def cut(self, tensor: Tensor, sizes: tuple[int, int]) -> Tensor:
        """A copy of the part of a result that is the step's own: the graph's next replay overwrites the rest."""
        rows, tokens = sizes
        if len(tensor) == self._bucket.tokens:
            return tensor[:tokens].clone()
        return tensor[:rows].clone()

    def _length(self, tensor: Tensor, sizes: tuple[int, int]) -> int:
        rows, tokens = sizes
        if len(tensor) == tokens:
            return self._bucket.tokens
        if len(tensor) == rows:
            return self._bucket.rows
        raise ValueError(f"a tensor of {len(tensor)} in a step of {rows} rows of {tokens} tokens")
