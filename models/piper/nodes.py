"""The two nodes of a Piper voice: acoustic | decoder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from models.blocks.values import floats, integer, ints, record
from models.piper.voice import Floats, Ints, Voice
from models.speech.opening import Opening, fresh, open_sound
from mstar.errors import Rejected
from mstar.submodule import STATE, Call, Outputs, Packed, Rows, Step
from mstar.tensors import Value

SPEEDS = (0.25, 4.0)


class AcousticSubmodule:
    """Input `phonemes`, one record a firing. State: samples and clauses of the response so far.

    Outputs: `frames`, rows [n, channels] float32 that end their segment (a clause is one); `alignment`, {"words": int64
    [w, 4] (first and last character, first and last sample; both count from the beginning of the response), "start",
    "end": the clause's characters, "first", "last": its samples, "index"}. Samples are counted before the decoder trims
    the response's leading silence: what is heard at sample s of its audio stands at s + `trimmed` here.

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
        frames, alignments, states = zip(*done, strict=True)
        return {"frames": frames, "alignment": alignments, STATE: states}

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
class Decoding:
    """State of a response's decoder: frames that wait for more, the convolutions' tails (None between segments)."""

    frames: Floats  # [n, channels]
    tails: tuple[Floats, ...] | None
    opening: Opening

    @classmethod
    def of(cls, value: Value, channels: int) -> Decoding:
        if value is None:
            return cls(np.zeros((0, channels), np.float32), None, fresh())
        got = record(value)
        tails, quiet = got["tails"], got["quiet"]
        opening = Opening(None if quiet is None else floats(quiet), integer(got["emitted"]), integer(got["trimmed"]))
        carried = tuple(floats(t) for t in tails) if isinstance(tails, Sequence) else None
        return cls(floats(got["frames"]), carried, opening)

    def value(self) -> Value:
        return {
            "frames": self.frames,
            "tails": self.tails,
            "quiet": self.opening.quiet,
            "emitted": self.opening.emitted,
            "trimmed": self.opening.trimmed,
        }


class DecoderSubmodule:
    """Streaming input `frames` [k, channels], of which the new ones are read (no context is needed).

    Output `audio`: {"pcm": float32 [n] in [-1, 1] at the voice's rate, "start": position of its first sample in the
    response's audio, "trimmed": samples of leading silence that were cut before it}, or nothing while no sample is
    determined: a chunk leaves its last frame and `voice.carried.lag` samples open until the next one or the end of the
    segment.
    """

    max_batch = 1  # about 35 ms of work with chunks of 52 frames, and a batch gains nothing on a CPU; any size works

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
        channels = self.voice.carried.channels
        state = Decoding.of(call.state, channels)
        span = call.spans["frames"]
        chunk = call.inputs["frames"]
        new = state.frames[:0] if chunk is None else floats(chunk).reshape(-1, channels)[span.n_context :]
        frames = np.concatenate((state.frames, new))
        last = span.segment_final or span.final
        begun = state.tails is not None
        ready = len(frames) if last else len(frames) - 1  # one is kept, for an end that brings none
        if ready < (1 if begun or last else self.voice.carried.first):
            return None, Decoding(frames, state.tails, state.opening).value()
        pcm, tails = self.voice.decode(frames[:ready], state.tails or self.voice.fresh_tails(), last)
        start = state.opening.emitted
        pcm, opening = open_sound(state.opening, pcm, self.voice.config.sample_rate)
        after = Decoding(frames[ready:], None if last else tails, opening)
        audio: Value = {"pcm": pcm, "start": start, "trimmed": opening.trimmed} if len(pcm) else None
        return audio, after.value()


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
