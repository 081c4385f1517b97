from typing import Any

import pytest
import torch

from mstar.engine.api import Completed, Deferred, Failed
from mstar.engine.kv_engine import KVCacheEngine, KVSettings
from mstar.submodule import Sampling
from tests.unit.engine.toy import DivisibleLM, ToyLM, answer, decode, engine, logits, prefill, token

PROMPT = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3]
OTHERS = ([7, 7], [11, 12, 13, 14, 15, 16, 17], [20] * 21)


def test_a_request_alone_and_in_a_batch_gives_the_same_logits_bit_for_bit() -> None:
    alone, together = engine(), engine()
    prompts = dict(zip("abcd", (PROMPT, *OTHERS), strict=True))
    firings = [prefill(name, prompt, name) for name, prompt in prompts.items()]
    for _ in range(6):
        batch = together.step(firings)
        single = [alone.step([firing])[0] for firing in firings]
        for one, other in zip(batch, single, strict=True):
            assert torch.equal(logits(one), logits(other))
        firings = [decode(name, token(outcome), name) for name, outcome in zip(prompts, batch, strict=True)]


def test_tokens_are_the_same_with_the_whole_prompt_recomputed() -> None:
    lm = engine()
    tokens = answer(lm, "r", PROMPT, 6)
    for n in range(6):
        assert answer(engine(), "x", PROMPT + tokens[:n], 1) == [tokens[n]]


def test_a_later_turn_computes_only_what_the_session_has_not() -> None:
    toy = ToyLM()
    lm = engine(toy)
    first = answer(lm, "turn1", PROMPT, 5)
    lm.end_request("turn1")
    second = [*PROMPT, *first, 8, 8]  # the last answered token was never fed back: it is not cached
    again = answer(lm, "turn2", second, 5)
    assert lm.counters()["reused_tokens"] == len(PROMPT) + 4
    assert lm.counters()["prefilled_tokens"] == len(PROMPT) + 3
    assert again == answer(engine(), "x", second, 5)
    assert again == answer(engine(reuse=False), "x", second, 5)


def test_the_same_prompt_again_computes_its_last_position() -> None:
    toy = ToyLM()
    lm = engine(toy)
    once = answer(lm, "a", PROMPT, 1)
    lm.end_request("a")
    assert answer(lm, "b", PROMPT, 1) == once
    assert toy.reused == [len(PROMPT) - 1]


def test_a_shorter_heard_answer_truncates_the_sequence() -> None:
    lm = engine()
    said = answer(lm, "a", PROMPT, 9)
    lm.end_request("a")
    heard = [*PROMPT, *said[:3], 30]
    assert answer(lm, "b", heard, 4) == answer(engine(), "x", heard, 4)
    assert lm.counters()["reused_tokens"] == len(PROMPT) + 3


def test_parallel_requests_of_a_session_fork_and_do_not_disturb_each_other() -> None:
    lm = engine()
    branch = [*PROMPT, 40, 41, 42]
    tokens = {"a": answer(lm, "a", PROMPT, 3), "b": answer(lm, "b", branch, 1)}
    assert lm.counters()["reused_tokens"] == len(PROMPT)
    for _ in range(8):
        for name, outcome in zip("ab", lm.step([decode(n, tokens[n][-1]) for n in "ab"]), strict=True):
            tokens[name].append(token(outcome))
    assert tokens["a"] == answer(engine(), "x", PROMPT, 11)
    assert tokens["b"] == answer(engine(), "x", branch, 9)


def test_a_prompt_of_another_kind_leaves_the_conversation_cached() -> None:
    lm = engine()
    long = list(range(1, 31))
    answer(lm, "a", long, 1)
    lm.end_request("a")
    answer(lm, "aside", [1, 45, 46, 47], 1)
    lm.end_request("aside")
    toy = answer(lm, "b", [*long, 9], 1)
    assert lm.counters()["reused_tokens"] == 1 + len(long)
    assert toy == answer(engine(), "x", [*long, 9], 1)


def test_sessions_share_whole_pages_unless_they_must_not() -> None:
    for shared in (True, False):
        lm = engine(DivisibleLM(), shared=shared)
        answer(lm, "a", PROMPT, 1, session="one")
        lm.end_request("a")
        answer(lm, "b", PROMPT, 1, session="two")
        assert lm.counters()["reused_tokens"] == (8 if shared else 0)


def test_one_guilty_of_four_fails_alone_and_the_neighbours_do_not_notice() -> None:
    for place in ("keys", "collate", "forward", "verdict"):
        lm, quiet = engine(), engine()
        prompts = dict(zip("abcd", (PROMPT, *OTHERS), strict=True))
        batch = [prefill(n, p, n, **({"fault": place} if n == "c" else {})) for n, p in prompts.items()]
        outcomes = lm.step(batch)
        assert outcomes[2] == Failed(f"Fault: c in {place}")
        expected = quiet.step([prefill(n, p, n) for n, p in prompts.items()])
        for i in (0, 1, 3):
            assert torch.equal(logits(outcomes[i]), logits(expected[i]))
        following = [decode(n, 5, n) for n in "abd"]
        for one, other in zip(lm.step(following), quiet.step(following), strict=True):
            assert torch.equal(logits(one), logits(other))
        assert lm.counters()["failed"] == 1
        assert lm.counters()["retries"] == (4 if place in {"collate", "forward"} else 0)


def test_all_failing() -> None:
    lm = engine()
    outcomes = lm.step([prefill(n, PROMPT, n, fault="forward") for n in "abc"])
    assert outcomes == [Failed(f"Fault: {n} in forward") for n in "abc"]
    assert lm.census()["pages_held"] == 0


