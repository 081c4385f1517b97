"""Codes → sound, in the two ways of the family."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from models.blocks.values import floats, integer, ints, items, record
from models.orpheus.nodes.checkpoints import codec as load_codec
from models.orpheus.tokens import FRAME, levels
from models.snac.codec import Carried, Snac
from models.snac.noise import SeededNoise
from models.speech.opening import Opening, fresh, open_sound
from mstar.errors import Rejected
from mstar.submodule import STATE, Call, Output, Outputs, Packed, Step
from mstar.tensors import Value

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Sounding:
    """State of a response: codes of a frame under way, the decoder's, sentences so far, how the sound began."""

    codes: Ints
    carried: Carried
    sentence: int
    opening: Opening

    @classmethod
    def of(cls, value: Value, snac: Snac) -> Sounding:
        if value is None:
            return cls(np.zeros(0, np.int64), snac.begin(), 0, fresh())
        got = record(value)
        tails = tuple(tail.to(snac.device) for tail in items(got["tails"]) if isinstance(tail, Tensor))
        quiet = None if got["quiet"] is None else floats(got["quiet"])
        opening = Opening(quiet, integer(got["emitted"]), integer(got["trimmed"]))
        return cls(ints(got["codes"]), Carried(integer(got["steps"]), tails), integer(got["sentence"]), opening)

    def value(self) -> Value:
        return {
            "codes": self.codes,
            "steps": self.carried.steps,
            "tails": self.carried.tails,
            "sentence": self.sentence,
            "quiet": self.opening.quiet,
            "emitted": self.opening.emitted,
            "trimmed": self.opening.trimmed,
        }


@dataclass(frozen=True, slots=True)
class _Due:
    """A call's whole frames that can be decoded now."""

    place: int  # among the step's calls
    state: Sounding
    codes: Ints  # [frames * 7]
    rest: Ints
    last: bool
    noise: SeededNoise | None

    @property
    def shape(self) -> tuple[object, ...]:
        """Calls of one shape are decoded together."""
        return len(self.codes), self.last, self.noise is None, tuple(tail.shape[2] for tail in self.state.carried.tails)


class CodecSubmodule:
    """Streaming input `code`, in chunks of any size; a segment is a sentence.

    Output `audio`, {"pcm": float32 [n], "start": first sample of the response's audio, "trimmed": samples of leading
    silence that were cut before it}, or nothing while no sample is determined: `decoder.lag` samples stay open until
    the next chunk or the end of the sentence. A frame that is not whole at the end of a sentence is left out.

    Settings: `noise` (level of the decoder's own noise; 1 if absent, as it was trained; 0 = none), `seed`.
    """

    max_batch = 16

    def __init__(self, snac: Snac) -> None:
        self.snac = snac

    def collate(self, calls: Sequence[Call]) -> Packed:
        return Packed({})

    def forward(self, packed: Packed, step: Step) -> Outputs:
        audio: list[Value] = [None] * len(step.calls)
        states: list[Value] = [None] * len(step.calls)
        groups: dict[tuple[object, ...], list[_Due]] = {}
        for place, call in enumerate(step.calls):
            due = self._due(place, call)
            groups.setdefault(due.shape, []).append(due)
        for group in groups.values():
            for due, (pcm, state) in zip(group, self._decode(group), strict=True):
                states[due.place] = state.value()
                if len(pcm):
                    start = state.opening.emitted - len(pcm)
                    audio[due.place] = {"pcm": pcm, "start": start, "trimmed": state.opening.trimmed}
        return {"audio": audio, STATE: states}

    def verdict(self, call: Call, outputs: Mapping[str, Output]) -> bool:
        return False

    def _due(self, place: int, call: Call) -> _Due:
        state = Sounding.of(call.state, self.snac)
        span = call.spans["code"]
        codes = np.concatenate((state.codes, _codes(call.inputs["code"])))
        whole = len(codes) // FRAME * FRAME
        last = span.segment_final or span.final
        rest = codes[:0] if last else codes[whole:]
        return _Due(place, state, codes[:whole], rest, last, _noise(call, state.sentence))

    def _decode(self, group: Sequence[_Due]) -> list[tuple[NDArray[np.float32], Sounding]]:
        """New samples and next state of calls of one shape."""
        sound, carried = self.snac.push(
            _levels([due.codes for due in group], self.snac.device),
            [due.state.carried for due in group],
            last=group[0].last,
            noise=[due.noise for due in group if due.noise is not None],
        )
        done = []
        for due, row, after in zip(group, sound.cpu().numpy(), carried, strict=True):
            pcm, opening = open_sound(due.state.opening, row, self.snac.config.rate)
            kept, sentence = (self.snac.begin(), due.state.sentence + 1) if due.last else (after, due.state.sentence)
            done.append((pcm, Sounding(due.rest, kept, sentence, opening)))
        return done


