"""A request whose K/V were dropped computes them again and goes on as if nothing had been."""

from __future__ import annotations

import pytest
import torch

from mstar.engine.api import Deferred, Partial
from mstar.submodule import Sampling
from tests.unit.engine.toy import DivisibleLM, GuidedLM, ToyLM, answer, decode, engine, finished, logits, prefill, token

PROMPT = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5]
HOT = Sampling(temperature=0.9, top_p=0.95, repetition_penalty=1.3)


@pytest.mark.parametrize("sampling", [Sampling(), HOT])
@pytest.mark.parametrize("piece", [4, 8, 64])
def test_the_same_tokens_bit_for_bit(sampling: Sampling, piece: int) -> None:
    lm, quiet = engine(DivisibleLM(sampling=sampling), piece=piece), engine(DivisibleLM(sampling=sampling), piece=piece)
    tokens = answer(lm, "r", PROMPT, 7)
    assert tokens == answer(quiet, "r", PROMPT, 7)
    for round_ in range(3):
        assert lm.preempt("r", "lm") > 0
        assert lm.census()["pages_held"] == 0
        for _ in range(2):
            one, other = (finished(each, decode("r", tokens[-1])) for each in (lm, quiet))
            assert torch.equal(logits(one), logits(other))
            tokens.append(token(one))
        assert lm.counters()["preemptions"] == round_ + 1
    assert lm.counters()["recomputed_tokens"] == sum(len(PROMPT) + 6 + 2 * n for n in range(3))


def test_generated_tokens_come_again_several_at_once() -> None:
    lm = engine(DivisibleLM())
    tokens = answer(lm, "r", PROMPT, 8)
    lm.preempt("r", "lm")
    pieces = []
    while isinstance(outcome := lm.step([decode("r", tokens[-1])])[0], Partial):
        pieces.append(outcome.computed)
    assert pieces == [11, 3, 3, 1]


def test_in_the_middle_of_a_prompt_and_of_computing_again() -> None:
    lm = engine(DivisibleLM(), piece=4)
    assert lm.step([prefill("r", PROMPT)]) == [Partial(4)]
    assert lm.step([prefill("r", PROMPT)]) == [Partial(4)]
    assert lm.preempt("r", "lm") == 2
    tokens = [token(finished(lm, prefill("r", PROMPT)))]
    for _ in range(4):
        tokens.append(token(finished(lm, decode("r", tokens[-1]))))
    lm.preempt("r", "lm")
    assert lm.step([decode("r", tokens[-1])]) == [Partial(4)]
    assert lm.preempt("r", "lm") == 1
    tokens.append(token(finished(lm, decode("r", tokens[-1]))))
    assert tokens == answer(engine(), "x", PROMPT, 6)
    lm.end_session("s")
    assert lm.census()["pages_held"] == 0


def test_batch_mates_go_on_meanwhile() -> None:
    lm = engine(DivisibleLM(), piece=4)
    tokens = {name: answer(lm, name, [*PROMPT, i], 3, session=name) for i, name in enumerate("ab")}
    lm.preempt("a", "lm")
    while len(tokens["a"]) < 8:
        names = sorted(tokens)
        for name, outcome in zip(names, lm.step([decode(n, tokens[n][-1], n) for n in names]), strict=True):
            if not isinstance(outcome, Partial):
                tokens[name].append(token(outcome))
    for i, name in enumerate("ab"):
        assert tokens[name] == answer(engine(), "x", [*PROMPT, i], len(tokens[name]))
    assert len(tokens["b"]) > len(tokens["a"])


def test_the_longer_waits_for_the_shorter_and_both_answer_as_alone() -> None:
    """Two that do not fit together: one is dropped, and goes on when the other has ended."""
    lm = engine(DivisibleLM(), pages=8)
    first = answer(lm, "a", PROMPT, 4, session="a")
    (outcome,) = lm.step([prefill("b", range(20, 38), "b")])
    assert isinstance(outcome, Deferred)
    assert outcome.preemptable == ("a",)
    assert lm.preempt("a", "lm") == 4
    second = answer(lm, "b", range(20, 38), 5, session="b")
    assert isinstance(lm.step([decode("a", first[-1], "a")])[0], Deferred)
    lm.end_request("b")
    while len(first) < 8:
        first.append(token(finished(lm, decode("a", first[-1], "a"))))
    assert first == answer(engine(), "x", PROMPT, 8)
    assert second == answer(engine(), "x", range(20, 38), 5)


def test_what_others_hold_of_it_is_taken_over() -> None:
    lm = engine(DivisibleLM(), piece=4)
    tokens = answer(lm, "a", PROMPT, 2, session="a")
    answer(lm, "b", PROMPT, 1, session="b")
    lm.preempt("a", "lm")
    tokens.append(token(finished(lm, decode("a", tokens[-1], "a"))))
    assert lm.counters()["recomputed_tokens"] == len(PROMPT) + 1 - 8
    assert tokens == answer(engine(), "x", PROMPT, 3)


def test_a_preempted_request_moves_to_another_engine() -> None:
    here, there = engine(DivisibleLM()), engine(DivisibleLM())
    tokens = answer(here, "r", PROMPT, 3)
    here.preempt("r", "lm")
    assert there.take("r", "lm", here.give("r", "lm")) is None
    tokens.append(token(finished(there, decode("r", tokens[-1]))))
    assert tokens == answer(engine(), "x", PROMPT, 4)


@pytest.mark.parametrize("toy", [ToyLM, GuidedLM])
def test_what_can_not_be_computed_again_is_not_dropped(toy: type[ToyLM | GuidedLM]) -> None:
    lm = engine(toy(), pages=16)
    answer(lm, "r", PROMPT, 2)
    held = lm.census()["pages_held"]
    assert lm.preempt("r", "lm") == 0 == lm.preempt("never", "lm")
    assert lm.census()["pages_held"] == held
    (outcome,) = lm.step([prefill("b", range(60), "b")])
    assert isinstance(outcome, Deferred)
    assert (outcome.holders, outcome.preemptable) == (("r",), ())
