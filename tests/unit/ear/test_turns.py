"""Rules of turn taking on the samples' clock."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from media.turns import (
    CAPS,
    Eagerness,
    Listening,
    Pause,
    Signal,
    SpeechResumed,
    SpeechStarted,
    SpeechStopped,
    TurnSettings,
    forget,
    hear,
    judge,
)

ITEM = 512


def heard(
    settings: TurnSettings, speech: Sequence[float], state: Listening | None = None
) -> tuple[Listening, list[Signal]]:
    state = state or Listening()
    signals: list[Signal] = []
    for probability in speech:
        state, more = hear(settings, state, state.now, probability)
        signals += more
    return state, signals


def test_a_turn_with_a_pause_in_it() -> None:
    speech = [0.0] * 20 + [0.9] * 10 + [0.1] * 8 + [0.9] * 5 + [0.1] * 20
    _, signals = heard(TurnSettings(), speech)
    assert signals == [
        SpeechStarted(at=20 * ITEM - 4800, onset=20 * ITEM, now=22 * ITEM),
        Pause(at=30 * ITEM, length=3 * ITEM, now=33 * ITEM),
        SpeechResumed(at=38 * ITEM, now=40 * ITEM),
        Pause(at=43 * ITEM, length=3 * ITEM, now=46 * ITEM),
        SpeechStopped(at=43 * ITEM, now=59 * ITEM),
    ]


def test_a_click_starts_nothing_and_ends_no_pause() -> None:
    assert heard(TurnSettings(), [0.0, 0.9, 0.0, 0.9, 0.0])[1] == []
    speech = [0.9] * 5 + [0.1] * 4 + [0.9] + [0.1] * 30
    kinds = [type(signal) for signal in heard(TurnSettings(), speech)[1]]
    assert kinds == [SpeechStarted, Pause, SpeechStopped]


def test_speech_under_way_at_the_endpoint_holds_it() -> None:
    settings = TurnSettings(silence_duration_ms=320, start_ms=96)
    state, _ = heard(settings, [0.9] * 5 + [0.1] * 9)
    _, signals = heard(settings, [0.9] * 3, state)
    assert signals == [SpeechResumed(at=14 * ITEM, now=17 * ITEM)]
    _, signals = heard(settings, [0.9, 0.9, 0.1], state)
    assert signals == [SpeechStopped(at=5 * ITEM, now=17 * ITEM)]


def test_between_the_thresholds_nothing_changes() -> None:
    assert heard(TurnSettings(), [0.4] * 50)[1] == []
    assert len(heard(TurnSettings(), [0.6, 0.6] + [0.4] * 50)[1]) == 1


def test_the_padding_does_not_reach_into_the_turn_before() -> None:
    _, signals = heard(TurnSettings(silence_duration_ms=200), [0.9] * 4 + [0.0] * 8 + [0.9] * 4)
    stopped = next(signal for signal in signals if isinstance(signal, SpeechStopped))
    assert isinstance(signals[-1], SpeechStarted)
    assert signals[-1].at == stopped.now < signals[-1].onset
    assert isinstance(signals[0], SpeechStarted)
    assert signals[0].at == 0


def test_a_short_silence_duration_still_prepares_first() -> None:
    _, signals = heard(TurnSettings(silence_duration_ms=100), [0.9] * 4 + [0.0] * 8)
    assert [type(signal) for signal in signals] == [SpeechStarted, Pause, SpeechStopped]


@pytest.mark.parametrize("eagerness", ["low", "medium", "high", "auto"])
def test_the_turn_model_sets_the_silence(eagerness: Eagerness) -> None:
    settings = TurnSettings(eagerness=eagerness)
    assert settings.target(1.0) == 3200
    assert settings.target(0.0) == settings.target(None) == CAPS[eagerness] * 16
    assert settings.target(0.25) == (200 + (CAPS[eagerness] - 200) / 4) * 16
    assert settings.target(0.5) == 3200


def test_a_sure_verdict_ends_the_turn_when_it_comes() -> None:
    settings = TurnSettings(eagerness="low")
    state, signals = heard(settings, [0.9] * 5 + [0.0] * 9)
    assert isinstance(signals[-1], Pause)
    assert judge(settings, state, at=999, complete=1.0) == (state, ())
    after, ended = judge(settings, state, at=signals[-1].at, complete=0.99)
    assert ended == (SpeechStopped(at=5 * ITEM, now=14 * ITEM),)
    assert not after.speaking
    assert judge(settings, after, at=signals[-1].at, complete=0.99) == (after, ())


def test_an_unsure_verdict_waits_and_is_forgotten_with_its_pause() -> None:
    settings = TurnSettings(eagerness="high")
    state, signals = heard(settings, [0.9] * 5 + [0.0] * 7)
    assert isinstance(signals[-1], Pause)
    state, ended = judge(settings, state, at=signals[-1].at, complete=0.3)
    assert not ended
    state, signals = heard(settings, [0.9] * 5, state)
    assert [type(signal) for signal in signals] == [SpeechResumed]
    assert state.complete is None
    _, signals = heard(settings, [0.0] * 70, state)
    stopped = signals[-1]
    assert isinstance(stopped, SpeechStopped)
    assert 32_000 <= stopped.now - stopped.at < 32_000 + ITEM


def test_forgetting_closes_the_turn() -> None:
    state, _ = heard(TurnSettings(), [0.9] * 5)
    state = forget(state)
    assert state == Listening(now=5 * ITEM, floor=5 * ITEM)
    _, signals = heard(TurnSettings(), [0.9] * 5, state)
    assert signals == [SpeechStarted(at=5 * ITEM, onset=5 * ITEM, now=7 * ITEM)]


def test_an_item_from_the_past_is_refused() -> None:
    state, _ = heard(TurnSettings(), [0.0] * 3)
    with pytest.raises(ValueError, match="position"):
        hear(TurnSettings(), state, 2 * ITEM, 0.0)


probabilities = st.lists(st.floats(0, 1) | st.sampled_from([0.0, 1.0]), max_size=300)
settings_of_all_kinds = st.builds(
    TurnSettings,
    threshold=st.floats(0.1, 0.9),
    start_ms=st.sampled_from([32, 64, 96, 200]),
    prefix_padding_ms=st.integers(0, 1000),
    silence_duration_ms=st.integers(50, 1500),
    eagerness=st.sampled_from([None, "low", "high"]),
)


def span(signal: Signal) -> tuple[int, int]:
    return signal.at, signal.now


@given(settings_of_all_kinds, probabilities)
def test_signals_alternate_and_positions_go_forward(settings: TurnSettings, speech: list[float]) -> None:
    _, signals = heard(settings, speech)
    follows: dict[type[Signal] | None, set[type[Signal]]] = {
        None: {SpeechStarted},
        SpeechStarted: {Pause},
        Pause: {SpeechResumed, SpeechStopped},
        SpeechResumed: {Pause},
        SpeechStopped: {SpeechStarted},
    }
    kinds = [None, *(type(signal) for signal in signals)]
    assert all(after in follows[before] for before, after in pairwise(kinds) if after is not None)
    for signal in signals:
        assert 0 <= signal.at <= signal.now <= len(speech) * ITEM
    for before, after in pairwise(signals):
        assert before.now <= after.now
        assert before.at <= after.at
        if isinstance(before, SpeechStopped):
            assert after.at >= before.now
        if isinstance(after, SpeechStopped):
            assert isinstance(before, Pause)
            assert before.at == after.at
            assert after.now - after.at >= min(settings.target(1.0), settings.target(None))


@given(settings_of_all_kinds, probabilities, st.lists(st.integers(0, 300), max_size=5))
def test_the_state_is_all_there_is(settings: TurnSettings, speech: list[float], cuts: list[int]) -> None:
    """However the items are delivered, the signals are the same."""
    borders = [0, *sorted(min(cut, len(speech)) for cut in cuts), len(speech)]
    state, signals = Listening(), list[Signal]()
    for begin, end in pairwise(borders):
        state, more = heard(settings, speech[begin:end], state)
        signals += more
    assert (state, signals) == heard(settings, speech)