@dataclass(frozen=True, slots=True)
class _Window:
    codes: Ints
    number: int  # whole windows before it
    emitted: int  # samples before it
    whole: bool
    sounds: bool  # whole, and all of its codes are in the codebook
    noise: SeededNoise | None


class WindowSubmodule:
    """Streaming input `window_code`, in windows of 4 frames, one further a time; a segment is a sentence.

    Output `audio`, {"pcm": the second frame of the window, float32 [2048], "start"}; nothing for a window with a code
    that is none, or one that is not whole. State: windows so far, samples given out. Settings as those of the codec;
    every window has noise of its own.
    """

    max_batch = 8

    def __init__(self, snac: Snac, frames: int) -> None:
        self.snac = snac
        self.size = frames * FRAME

    def collate(self, calls: Sequence[Call]) -> Packed:
        return Packed({})

    def forward(self, packed: Packed, step: Step) -> Outputs:
        done = [self._window(call) for call in step.calls]
        audio: list[Value] = [None] * len(done)
        states: list[Value] = [{"windows": each.number + each.whole, "emitted": each.emitted} for each in done]
        for noisy in (False, True):
            group = [place for place, each in enumerate(done) if each.sounds and (each.noise is not None) is noisy]
            if not group:
                continue
            for place, pcm in zip(group, self._decode([done[place] for place in group]), strict=True):
                each = done[place]
                audio[place] = {"pcm": pcm, "start": each.emitted}
                states[place] = {"windows": each.number + 1, "emitted": each.emitted + len(pcm)}
        return {"audio": audio, STATE: states}

    def verdict(self, call: Call, outputs: Mapping[str, Output]) -> bool:
        return False

    def _window(self, call: Call) -> _Window:
        state = record({"windows": 0, "emitted": 0} if call.state is None else call.state)
        codes, number = _codes(call.inputs["window_code"]), integer(state["windows"])
        whole = len(codes) == self.size
        sounds = whole and int(codes.max()) < self.snac.config.codebook
        return _Window(codes, number, integer(state["emitted"]), whole, sounds, _noise(call, number))

    def _decode(self, group: Sequence[_Window]) -> NDArray[np.float32]:
        """[windows, samples of a frame]."""
        codes = _levels([each.codes for each in group], self.snac.device)
        sound = self.snac.decode(codes, [each.noise for each in group if each.noise is not None])
        frame = self.snac.config.frame * self.snac.config.hop
        pcm: NDArray[np.float32] = sound[:, frame : 2 * frame].cpu().numpy()
        return pcm


def _levels(codes: Sequence[Ints], device: torch.device) -> list[Tensor]:
    """Codes of several sounds, each [n], by level [sounds, …]."""
    return [torch.from_numpy(level).to(device) for level in levels(np.stack(codes))]


def _codes(chunk: Value) -> Ints:
    return np.zeros(0, np.int64) if chunk is None else ints(chunk)


def _noise(call: Call, segment: int) -> SeededNoise | None:
    """The noise that a call's settings ask for."""
    level = call.settings.get("noise", 1.0)
    level = 1.0 if level is None else level
    if isinstance(level, bool) or not isinstance(level, int | float) or not math.isfinite(level) or level < 0:
        raise Rejected(f"noise must be a number ≥ 0, got {level!r}", param="noise")
    return SeededNoise(call.seed, segment, float(level)) if level else None


def codec(settings: Mapping[str, Value]) -> CodecSubmodule:
    """Codes → every sample."""
    return CodecSubmodule(load_codec(settings))


def windows(settings: Mapping[str, Value]) -> WindowSubmodule:
    """Windows of 4 frames → the second of each."""
    return WindowSubmodule(load_codec(settings), 4)
