"""The three nodes of a Piper voice: acoustic | flow | decoder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from models.blocks.values import floats, integer, ints, record
from models.piper.voice import Carried, Floats, Ints, Tails, Voice
from models.speech.opening import Opening, fresh, open_sound
from mstar.errors import Rejected
from mstar.submodule import STATE, Call, Outputs, Packed, Rows, Step
from mstar.tensors import Value

SPEEDS = (0.25, 4.0)


class AcousticSubmodule:
    """Input `phonemes`, one record a firing. State: samples and clauses of the response so far.

    Outputs: `latents`, rows [n, channels] float32 that end their segment (a clause is one); `alignment`, {"words":
    int64 [w, 4] (first and last character, first and last sample; both count from the beginning of the response),
    "start", "end": the clause's characters, "first", "last": its samples, "index"}. Samples are counted before the
    decoder trims the response's leading silence: what is heard at sample s of its audio stands at s + `trimmed` here.

    Settings: `speed` (0.25 … 4), `seed`, `noise_scale`, `noise_w` (the voice's own if absent; 0 = none). The noise of
    clause i is drawn from (seed, i).
    """

    max_batch = 1  # a batch gains nothing on a CPU and would keep other nodes waiting; any size works

    def __init__(self, voice: Voice) -> None:
        self.voice = voice

    def collate(self, calls: Sequence[Call]) -> Packed:
        for call in calls:
            _speed(call)
        return Packed({})

    def forward(self, packed: Packed, step: Step) -> Outputs:  # noqa: ARG002 - onnxruntime takes numpy arrays
        done = [self._clause(call) for call in step.calls]
        latents, alignments, states = zip(*done, strict=True)
        return {"latents": latents, "alignment": alignments, STATE: states}

    def verdict(self, call: Call, outputs: object) -> bool:  # noqa: ARG002 - the stream's end ends it
        return False

    def _clause(self, call: Call) -> tuple[Rows | None, Value, Value]:
        if call.inputs["phonemes"] is None:  # an end with nothing new
            return None, None, call.state
        phonemes = record(call.inputs["phonemes"])
        state = {"samples": 0, "clauses": 0} if call.state is None else record(call.state)
        first, index = integer(state["samples"]), integer(state["clauses"])
        config = self.voice.config
        seed = call.settings.get("seed")
        seed = call.seed if seed is None else integer(seed)
        latents = self.voice.latents(
            ints(phonemes["ids"]),
            np.random.default_rng((abs(seed), int(seed < 0), index)),
            noise_scale=_number(call, "noise_scale", config.noise_scale),
            noise_w=_number(call, "noise_w", config.noise_w),
            length_scale=config.length_scale / _speed(call),
        )
        last = first + len(latents.frames) * self.voice.hop
        alignment: Value = {
            "words": word_samples(
                ints(phonemes["words"]).reshape(-1, 4), latents.durations, self.voice.hop, first, last
            ),
            "start": integer(phonemes["start"]),
            "end": integer(phonemes["end"]),
            "first": first,
            "last": last,
            "index": index,
        }
        return Rows(latents.frames, cut=True), alignment, {"samples": last, "clauses": index + 1}


def word_samples(words: Ints, durations: Ints, hop: int, first: int, last: int) -> Ints:
    """Words [w, 4] by ids and frames per id [n] → words [w, 4] by samples, covering [first, last) without a gap."""
    borders = first + np.concatenate(([0], np.cumsum(durations))) * hop
    timed = words.copy()
    timed[:, 2] = borders[words[:, 2]]
    timed[:, 3] = borders[words[:, 3]]
    timed[words[:, 2] == words[0, 2], 2] = first
    timed[words[:, 3] == words[-1, 3], 3] = last
    return timed


@dataclass(frozen=True, slots=True)
class Chunks:
    """State of a carried stage: rows that wait for more, the convolutions' tails (None between segments)."""

    rows: Floats  # [n, channels]
    tails: Tails | None

    @classmethod
    def of(cls, value: Value, channels: int) -> Chunks:
        if value is None:
            return cls(np.zeros((0, channels), np.float32), None)
        rows, tails = record(value)["rows"], record(value)["tails"]
        return cls(floats(rows), tuple(floats(t) for t in tails) if isinstance(tails, Sequence) else None)

    def value(self) -> Value:
        return {"rows": self.rows, "tails": self.tails}


def advance(stage: Carried, call: Call, stream: str, value: Value) -> tuple[Floats | None, bool, Value]:
    """Take a chunk of `stream` → what it determines [m, channels out], if anything; whether its segment ends; state.

    Of the chunk the new rows are read (no context is needed). The last one is kept, for an end that brings none.
    """
    channels = stage.graph.channels
    state = Chunks.of(value, channels)
    span, chunk = call.spans[stream], call.inputs[stream]
    new = state.rows[:0] if chunk is None else floats(chunk).reshape(-1, channels)[span.n_context :]
    rows = np.concatenate((state.rows, new))
    last = span.segment_final or span.final
    ready = len(rows) if last else len(rows) - 1
    if ready < (1 if state.tails is not None or last else stage.graph.first):
        return None, last, Chunks(rows, state.tails).value()
    out, tails = stage.advance(rows[:ready], state.tails or stage.fresh(), last)
    return out, last, Chunks(rows[ready:], None if last else tails).value()


class FlowSubmodule:
    """Streaming input `latents` [k, channels] → `frames`, rows [n, channels], that end their segment with it.

    A chunk leaves its last row and `voice.flow.graph.lag` frames open until the next one or the end of the segment.
    """

    max_batch = 1  # a batch gains nothing on a CPU; any size works

    def __init__(self, voice: Voice) -> None:
        self.voice = voice

    def collate(self, calls: Sequence[Call]) -> Packed:  # noqa: ARG002 - onnxruntime takes numpy arrays
        return Packed({})

    def forward(self, packed: Packed, step: Step) -> Outputs:  # noqa: ARG002
        done = [advance(self.voice.flow, call, "latents", call.state) for call in step.calls]
        frames = [None if rows is None or not len(rows) else Rows(rows, cut=last) for rows, last, _ in done]
        return {"frames": frames, STATE: [state for _, _, state in done]}

    def verdict(self, call: Call, outputs: object) -> bool:  # noqa: ARG002 - the stream's end ends it
        return False


class DecoderSubmodule:
    """Streaming input `frames` [k, channels].

    Output `audio`: {"pcm": float32 [n] in [-1, 1] at the voice's rate, "start": position of its first sample in the
    response's audio, "trimmed": samples of leading silence that were cut before it}, or nothing while no sample is
    determined: a chunk leaves its last frame and `voice.decoder.graph.lag` samples open until the next one or the end
    of the segment.
    """

    max_batch = 1  # a batch gains nothing on a CPU; any size works

    def __init__(self, voice: Voice) -> None:
        self.voice = voice

    def collate(self, calls: Sequence[Call]) -> Packed:  # noqa: ARG002 - onnxruntime takes numpy arrays
        return Packed({})

    def forward(self, packed: Packed, step: Step) -> Outputs:  # noqa: ARG002
        done = [self._advance(call) for call in step.calls]
        audio, states = zip(*done, strict=True)
        return {"audio": audio, STATE: states}

    def verdict(self, call: Call, outputs: object) -> bool:  # noqa: ARG002 - the stream's end ends it
        return False

    def _advance(self, call: Call) -> tuple[Value, Value]:
        before = None if call.state is None else record(call.state)
        opening = fresh() if before is None else _opening(before["opening"])
        samples, _, chunks = advance(self.voice.decoder, call, "frames", None if before is None else before["chunks"])
        audio: Value = None
        if samples is not None:
            start = opening.emitted
            pcm, opening = open_sound(opening, samples[:, 0], self.voice.config.sample_rate)
            audio = {"pcm": pcm, "start": start, "trimmed": opening.trimmed} if len(pcm) else None
        told: Value = {"quiet": opening.quiet, "emitted": opening.emitted, "trimmed": opening.trimmed}
        return audio, {"chunks": chunks, "opening": told}


def _opening(value: Value) -> Opening:
    got = record(value)
    quiet = got["quiet"]
    return Opening(None if quiet is None else floats(quiet), integer(got["emitted"]), integer(got["trimmed"]))


def _number(call: Call, name: str, default: float) -> float:
    value = call.settings.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Rejected(f"{name} must be a number, got {value!r}", param=name)
    return float(value)


def _speed(call: Call) -> float:
    speed = _number(call, "speed", 1.0)
    if not SPEEDS[0] <= speed <= SPEEDS[1]:
        raise Rejected(f"speed must be from {SPEEDS[0]} to {SPEEDS[1]}, got {speed}", param="speed")
    return speed
