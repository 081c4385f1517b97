"""What one session computed of a prompt, another takes over; what nobody holds goes first when pages are short."""

from __future__ import annotations

import torch

from mstar.engine.api import Completed, Deferred, Partial
from tests.unit.engine.toy import (
    DivisibleLM,
    ToyLM,
    answer,
    decode,
    engine,
    finished,
    logits,
    prefill,
    token,
)

SYSTEM = [9, 8, 7, 6, 5, 4, 3, 2, 1, 2, 3, 4, 5, 6, 7, 8, 9]  # 4 pages of 4, and a position


def test_two_sessions_compute_a_system_prompt_once() -> None:
    lm = engine(DivisibleLM())
    a, b = [*SYSTEM, 20], [*SYSTEM, 30, 31]
    for_a = answer(lm, "a", a, 5, session="a")
    assert answer(lm, "b", b, 5, session="b") == answer(engine(), "x", b, 5)
    assert for_a == answer(engine(), "x", a, 5)
    assert lm.counters()["prefilled_tokens"] == len(a) + len(b) - 16
    assert lm.counters()["shared_tokens"] == 16


def test_prompts_of_one_step_compute_what_they_share_once() -> None:
    toy = DivisibleLM()
    lm = engine(toy, piece=8)
    firings = {name: prefill(name, [*SYSTEM, 20 + i], name) for i, name in enumerate("abc")}
    drawn: dict[str, int] = {}
    while len(drawn) < 3:
        waiting = [firing for name, firing in firings.items() if name not in drawn]
        outcomes = lm.step(waiting)
        assert any(isinstance(outcome, Completed) or outcome.computed for outcome in outcomes)  # type: ignore[union-attr]
        drawn |= {f.request: token(o) for f, o in zip(waiting, outcomes, strict=True) if isinstance(o, Completed)}
    assert lm.counters()["prefilled_tokens"] == 18 + 2 + 2
    assert drawn == {name: answer(engine(), "x", [*SYSTEM, 20 + i], 1)[0] for i, name in enumerate("abc")}


def test_a_step_reads_as_many_prompt_tokens_as_it_may_and_says_who_got_none() -> None:
    lm = engine(DivisibleLM(), piece=8, budget=16, shared=False)
    prompts = {name: list(range(i, i + 20)) for i, name in enumerate("abc")}
    firings = [prefill(name, prompt, name) for name, prompt in prompts.items()]
    assert lm.step(firings) == [Partial(8), Partial(8), Partial(0)]
    assert lm.census()["requests"] == 2
    assert lm._parts["lm"]._passed == {"c": ("c", 1)}
    lm.end_session("c")
    assert not lm._parts["lm"]._passed
    for name, prompt in prompts.items():
        assert token(finished(lm, prefill(name, prompt, name))) == answer(engine(), "x", prompt, 1)[0]


def test_of_several_prompts_the_one_with_the_least_left_is_read_first_and_none_is_passed_over_for_ever() -> None:
    lm = engine(DivisibleLM(), piece=8, budget=8, shared=False, pages=400)
    lengths = {"long": 60, "mid": 30, "short": 12}
    firings = {name: prefill(name, list(range(i, i + 40)) * 5, name) for i, name in enumerate(lengths)}
    for name, length in lengths.items():
        firings[name].inputs["tokens"][length:] = []  # type: ignore[index]
    done: list[str] = []
    steps = 0
    while firings:
        steps += 1
        assert steps < 1_000
        batch = list(firings.values())
        for firing, outcome in zip(batch, lm.step(batch), strict=True):
            if isinstance(outcome, Completed):
                done.append(firing.request)
                del firings[firing.request]
                lm.end_session(firing.session)
        if steps < 300 and len(firings) < 2:  # always another short one
            firings[f"n{steps}"] = prefill(f"n{steps}", [steps % 50] * 16, f"n{steps}")
    assert done[:2] == ["short", "mid"]
    assert "long" in done
    assert done.index("long") < len(done) - 1


