"""Steps replayed from graphs give the tokens of the steps run as they are."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from mstar.engine.api import Completed, Firing, Partial
from mstar.engine.attention.choose import best_backend
from mstar.engine.kv.settings import default_settings
from mstar.engine.kv_engine import KVCacheEngine
from tests.gpu.decoder import TINY, random_lm

pytestmark = pytest.mark.gpu


def engine(device: str, **settings: Any) -> KVCacheEngine:
    chosen = replace(default_settings(device), pages=512, piece=64, budget=64, **settings)
    return KVCacheEngine({"lm": random_lm(TINY, device)}, settings={"lm": chosen}, backend=best_backend)


def said(lm: KVCacheEngine, count: int, length: int = 24) -> tuple[list[list[int]], list[torch.Tensor]]:
    """Tokens of `count` requests decoded together, and the logits of their last step."""
    firings = {
        f"r{n}": Firing(
            f"s{n}", f"r{n}", "lm", "prefill", {"tokens": [(n * 7 + i * i) % 500 for i in range(90 + n)]}, prompt=True
        )
        for n in range(count)
    }
    tokens: dict[str, list[int]] = {name: [] for name in firings}
    logits: dict[str, torch.Tensor] = {}
    while any(len(own) < length for own in tokens.values()):
        kind = next(iter(firings.values())).walk if len({f.walk for f in firings.values()}) == 1 else "prefill"
        batch = [firing for firing in firings.values() if firing.walk == kind]
        for firing, outcome in zip(batch, lm.step(batch), strict=True):
            if isinstance(outcome, Partial):
                continue
            assert isinstance(outcome, Completed), outcome
            token, own = outcome.outputs["token"], outcome.outputs["logits"]
            assert isinstance(token, int)
            assert isinstance(own, torch.Tensor)
            tokens[firing.request].append(token)
            logits[firing.request] = own
            firings[firing.request] = Firing(firing.session, firing.request, "lm", "decode", {"token": token})
    return list(tokens.values()), list(logits.values())


@pytest.mark.parametrize("count", [1, 3, 5])
def test_captured_is_eager(flashinfer: str, count: int) -> None:
    captured, eager = engine(flashinfer), engine(flashinfer, graphs=False)
    (tokens, logits), (others, wanted) = said(captured, count), said(eager, count)
    assert captured.counters()["graph_replays"] > 20
    assert captured.counters()["graph_eager"] == 0
    assert eager.counters()["graph_replays"] == 0
    for one, other in zip(logits, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=5e-2, atol=5e-2)
    assert tokens == others


def test_what_is_captured_ahead_is_all_that_requests_need(flashinfer: str) -> None:
    captured, eager = engine(flashinfer), engine(flashinfer, graphs=False)
    captured.capture()
    ahead = captured.counters()["graph_captures"]
    assert ahead == 9 + 2 + 2  # rows of a token, a prompt of up to 64, several of up to 64 and 128
    tokens, others = said(captured, 3)[0], said(eager, 3)[0]
    assert captured.counters()["graph_captures"] == ahead
    assert tokens == others


def test_compiled_is_eager(flashinfer: str) -> None:
    compiled, eager = engine(flashinfer, graphs=False, compile=True), engine(flashinfer, graphs=False)
    for one, other in zip(said(compiled, 2)[1], said(eager, 2)[1], strict=True):
        torch.testing.assert_close(one, other, rtol=5e-2, atol=5e-2)


def test_torch_attention_on_the_device(cuda: str) -> None:
    from mstar.engine.attention.choose import torch_backend

    settings = replace(default_settings(cuda), pages=512)
    lm = KVCacheEngine({"lm": random_lm(TINY, cuda)}, settings={"lm": settings}, backend=torch_backend)
    tokens, _ = said(lm, 2)
    assert all(len(own) == 24 for own in tokens)
