"""Steps through buffers of fixed sizes are the steps themselves; a recorder that runs again stands for the device's."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

import pytest
import torch
from torch import Tensor

from mstar.engine.attention.backend import PagedRow
from mstar.engine.attention.torch_backend import TorchBackend
from mstar.engine.graphs.buckets import Bucket, Buckets
from mstar.engine.graphs.buffers import Buffers
from mstar.engine.graphs.runner import GraphRunner, Tensors
from mstar.submodule import Attention, KVGeometry, Row
from tests.unit.engine.captured import Again, Sized

GEOMETRY = KVGeometry(layers=2, kv_heads=2, head_dim=8)
PAGES, PAGE = 32, 4


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
            self.network,
            lambda rows, tokens: Sized(self.backend, rows, tokens, range(PAGES, PAGES + 8)),
            self.recorder,
            buckets,
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


def test_what_sees_everything_does_not_run_as_what_is_causal() -> None:
    bench = Bench(Buckets(prompts=(4,)))
    for causal in (True, False, True):
        rows = [PagedRow(Row(0, 3, causal=causal), [0], 0, {})]
        tensors = step([[3, 4, 5]])
        ran = bench.runner.run(rows, tensors)
        assert ran is not None
        torch.testing.assert_close(ran[0]["x"], bench.network(tensors, bench.plain.plan(rows))["x"])
    assert bench.runner.counters["captures"] == 2


def test_steps_of_other_tensors_have_graphs_of_their_own() -> None:
    bench = Bench(Buckets(decodes=(1,)))
    for names in (("ids", "last"), ("ids", "last", "more"), ("ids", "last")):
        tensors = {name: step([[3]]).get(name, torch.zeros(1)) for name in names}
        assert bench.runner.run([PagedRow(Row(0, 1), [0], 0, {})], tensors) is not None
    assert bench.runner.counters["captures"] == 2


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
