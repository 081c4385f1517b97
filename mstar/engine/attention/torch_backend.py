"""Attention by torch operators over paged K/V: the reference, and the backend of a CPU.

K and V of one layer and head lie position after position, `[layers, 2, kv_heads, slots, head_dim]`, so that a sequence
in adjacent pages is read as a view (slot = page · page_size + offset). Every row is computed by operators of its own,
whose shapes depend on that row alone: its result is the same, bit for bit, whoever shares the step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate

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

    def read(self, pages: Sequence[int], length: int) -> Tensor:
        slots = self._where(pages, 0, length)
        found = self.cache[:, :, :, slots] if isinstance(slots, slice) else self.cache.index_select(3, slots)
        return found.transpose(2, 3).clone(memory_format=torch.contiguous_format)

    def write(self, pages: Sequence[int], start: int, kv: Tensor) -> None:
        slots = self._where(pages, start, start + kv.shape[2])
        given = kv.transpose(2, 3).to(self.cache)
        if isinstance(slots, slice):
            self.cache[:, :, :, slots] = given
        else:
            self.cache.index_copy_(3, slots, given)

    def read_cross(self, context: CrossContext) -> Mapping[int, tuple[Tensor, Tensor]]:
        return {
            layer: (k[0].transpose(0, 1).contiguous(), v[0].transpose(0, 1).contiguous())
            for layer, (k, v) in context.items()
        }

    def write_cross(self, context: Mapping[int, tuple[Tensor, Tensor]]) -> CrossContext:
        like = self.cache
        return {
            layer: (_heads_first(k.to(like.device)), _heads_first(v.to(like.device)))
            for layer, (k, v) in context.items()
        }

    def _where(self, pages: Sequence[int], start: int, stop: int) -> slice | Tensor:
        """The slots of positions [start, stop) in the pages."""
        if not pages or is_run(pages):
            first = pages[0] * self.page_size if pages else 0
            return slice(first + start, first + stop)
        return self._slot_index(pages)[start:stop]

    def _slots(self, pages: Sequence[int]) -> slice:
        return slice(pages[0] * self.page_size, (pages[0] + len(pages)) * self.page_size)

    def _slot_index(self, pages: Sequence[int]) -> Tensor:
        """[len(pages) · page_size] int64, the slots of the pages in order."""
        first = torch.tensor(pages, device=self.cache.device) * self.page_size
        return (first[:, None] + torch.arange(self.page_size, device=self.cache.device)).flatten()

    def context(self, paged: PagedRow) -> RowContext:
        """Where the row's positions lie: views where its pages are adjacent, else an index to gather by."""
        stop = paged.start + paged.row.tokens
        pages = paged.pages[: -(-stop // self.page_size)]
        if is_run(pages):
            first = pages[0] * self.page_size
            return RowContext(self.cache, slice(first, first + stop), paged.start)
        return RowContext(self.cache, self._slot_index(pages)[:stop], paged.start)


class RowContext:
    """K/V of one row's sequence, its new positions included."""

    __slots__ = ("_cache", "_index", "_views", "new")

    def __init__(self, cache: Tensor, slots: slice | Tensor, start: int) -> None:
        self._cache = cache
        self._index = slots if isinstance(slots, Tensor) else None
        self._views: tuple[Sequence[Tensor], Sequence[Tensor]] = ((), ())
        self.new: slice | Tensor
        if isinstance(slots, Tensor):
            self.new = slots[start:]
        else:
            self.new = slice(slots.start + start, slots.stop)
            run = cache[:, :, None, :, slots]
            self._views = (run[:, 0].unbind(0), run[:, 1].unbind(0))

    @property
    def scattered(self) -> bool:
        return self._index is not None

    def read(self, layer: int) -> tuple[Tensor, Tensor]:
        """K and V, each [1, kv_heads, positions, head_dim]."""
        if self._index is None:
            return self._views[0][layer], self._views[1][layer]
        gathered = self._cache[layer].index_select(2, self._index)
        return gathered[:1], gathered[1:]


class TorchAttention:
    """One step's view (see `mstar.submodule.Attention`)."""

    def __init__(self, backend: TorchBackend, rows: Sequence[PagedRow]) -> None:
        self._cache = backend.cache
        self._paged = rows
        self.rows: Sequence[Row] = tuple(paged.row for paged in rows)
        self._sizes = [row.tokens for row in self.rows]
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
        results = [
            self._attend_row(i, part, *context.read(layer), scale)
            for i, (context, part) in enumerate(zip(self._contexts, self._queries(q), strict=True))
        ]
        return _packed(results)

    def write_cross(self, layer: int, row: int, k: Tensor, v: Tensor) -> None:
        by_layer = self._written.setdefault(self.rows[row].call, {})
        by_layer[layer] = (_heads_first(k), _heads_first(v))

    def attend_cross(self, layer: int, q: Tensor, *, scale: float | None = None) -> Tensor:
        results = [
            _attend(part, *self._cross(paged, layer), scale)
            for paged, part in zip(self._paged, self._queries(q), strict=True)
        ]
        return _packed(results)

    def _queries(self, q: Tensor) -> Sequence[Tensor]:
        """q [tokens, heads, dim] → per row [1, heads, tokens of the row, dim]."""
        heads_first = q.transpose(0, 1)[None]
        return (heads_first,) if len(self._sizes) == 1 else heads_first.split(self._sizes, dim=2)

    def _cross(self, paged: PagedRow, layer: int) -> tuple[Tensor, Tensor]:
        written = self._written.get(paged.row.call, {}).get(layer)
        if written is None and layer not in paged.cross:
            raise LookupError(f"no cross-attention context was written for layer {layer}")
        return paged.cross[layer] if written is None else written

    def _new_slots(self) -> Sequence[tuple[Tensor, Tensor]] | Tensor:
        """Where the step's new positions lie, row after row.

        One run: per layer the K and V of these slots, each [tokens, kv_heads, dim]; else the slots, [tokens] int64.
        """
        new = [context.new for context in self._contexts]
        if len(new) == 1 and isinstance(new[0], slice):
            run = self._cache[:, :, :, new[0]].transpose(2, 3)
            return tuple(zip(run[:, 0].unbind(0), run[:, 1].unbind(0), strict=True))
        device = self._cache.device
        return torch.cat(
            [
                torch.arange(slots.start, slots.stop, device=device) if isinstance(slots, slice) else slots
                for slots in new
            ]
        )

    def _write(self, layer: int, k: Tensor, v: Tensor) -> None:
        """k, v [tokens, kv_heads, dim] → the step's new slots."""
        if isinstance(self._new, Tensor):
            keys, values = self._cache[layer].unbind(0)
            keys.index_copy_(1, self._new, k.transpose(0, 1))
            values.index_copy_(1, self._new, v.transpose(0, 1))
        else:
            keys, values = self._new[layer]
            keys.copy_(k)
            values.copy_(v)

    def _attend_row(self, index: int, q: Tensor, keys: Tensor, values: Tensor, scale: float | None) -> Tensor:
        """Attention as the row's rule of sight says, [1, heads, tokens, dim]."""
        row = self.rows[index]
        before = self._paged[index].start
        if row.blocks:
            ends = list(accumulate(row.blocks))
            return torch.cat(
                [
                    _attend(q[:, :, e - n : e], keys[:, :, : before + e], values[:, :, : before + e], scale)
                    for n, e in zip(row.blocks, ends, strict=True)
                ],
                dim=2,
            )
        if row.tokens == 1 or not row.causal:
            return _attend(q, keys, values, scale)
        if before == 0:
            return _attend(q, keys, values, scale, is_causal=True)
        return _attend(q, keys, values, scale, mask=self._mask(index, q))

    def _mask(self, index: int, q: Tensor) -> Tensor:
        """[tokens, positions] to add to the scores: 0 where a token sees a position, else -inf. One for all layers."""
        mask = self._masks.get(index)
        if mask is None:
            before, tokens = self._paged[index].start, self._sizes[index]
            hidden = torch.full((tokens, before + tokens), -torch.inf, dtype=q.dtype, device=q.device)
            mask = self._masks[index] = hidden.triu_(before + 1)
        return mask


def _heads_first(x: Tensor) -> Tensor:
    """[context, kv_heads, dim] → [1, kv_heads, context, dim] in memory of its own."""
    return x.transpose(0, 1)[None].clone(memory_format=torch.contiguous_format)


def _packed(results: list[Tensor]) -> Tensor:
    """Per row [1, heads, tokens, dim] → [all tokens, heads, dim]."""
    joined = results[0] if len(results) == 1 else torch.cat(results, dim=2)
    return joined[0].transpose(0, 1)


def _attend(
    q: Tensor,
    keys: Tensor,
    values: Tensor,
    scale: float | None,
    *,
    mask: Tensor | None = None,
    is_causal: bool = False,
) -> Tensor:
    """q [1, heads, tokens, dim] over keys, values [1, kv_heads, positions, dim] → [1, heads, tokens, dim]."""
    return F.scaled_dot_product_attention(
        q, keys, values, attn_mask=mask, is_causal=is_causal, scale=scale, enable_gqa=q.shape[1] != keys.shape[1]
    )
