"""Ear and speech recognition in the voice graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from models.blocks.values import floats, integer, ints, items, record, text
from models.ear.nodes import SpeechSubmodule, TurnSubmodule
from models.voice.nodes.checkpoints import folder, recogniser, recogniser_network, threads
from models.whisper.cut import ITEM, LIMIT
from models.whisper.cut import cut as cut_points
from models.whisper.nodes import DecoderSubmodule, EncoderSubmodule
from models.whisper.tokenizer import Tokenizer
from mstar.submodule import STATE, Call, Many, Output, Outputs, Packed, Step
from mstar.tensors import Value

QUIET_DB = 40.0
"""An item this far below the loudest one counts as silent when a long utterance is cut."""


class CutSubmodule:
    """Input `audio`, float32 of any shape (taken in order), 16 kHz → `piece`: its pieces of ≤ 30 s, cut at pauses.

    The whole utterance is at hand, so pauses are found by loudness over it. Silence of no length is one empty piece.
    """

    max_batch = 16

    def collate(self, calls: Sequence[Call]) -> Packed:
        return Packed({})

    def forward(self, packed: Packed, step: Step) -> Outputs:
        return {"piece": [self._pieces(call) for call in step.calls]}

    def verdict(self, call: Call, outputs: Mapping[str, Output]) -> bool:
        return False

    def _pieces(self, call: Call) -> Many:
        audio = floats(call.inputs["audio"]).reshape(-1)
        if len(audio) <= LIMIT:
            return Many((audio,))
        ends = cut_points(len(audio), _speech(audio))
        return Many(tuple(audio[start:end] for start, end in zip((0, *ends), ends, strict=False)))


def _speech(audio: np.ndarray) -> np.ndarray:
    """1 for items that are loud against the loudest, 0 for silent ones [n]."""
    whole = audio[: len(audio) // ITEM * ITEM].reshape(-1, ITEM)
    power = (whole.astype(np.float64) ** 2).mean(axis=1)
    loud = power > power.max() * 10 ** (-QUIET_DB / 10)
    return np.asarray(loud, dtype=np.float32)


class TranscriptSubmodule:
    """Inputs `first` (id), `tokens` (ids) and `seconds` of one piece after another.

    Output `transcript`: {"text", "segments": [{"text", "start", "end"}]} of all pieces so far, in seconds from the
    start of the first. State: the same, and how long the pieces were.
    """

    max_batch = 16

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer

    def collate(self, calls: Sequence[Call]) -> Packed:
        return Packed({})

    def forward(self, packed: Packed, step: Step) -> Outputs:
        done = [self._join(call) for call in step.calls]
        return {"transcript": [{"text": each["text"], "segments": each["segments"]} for each in done], STATE: done}

    def verdict(self, call: Call, outputs: Mapping[str, Output]) -> bool:
        return False

    def _join(self, call: Call) -> Mapping[str, Value]:
        before: Mapping[str, Value] = (
            {"text": "", "segments": (), "seconds": 0.0} if call.state is None else record(call.state)
        )
        offset = float(floats(before["seconds"]))
        seconds = float(floats(call.inputs["seconds"]))
        ids = [integer(call.inputs["first"]), *ints(call.inputs["tokens"]).tolist()]
        segments: list[Value] = [
            {"text": part.text.strip(), "start": offset + part.start, "end": offset + part.end}
            for part in self.tokenizer.segments(ids, end=seconds)
        ]
        said = (text(before["text"]), self.tokenizer.text(ids).strip())
        return {
            "text": " ".join(part for part in said if part),
            "segments": (*items(before["segments"]), *segments),
            "seconds": offset + seconds,
        }


def vad(settings: Mapping[str, Value]) -> SpeechSubmodule:
    """Is somebody speaking."""
    return SpeechSubmodule(folder(settings, "ear", "ear") / "silero_vad.onnx", threads=1)


def turn(settings: Mapping[str, Value]) -> TurnSubmodule:
    """Has the speaker finished."""
    path = folder(settings, "ear", "ear") / "smart-turn-v3.2-cpu.onnx"
    return TurnSubmodule(path, threads=threads(settings))


def cut(_: Mapping[str, Value]) -> CutSubmodule:
    """Pieces of an utterance."""
    return CutSubmodule()


def encoder(settings: Mapping[str, Value]) -> EncoderSubmodule:
    """Audio → encoder states."""
    return EncoderSubmodule(recogniser_network(folder(settings, "asr", "whisper-tiny-en")))


def asr(settings: Mapping[str, Value]) -> DecoderSubmodule:
    """Encoder states → token ids."""
    path = folder(settings, "asr", "whisper-tiny-en")
    return DecoderSubmodule(recogniser_network(path), recogniser(path).ids)


def transcript(settings: Mapping[str, Value]) -> TranscriptSubmodule:
    """Token ids → text with times."""
    return TranscriptSubmodule(recogniser(folder(settings, "asr", "whisper-tiny-en")).tokenizer)
