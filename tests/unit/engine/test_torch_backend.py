"""The paged backend against a dense one that concatenates."""

import pytest
import torch
from torch import Tensor

from mstar.engine.attention.backend import PagedRow
from mstar.engine.attention.torch_backend import TorchBackend
from mstar.engine.kv.sequences import KVPool, KVSequence
from mstar.submodule import KVGeometry, Row
from tests.parity.dense_attention import DenseCache

GEOMETRY = KVGeometry(layers=2, kv_heads=2, head_dim=8, labels=("main", "free"), cross_context=6, cross_layers=2)
HEADS = 6


class Pair:
    """The same steps on a paged and on a dense cache."""

    def __init__(self, *, pages: int = 32) -> None:
        self.backend = TorchBackend(GEOMETRY, pages=pages, page_size=4)
        self.backend.cache.fill_(torch.nan)  # what nobody wrote must not be read
        self.pool = KVPool(self.backend)
        self.dense = DenseCache()
        self.sequences: dict[tuple[str, str], KVSequence] = {}
        self.cross: dict[str, dict[int, tuple[Tensor, Tensor]]] = {}
        self.generator = torch.Generator().manual_seed(3)
        self.gathered = 0

    def random(self, *shape: int) -> Tensor:
        return torch.randn(*shape, generator=self.generator)

    def step(self, requests: list[str], rows: list[Row], *, cross: dict[int, int] | None = None) -> Tensor:
        """Attend in all layers; `cross` = row → length of the context written for it. Returns the paged results."""
        paged = []
        for row in rows:
            sequence = self.sequences.setdefault((requests[row.call], row.label), KVSequence())
            self.pool.reserve(sequence, row.tokens)
            paged.append(PagedRow(row, sequence.pages, sequence.length, self.cross.get(requests[row.call], {})))
        ours, dense = self.backend.plan(paged), self.dense.step(requests, rows)
        assert torch.equal(ours.positions, dense.positions)
        tokens = sum(row.tokens for row in rows)
        results = []
        for layer in range(GEOMETRY.layers):
            q, k, v = self.random(tokens, HEADS, 8), self.random(tokens, 2, 8), self.random(tokens, 2, 8)
            for index, length in (cross or {}).items():
                context = self.random(length, 2, 8), self.random(length, 2, 8)
                ours.write_cross(layer, index, *context)
                dense.write_cross(layer, index, *context)
            results.append(ours.attend(layer, q, k, v))
            torch.testing.assert_close(results[-1], dense.attend(layer, q, k, v), rtol=1e-5, atol=1e-5)
            if cross is not None:
                results.append(ours.attend_cross(layer, q, scale=0.3))
                torch.testing.assert_close(results[-1], dense.attend_cross(layer, q, scale=0.3), rtol=1e-5, atol=1e-5)
        for row in rows:
            sequence = self.sequences[requests[row.call], row.label]
            if row.store:
                self.pool.commit(sequence, torch.arange(row.tokens).numpy())
            self.pool.trim(sequence)
        self.cross |= {requests[call]: dict(context) for call, context in ours.written_cross.items()}
        self.gathered += ours.gathered
        return torch.cat(results)


def test_prefill_decode_and_prefill_again_in_batches_of_other_lengths() -> None:
    pair = Pair()
    pair.step(["a", "b"], [Row(0, 5), Row(1, 1)])
    for _ in range(9):
        pair.step(["a", "b"], [Row(0, 1), Row(1, 1)])
    pair.step(["b", "c", "a"], [Row(0, 6), Row(1, 3), Row(2, 1)])
    assert pair.gathered == 0


def test_full_and_block_causal_sight() -> None:
    pair = Pair()
    pair.step(["a"], [Row(0, 5, causal=False)])
    pair.step(["a", "b"], [Row(0, 6, blocks=(1, 3, 2)), Row(1, 4, blocks=(4,))])
    pair.step(["a", "b"], [Row(0, 3, causal=False), Row(1, 2)])


def test_unstored_positions_are_seen_by_their_step_only() -> None:
    pair = Pair()
    pair.step(["a"], [Row(0, 6)])
    for _ in range(3):
        pair.step(["a"], [Row(0, 5, causal=False, store=False)])
    pair.step(["a"], [Row(0, 1)])
    assert pair.sequences["a", "main"].length == 7


