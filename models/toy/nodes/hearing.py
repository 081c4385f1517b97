"""Toy hearing: loudness is speech, tones are words."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from models.toy.language import word_at
from models.toy.nodes.plain import PerCall
from mstar.submodule import STATE, Call, Output
from mstar.tensors import Value

RATE = 16_000
LOUD = 0.01


def vad(_: Mapping[str, Value]) -> PerCall:
    """mic [512] float32 → speech: 1.0 where it is loud."""

    def run(call: Call) -> Mapping[str, Output]:
        sound = np.asarray(call.inputs["mic"], dtype=np.float32)
        return {"speech": float(np.sqrt(np.mean(sound**2)) > LOUD)}

    return PerCall(run, ("speech",))


def turn(_: Mapping[str, Value]) -> PerCall:
    """audio [n, 512] → complete: 0.1 where the last tone is the word `again` (one expects more), else 0.9."""

    def run(call: Call) -> Mapping[str, Output]:
        words = hear_words(np.asarray(call.inputs["audio"]).reshape(-1))
        return {"complete": 0.1 if words and words[-1] == "again" else 0.9}

    return PerCall(run, ("complete",))


def hear(_: Mapping[str, Value]) -> PerCall:
    """audio [n, 512] → transcript {"text", "segments"}."""

    def run(call: Call) -> Mapping[str, Output]:
        sound = np.asarray(call.inputs["audio"]).reshape(-1)
        text = " ".join(hear_words(sound))
        segments: list[Value] = [{"text": text, "start": 0.0, "end": len(sound) / RATE}] if text else []
        return {"transcript": {"text": text, "segments": segments}}

    return PerCall(run, ("transcript",))


def recognise(_: Mapping[str, Value]) -> PerCall:
    """sound (float32 [n] an item, cut anywhere) → at its end `heard` and `recognised`, as of `Recognition`."""

    def run(call: Call) -> Mapping[str, Output]:
        parts = [part for part in (call.state, call.inputs["sound"]) if part is not None]
        sound = np.concatenate([np.asarray(part, dtype=np.float32).reshape(-1) for part in parts])
        if not (call.spans["sound"].segment_final or call.spans["sound"].final):
            return {STATE: sound}
        words = hear_timed(sound)
        said, end = " ".join(word for word, _, _ in words), len(sound) / RATE
        sure: dict[str, Value] = {"logprob": 0.0}
        tokens = list(said.encode())
        segment: dict[str, Value] = {"text": said, "start": 0.0, "end": end, "tokens": tokens, "logprob": 0.0}
        recognised: Value = {
            "text": said,
            "start": 0.0,
            "end": end,
            "no_speech": float(not words),
            "language": str(call.settings.get("language") or "en"),
            "segments": [{**segment, "compression": 1.0}] if said else [],
            "words": [{"text": word, "start": start, "end": stop, **sure} for word, start, stop in words],
            "tokens": [{"text": each, "bytes": list(each.encode()), **sure} for each in said],
        }
        return {"heard": {"text": said} if said else None, "recognised": recognised, STATE: sound[:0]}

    return PerCall(run, ("heard", "recognised", STATE))


def hear_words(sound: np.ndarray) -> list[str]:
    """The words of a sound."""
    return [word for word, _, _ in hear_timed(sound)]


def hear_timed(sound: np.ndarray) -> list[tuple[str, float, float]]:
    """Words with their times (s). Windows of 512 samples (31 Hz apart): two or more in a row with one word's tone."""
    words: list[tuple[str, float, float]] = []
    current: str | None = None
    length = 0
    for start in range(0, len(sound) - 511, 512):
        window = sound[start : start + 512]
        loud = float(np.sqrt(np.mean(window**2))) > LOUD
        peak = int(np.abs(np.fft.rfft(window * np.hanning(512))).argmax())
        word = word_at(peak * RATE / 512) if loud else None
        length = length + 1 if word == current else 1
        current = word
        if word is not None and length == 2:
            words.append((word, (start - 512) / RATE, (start + 512) / RATE))
        elif word is not None and length > 2:
            words[-1] = (word, words[-1][1], (start + 512) / RATE)
    return words
