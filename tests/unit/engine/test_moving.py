"""A request that begins on one engine and goes on on another."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from mstar.engine.api import Completed, Deferred
from mstar.engine.kv.image import RequestImage
from mstar.engine.kv_engine import KVCacheEngine
from mstar.engine.stateless import StatelessEngine
from mstar.submodule import Sampling
from tests.unit.engine.test_stateless import RunningSum, fire, sums
from tests.unit.engine.toy import GuidedLM, ToyLM, answer, decode, engine, logits, prefill, token

PROMPT = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3]
HOT = Sampling(temperature=0.9, top_p=0.95, repetition_penalty=1.3)


def move(source: KVCacheEngine, target: KVCacheEngine, request: str) -> RequestImage:
    image = source.give(request, "lm")
    assert target.take(request, "lm", image) is None
    return RequestImage.of(image)


@pytest.mark.parametrize("toy", [ToyLM, GuidedLM])
@pytest.mark.parametrize("sampling", [Sampling(), HOT])
@pytest.mark.parametrize("page_size", [4, 3])
def test_prefill_here_and_decode_there_is_all_here(
    toy: type[ToyLM | GuidedLM], sampling: Sampling, page_size: int
) -> None:
    here, there = engine(toy(sampling=sampling)), engine(toy(sampling=sampling), page_size=page_size)
    alone = engine(toy(sampling=sampling))
    both = there.census(), here.census()
    for n in range(3):  # other requests lie in the target's memory already
        answer(there, f"other{n}", [n, *PROMPT], 2, session=f"o{n}")
    tokens = answer(here, "r", PROMPT, 3)
    expected = answer(alone, "r", PROMPT, 3)
    image = move(here, there, "r")
    assert image.bytes == there.counters()["taken_bytes"] == here.counters()["given_bytes"] > 0
    for _ in range(9):
        (moved,), (stayed,) = there.step([decode("r", tokens[-1])]), alone.step([decode("r", expected[-1])])
        assert torch.equal(logits(moved), logits(stayed))
        tokens.append(token(moved))
        expected.append(token(stayed))
    assert tokens == expected
    for lm in (here, there):
        for session in ("s", "o0", "o1", "o2"):
            lm.end_session(session)
    assert (there.census(), here.census()) == both


def test_it_comes_back_and_a_batch_mate_does_not_notice() -> None:
    here, there, alone = engine(), engine(), engine()
    tokens = {name: answer(here, name, [*PROMPT, i], 2, session=name) for i, name in enumerate("ab")}
    expected = {name: answer(alone, name, [*PROMPT, i], 8, session=name) for i, name in enumerate("ab")}
    move(here, there, "a")
    for _ in range(3):
        for lm, name in ((there, "a"), (here, "b")):
            (outcome,) = lm.step([decode(name, tokens[name][-1], name)])
            tokens[name].append(token(outcome))
    move(there, here, "a")
    for _ in range(3):
        outcomes = here.step([decode(name, tokens[name][-1], name) for name in "ab"])
        for name, outcome in zip("ab", outcomes, strict=True):
            tokens[name].append(token(outcome))
    assert tokens == expected


def test_the_giver_keeps_the_prompt_for_the_sessions_next_turn() -> None:
    here, there = engine(), engine()
    answer(here, "turn1", PROMPT, 1)
    move(here, there, "turn1")
    answer(here, "turn2", [*PROMPT, 8], 1)
    assert here.counters()["reused_tokens"] == len(PROMPT)


def test_an_image_survives_the_wire() -> None:
    """numpy arrays in place of tensors, lists in place of tuples."""

    def plain(value: Any) -> Any:
        match value:
            case torch.Tensor():
                return value.numpy()
            case dict():
                return {name: plain(each) for name, each in value.items()}
            case list():
                return [plain(each) for each in value]
        return value

    here, there, alone = engine(GuidedLM()), engine(GuidedLM()), engine(GuidedLM())
    tokens = answer(here, "r", PROMPT, 2)
    assert there.take("r", "lm", plain(here.give("r", "lm"))) is None
    answer(alone, "r", PROMPT, 2)
    (moved,), (stayed,) = (lm.step([decode("r", tokens[-1])]) for lm in (there, alone))
    assert torch.equal(logits(moved), logits(stayed))


def test_without_pages_an_image_waits_and_is_taken_later() -> None:
    here, there = engine(), engine(pages=4)
    tokens = answer(here, "r", PROMPT, 2)
    answer(there, "full", range(12), 1, session="full")
    before = there.census()
    image = here.give("r", "lm")
    assert there.take("r", "lm", image) == Deferred("needs 3 pages, 1 free, 3 held by 1 session")
    assert there.census() == before
    there.end_session("full")
    assert there.take("r", "lm", image) is None
    assert isinstance(there.step([decode("r", tokens[-1])])[0], Completed)


def test_an_image_of_another_shape_is_refused_and_so_is_a_second_one() -> None:
    here, there = engine(), engine()
    answer(here, "r", PROMPT, 1)
    image: Any = here.give("r", "lm")
    small = {"keys": np.arange(3), "starts": np.zeros(3), "canonical": 0, "kv": torch.zeros(1, 2, 3, 2, 8)}
    cut = {**image, "labels": {"main": small}}
    with pytest.raises(ValueError, match="geometry wants"):
        there.take("r", "lm", cut)
    assert there.take("r", "lm", image) is None
    with pytest.raises(ValueError, match="already"):
        there.take("r", "lm", image)


def test_a_request_that_holds_nothing_moves_as_nothing() -> None:
    here, there = engine(), engine()
    before = there.census()
    assert there.take("never", "lm", here.give("never", "lm")) is None
    assert there.census() == before
    (outcome,) = there.step([prefill("never", PROMPT)])
    assert token(outcome) == answer(engine(), "x", PROMPT, 1)[0]


def test_state_of_a_component_without_a_cache_moves_too() -> None:
    here, there = StatelessEngine({"sum": RunningSum()}), StatelessEngine({"sum": RunningSum()})
    assert sums(here, fire("a", 1), fire("b", 2)) == [1, 2]
    assert there.take("a", "sum", here.give("a", "sum")) is None
    assert (here.census(), there.census()) == ({"states": 1}, {"states": 1})
    assert sums(there, fire("a", 4)) == [5]
    there.end_session("s")
    assert there.census() == {"states": 0}


def test_state_of_a_session_does_not_move() -> None:
    here, there = (StatelessEngine({"sum": RunningSum()}, session_state={"sum"}) for _ in range(2))
    assert sums(here, fire("a", 1)) == [1]
    assert there.take("a", "sum", here.give("a", "sum")) is None
    assert sums(here, fire("b", 1)) == [2]
    assert there.census() == {"states": 0}
