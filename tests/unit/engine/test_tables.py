"""The tables of a step say what the torch backend computes, also when the step is made up to a larger size."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from mstar.engine.attention.backend import PagedRow
from mstar.engine.attention.tables import Tables, padded, tables
from mstar.engine.attention.torch_backend import TorchBackend
from mstar.engine.graphs.buckets import Bucket, Buckets
from mstar.submodule import KVGeometry, Row

PAGE, PAGES, HEADS = 4, 24, 4
GEOMETRY = KVGeometry(layers=1, kv_heads=2, head_dim=8)


def paged(*rows: tuple[int, Row], seed: int = 0) -> list[PagedRow]:
    """Rows behind `start` positions each, in pages that lie anywhere."""
    free = np.random.default_rng(seed).permutation(PAGES).tolist()
    made = []
    for start, row in rows:
        count = -(-(start + row.tokens) // PAGE)
        pages, free = free[:count], free[count:]
        made.append(PagedRow(row, pages, start, {}))
    return made


def seen(step: Tables, cache: Tensor, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """A kernel of few words: cache [pages, 2, PAGE, kv_heads, dim], as FlashInfer has it; q [tokens, heads, dim]."""
    for token in range(step.tokens):
        row, position = int(step.owner[token]), int(step.positions[token])
        page = int(step.pages[step.starts[row] + position // PAGE])
        cache[page, :, position % PAGE] = torch.stack((k[token], v[token]))
    results, masked = [], 0
    for row in range(step.rows):
        own = slice(int(step.queries[row]), int(step.queries[row + 1]))
        held = cache[step.pages[step.starts[row] : step.starts[row + 1]].tolist()].transpose(1, 2).flatten(0, 1)
        length = (int(step.starts[row + 1] - step.starts[row]) - 1) * PAGE + int(step.filled[row])
        keys, values = held[:length].repeat_interleave(HEADS // 2, 2).unbind(1)
        tokens = own.stop - own.start
        sight = torch.ones(tokens, length, dtype=torch.bool)
        if step.sight == "causal":
            sight = sight.tril(length - tokens)
        elif step.mask is not None:
            sight = torch.from_numpy(step.mask[masked : masked + tokens * length]).view(tokens, length)
            masked += tokens * length
        scores = torch.einsum("qhd,khd->hqk", q[own], keys) / 8**0.5
        weights = scores.masked_fill(~sight, -torch.inf).softmax(-1)
        results.append(torch.einsum("hqk,khd->qhd", weights, values))
    return torch.cat(results)


def compared(rows: Sequence[PagedRow], size: tuple[int, int] | None = None) -> None:
    generator = torch.Generator().manual_seed(1)
    backend = TorchBackend(GEOMETRY, pages=PAGES, page_size=PAGE)
    backend.cache.normal_(generator=generator)
    as_pages = backend.cache[0].view(2, 2, PAGES, PAGE, 8).permute(2, 0, 3, 1, 4)
    cache = torch.cat((as_pages, torch.zeros(1, 2, PAGE, 2, 8))).clone()
    step = tables(rows, PAGE)
    tokens = step.tokens
    q, k, v = (torch.randn(tokens, heads, 8, generator=generator) for heads in (HEADS, 2, 2))
    wanted = backend.plan(rows).attend(0, q, k, v)
    if size is not None:
        more = size[1] - tokens
        step = padded(step, *size, PAGES, PAGE)
        assert (step.rows, step.tokens) == size
        q, k, v = (torch.cat((each, torch.full((more, *each.shape[1:]), 9.0))) for each in (q, k, v))
    got = seen(step, cache, q, k, v)
    torch.testing.assert_close(got[:tokens], wanted, rtol=1e-5, atol=1e-5)
    after = backend.cache[0].view(2, 2, PAGES, PAGE, 8).permute(2, 0, 3, 1, 4)
    assert torch.equal(cache[:PAGES], after)  # what was made up touches nobody's page


MIXED = (
    (3, Row(0, 5)),
    (0, Row(1, 4, causal=False)),
    (6, Row(2, 6, blocks=(1, 3, 2))),
    (7, Row(3, 1, causal=False)),
)

BLOCKS = ((3, Row(0, 5, blocks=(5,))), (6, Row(1, 4, causal=False, blocks=(1, 1, 1, 1))))


@pytest.mark.parametrize(
    "rows", [MIXED[:1], MIXED[1:2], MIXED[2:3], MIXED[3:], MIXED, (MIXED[0], MIXED[3]), BLOCKS[:1], BLOCKS[1:]]
)
def test_tables_say_what_rows_mean(rows: Sequence[tuple[int, Row]]) -> None:
    compared(paged(*rows))


def test_which_kernel_a_step_needs() -> None:
    def kind(*rows: tuple[int, Row]) -> tuple[bool, str]:
        step = tables(paged(*rows), PAGE)
        return step.decodes, step.sight

    assert kind((3, Row(0, 1)), (0, Row(1, 1, causal=False))) == (True, "causal")
    assert kind((3, Row(0, 2)), (0, Row(1, 1))) == (False, "causal")
    assert kind((3, Row(0, 2, causal=False)), (0, Row(1, 1))) == (False, "whole")
    assert kind((0, Row(0, 3, causal=False, blocks=(3,)))) == (False, "whole")
    assert kind((3, Row(0, 3, blocks=(1, 1, 1))), (0, Row(1, 4))) == (False, "causal")
    assert kind(*MIXED) == (False, "masked")


@settings(max_examples=40, deadline=None)
@given(
    starts=st.lists(st.integers(0, 13), min_size=1, max_size=4),
    more=st.integers(0, 3),
    seed=st.integers(0, 9),
)
def test_decode_steps_are_made_up_by_rows(starts: list[int], more: int, seed: int) -> None:
    rows = paged(*((start, Row(i, 1)) for i, start in enumerate(starts)), seed=seed)
    compared(rows, (len(rows) + more, len(rows) + more))


@pytest.mark.parametrize(("tokens", "size"), [(5, (2, 8)), (7, (2, 8)), (8, (1, 8)), (3, (2, 16)), (1, (3, 6))])
def test_a_prompt_is_made_up_by_a_row_beside_it(tokens: int, size: tuple[int, int]) -> None:
    compared(paged((6, Row(0, tokens))), size)


def test_what_can_not_be_made_up_is_refused() -> None:
    step = tables(paged((0, Row(0, 5))), PAGE)
    for size in ((1, 6), (0, 5), (3, 6), (1, 4)):
        with pytest.raises(ValueError, match="can not become"):
            padded(step, *size, PAGES, PAGE)
    with pytest.raises(ValueError, match="can not become"):
        padded(tables(paged(*MIXED), PAGE), 5, 17, PAGES, PAGE)


@pytest.mark.parametrize(
    ("sizes", "bucket"),
    [
        ((1,), Bucket(1, 1)),
        ((1, 1, 1), Bucket(4, 4)),
        ((1,) * 16, Bucket(16, 16)),
        ((1,) * 65, None),
        ((64,), Bucket(1, 64)),
        ((63,), Bucket(2, 64)),
        ((1024,), Bucket(1, 1024)),
        ((1025,), None),
        ((5, 1), Bucket(4, 64)),
        ((30, 30), Bucket(4, 64)),
        ((30, 33), Bucket(4, 128)),
        ((1, 1, 1000), Bucket(4, 1024)),
        ((500, 524), None),
        ((2, 2, 2, 2), None),
    ],
)
def test_sizes_of_graphs(sizes: tuple[int, ...], bucket: Bucket | None) -> None:
    assert Buckets().choose(sizes) == bucket


@pytest.mark.parametrize(
    ("sizes", "counts"),
    [
        ((1, 64, 64), [(1,), (64,), (63,), (61, 1, 1)]),
        ((3, 65, 64), [(1,), (1,) * 2, (1,) * 4, (64,), (63,), (128,), (127,), (61, 1, 1)]),
        ((1, 0, 100), [(1,), (64,), (63,), (61, 1, 1), (125, 1, 1)]),
    ],
)
def test_what_is_captured_ahead_is_one_step_a_graph(sizes: tuple[int, int, int], counts: list[tuple[int, ...]]) -> None:
    assert list(Buckets().ahead(*sizes)) == counts


def test_all_that_is_captured_ahead_has_a_graph_of_its_own() -> None:
    found = Buckets().ahead(1000, 10**6, 10**6)
    chosen = [Buckets().choose(each) for each in found]
    assert None not in chosen
    assert len(set(chosen)) == len(chosen) == 9 + 2 * 5 + 5


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 20), min_size=2, max_size=3), st.integers(0, 9))
def test_several_prompts_are_made_up_by_other_rows(tokens: list[int], seed: int) -> None:
    buckets = Buckets(decodes=(), prompts=(24, 48), several=4)
    rows = paged(*((seed * n % 5, Row(n, count)) for n, count in enumerate(tokens)), seed=seed)
    bucket = buckets.choose(tokens)
    if bucket is not None:
        compared(rows, (bucket.rows, bucket.tokens))
    else:
        assert sum(tokens) > 48 - 4 + len(tokens) or max(tokens) == 1
