"""Runs a network's steps as captured graphs, the first of each size by capturing it, what fits no size as it is."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import torch
from torch import Tensor

from mstar.engine.attention.backend import PagedRow, PlannedAttention, SizedPlan
from mstar.engine.graphs.buckets import Bucket, Buckets
from mstar.engine.graphs.buffers import Buffers
from mstar.submodule import Attention, Row

_log = logging.getLogger(__name__)

Tensors: TypeAlias = Mapping[str, Tensor]
Network: TypeAlias = Callable[[Tensors, Attention], Tensors]


class Recorder(Protocol):
    """Records what a function does on the device."""

    def record(self, run: Callable[[], Tensors]) -> tuple[Callable[[], None], Tensors]:
        """What does it again, and the tensors that hold its results then."""
        ...


class CudaRecorder:
    """CUDA graphs in one pool of memory; captured after a run beside, which loads kernels and plans attention.

    Of the current device, by its thread alone: what other threads ask of the device meanwhile does not spoil a capture.
    """

    def __init__(self) -> None:
        self._pool = torch.cuda.graph_pool_handle()

    def record(self, run: Callable[[], Tensors]) -> tuple[Callable[[], None], Tensors]:
        beside = torch.cuda.Stream()
        beside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(beside):
            run()
        torch.cuda.current_stream().wait_stream(beside)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
            results = run()
        return graph.replay, results


@dataclass(frozen=True, slots=True)
class _Captured:
    plan: SizedPlan
    buffers: Buffers
    replay: Callable[[], None]
    results: Tensors


@dataclass(frozen=True, slots=True)
class _Kind:
    """Steps that one graph can run: of a size, a sight (which a kernel is captured with) and the same tensors."""

    bucket: Bucket
    causal: bool
    names: frozenset[str]


class GraphRunner:
    """`plans`: makes the attention plans of a size (rows, tokens)."""

    def __init__(
        self,
        network: Network,
        plans: Callable[[int, int], SizedPlan],
        recorder: Recorder,
        buckets: Buckets | None = None,
    ) -> None:
        self._network = network
        self._plans = plans
        self._recorder = recorder
        self._buckets = buckets or Buckets()
        self._captured: dict[_Kind, _Captured] = {}
        self._refused: set[tuple[int, ...]] = set()
        self.counters: Counter[str] = Counter(replays=0, captures=0, eager=0)

    def prepare(
        self,
        blank: Callable[[Sequence[int]], Tensors],
        scratch: int,
        page_size: int,
        sizes: tuple[int, int, int],
    ) -> None:
        """Capture ahead what steps of these sizes will need (see `Buckets.ahead`).

        `blank`: tensors of a step whose rows have so many tokens; its K/V go into `scratch`, a page that is nobody's.
        """
        for counts in self._buckets.ahead(*sizes):
            paged = [PagedRow(Row(i, n), [scratch] * -(-n // page_size), 0, {}) for i, n in enumerate(counts)]
            bucket = self._buckets.choose(counts)
            assert bucket is not None
            tensors = blank(counts)
            self._capture(_Kind(bucket, True, frozenset(tensors)), paged, tensors, (len(counts), sum(counts)))

    def run(self, rows: Sequence[PagedRow], tensors: Tensors) -> tuple[Tensors, PlannedAttention] | None:
        """A step's results and its attention, or None: run it as it is."""
        counts = tuple(each.row.tokens for each in rows)
        plain = all(each.row.store and not each.row.blocks and not each.cross for each in rows)
        bucket = self._buckets.choose(counts) if plain else None
        if bucket is None:
            self._decline(counts)
            return None
        sizes = (len(rows), sum(counts))
        kind = _Kind(bucket, all(each.row.causal for each in rows if each.row.tokens > 1), frozenset(tensors))
        captured = self._captured.get(kind)
        if captured is None:
            captured, attention = self._capture(kind, rows, tensors, sizes)
        else:
            captured.buffers.fill(tensors)
            attention = captured.plan.plan(rows)
        captured.replay()
        self.counters["replays"] += 1
        return {name: captured.buffers.cut(result, sizes) for name, result in captured.results.items()}, attention

    def _capture(
        self, kind: _Kind, rows: Sequence[PagedRow], tensors: Tensors, sizes: tuple[int, int]
    ) -> tuple[_Captured, PlannedAttention]:
        bucket = kind.bucket
        buffers, plan = Buffers(bucket, tensors, sizes), self._plans(bucket.rows, bucket.tokens)
        buffers.fill(tensors)
        attention = plan.plan(rows)
        replay, results = self._recorder.record(lambda: self._network(buffers.tensors, attention))
        captured = self._captured[kind] = _Captured(plan, buffers, replay, results)
        self.counters["captures"] += 1
        return captured, attention

    def _decline(self, counts: tuple[int, ...]) -> None:
        """Count a step that is run as it is, and tell its shape the first time."""
        self.counters["eager"] += 1
        shape = (len(counts), sum(counts))
        if shape not in self._refused:
            self._refused.add(shape)
            _log.warning("no captured graph for %d rows of %d tokens: run without", *shape)
