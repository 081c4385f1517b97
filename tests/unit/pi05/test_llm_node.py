"""The node of PaliGemma and the action expert on the K/V engine."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
import torch
from torch import Tensor

from models.pi05.config import TINY
from models.pi05.nodes.acting import LLM, llm
from mstar.engine.api import Completed, Firing
from mstar.engine.kv_engine import KVCacheEngine, KVSettings
from mstar.tensors import Value


@pytest.fixture
def node() -> LLM:
    return llm({"tiny": True})


def drawn(*shape: int, seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


class Driver:
    """Requests by name: their prefix, and their chunk as far as it has come."""

    def __init__(self, node: LLM) -> None:
        self.engine = KVCacheEngine({"LLM": node}, settings={"LLM": KVSettings(pages=64)})
        self.actions: dict[str, Value] = {}
        self.passes: dict[str, int] = {}

    def prefill(self, request: str, seed: int, tokens: int) -> None:
        inputs: Mapping[str, Value] = {
            "image_tokens": drawn(16, TINY.prefix.width, seed=seed),
            "tokens": torch.arange(tokens) + seed,
            "digest": seed * 1000,
        }
        [outcome] = self.engine.step([Firing(request, request, "LLM", "prefill", inputs, prompt=True)])
        assert outcome == Completed({}, False)
        self.actions[request] = drawn(TINY.horizon, TINY.action_dim, seed=seed + 100)
        self.passes[request] = 0

    def flow(self, steps: Mapping[str, int]) -> None:
        """One step for each of the requests, which want that many in all."""
        none = {"target": drawn(TINY.horizon, TINY.action_dim, seed=0), "weights": torch.zeros(TINY.horizon)}
        firings = [
            Firing(
                request,
                request,
                "LLM",
                "action_gen",
                {"actions": self.actions[request], "guide": {**none, "frozen": 0}},
                settings={"flow_steps": wanted},
                iteration=self.passes[request],
            )
            for request, wanted in steps.items()
        ]
        for request, outcome in zip(steps, self.engine.step(firings), strict=True):
            assert isinstance(outcome, Completed)
            self.actions[request] = outcome.outputs["actions"]  # type: ignore[assignment]
            self.passes[request] += 1


def test_requests_at_different_flow_steps_share_a_batch(node: LLM) -> None:
    together, apart = Driver(node), Driver(node)
    for driver in (together, apart):
        driver.prefill("a", 1, 5)
        driver.prefill("b", 2, 9)
    for _ in range(3):
        together.flow({"a": 5})
    together.flow({"a": 5, "b": 2})
    together.flow({"b": 2, "a": 5})
    for _ in range(5):
        apart.flow({"a": 5})
    for _ in range(2):
        apart.flow({"b": 2})
    for request in "ab":
        got, wanted = (np.asarray(driver.actions[request]) for driver in (together, apart))
        assert np.abs(got - wanted).max() < 1e-5
        assert np.abs(got).max() > 0.1


def test_flow_steps_leave_the_prefix_as_it_was(node: LLM) -> None:
    driver = Driver(node)
    driver.prefill("a", 1, 5)
    start = driver.actions["a"]
    before = driver.engine.census()
    driver.flow({"a": 5})
    once = driver.actions["a"]
    assert driver.engine.census() == before
    driver.actions["a"], driver.passes["a"] = start, 0
    driver.flow({"a": 5})
    assert np.array_equal(np.asarray(driver.actions["a"]), np.asarray(once))