def test_a_failing_decode_leaves_its_sequence_as_it_was() -> None:
    lm = engine()
    tokens = answer(lm, "r", PROMPT, 3)
    before = lm.census()
    assert isinstance(lm.step([decode("r", tokens[-1], fault="forward")])[0], Failed)
    assert lm.census() == before
    (outcome,) = lm.step([decode("r", tokens[-1])])
    assert token(outcome) == answer(engine(), "x", PROMPT, 4)[3]


def test_batches_are_cut_to_max_batch_and_failures_told_in_each() -> None:
    toy = ToyLM(max_batch=2)
    lm = engine(toy)
    names = "abcd"
    firings = [prefill(n, PROMPT, n, **({"fault": "collate"} if n in "ad" else {})) for n in names]
    kinds = [type(outcome) for outcome in lm.step(firings)]
    assert kinds == [Failed, Completed, Completed, Failed]
    toy.batches.clear()
    lm.step([prefill(n, PROMPT, n) for n in "efghi"])
    assert toy.batches == [2, 2, 1]


def test_without_pages_a_firing_waits_and_the_reason_has_the_numbers() -> None:
    lm = engine(pages=8)
    outcomes = lm.step([prefill("a", range(20), "a"), prefill("b", range(12), "b"), prefill("c", range(10), "c")])
    assert [type(outcome) for outcome in outcomes] == [Completed, Completed, Deferred]
    assert outcomes[2] == Deferred("needs 3 pages, 0 free, 8 held by 2 sessions")
    assert lm.counters()["deferred"] == 1
    assert isinstance(lm.step([decode("a", 1, "a")])[0], Deferred)
    lm.end_session("b")
    (outcome,) = lm.step([decode("a", 1, "a")])
    other = engine()
    answer(other, "a", range(20), 1)
    assert torch.equal(logits(outcome), logits(other.step([decode("a", 1)])[0]))


def test_idle_sequences_go_first_used_first_and_live_ones_never() -> None:
    lm = engine(pages=12, shared=False)
    for name in "abc":
        answer(lm, name, range(12), 1, session=name)
        if name != "b":
            lm.end_request(name)
    answer(lm, "d", range(20), 1, session="d")
    assert lm.counters()["evictions"] == 1  # of a's; b's is live, c's was used later
    answer(lm, "c2", [*range(12), 1], 1, session="c")
    assert lm.counters()["reused_tokens"] == 12
    assert lm.census()["sequences"] == 3


def test_a_sequence_that_can_never_fit_fails() -> None:
    (outcome,) = engine(pages=4).step([prefill("r", range(40))])
    assert outcome == Failed("needs 10 pages, the pool has 4", "out_of_memory")


def test_the_census_comes_back_to_its_baseline() -> None:
    lm = engine()
    baseline = lm.census()
    for turn in range(3):
        answer(lm, f"{turn}", [*PROMPT, turn], 3)
        lm.step([prefill("bad", PROMPT, fault="forward")])
        lm.end_request("bad")
        if turn != 1:
            lm.end_request(f"{turn}")
    assert lm.census() != baseline
    lm.end_session("s")
    lm.end_session("s")
    lm.end_request("never seen")
    assert lm.census() == baseline


def test_sampling_draws_the_same_alone_and_in_a_batch() -> None:
    hot: dict[str, Any] = {"temperature": 1.0, "top_p": 0.95}
    alone = [answer(engine(), n, prompt, 8, **hot) for n, prompt in zip("ab", OTHERS, strict=False)]
    lm = engine()
    batch = [[token(o)] for o in lm.step([prefill(n, OTHERS[i], n, **hot) for i, n in enumerate("ab")])]
    for _ in range(7):
        outcomes = lm.step([decode(n, batch[i][-1], n, **hot) for i, n in enumerate("ab")])
        for tokens, outcome in zip(batch, outcomes, strict=True):
            tokens.append(token(outcome))
    assert batch == alone
    assert alone[0] != answer(engine(), "a", OTHERS[0], 8)


def test_the_repetition_penalty_sees_what_the_request_generated_only() -> None:
    greedy = answer(engine(), "r", PROMPT, 12)
    assert len(set(greedy)) < 12
    punished = answer(engine(), "r", PROMPT, 12, repetition_penalty=1e6)
    assert punished[0] == greedy[0]
    assert len(set(punished)) == 12


def test_a_wrong_setting_names_its_field() -> None:
    lm = KVCacheEngine({"lm": ToyLM(sampling=Sampling(temperature=1.0))}, settings={"lm": KVSettings(pages=64)})
    outcomes = lm.step([prefill("a", PROMPT, "a"), prefill("b", PROMPT, "b", top_p=1.5)])
    assert isinstance(outcomes[0], Completed)
    assert outcomes[1] == Failed("top_p must be a number in (0, 1], got 1.5", "invalid_value", "settings.top_p")


def test_verdict_stops() -> None:
    first = answer(engine(), "r", PROMPT, 1)[0]
    assert engine().step([prefill("r", PROMPT, eos=first)])[0].stop  # type: ignore[union-attr]
    assert not engine().step([prefill("r", PROMPT, eos=-1)])[0].stop  # type: ignore[union-attr]


def test_a_step_is_one_component_in_one_walk_and_a_request_fires_once() -> None:
    with pytest.raises(ValueError, match="one component in one walk"):
        engine().step([prefill("a", PROMPT), decode("b", 1)])
    with pytest.raises(ValueError, match="once a step"):
        engine().step([prefill("a", PROMPT), prefill("a", PROMPT)])


def test_an_empty_prompt_fails() -> None:
    (outcome,) = engine().step([prefill("r", [])])
    assert outcome == Failed("ValueError: a prompt has no keys")
