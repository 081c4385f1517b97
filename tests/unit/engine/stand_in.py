"""What stands for FlashInfer where there is no GPU: its wrappers and its append, computed by torch."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor


def _attend(q: Tensor, keys: Tensor, values: Tensor, sight: Tensor, scale: float | None) -> Tensor:
    groups = q.shape[1] // keys.shape[1]
    keys, values = (each.float().repeat_interleave(groups, 1) for each in (keys, values))
    scores = torch.einsum("qhd,khd->hqk", q.float(), keys) * (scale or q.shape[-1] ** -0.5)
    weights = scores.masked_fill(~sight.to(q.device), -torch.inf).softmax(-1)
    return torch.einsum("hqk,khd->qhd", weights, values).to(q.dtype)


class Paged:
    """Both paged wrappers: `queries` are given to the prefill one."""

    def __init__(self, workspace: Tensor, layout: str, **fixed: Any) -> None:
        assert layout == "NHD"
        assert workspace.dtype == torch.uint8
        self.fixed = fixed
        self.plans = 0

    def _planned(
        self, queries: Tensor, starts: Tensor, pages: Tensor, filled: Tensor, rest: Sequence[int], **more: Any
    ) -> None:
        self.heads, self.kv_heads, self.head_dim, self.page = rest
        for table in (queries, starts, pages, filled):
            assert table.dtype == torch.int32
        self.queries, self.starts, self.pages, self.filled, self.more = queries, starts, pages, filled, more
        self.plans += 1

    def run(self, q: Tensor, cache: Tensor) -> Tensor:
        assert q.shape[1:] == (self.heads, self.head_dim)
        assert cache.shape[1:] == (2, self.page, self.kv_heads, self.head_dim)
        results, masked = [], 0
        for row in range(len(self.filled)):
            own = q[int(self.queries[row]) : int(self.queries[row + 1])]
            first, last = int(self.starts[row]), int(self.starts[row + 1])
            held = cache[self.pages[first:last].long()].transpose(1, 2).flatten(0, 1)  # [positions, 2, heads, dim]
            length = (last - first - 1) * self.page + int(self.filled[row])
            sight = torch.ones(len(own), length, dtype=torch.bool)
            mask = self.more.get("custom_mask")
            if mask is not None:
                sight = mask[masked : masked + sight.numel()].view(sight.shape)
                masked += sight.numel()
            elif self.more.get("causal", True):
                sight = sight.tril(length - len(own))
            results.append(_attend(own, held[:length, 0], held[:length, 1], sight, self.more["sm_scale"]))
        return torch.cat(results)


class Decode(Paged):
    def plan(self, starts: Tensor, pages: Tensor, filled: Tensor, *rest: int, **more: Any) -> None:
        queries = torch.arange(len(filled) + 1, dtype=torch.int32)
        self._planned(queries, starts, pages, filled, rest, **more)


class Prefill(Paged):
    def plan(self, queries: Tensor, starts: Tensor, pages: Tensor, filled: Tensor, *rest: int, **more: Any) -> None:
        self._planned(queries, starts, pages, filled, rest, **more)


class Ragged:
    def __init__(self, workspace: Tensor, layout: str) -> None:
        assert layout == "NHD"

    def plan(self, queries: Tensor, starts: Tensor, *rest: int, causal: bool, sm_scale: float | None, **_: Any) -> None:
        assert not causal
        self.queries, self.starts, self.scale = queries.tolist(), starts.tolist(), sm_scale

    def run(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        parts = []
        for row in range(len(self.queries) - 1):
            own = q[self.queries[row] : self.queries[row + 1]]
            seen = slice(self.starts[row], self.starts[row + 1])
            sight = torch.ones(len(own), seen.stop - seen.start, dtype=torch.bool)
            parts.append(_attend(own, k[seen], v[seen], sight, self.scale))
        return torch.cat(parts)


def append(
    k: Tensor,
    v: Tensor,
    owner: Tensor,
    positions: Tensor,
    cache: Tensor,
    pages: Tensor,
    starts: Tensor,
    filled: Tensor,
    layout: str,
) -> None:
    assert layout == "NHD"
    for token in range(len(owner)):
        row, position = int(owner[token]), int(positions[token])
        page, at = int(pages[int(starts[row]) + position // cache.shape[2]]), position % cache.shape[2]
        cache[page, 0, at], cache[page, 1, at] = k[token], v[token]


@contextmanager
def stood_for() -> Iterator[ModuleType]:
    """`mstar.engine.attention.flashinfer`, as it is with the stand-in."""
    stand_in = ModuleType("flashinfer")
    stand_in.__spec__ = ModuleSpec("flashinfer", None)
    stand_in.BatchDecodeWithPagedKVCacheWrapper = Decode  # type: ignore[attr-defined]
    stand_in.BatchPrefillWithPagedKVCacheWrapper = Prefill  # type: ignore[attr-defined]
    stand_in.BatchPrefillWithRaggedKVCacheWrapper = Ragged  # type: ignore[attr-defined]
    stand_in.append_paged_kv_cache = append  # type: ignore[attr-defined]
    ours = "mstar.engine.attention.flashinfer"
    before = {name: sys.modules.pop(name, None) for name in ("flashinfer", ours)}
    sys.modules["flashinfer"] = stand_in
    try:
        module = importlib.import_module(ours)
        with patch.object(module, "WORKSPACE", 16):
            yield module
    finally:
        for name, known in before.items():
            del sys.modules[name]
            if known is not None:
                sys.modules[name] = known
