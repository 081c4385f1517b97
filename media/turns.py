"""When a speaker starts, pauses and has finished: pure rules on probabilities of speech, on the clock of the samples.

Two probabilities go in: of speech, per item of the microphone, and (in semantic mode) of a finished turn, per pause.
Signals come out. Every position counts samples of the microphone's stream from its beginning.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

Eagerness: TypeAlias = Literal["low", "medium", "high", "auto"]

SURE = 0.5
"""Probability from which the turn model takes a turn for complete; below it the silence waited for grows to the cap."""
CAPS: dict[Eagerness, int] = {"low": 8000, "medium": 4000, "high": 2000, "auto": 4000}
"""Longest silence, ms, after which a turn is over whatever the turn model says."""


@dataclass(frozen=True, slots=True)
class TurnSettings:
    """Thresholds and times in ms. With `eagerness` the silence that ends a turn follows the turn model."""

    threshold: float = 0.5
    """Speech begins at this probability …"""
    hysteresis: float = 0.15
    """… and goes on until it falls below `threshold` by this much."""
    start_ms: int = 64
    """Speech shorter than this is a click: it neither starts a turn nor ends a pause."""
    prefix_padding_ms: int = 300
    """Sound before the first item of speech that belongs to the turn."""
    silence_duration_ms: int = 500
    """Silence that ends a turn (not in semantic mode)."""
    prepare_ms: int = 96
    """Silence after which the answer is prepared and the turn model is asked."""
    sure_ms: int = 200
    """Silence that ends a turn which the turn model takes for complete."""
    eagerness: Eagerness | None = None
    """Semantic mode and its cap."""
    rate: int = 16_000
    item: int = 512
    """Samples per second; samples per item."""

    def samples(self, ms: float) -> int:
        """Milliseconds as samples."""
        return round(ms * self.rate / 1000)

    @property
    def release(self) -> float:
        """Below this probability there is silence."""
        return max(self.threshold - self.hysteresis, 0.01)

    @property
    def pause(self) -> int:
        """Samples of silence that make a pause."""
        longest = CAPS[self.eagerness] if self.eagerness else self.silence_duration_ms
        return self.samples(min(self.prepare_ms, longest))

    def target(self, complete: float | None) -> int:
        """Samples of silence that end the turn, given the turn model's probability (None = not said yet)."""
        if self.eagerness is None:
            return self.samples(self.silence_duration_ms)
        cap = CAPS[self.eagerness]
        unsure = 1.0 if complete is None else min(max(1.0 - complete / SURE, 0.0), 1.0)
        return self.samples(self.sure_ms + unsure**2 * (cap - self.sure_ms))


@dataclass(frozen=True, slots=True)
class SpeechStarted:
    """A turn begins. `at`: its first sample, padding included; `onset`: first sample of speech; `now`: when known."""

    at: int
    onset: int
    now: int


@dataclass(frozen=True, slots=True)
class Pause:
    """Silence since sample `at` has become a pause; `length` samples of it when known. One per silence."""

    at: int
    length: int
    now: int


@dataclass(frozen=True, slots=True)
class SpeechResumed:
    """The pause is over, speech goes on from sample `at`."""

    at: int
    now: int


@dataclass(frozen=True, slots=True)
class SpeechStopped:
    """The turn is over. `at`: first sample of the closing silence; `now`: end of the turn's audio."""

    at: int
    now: int


Signal: TypeAlias = SpeechStarted | Pause | SpeechResumed | SpeechStopped


@dataclass(frozen=True, slots=True)
class Listening:
    """State of the rules. `now`: samples judged; `floor`: no turn starts before it (the end of the last one)."""

    now: int = 0
    floor: int = 0
    speaking: bool = False
    run: int | None = None
    """First sample of speech that is not yet long enough to count."""
    silence: int | None = None
    """First sample of the silence inside the turn."""
    paused: bool = False
    """That silence was signalled as a pause."""
    complete: float | None = None
    """What the turn model said of it."""


def hear(
    settings: TurnSettings, state: Listening, position: int, speech: float
) -> tuple[Listening, tuple[Signal, ...]]:
    """One item, its first sample at `position`, with its probability of speech → new state and the signals it gives.

    Items come in order. Samples that are missing between two items are neither speech nor silence of their own: they
    count as time. Raises ValueError for an item that begins before the end of the last one.
    """
    if position < state.now:
        raise ValueError(f"position: item at sample {position} comes after sample {state.now}")
    state = replace(state, now=position + settings.item)
    if not state.speaking:
        return _idle(settings, state, position, speech)
    return _in_turn(settings, state, position, speech)


def judge(settings: TurnSettings, state: Listening, at: int, complete: float) -> tuple[Listening, tuple[Signal, ...]]:
    """The turn model's probability for the pause that began at sample `at`; nothing if that pause is over."""
    if not (state.speaking and state.paused and state.silence == at):
        return state, ()
    return _end(settings, replace(state, complete=complete))


def forget(state: Listening) -> Listening:
    """After the client cleared or committed what was heard: no turn is open, none starts before now."""
    return Listening(now=state.now, floor=state.now)


def _run(settings: TurnSettings, state: Listening, position: int, speech: float) -> int | None:
    """Beginning of the stretch of speech that this item is part of."""
    if state.run is not None:
        return state.run if speech >= settings.release else None
    return position if speech >= settings.threshold else None


def _idle(
    settings: TurnSettings, state: Listening, position: int, speech: float
) -> tuple[Listening, tuple[Signal, ...]]:
    run = _run(settings, state, position, speech)
    if run is None or state.now - run < settings.samples(settings.start_ms):
        return replace(state, run=run), ()
    at = max(state.floor, run - settings.samples(settings.prefix_padding_ms))
    return replace(state, speaking=True, run=None), (SpeechStarted(at, run, state.now),)


def _in_turn(
    settings: TurnSettings, state: Listening, position: int, speech: float
) -> tuple[Listening, tuple[Signal, ...]]:
    if state.silence is None:
        return (replace(state, silence=position), ()) if speech < settings.release else (state, ())
    run = _run(settings, state, position, speech)
    if run is None:
        state, signals = _pause(settings, replace(state, run=None))
        state, more = _end(settings, state)
        return state, signals + more
    if state.now - run < settings.samples(settings.start_ms):
        return replace(state, run=run), ()
    signals = (SpeechResumed(run, state.now),) if state.paused else ()
    return replace(state, run=None, silence=None, paused=False, complete=None), signals


def _pause(settings: TurnSettings, state: Listening) -> tuple[Listening, tuple[Signal, ...]]:
    if state.silence is None or state.paused or state.now - state.silence < settings.pause:
        return state, ()
    return replace(state, paused=True), (Pause(state.silence, state.now - state.silence, state.now),)


def _end(settings: TurnSettings, state: Listening) -> tuple[Listening, tuple[Signal, ...]]:
    """The turn is over when its silence is long enough and no speech is under way that may turn out to count."""
    if state.silence is None or state.run is not None or not state.paused:
        return state, ()
    if state.now - state.silence < settings.target(state.complete):
        return state, ()
    return Listening(now=state.now, floor=state.now), (SpeechStopped(state.silence, state.now),)
