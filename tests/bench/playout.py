"""What a listener hears: a player that starts after a short cushion and plays in real time (pure)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tests.bench.sound import RATE, Pcm, first_loud

CUSHION_SECONDS = 0.08
"""Sound a player holds before it begins, and again after it ran dry."""


@dataclass(frozen=True, slots=True)
class Delta:
    """Sound [n], at 24 kHz unless told otherwise, that arrived at `at` (seconds of the client's clock)."""

    at: float
    pcm: Pcm


def heard_at(deltas: Sequence[Delta], rate: int = RATE) -> float | None:
    """When the first sample above −45 dBFS sounds at a player without cushion; None if all is silence."""
    due = 0.0
    for delta in deltas:
        due = max(due, delta.at)
        loud = first_loud(delta.pcm)
        if loud is not None:
            return due + loud / rate
        due += len(delta.pcm) / rate
    return None


def starved(deltas: Sequence[Delta], cushion: float = CUSHION_SECONDS, rate: int = RATE) -> tuple[float, float]:
    """Seconds for which a player had begun and had nothing to play, and seconds of sound in all."""
    if not deltas:
        return 0.0, 0.0
    due = deltas[0].at + cushion  # when the next sample is to sound
    gaps = total = 0.0
    for delta in deltas:
        if delta.at > due:
            gaps += delta.at - due
            due = delta.at + cushion
        due += len(delta.pcm) / rate
        total += len(delta.pcm) / rate
    return gaps, total
