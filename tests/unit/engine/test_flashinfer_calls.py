"""What is asked of FlashInfer, by a stand-in that computes it with torch: plans, tables, pages, captured sizes.

The kernels themselves are tested where a CUDA device is (`tests/gpu`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from mstar.engine.attention.backend import PagedRow
from mstar.engine.attention.choose import best_backend
from mstar.engine.attention.torch_backend import TorchBackend
from mstar.engine.kv.settings import KVSettings
from mstar.submodule import KVGeometry, Row
from tests.pretend import pretending
from tests.unit.engine.stand_in import stood_for

PAGE, HEADS = 4, 4
GEOMETRY = KVGeometry(layers=2, kv_heads=2, head_dim=8, dtype=torch.bfloat16, labels=("main", "free"), cross_context=9)


@pytest.fixture
def backends() -> Iterator[SimpleNamespace]:
    """Ours over the stand-in, and torch's."""
    sizes: dict[str, Any] = {"pages": 32, "page_size": PAGE, "device": "cpu"}
    with stood_for() as module:
        yield SimpleNamespace(ours=module.FlashInferBackend(GEOMETRY, **sizes), torchs=TorchBackend(GEOMETRY, **sizes))


PAGES = {(0, "main"): [3, 9, 1, 20, 5], (1, "main"): [2, 30, 7, 8], (0, "free"): [11, 12], (1, "free"): [15, 14]}
STEPS: tuple[tuple[Row, ...], ...] = (
    (Row(0, 7), Row(1, 3)),
    (Row(0, 1), Row(1, 1)),
    (Row(0, 1), Row(0, 3, "free"), Row(1, 1), Row(1, 2, "free")),
    (Row(0, 4, causal=False), Row(1, 2)),
    (Row(1, 5, blocks=(2, 3)),),
    (Row(0, 3, causal=False, store=False),),
)


def random(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).bfloat16()


def stepped(
    backends: SimpleNamespace, rows: Sequence[Row], lengths: dict[tuple[int, str], int], seed: int, size: Any = None
) -> None:
    """One step on both; `size`: the plans of a captured size to take ours from."""
    paged = [PagedRow(row, PAGES[row.call, row.label], lengths.get((row.call, row.label), 0), {}) for row in rows]
    tokens = sum(row.tokens for row in rows)
    ours = backends.ours.plan(paged) if size is None else size.plan(paged)
    torchs = backends.torchs.plan(paged)
    more = len(ours.positions) - tokens
    assert torch.equal(ours.positions[:tokens], torchs.positions)
    for layer in range(GEOMETRY.layers):
        q, k, v = (random(tokens, heads, 8, seed=seed * 7 + layer + n) for n, heads in enumerate((HEADS, 2, 2)))
        wanted = torchs.attend(layer, q, k, v, scale=0.3)
        q, k, v = (torch.cat((each, torch.full((more, *each.shape[1:]), 5.0).bfloat16())) for each in (q, k, v))
        got = ours.attend(layer, q, k, v, scale=0.3)
        torch.testing.assert_close(got[:tokens], wanted, rtol=3e-2, atol=3e-2)
    for row in rows:
        if row.store:
            lengths[row.call, row.label] = lengths.get((row.call, row.label), 0) + row.tokens


def test_every_kind_of_step(backends: SimpleNamespace) -> None:
    lengths: dict[tuple[int, str], int] = {}
    for seed, rows in enumerate(STEPS):
        stepped(backends, rows, lengths, seed)
    for key, pages in PAGES.items():
        assert torch.equal(*(backend.read(pages, lengths[key]) for backend in (backends.ours, backends.torchs)))
    assert backends.ours._eager._made["decode"].plans == 1
    assert backends.ours._eager._made["prefill"].plans == 5


def test_a_step_is_planned_once_and_for_one_scale(backends: SimpleNamespace) -> None:
    plan = backends.ours.plan([PagedRow(Row(0, 1), [3], 0, {})])
    given = random(1, HEADS, 8, seed=1), random(1, 2, 8, seed=2), random(1, 2, 8, seed=3)
    plan.attend(0, *given)
    plan.attend(1, *given)
    assert backends.ours._eager._made["decode"].plans == 1
    with pytest.raises(ValueError, match="planned once"):
        plan.attend(1, *given, scale=0.5)


