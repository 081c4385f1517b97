"""Attention by torch operators over paged K/V: the reference, and the backend of a CPU.

K and V of one layer and head lie position after position, `[layers, 2, kv_heads, slots, head_dim]`, so that a sequence
in adjacent pages is read as a view (slot = page · page_size + offset). Every row is computed by operators of its own,
whose shapes depend on that row alone: its result is the same, bit for bit, whoever shares the step.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from mstar.engine.attention.backend import CrossContext, PagedRow
from mstar.engine.kv.pages import is_run
from mstar.submodule import KVGeometry, Row


class TorchBackend:
    """K/V memory of one component on one device. Memory is touched, hence paid for, only as pages come into use."""

    prefers_runs = True

    def __init__(self, geometry: KVGeometry, *, pages: int, page_size: int = 16, device: str = "cpu") -> None:
        self.geometry = geometry
        self.pages = pages
        self.page_size = page_size
        self.cache = torch.empty(
            (geometry.layers, 2, geometry.kv_heads, pages * page_size, geometry.head_dim),
            dtype=geometry.dtype,
            device=device,
        )

    def copy(self, source: Sequence[int], target: Sequence[int]) -> int:
        if is_run(source) and is_run(target):
            moved = self._slots(source)
            self.cache[:, :, :, self._slots(target)] = self.cache[:, :, :, moved]
        else:
            read, write = (self._slot_index(pages) for pages in (source, target))
            self.cache.index_copy_(3, write, self.cache.index_select(3, read))
        per_slot = self.cache[:, :, :, :1].numel() * self.cache.element_size()
        return len(source) * self.page_size * per_slot

    def plan(self, rows: Sequence[PagedRow]) -> TorchAttention:
        return TorchAttention(self, rows)

    def _slots(self, pages: Sequence[int]) -> slice:
        return slice(pages[0] * self.page_size, (pages[0] + len(pages)) * self.page_size)

    def _slot_index(self, pages: Sequence[int]) -> Tensor:
        """[len(pages) · page_size] int64, the slots of the pages in order."""
        first = torch.tensor(pages, device=self.cache.device) * self.page_size
        return (first[:, None] + torch.arange(self.page_size, device=self.cache.device)).flatten()

    def context(self, paged: PagedRow) -> RowContext:
        """Where the row's positions lie: a view where its pages are adjacent, else an index to gather by."""
        stop = paged.start + paged.row.tokens
        pages = paged.pages[: -(-stop // self.page_size)]
        if is_run(pages):
            first = pages[0] * self.page_size
            view = self.cache[:, :, :, first : first + stop].unbind(0)
            return RowContext(self.cache, view, None, slice(first + paged.start, first + stop))
        index = self._slot_index(pages)[:stop]
        return RowContext(self.cache, (), index, index[paged.start :])


class RowContext:
    """K/V of one row's sequence, its new positions included."""

    __slots__ = ("_cache", "_index", "_views", "new")

    def __init__(self, cache: Tensor, views: tuple[Tensor, ...], index: Tensor | None, new: slice | Tensor) -> None:
        self._cache = cache
        self._views = views
        self._index = index
        self.new = new

    @property
    def scattered(self) -> bool:
        return self._index is not None

    def read(self, layer: int) -> Tensor:
        """[2, kv_heads, positions, head_dim]: K, then V."""
        if self._index is None:
            return self._views[layer]
        return self._cache[layer].index_select(2, self._index)


class TorchAttention:
    """One step's view (see `mstar.submodule.Attention`)."""

    def __init__(self, backend: TorchBackend, rows: Sequence[PagedRow]) -> None:
        self._cache = backend.cache
        self._paged = rows
        self.rows: Sequence[Row] = tuple(paged.row for paged in rows)
        device = backend.cache.device
        self.positions = torch.tensor(
            [paged.start + i for paged in rows for i in range(paged.row.tokens)], dtype=torch.int64, device=device
        )
        self._contexts = tuple(map(backend.context, rows))
        self.gathered = sum(context.scattered for context in self._contexts)
        self._written: dict[int, dict[int, tuple[Tensor, Tensor]]] = {}
        self._masks: dict[int, Tensor] = {}
        self._new = self._new_slots()

    @property
    def written_cross(self) -> Mapping[int, CrossContext]:
        return self._written

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, *, scale: float | None = None) -> Tensor:
        self._write(layer, k, v)
        scale = scale if scale is not None else 1.0 / math.sqrt(q.shape[-1])
        scaled, out = q * scale, torch.empty_like(q, memory_format=torch.contiguous_format)
        start = 0
        for index, context in enumerate(self._contexts):
            stop = start + self.rows[index].tokens
            keys, values = context.read(layer).unbind(0)
            if stop - start == 1:
                _attend_one(scaled[start], keys, values, out[start])
            else:
                self._attend_many(index, q[start:stop], keys, values, scale, out[start:stop])
            start = stop
        return out

    def write_cross(self, layer: int, row: int, k: Tensor, v: Tensor) -> None:
        by_layer = self._written.setdefault(self.rows[row].call, {})
        by_layer[layer] = (_heads_first(k), _heads_first(v))

    def attend_cross(self, layer: int, q: Tensor, *, scale: float | None = None) -> Tensor:
        scale = scale if scale is not None else 1.0 / math.sqrt(q.shape[-1])
        scaled, out = q * scale, torch.empty_like(q, memory_format=torch.contiguous_format)
        start = 0
        for paged in self._paged:
            stop = start + paged.row.tokens
            keys, values = self._cross(paged, layer)
            if stop - start == 1:
                _attend_one(scaled[start], keys, values, out[start])
            else:
                out[start:stop] = _attend_all(q[start:stop], keys, values, scale)
            start = stop
        return out

    def _cross(self, paged: PagedRow, layer: int) -> tuple[Tensor, Tensor]:
        written = self._written.get(paged.row.call, {}).get(layer)
        if written is None and layer not in paged.cross:
            raise LookupError(f"no cross-attention context was written for layer {layer}")
        return paged.cross[layer] if written is None else written

    def _new_slots(self) -> slice | Tensor:
        """Slots of the step's new positions, row after row."""
        new = [context.new for context in self._contexts]
        if len(new) == 1:
            return new[0]
        device = self._cache.device
        return torch.cat(
            [
                torch.arange(slots.start, slots.stop, device=device) if isinstance(slots, slice) else slots
                for slots in new
            ]
        )

    def _write(self, layer: int, k: Tensor, v: Tensor) -> None:
        """k, v [tokens, kv_heads, dim] → the step's new slots."""
        cache = self._cache[layer]
        if isinstance(self._new, slice):
            cache[0, :, self._new] = k.transpose(0, 1)
            cache[1, :, self._new] = v.transpose(0, 1)
        else:
            cache[0].index_copy_(1, self._new, k.transpose(0, 1))
            cache[1].index_copy_(1, self._new, v.transpose(0, 1))

    def _attend_many(self, index: int, q: Tensor, keys: Tensor, values: Tensor, scale: float, out: Tensor) -> None:
        """q [tokens, heads, dim] of one row → out, as the row's rule of sight says."""
        row = self.rows[index]
        before = self._paged[index].start
        if row.blocks:
            start = 0
            for size in row.blocks:
                stop = start + size
                seen = before + stop
                out[start:stop] = _attend_all(q[start:stop], keys[:, :seen], values[:, :seen], scale)
                start = stop
        elif not row.causal:
            out[:] = _attend_all(q, keys, values, scale)
        elif before == 0:
            out[:] = _attend_all(q, keys, values, scale, is_causal=True)
        else:
            out[:] = _attend_all(q, keys, values, scale, mask=self._mask(index, q))

    def _mask(self, index: int, q: Tensor) -> Tensor:
        """[tokens, positions] to add to the scores: 0 where a token sees a position, else -inf. One for all layers."""
        mask = self._masks.get(index)
        if mask is None:
            before, tokens = self._paged[index].start, q.shape[0]
            hidden = torch.full((tokens, before + tokens), -torch.inf, dtype=q.dtype, device=q.device)
            mask = self._masks[index] = hidden.triu_(before + 1)
        return mask


def _heads_first(x: Tensor) -> Tensor:
    """[context, kv_heads, dim] → [kv_heads, context, dim] in memory of its own."""
    return x.transpose(0, 1).clone(memory_format=torch.contiguous_format)


def _attend_one(q: Tensor, keys: Tensor, values: Tensor, out: Tensor) -> None:
    """q [heads, dim] of one token, scaled, over keys, values [kv_heads, positions, dim] → out [heads, dim].

    The query heads of one K/V head are the rows of one small product.
    """
    grouped = (keys.shape[0], -1, q.shape[-1])
    scores = torch.bmm(q.view(grouped), keys.transpose(1, 2))  # [kv_heads, group, positions]
    torch.bmm(torch.softmax(scores, -1), values, out=out.view(grouped))


def _attend_all(
    q: Tensor, keys: Tensor, values: Tensor, scale: float, *, mask: Tensor | None = None, is_causal: bool = False
) -> Tensor:
    """q [tokens, heads, dim] over keys, values [kv_heads, positions, dim] → [tokens, heads, dim]."""
    attended = F.scaled_dot_product_attention(
        q.transpose(0, 1)[None],
        keys[None],
        values[None],
        attn_mask=mask,
        is_causal=is_causal,
        scale=scale,
        enable_gqa=q.shape[1] != keys.shape[0],
    )
    return attended[0].transpose(0, 1)
