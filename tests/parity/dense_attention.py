"""A plain `Attention` for comparing networks with their published results: every row's K/V in one tensor per layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from mstar.submodule import Row

_KV = tuple[Tensor, Tensor]  # each [positions, kv_heads, dim]


@dataclass(slots=True)
class DenseCache:
    """Sequences of any number of requests, keyed by (request, label)."""

    stored: dict[tuple[str, str, int], _KV] = field(default_factory=dict)
    cross: dict[tuple[str, int], _KV] = field(default_factory=dict)
    lengths: dict[tuple[str, str], int] = field(default_factory=dict)

    def step(self, requests: Sequence[str], rows: Sequence[Row]) -> DenseAttention:
        """`requests[i]` is the request of call i. Lengths are counted up once per step, when it is made."""
        starts = [self.lengths.get((requests[row.call], row.label), 0) for row in rows]
        for row, start in zip(rows, starts, strict=True):
            if row.store:
                self.lengths[requests[row.call], row.label] = start + row.tokens
        return DenseAttention(self, tuple(requests), tuple(rows), starts)

    def prompt(self, request: str, tokens: int) -> DenseAttention:
        """A step of one causal row."""
        return self.step([request], [Row(call=0, tokens=tokens)])


class DenseAttention:
    """One step's view; each row is attended to alone."""

    def __init__(
        self, cache: DenseCache, requests: tuple[str, ...], rows: tuple[Row, ...], starts: Sequence[int]
    ) -> None:
        self.rows = rows
        self.positions = torch.cat([torch.arange(s, s + r.tokens) for s, r in zip(starts, rows, strict=True)])
        self._cache = cache
        self._requests = requests
        self._masks = [_mask(row, start) for row, start in zip(rows, starts, strict=True)]
        self._sizes = [row.tokens for row in rows]

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, *, scale: float | None = None) -> Tensor:
        parts = zip(
            self.rows, self._masks, q.split(self._sizes), k.split(self._sizes), v.split(self._sizes), strict=True
        )
        return torch.cat([self._row(layer, row, mask, *qkv, scale=scale) for row, mask, *qkv in parts])

    def _row(
        self, layer: int, row: Row, mask: Tensor | None, q: Tensor, k: Tensor, v: Tensor, *, scale: float | None
    ) -> Tensor:
        key = (self._requests[row.call], row.label, layer)
        if key in self._cache.stored:
            before_k, before_v = self._cache.stored[key]
            k, v = torch.cat((before_k, k)), torch.cat((before_v, v))
        if row.store:
            self._cache.stored[key] = (k, v)
        return _attend(q, k, v, mask, scale)

    def write_cross(self, layer: int, row: int, k: Tensor, v: Tensor) -> None:
        self._cache.cross[self._requests[self.rows[row].call], layer] = (k, v)

    def attend_cross(self, layer: int, q: Tensor, *, scale: float | None = None) -> Tensor:
        parts = zip(self.rows, q.split(self._sizes), strict=True)
        return torch.cat(
            [_attend(part, *self._cache.cross[self._requests[row.call], layer], None, scale) for row, part in parts]
        )


def _mask(row: Row, start: int) -> Tensor | None:
    """[tokens, start + tokens] bool, True = seen; None = all."""
    if row.blocks:
        block = torch.repeat_interleave(torch.arange(len(row.blocks)), torch.tensor(row.blocks))
        seen = block[:, None] >= block[None, :]
    elif row.causal and row.tokens > 1:
        seen = torch.ones(row.tokens, row.tokens, dtype=torch.bool).tril()
    else:
        return None
    return torch.cat((torch.ones(row.tokens, start, dtype=torch.bool), seen), dim=1)


def _attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float | None) -> Tensor:
    q, k, v = (part.transpose(0, 1)[None] for part in (q, k, v))  # [1, heads, positions, dim]
    out = scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale, enable_gqa=True)
    return out[0].transpose(0, 1)