def test_steps_of_captured_sizes_touch_nobodys_page(backends: SimpleNamespace) -> None:
    lengths: dict[tuple[int, str], int] = {}
    prompts, decodes = backends.ours.fixed(2, 8), backends.ours.fixed(4, 4)
    stepped(backends, (Row(0, 7),), lengths, 1, prompts)
    stepped(backends, (Row(1, 5),), lengths, 2, prompts)
    for seed in range(3, 6):
        stepped(backends, (Row(0, 1), Row(1, 1)), lengths, seed, decodes)
    wrapper = decodes._wrappers._made["decode"]
    assert wrapper.fixed["use_cuda_graph"]
    assert wrapper.fixed["backend"] == "fa2"
    assert wrapper.plans == 3
    for key in ((0, "main"), (1, "main")):
        read = [backend.read(PAGES[key], lengths[key]) for backend in (backends.ours, backends.torchs)]
        assert torch.equal(*read)
    used = {page for key in ((0, "main"), (1, "main")) for page in PAGES[key]}
    others = [page for page in range(32) if page not in used]
    assert not backends.ours.cache[:, others].any()


def test_cross_attention_sees_each_rows_own_context(backends: SimpleNamespace) -> None:
    paged = [PagedRow(Row(call, tokens), PAGES[call, "main"], 0, {}) for call, tokens in ((0, 3), (1, 1))]
    plans = [backend.plan(paged) for backend in (backends.ours, backends.torchs)]
    for call in (0, 1):
        for plan in plans:
            plan.write_cross(0, call, random(5 + call, 2, 8, seed=call), random(5 + call, 2, 8, seed=call + 9))
    q = random(4, HEADS, 8, seed=4)
    torch.testing.assert_close(*(plan.attend_cross(0, q) for plan in plans), rtol=3e-2, atol=3e-2)
    kept = [
        backend.read_cross(plan.written_cross[1])
        for backend, plan in zip((backends.ours, backends.torchs), plans, strict=True)
    ]
    assert torch.equal(kept[0][0][0], kept[1][0][0])
    with pytest.raises(LookupError, match="layer 1"):
        plans[0].attend_cross(1, q)
    assert sorted(backends.ours._eager._made) == ["cross"]


def test_pages_are_copied_read_and_written(backends: SimpleNamespace) -> None:
    kv = random(2, 2, 10, 2, 8, seed=1)
    backends.ours.write([3, 7, 1], 0, kv)
    assert torch.equal(backends.ours.read([3, 7, 1], 10), kv)
    assert backends.ours.copy([3, 7, 1], [10, 11, 12]) == 3 * PAGE * 2 * 2 * 2 * 8 * 2
    assert torch.equal(backends.ours.read([10, 11, 12], 10), kv)
    backends.ours.write([3, 7, 1], 5, kv[:, :, :3])
    assert torch.equal(backends.ours.read([3, 7, 1], 8)[:, :, 5:], kv[:, :, :3])


def test_only_halves(backends: SimpleNamespace) -> None:
    with pytest.raises(ValueError, match="16-bit"):
        type(backends.ours)(KVGeometry(1, 1, 8), pages=1)


@pytest.mark.parametrize(
    ("dtype", "head_dim", "device", "ours"),
    [
        (torch.bfloat16, 64, "cuda", True),
        (torch.float16, 256, "cuda", True),
        (torch.bfloat16, 32, "cuda", False),
        (torch.bfloat16, 96, "cuda", False),
        (torch.float32, 64, "cuda", False),
        (torch.bfloat16, 64, "cpu", False),
    ],
)
def test_a_geometry_without_kernels_gets_torchs_attention(
    backends: SimpleNamespace, dtype: torch.dtype, head_dim: int, device: str, ours: bool
) -> None:
    with pretending():
        found = best_backend(KVGeometry(1, 1, head_dim, dtype), KVSettings(pages=1, device=device))
    assert isinstance(found, type(backends.ours if ours else backends.torchs))