def test_what_a_session_generated_is_not_shared() -> None:
    """Decoding may give other last bits than a prompt does, so that what others do would be heard."""
    lm = engine(DivisibleLM())
    said = answer(lm, "a", SYSTEM, 12, session="a")
    answer(lm, "b", [*SYSTEM, *said], 1, session="b")
    assert lm.counters()["shared_tokens"] == 16


def test_pages_outlive_their_session_as_far_as_they_may_and_count_as_free() -> None:
    for unheld, shared in ((64, 16), (4, 16), (3, 0), (0, 0)):
        lm = engine(DivisibleLM(), unheld=unheld)
        baseline = lm.census()
        answer(lm, "a", [*SYSTEM, 20], 6, session="a")
        lm.end_session("a")
        assert lm.census() == baseline
        assert lm.counters()["pages_cached"] == shared / 4
        answer(lm, "b", [*SYSTEM, 30], 1, session="b")
        assert lm.counters()["shared_tokens"] == shared


def test_what_another_session_holds_too_is_not_kept_twice() -> None:
    lm = engine(DivisibleLM())
    answer(lm, "a", [*SYSTEM, 20], 1, session="a")
    answer(lm, "b", [*SYSTEM, 30], 1, session="b")
    lm.end_session("a")
    assert lm.counters()["pages_cached"] == 0
    lm.end_session("b")
    assert lm.counters()["pages_cached"] == 4


def test_unheld_pages_go_before_idle_ones_and_before_anything_waits() -> None:
    lm = engine(DivisibleLM(), pages=12)
    answer(lm, "gone", SYSTEM, 1, session="gone")
    lm.end_session("gone")
    answer(lm, "idle", [11, 12, 13, 14, 15], 1, session="idle")
    lm.end_request("idle")
    answer(lm, "long", range(20, 50), 1, session="long")  # 8 pages
    assert lm.counters()["pages_cached"] == 0
    assert lm.census()["idle_sequences"] == 1


def test_a_shared_prefix_is_copied_where_runs_are_read_faster() -> None:
    lm = engine(DivisibleLM())
    answer(lm, "a", [*SYSTEM, 20], 3, session="a")
    before = lm.counters()
    answer(lm, "b", [*SYSTEM, 30], 3, session="b")
    after = lm.counters()
    page_bytes = 4 * 2 * 2 * 2 * 8 * 4  # positions, layers, K and V, heads, dim, itemsize
    assert after["relocated_bytes"] - before["relocated_bytes"] == 4 * page_bytes
    assert after["gathers"] == before["gathers"] == 0


def test_others_prompts_change_no_bit() -> None:
    for length in (48, 60, 81, 97, 130):
        busy, quiet = (engine(DivisibleLM(), page_size=16, grain=32, shared=shared) for shared in (True, False))
        prompt = [i * i % 47 for i in range(length)]
        answer(busy, "a", [*prompt, 1, 2, 3], 2, session="a")
        one, other = (finished(lm, prefill("r", [*prompt, 4, 4], "r")) for lm in (busy, quiet))
        assert busy.counters()["shared_tokens"] == (length + 2 - 16) // 32 * 32
        assert torch.equal(logits(one), logits(other))
        one, other = (finished(lm, decode("r", token(one), "r")) for lm in (busy, quiet))
        assert torch.equal(logits(one), logits(other))


def test_prompts_that_are_computed_whole_are_not_shared() -> None:
    lm = engine(ToyLM())
    answer(lm, "a", SYSTEM, 1, session="a")
    answer(lm, "b", [*SYSTEM, 1], 1, session="b")
    assert lm.counters()["shared_tokens"] == 0


def test_who_waits_is_told_the_numbers_and_who_holds_what() -> None:
    lm = engine(DivisibleLM(), pages=8)
    answer(lm, "a", range(14), 1, session="a")
    answer(lm, "a2", range(20, 26), 1, session="a")
    (outcome,) = lm.step([prefill("b", range(30, 42), "b")])
    assert outcome == Deferred("needs 3 pages, 2 free, 6 held by 1 session")
    assert isinstance(outcome, Deferred)
    assert outcome.holders == outcome.preemptable == ("a", "a2")
    (outcome,) = engine(ToyLM(), pages=2).step([prefill("b", range(5), "b")])
    assert isinstance(outcome, Completed)