def test_labels_are_sequences_of_their_own() -> None:
    pair = Pair()
    pair.step(["a", "b"], [Row(0, 6), Row(0, 2, label="free"), Row(1, 3)])
    pair.step(["a", "b"], [Row(0, 1), Row(0, 1, label="free"), Row(1, 1)])
    assert pair.sequences["a", "free"].length == 3


def test_scattered_pages_are_gathered_and_counted() -> None:
    pair = Pair(pages=5)
    pair.step(["a", "b"], [Row(0, 8), Row(1, 4)])
    assert pair.sequences["b", "main"].pages == [3]
    pair.step(["a"], [Row(0, 4)])  # page 2, right behind
    assert (pair.pool.counters.scattered, pair.gathered) == (0, 0)
    pair.step(["a"], [Row(0, 1)])
    pair.step(["a"], [Row(0, 2, causal=False)])
    pair.step(["a"], [Row(0, 1)])
    assert (pair.pool.counters.scattered, pair.gathered) == (1, 3)


def test_a_scattered_sequence_moves_to_a_run_when_there_is_one() -> None:
    pair = Pair(pages=9)
    pair.step(["a", "b"], [Row(0, 8), Row(1, 4)])
    pages = pair.sequences["a", "main"].pages
    pages[:] = [0, 7]  # as if no run had been free
    pair.pool.pages.release([1])
    pair.pool.pages.extend(6, 1)
    pair.backend.copy([1], [7])
    pair.step(["a"], [Row(0, 1)])
    assert (pair.pool.counters.relocations, pair.gathered) == (1, 0)


def test_forks_and_truncations_see_their_own_past() -> None:
    pair = Pair()
    pair.step(["a"], [Row(0, 10)])
    source = pair.sequences["a", "main"]
    pair.sequences["b", "main"] = pair.pool.fork(source, 7)
    for layer in range(2):
        pair.dense.stored["b", "main", layer] = tuple(x[:7] for x in pair.dense.stored["a", "main", layer])  # type: ignore[assignment]
    pair.dense.lengths["b", "main"] = 7
    pair.step(["a", "b"], [Row(0, 2), Row(1, 3)])
    pair.pool.truncate(source, 6)
    for layer in range(2):
        pair.dense.stored["a", "main", layer] = tuple(x[:6] for x in pair.dense.stored["a", "main", layer])  # type: ignore[assignment]
    pair.dense.lengths["a", "main"] = 6
    pair.step(["a", "b"], [Row(0, 1), Row(1, 1)])
    pair.step(["a", "b"], [Row(0, 4), Row(1, 1)])


def test_cross_attention_is_kept_and_replaced() -> None:
    pair = Pair()
    pair.step(["a", "b"], [Row(0, 3), Row(1, 1)], cross={0: 6, 1: 2})
    pair.step(["b", "a"], [Row(0, 1), Row(1, 1)], cross={})
    pair.step(["a", "b"], [Row(0, 1), Row(1, 1)], cross={0: 4})
    pair.step(["a"], [Row(0, 2)], cross={})


def test_cross_attention_without_a_context_is_an_error() -> None:
    with pytest.raises(LookupError, match="no cross-attention context was written for layer 0"):
        Pair().step(["a"], [Row(0, 1)], cross={})


@pytest.mark.parametrize("tokens", [1, 3])
def test_a_row_is_bit_equal_alone_in_a_batch_and_wherever_it_lies(tokens: int) -> None:
    q, k, v = (torch.randn(tokens, heads, 8) for heads in (HEADS, 2, 2))
    past = torch.randn(2, 9, 2, 8)

    def result(pages: tuple[list[int], ...], mates: int) -> Tensor:
        backend = TorchBackend(GEOMETRY, pages=32, page_size=4)
        row = pages[0]
        backend.plan([PagedRow(Row(0, 9), row, 0, {})]).attend(0, torch.randn(9, HEADS, 8), past[0], past[1])
        rows = [PagedRow(Row(i, 2), pages[i], 0, {}) for i in range(1, mates + 1)]
        others = [torch.randn(2 * mates, heads, 8) for heads in (HEADS, 2, 2)]
        attention = backend.plan([*rows, PagedRow(Row(0, tokens), row, 9, {})])
        out = attention.attend(0, *(torch.cat((other, own)) for other, own in zip(others, (q, k, v), strict=True)))
        return out[2 * mates :]

    alone = result(([0, 1, 2],), 0)
    assert torch.equal(alone, result(([5, 6, 7], [0], [20]), 2))
    assert torch.equal(alone, result(([9, 30, 3], [0], [1], [2]), 3))
