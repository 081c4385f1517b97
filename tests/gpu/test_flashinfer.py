"""FlashInfer's backend gives what the torch backend gives, within the error of 16-bit floats."""

from __future__ import annotations

import pytest
import torch

from mstar.engine.attention.backend import PagedRow
from mstar.engine.attention.torch_backend import TorchBackend
from mstar.submodule import KVGeometry, Row

pytestmark = pytest.mark.gpu

PAGE = 16
GEOMETRY = KVGeometry(
    layers=2, kv_heads=2, head_dim=64, dtype=torch.bfloat16, labels=("main", "free"), cross_context=40
)
HEADS = 8
STEPS: tuple[tuple[Row, ...], ...] = (
    (Row(0, 37), Row(1, 5)),  # prompts
    (Row(0, 1), Row(1, 1)),  # decoding
    (Row(0, 1), Row(0, 3, "free"), Row(1, 1), Row(1, 2, "free")),  # guidance
    (Row(0, 20, causal=False), Row(1, 4)),  # kinds of sight
    (Row(0, 9, blocks=(2, 4, 3)),),
    (Row(0, 6, causal=False, store=False),),
)


def test_every_kind_of_step(flashinfer: str) -> None:
    from mstar.engine.attention.flashinfer import FlashInferBackend

    ours = FlashInferBackend(GEOMETRY, pages=64, page_size=PAGE, device=flashinfer)
    torchs = TorchBackend(GEOMETRY, pages=64, page_size=PAGE, device=flashinfer)
    generator = torch.Generator(flashinfer).manual_seed(1)
    lengths: dict[tuple[int, str], int] = {}
    scattered = {
        (call, label): [n * 4 + call * 2 + (label == "free") for n in range(12)]
        for call in (0, 1)
        for label in ("main", "free")
    }

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, device=flashinfer, dtype=torch.bfloat16)

    for rows in STEPS:
        paged = [
            PagedRow(row, scattered[row.call, row.label], lengths.get((row.call, row.label), 0), {}) for row in rows
        ]
        tokens = sum(row.tokens for row in rows)
        plans = ours.plan(paged), torchs.plan(paged)
        assert torch.equal(plans[0].positions, plans[1].positions)
        for layer in range(GEOMETRY.layers):
            q, k, v = random(tokens, HEADS, 64), random(tokens, 2, 64), random(tokens, 2, 64)
            for scale in (None,):
                got, wanted = (plan.attend(layer, q, k, v, scale=scale) for plan in plans)
                torch.testing.assert_close(got, wanted, rtol=2e-2, atol=2e-2)
            for index, row in enumerate(rows):
                if row.label == "main" and lengths.get((row.call, "main"), 0) == 0:
                    context = random(30 + 5 * row.call, 2, 64), random(30 + 5 * row.call, 2, 64)
                    for plan in plans:
                        plan.write_cross(layer, index, *context)
        for row in rows:
            if row.store:
                lengths[row.call, row.label] = lengths.get((row.call, row.label), 0) + row.tokens
    for key, pages in scattered.items():
        read = [backend.read(pages, lengths.get(key, 0)) for backend in (ours, torchs)]
        assert torch.equal(*read)


def test_cross_attention(flashinfer: str) -> None:
    from mstar.engine.attention.flashinfer import FlashInferBackend

    generator = torch.Generator(flashinfer).manual_seed(2)
    backends = [
        kind(GEOMETRY, pages=8, page_size=PAGE, device=flashinfer) for kind in (FlashInferBackend, TorchBackend)
    ]
    rows = (Row(0, 3), Row(1, 1))
    paged = [PagedRow(row, [2 * row.call, 2 * row.call + 1], 0, {}) for row in rows]
    plans = [backend.plan(paged) for backend in backends]
    for row in rows:
        k, v = (torch.randn(17 + row.call, 2, 64, generator=generator, device=flashinfer).bfloat16() for _ in range(2))
        for plan in plans:
            plan.write_cross(0, row.call, k, v)
    q = torch.randn(4, HEADS, 64, generator=generator, device=flashinfer).bfloat16()
    got, wanted = (plan.attend_cross(0, q) for plan in plans)
    torch.testing.assert_close(got, wanted, rtol=2e-2, atol=2e-2)


def test_pages_are_copied_read_and_written(flashinfer: str) -> None:
    from mstar.engine.attention.flashinfer import FlashInferBackend

    ours = FlashInferBackend(GEOMETRY, pages=16, page_size=PAGE, device=flashinfer)
    kv = torch.randn(2, 2, 40, 2, 64, device=flashinfer).bfloat16()
    ours.write([3, 7, 1], 0, kv)
    assert torch.equal(ours.read([3, 7, 1], 40), kv)
    ours.copy([3, 7, 1], [10, 11, 12])
    assert torch.equal(ours.read([10, 11, 12], 40), kv)
    ours.write([3, 7, 1], 20, kv[:, :, :5])
    assert torch.equal(ours.read([3, 7, 1], 25)[:, :, 20:], kv[:, :, :5])
