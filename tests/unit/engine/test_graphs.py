"""Steps through buffers of fixed sizes are the steps themselves; a recorder that runs again stands for the device's."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

import pytest
import torch
from torch import Tensor

from mstar.engine.attention.backend import PagedRow, PlannedAttention
from mstar.engine.attention.torch_backend import TorchAttention, TorchBackend
from mstar.engine.graphs.buckets import Bucket, Buckets
from mstar.engine.graphs.buffers import Buffers
from mstar.engine.graphs.runner import GraphRunner, Tensors
from mstar.submodule import Attention, KVGeometry, Row

GEOMETRY = KVGeometry(layers=2, kv_heads=2, head_dim=8)
PAGES, PAGE = 32, 4


class Again:
    """Records by running; what it gives back runs the same function into the same results."""

    def __init__(self) -> None:
        self.recorded = 0

    def record(self, run: Callable[[], Tensors]) -> tuple[Callable[[], None], Tensors]:
        self.recorded += 1
        results = {name: tensor.clone() for name, tensor in run().items()}

        def replay() -> None:
            for name, tensor in run().items():
                results[name].copy_(tensor)

        return replay, results


class Current:
    """An attention that stands for the newest plan, as a captured kernel reads the newest tables."""

    def __init__(self) -> None:
        self.now: TorchAttention

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, *, scale: float | None = None) -> Tensor:
        return self.now.attend(layer, q, k, v, scale=scale)

    def __getattr__(self, name: str) -> object:
        return getattr(self.now, name)


class Sized:
    """Makes rows up to a size, in scratch pages behind those of the pool."""

    def __init__(self, backend: TorchBackend, rows: int, tokens: int) -> None:
        self.backend, self.size, self.attention = backend, (rows, tokens), Current()

    def plan(self, rows: Sequence[PagedRow]) -> PlannedAttention:
        more, left = self.size[0] - len(rows), self.size[1] - sum(each.row.tokens for each in rows)
        sizes = [1] * (more - 1) + [left - more + 1] if more else []
        scratch = list(range(PAGES, PAGES + 8))
        made_up = [PagedRow(Row(0, size), scratch, 0, {}) for size in sizes]
        self.attention.now = self.backend.plan([*rows, *made_up])
        return self.attention  # type: ignore[return-value]


class Network:
    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(2)
        self.embedding = torch.randn(20, 16, generator=generator)
        self.mix = torch.randn(2, 32, 16, generator=generator)
        self.called = 0

    def __call__(self, tensors: Tensors, attention: Attention) -> Tensors:
        self.called += 1
        x = self.embedding[tensors["ids"]] + torch.sin(attention.positions[:, None].float())
        for layer in range(2):
            q = x.view(-1, 2, 8)
            x = x + attention.attend(layer, q, q * 0.5, q + 1).flatten(1)
        return {"x": x, "last": x[tensors["last"]]}


def step(ids: Sequence[Sequence[int]]) -> dict[str, Tensor]:
    flat = [one for each in ids for one in each]
    ends = torch.tensor([len(each) for each in ids]).cumsum(0) - 1
    return {"ids": torch.tensor(flat), "last": ends}


class Bench:
    """The same steps with and without graphs, each on a memory of its own."""

    def __init__(self, buckets: Buckets) -> None:
        self.backend, self.plain = (TorchBackend(GEOMETRY, pages=PAGES + 8, page_size=PAGE) for _ in range(2))
        for backend in (self.backend, self.plain):
            backend.cache.zero_()
        self.network, self.recorder = Network(), Again()
        self.runner = GraphRunner(
            self.network, lambda rows, tokens: Sized(self.backend, rows, tokens), self.recorder, buckets
        )
        self.lengths: dict[int, int] = {}

    def run(self, ids: Mapping[int, Sequence[int]]) -> bool:
        """One step for these requests; whether a graph ran it. Both ways give the same."""
        rows = [
            PagedRow(Row(n, len(own)), list(range(8 * who, 8 * who + 8)), self.lengths.get(who, 0), {})
            for n, (who, own) in enumerate(ids.items())
        ]
        tensors = step(list(ids.values()))
        for who, own in ids.items():
            self.lengths[who] = self.lengths.get(who, 0) + len(own)
        wanted = self.network(tensors, self.plain.plan(rows))
        ran = self.runner.run(rows, tensors)
        if ran is None:
            self.network(tensors, self.backend.plan(rows))
            return False
        for name, tensor in ran[0].items():
            torch.testing.assert_close(tensor, wanted[name], rtol=1e-5, atol=1e-6)
            assert tensor.shape == wanted[name].shape
        return True


def test_replayed_steps_are_the_steps_themselves() -> None:
    bench = Bench(Buckets(decodes=(1, 2, 4), prompts=(8,)))
    assert bench.run({0: [1, 2, 3, 4, 5]})
    assert bench.run({1: [5, 6, 7, 8, 9, 10, 11, 12]})
    for n in range(6):
        assert bench.run({0: [n], 1: [n + 1]})
    assert bench.run({2: [3]})
    for n in range(6):
        assert bench.run({0: [n], 1: [n + 1], 2: [n]})
    assert bench.recorder.recorded == bench.runner.counters["captures"] == 5
    assert bench.runner.counters["replays"] == 15


def test_results_do_not_change_with_the_next_replay() -> None:
    bench = Bench(Buckets(decodes=(2,)))
    rows = [PagedRow(Row(0, 1), [0], 0, {})]
    first = bench.runner.run(rows, step([[3]]))
    assert first is not None
    kept = first[0]["x"].clone()
    bench.runner.run([PagedRow(Row(0, 1), [0], 1, {})], step([[7]]))
    assert torch.equal(first[0]["x"], kept)


def test_what_fits_no_graph_runs_without_and_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(Buckets(decodes=(1, 2), prompts=(4,)))
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert not bench.run({0: [1], 1: [2], 2: [3]})
        assert not bench.run({0: [1, 2, 3, 4, 5]})
        assert not bench.run({0: [1, 2], 1: [3]})
    assert bench.runner.counters["eager"] == 5
    assert [record.message for record in caplog.records] == [
        "no captured graph for 3 rows of 3 tokens: run without",
        "no captured graph for 1 rows of 5 tokens: run without",
        "no captured graph for 2 rows of 3 tokens: run without",
    ]


def test_rows_of_other_kinds_run_without() -> None:
    bench = Bench(Buckets())
    for row in (Row(0, 1, store=False), Row(0, 4, blocks=(2, 2))):
        assert bench.runner.run([PagedRow(row, [0], 0, {})], step([[1] * row.tokens])) is None


def test_buffers_keep_their_place_and_take_no_other_names() -> None:
    buffers = Buffers(Bucket(4, 4), step([[1], [2], [3]]), (3, 3))
    place = buffers.tensors["ids"].data_ptr()
    buffers.fill(step([[4], [5]]))
    assert buffers.tensors["ids"].tolist() == [4, 5, 0, 0]
    assert buffers.tensors["ids"].data_ptr() == place
    with pytest.raises(ValueError, match="for a graph of"):
        buffers.fill({"ids": torch.zeros(2)})
    with pytest.raises(ValueError, match="a tensor of 5"):
        Buffers(Bucket(4, 4), {"x": torch.zeros(5)}, (3, 3))
