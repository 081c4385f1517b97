"""Whatever is reused, shared, cut into pieces, dropped or batched: the same tokens.

Two models: the toy of the engine's tests, whose products are row by row, so that every cut is exact; and a small Llama
in float32, whose tokens are compared.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from models.llama.nodes import LMSubmodule, load_network
from mstar.engine.api import Completed, Deferred, Firing, Outcome, Partial
from mstar.engine.kv_engine import KVCacheEngine, KVSettings
from mstar.submodule import KVSubmodule, Sampling
from tests.unit.engine.toy import DivisibleLM

CASE = Path(__file__).parents[1] / "data" / "llama" / "qwen2"
SYSTEMS = (
    [7] * 40,
    [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 2, 3, 8, 4, 6, 2, 6, 4, 3, 3, 8, 3, 2, 7, 9, 5, 1],
)


@dataclass(frozen=True)
class Ask:
    """One request: what comes after one of the shared beginnings, and how many tokens are wanted."""

    session: int
    system: int
    tail: tuple[int, ...]
    length: int
    seed: int

    @property
    def prompt(self) -> list[int]:
        return [*SYSTEMS[self.system], *self.tail]


@dataclass
class Course:
    """A request under way."""

    name: str
    ask: Ask
    tokens: list[int] = field(default_factory=list)

    @property
    def done(self) -> bool:
        return len(self.tokens) == self.ask.length

    def firing(self) -> Firing:
        session, wanted = f"s{self.ask.session}", {"max_tokens": 1000}
        if not self.tokens:
            inputs = {"tokens": np.array(self.ask.prompt)}
            return Firing(session, self.name, "lm", "prefill", inputs, settings=wanted, prompt=True, seed=self.ask.seed)
        return Firing(
            session, self.name, "lm", "decode", {"token": self.tokens[-1]}, settings=wanted, seed=self.ask.seed
        )

    def take(self, outcome: Outcome) -> None:
        assert isinstance(outcome, Completed | Partial | Deferred), outcome
        if isinstance(outcome, Completed):
            token = outcome.outputs["token"]
            assert isinstance(token, int)
            self.tokens.append(token)


asks = st.builds(
    Ask,
    session=st.integers(0, 2),
    system=st.integers(0, 1),
    tail=st.lists(st.integers(3, 40), min_size=1, max_size=30).map(tuple),
    length=st.integers(1, 6),
    seed=st.integers(0, 3),
)
rules = st.builds(
    KVSettings,
    pages=st.sampled_from([60, 400]),
    page_size=st.sampled_from([4, 16]),
    reuse=st.booleans(),
    shared=st.booleans(),
    grain=st.just(32),
    piece=st.sampled_from([0, 32, 64]),
    budget=st.sampled_from([16, 64, 1000]),
    unheld=st.sampled_from([0, 8, 64]),
)


@cache
def llama() -> LMSubmodule:
    return LMSubmodule(load_network(CASE, "float32"), sampling=Sampling(temperature=0.8, top_p=0.95))


@cache
def alone(kind: str, ask: Ask) -> tuple[int, ...]:
    """What the request answers with an engine of its own, its prompt computed at once."""
    lm = KVCacheEngine({"lm": model(kind)}, settings={"lm": KVSettings(pages=64, reuse=False, piece=0)})
    course = Course("x", ask)
    while not course.done:
        course.take(lm.step([course.firing()])[0])
    return tuple(course.tokens)


def model(kind: str) -> KVSubmodule:
    return llama() if kind == "llama" else DivisibleLM(sampling=Sampling(temperature=0.8))


def together(kind: str, wanted: Sequence[Ask], rule: KVSettings, seed: int) -> list[tuple[int, ...]]:
    """All of them on one engine, begun, batched, dropped and ended in an order that is drawn."""
    lm, draw = KVCacheEngine({"lm": model(kind)}, settings={"lm": rule}), random.Random(seed)
    baseline = lm.census()
    waiting = [Course(f"r{i}", ask) for i, ask in enumerate(wanted)]
    running: list[Course] = []
    for _ in range(2_000):
        if waiting and (not running or draw.random() < 0.3):
            running.append(waiting.pop(0))
        live = [course for course in running if not course.done]
        if not live:
            if not waiting:
                break
            continue
        first = draw.choice(live)
        mates = [course for course in live if course is not first and bool(course.tokens) is bool(first.tokens)]
        batch = [first, *mates[: draw.randint(0, 3)]]
        for course, outcome in zip(batch, lm.step([course.firing() for course in batch]), strict=True):
            course.take(outcome)
            if isinstance(outcome, Deferred):
                for name in outcome.preemptable[-1:]:
                    lm.preempt(name, "lm")
            if course.done:
                lm.end_request(course.name)
        if draw.random() < 0.1:
            lm.preempt(draw.choice(running).name, "lm")
    assert all(course.done for course in running)
    for session in range(3):
        lm.end_session(f"s{session}")
    assert lm.census() == baseline
    return [tuple(course.tokens) for course in running]


@settings(max_examples=12, deadline=None)
@given(st.lists(asks, min_size=1, max_size=5), rules, st.integers(0, 10**6))
def test_the_toy_answers_as_alone(wanted: list[Ask], rule: KVSettings, seed: int) -> None:
    assert together("toy", wanted, rule, seed) == [alone("toy", ask) for ask in wanted]


@settings(max_examples=8, deadline=None)
@given(st.lists(asks, min_size=1, max_size=4), rules, st.integers(0, 10**6))
def test_a_small_llama_answers_as_alone(wanted: list[Ask], rule: KVSettings, seed: int) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        assert together("llama", wanted, rule, seed) == [alone("llama", ask) for ask in wanted]
    finally:
        torch.set_num_threads(before)
