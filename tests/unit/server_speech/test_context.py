"""Text in pieces → orders for the runtime; emissions → events for the client."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mstar.errors import Rejected
from mstar.tensors import Value
from server.speech.context import (
    MOST_SEGMENTS,
    MOST_TEXT,
    Begin,
    Close,
    Context,
    Ended,
    Flushed,
    Sound,
    Step,
    Stop,
    Word,
    Words,
    Write,
)


def audio(*samples: float, trimmed: int = 0) -> Value:
    return {"pcm": np.array(samples, np.float32), "start": 0, "trimmed": trimmed}


def words(*rows: tuple[int, int, int, int]) -> Value:
    return {"words": np.array(rows, np.int64)}


def orders(step: Step) -> Step:
    return [each for each in step if isinstance(each, Begin | Write | Close | Stop)]


def events(step: Step) -> Step:
    return [each for each in step if not isinstance(each, Begin | Write | Close | Stop)]


def positions(step: Step) -> list[tuple[int, int]]:
    return [(each.start, len(each.pcm)) for each in step if isinstance(each, Sound)]


def test_text_is_one_request_until_it_ends() -> None:
    context = Context()
    assert context.append("Hello ") == [Begin(0), Write(0, "Hello ")]
    assert context.append("you.") == [Write(0, "you.")]
    assert context.end() == [Close(0)]
    assert positions(context.emission(0, "audio", audio(0.1, 0.2))) == [(0, 2)]
    assert context.done(0) == [Flushed(None, 2, "Hello you."), Ended("done")]


def test_a_flush_is_told_behind_its_last_sample_and_positions_go_on() -> None:
    context = Context()
    context.append("One.")
    assert context.flush(7) == [Close(0)]
    assert context.append(" Two.") == [Begin(1), Write(1, " Two.")]
    assert context.emission(1, "audio", audio(0.5)) == []  # it is not its turn
    assert context.append(" Three.") == [Write(1, " Three.")]
    assert positions(context.emission(0, "audio", audio(0.1, 0.2))) == [(0, 2)]
    step = context.done(0)
    assert step[0] == Flushed(7, 2, "One.")
    assert positions(step) == [(2, 1)]
    assert positions(context.emission(1, "audio", audio(0.6, 0.6))) == [(3, 2)]
    context.end()
    assert events(context.done(1)) == [Flushed(None, 5, " Two. Three."), Ended("done")]


def test_no_more_than_two_segments_are_made_at_once() -> None:
    context = Context()
    for number in range(4):
        context.append(f"{number}.")
        context.flush(number)
    assert orders(context.done(0)) == [Begin(2), Write(2, "2."), Close(2)]
    assert orders(context.done(1)) == [Begin(3), Write(3, "3."), Close(3)]


def test_flushes_of_nothing_are_answered_in_order_and_without_a_request() -> None:
    context = Context()
    assert context.flush(1) == [Flushed(1, 0, "")]
    assert context.append("  \n") == []
    assert context.flush(2) == [Flushed(2, 0, "  \n")]
    context.append("Hi")
    context.flush(3)
    assert context.flush(4) == []
    assert context.done(0) == []  # no segment of that number any more
    assert context.done(2) == [Flushed(3, 0, "Hi"), Flushed(4, 0, "")]


def test_words_count_from_the_beginning_of_the_context_without_the_silence_that_was_cut() -> None:
    context = Context()
    context.append("Hello, you.")
    context.flush()
    assert events(context.emission(0, "alignment", words((0, 6, 0, 50), (7, 11, 50, 90)))) == []
    told = events(context.emission(0, "audio", audio(*[0.1] * 80, trimmed=10)))
    assert told[0] == Words((Word("", "Hello,", 0, 40), Word(" ", "you.", 40, 80)))
    assert positions(told) == [(0, 80)]
    context.append(" Yes!")
    context.done(0)
    context.emission(1, "audio", audio(0.1, trimmed=0))
    assert context.emission(1, "alignment", words((1, 5, 0, 9))) == [Words((Word(" ", "Yes!", 80, 89),))]


def test_cancel_stops_what_runs_and_nothing_comes_after() -> None:
    context = Context()
    context.append("One.")
    context.flush(1)
    context.append("Two.")
    assert context.cancel() == [Stop(0), Stop(1), Ended("cancelled")]
    assert context.emission(0, "audio", audio(0.1)) == []
    assert context.done(0) == context.done(1) == context.flush(2) == context.end() == context.cancel() == []
    with pytest.raises(Rejected, match="ended"):
        context.append("more")


def test_a_failure_ends_the_context_when_its_turn_has_come() -> None:
    context = Context()
    context.append("One.")
    context.flush(1)
    context.append("Two.")
    why = Rejected("broken")
    assert context.done(1, why) == []
    assert positions(context.emission(0, "audio", audio(0.1))) == [(0, 1)]
    assert context.done(0) == [Flushed(1, 1, "One."), Ended("failed", error=why)]


def test_a_length_cap_reports_itself() -> None:
    context = Context()
    context.append("One.")
    context.end()
    context.emission(0, "usage", {"prompt": 3, "reused": 0, "generated": 9, "reason": "length"})
    assert context.done(0)[-1] == Ended("done", "length")
    assert context.tokens == (3, 9)


def test_too_much_text_is_refused_and_what_was_written_stays() -> None:
    context = Context()
    context.append("x" * MOST_TEXT)
    with pytest.raises(Rejected) as refused:
        context.append("y")
    assert (refused.value.code, refused.value.param) == ("text_too_long", "text")
    assert context.end() == [Close(0)]


@given(st.text(), st.lists(st.integers(0, 200), max_size=6))
def test_text_arrives_whole_however_it_is_cut(text: str, cuts: list[int]) -> None:
    units = text.encode("utf-16-le", "surrogatepass")
    borders = sorted({0, len(units), *(2 * cut for cut in cuts if 2 * cut < len(units))})
    context = Context()
    written = ""
    for start, stop in pairwise(borders):
        step = context.append(units[start:stop].decode("utf-16-le", "surrogatepass"))
        written += "".join(each.text for each in step if isinstance(each, Write))
    step = context.end()
    written += "".join(each.text for each in step if isinstance(each, Write))
    assert written == (text if text.strip() else "")


def test_half_a_character_that_stays_half_reads_as_the_replacement() -> None:
    context = Context()
    assert context.append("a\ud83d") == [Begin(0), Write(0, "a")]
    assert context.append("b") == [Write(0, "\ufffdb")]
    assert context.append("\ud83d") == []
    assert orders(context.end()) == [Write(0, "\ufffd"), Close(0)]


def test_flushes_that_wait_are_bounded_and_change_nothing_when_refused() -> None:
    context = Context()
    context.append("a")
    context.flush(0)
    for number in range(1, MOST_SEGMENTS):
        context.flush(number)
    with pytest.raises(Rejected) as refused:
        context.flush(MOST_SEGMENTS)
    assert refused.value.code == "too_many_flushes"
    step = context.done(0) + context.end()
    assert [each.id for each in step if isinstance(each, Flushed)] == [*range(MOST_SEGMENTS), None]
    assert step[-1] == Ended("done")
