"""Sound leaves at most two seconds ahead, the producer is told so, and a client that does not read stops it."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.session.commands import GrantCredit, PlayAudio, Underran
from tests.unit.server.driver import OFFER, Driver

RATE = OFFER.speech_rate


def test_never_more_than_two_seconds_ahead() -> None:
    driver = Driver()
    driver.client({"type": "response.create"})
    key = driver.task("answer").key
    driver.sound(key, 10.0)
    began = driver.now
    assert driver.played() == 2 * RATE
    for _ in range(30):
        driver.wait(0.25)
        ahead = driver.played() / RATE - (driver.now - began)
        assert 1.85 <= ahead <= 2.001
    driver.done(key)
    assert "response.output_audio.done" not in driver.types()
    driver.wait(1.0)
    assert driver.played() == 10 * RATE
    assert driver.types()[-6:] == [
        "response.output_audio.done",
        "response.output_audio_transcript.done",
        "response.content_part.done",
        "conversation.item.done",
        "response.output_item.done",
        "response.done",
    ]


def test_credit_follows_what_is_played() -> None:
    driver = Driver()
    driver.client({"type": "response.create"})
    key = driver.task("answer").key
    driver.sound(key, 8.0)
    driver.wait(3.0)
    granted = [c for c in driver.commands if isinstance(c, GrantCredit)]
    assert granted[0].upto == 2 * RATE
    assert all(later.upto > earlier.upto for earlier, later in pairwise(granted))
    assert granted[-1].upto == pytest.approx(driver.played() + 2 * RATE, abs=RATE // 4)
    assert granted[-1].played == pytest.approx(3 * RATE, abs=RATE // 3)


def test_a_client_that_does_not_read_gets_nothing_and_loses_nothing() -> None:
    driver = Driver()
    driver.client({"type": "response.create"})
    key = driver.task("answer").key
    driver.sound(key, 6.0)
    driver.run(driver.core.congested(True, driver.now))
    before, granted = driver.played(), [c for c in driver.commands if isinstance(c, GrantCredit)]
    driver.wait(20.0)
    assert driver.played() == before
    assert [c for c in driver.commands if isinstance(c, GrantCredit)] == granted
    driver.run(driver.core.congested(False, driver.now))
    driver.done(key)
    driver.wait(10.0)
    assert driver.played() == 6 * RATE
    starts = [c.start for c in driver.commands if isinstance(c, PlayAudio) and c.pcm.size]
    sizes = [c.pcm.size for c in driver.commands if isinstance(c, PlayAudio) and c.pcm.size]
    assert starts == [sum(sizes[:index]) for index in range(len(sizes))]


def test_late_sound_is_counted_as_an_underrun() -> None:
    driver = Driver()
    driver.client({"type": "response.create"})
    key = driver.task("answer").key
    driver.sound(key, 0.5)
    driver.wait(0.4)
    driver.sound(key, 0.5)
    assert not any(isinstance(c, Underran) for c in driver.commands)
    driver.wait(1.0)
    driver.sound(key, 0.5)
    assert sum(isinstance(c, Underran) for c in driver.commands) == 1


@given(st.lists(st.tuples(st.floats(0.001, 1.5), st.floats(0.0, 2.0)), max_size=12))
def test_pieces_are_whole_and_short(parts: list[tuple[float, float]]) -> None:
    driver = Driver()
    driver.client({"type": "response.create"})
    key = driver.task("answer").key
    made = 0
    for seconds, pause in parts:
        driver.sound(key, seconds)
        made += round(seconds * RATE)
        driver.wait(pause)
    driver.done(key)
    driver.wait(30.0)
    pieces = [c.pcm.size for c in driver.commands if isinstance(c, PlayAudio) and c.pcm.size]
    assert sum(pieces) == made
    assert all(RATE // 50 <= size <= RATE // 10 for size in pieces[:-1])
    assert driver.types()[-1] == "response.done"
