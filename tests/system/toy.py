"""What the toy family is spoken to with, and how to read its answers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from models.toy.language import tone_of
from mstar.messages import Emission, RequestEnded

MIC_RATE = 16_000
ITEM = 512


def tones(words: str, *, seconds: float = 0.2, gap: float = 0.1) -> np.ndarray:
    """Spoken toy words: float32 at 16 kHz."""
    time = np.arange(int(seconds * MIC_RATE)) / MIC_RATE
    silence = np.zeros(int(gap * MIC_RATE), dtype=np.float32)
    parts = []
    for word in words.split():
        parts += [(0.3 * np.sin(2 * np.pi * tone_of(word) * time)).astype(np.float32), silence]
    return np.concatenate(parts)


def items(sound: np.ndarray) -> np.ndarray:
    """Mic items [n, 512], the last one padded with zeros."""
    padded = np.pad(sound, (0, -len(sound) % ITEM)).astype(np.float32)
    return padded.reshape(-1, ITEM)


def values(events: Iterable[Emission | RequestEnded], output: str) -> list[Any]:
    return [event.value for event in events if isinstance(event, Emission) and event.output == output]


def text_of(events: Iterable[Emission | RequestEnded]) -> str:
    return "".join(value["text"] for value in values(events, "text"))


def sound_of(events: Iterable[Emission | RequestEnded]) -> np.ndarray:
    """All sound, after checking that its chunks follow one another without gap or overlap."""
    position = 0
    parts = [np.zeros(0, dtype=np.float32)]
    for chunk in values(events, "audio"):
        assert chunk["start"] == position
        position += len(chunk["pcm"])
        parts.append(chunk["pcm"])
    return np.concatenate(parts)


def end_of(events: Iterable[Emission | RequestEnded]) -> RequestEnded:
    """The one terminal event, which is the last."""
    events = list(events)
    ends = [event for event in events if isinstance(event, RequestEnded)]
    assert len(ends) == 1
    assert events[-1] is ends[0]
    return ends[0]
