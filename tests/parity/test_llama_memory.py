"""The packaged language model in 4 bits: what memory management does changes no bit of its K/V."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from models.llama.nodes import LMSubmodule, load_network
from mstar.engine.api import Completed, Firing, Partial
from mstar.engine.kv_engine import KVCacheEngine, KVSettings

SYSTEM = np.random.default_rng(1).integers(5, 40_000, 96)
TAILS = {name: np.random.default_rng(n).integers(5, 40_000, 9 + 14 * n) for n, name in enumerate("abc", 2)}


@pytest.fixture(scope="module")
def node(smollm2: Path) -> LMSubmodule:
    return LMSubmodule(load_network(smollm2))


def engine(node: LMSubmodule, **settings: Any) -> KVCacheEngine:
    return KVCacheEngine({"lm": node}, settings={"lm": KVSettings(pages=256, **settings)})


def said(lm: KVCacheEngine, names: str, count: int = 6, *, drop: int = -1) -> dict[str, list[int]]:
    """Tokens of requests that are decoded together; before token `drop` their K/V are dropped."""
    given = {"max_tokens": 100}
    firings = {
        name: Firing(
            name, name, "lm", "prefill", {"tokens": np.concatenate((SYSTEM, TAILS[name]))}, settings=given, prompt=True
        )
        for name in names
    }
    tokens: dict[str, list[int]] = {name: [] for name in names}
    while any(len(own) < count for own in tokens.values()):
        walk = next(firing.walk for firing in firings.values() if len(tokens[firing.request]) < count)
        batch = [firing for firing in firings.values() if firing.walk == walk and len(tokens[firing.request]) < count]
        for firing, outcome in zip(batch, lm.step(batch), strict=True):
            if isinstance(outcome, Partial):
                continue
            assert isinstance(outcome, Completed), outcome
            token, own = outcome.outputs["token"], tokens[firing.request]
            assert isinstance(token, int)
            own.append(token)
            if len(own) == drop:
                assert lm.preempt(firing.request, "lm") > 0
            firings[firing.request] = Firing(
                firing.session, firing.request, "lm", "decode", {"token": token}, settings=given
            )
    return tokens


def kv(lm: KVCacheEngine, name: str) -> Tensor:
    image: Any = lm.give(name, "lm")
    held = image["labels"]["main"]["kv"]
    assert isinstance(held, Tensor)
    return held


def test_sharing_batching_and_preemption_change_no_bit(node: LMSubmodule) -> None:
    alone = {name: engine(node, shared=False) for name in TAILS}
    expected = {name: said(lm, name)[name] for name, lm in alone.items()}
    together = engine(node)
    assert said(together, "abc", drop=4) == expected
    counters = together.counters()
    assert counters["shared_tokens"] == 2 * 96
    assert counters["preemptions"] == 3
    assert counters["recomputed_tokens"] > 0
    for name, lm in alone.items():
        assert torch.equal(kv(together, name), kv(lm, name))
