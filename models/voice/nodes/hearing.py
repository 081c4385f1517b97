"""Speech recognition in the voice graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np

from models.blocks.values import floats
from models.voice.nodes.checkpoints import folder
from models.whisper import weights as whisper
from models.whisper.cut import ITEM, LIMIT
from models.whisper.cut import cut as cut_points
from models.whisper.network import Whisper
from models.whisper.nodes import DecoderSubmodule, EncoderSubmodule, TranscriptSubmodule
from models.whisper.prompting import conditioning
from models.whisper.telling import CaptionSubmodule, TellingSubmodule
from models.whisper.times import alignment_heads
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


class DivideSubmodule:
    """Streaming input `audio`, float32 [n] at 16 kHz, any n → `piece`: pieces of ≤ 30 s, cut at pauses as sound comes.

    A pause is found by loudness over the sound that is at hand. State: the sound that waits for more.
    """

    max_batch = 16

    def collate(self, calls: Sequence[Call]) -> Packed:
        return Packed({})

    def forward(self, packed: Packed, step: Step) -> Outputs:
        done = [self._divide(call) for call in step.calls]
        return {"piece": [pieces for pieces, _ in done], STATE: [rest for _, rest in done]}

    def verdict(self, call: Call, outputs: Mapping[str, Output]) -> bool:
        return False

    def _divide(self, call: Call) -> tuple[Many, np.ndarray]:
        audio = np.concatenate(
            [floats(part).reshape(-1) for part in (call.state, call.inputs["audio"]) if part is not None]
        )
        span = call.spans["audio"]
        ends = cut_points(len(audio), _speech(audio)) if len(audio) > LIMIT else ()
        borders = (0, *ends[:-1])  # behind the last cut lies what waits
        pieces = [audio[start:end] for start, end in pairwise(borders)]
        rest = audio[borders[-1] :]
        if span.segment_final or span.final:
            pieces.append(rest)
            rest = rest[:0]
        return Many(tuple(pieces)), rest


def _speech(audio: np.ndarray) -> np.ndarray:
    """1 for items that are loud against the loudest, 0 for silent ones [n]."""
    whole = audio[: len(audio) // ITEM * ITEM].reshape(-1, ITEM)
    power = (whole.astype(np.float64) ** 2).mean(axis=1)
    loud = power > power.max() * 10 ** (-QUIET_DB / 10)
    return np.asarray(loud, dtype=np.float32)


@cache
def _recogniser(path: Path) -> whisper.Checkpoint:
    """A Whisper checkpoint."""
    return whisper.load(path)


@cache
def _network(path: Path) -> Whisper:
    """Its network."""
    checkpoint = _recogniser(path)
    return Whisper(checkpoint.config, checkpoint.tensors, kernel="int8")


def cut(_: Mapping[str, Value]) -> CutSubmodule:
    """Pieces of an utterance."""
    return CutSubmodule()


def encoder(settings: Mapping[str, Value]) -> EncoderSubmodule:
    """Audio → encoder states."""
    return EncoderSubmodule(_network(folder(settings, "asr", "whisper-tiny-en")))


def asr(settings: Mapping[str, Value]) -> DecoderSubmodule:
    """Encoder states → token ids."""
    path = folder(settings, "asr", "whisper-tiny-en")
    checkpoint = _recogniser(path)
    before = conditioning(path, checkpoint.config, checkpoint.ids)
    return DecoderSubmodule(_network(path), checkpoint.ids, conditioning=before)


def transcript(settings: Mapping[str, Value]) -> TranscriptSubmodule:
    """Token ids → text with times."""
    checkpoint = _recogniser(folder(settings, "asr", "whisper-tiny-en"))
    return TranscriptSubmodule(checkpoint.tokenizer, checkpoint.ids.end)


def divide(_: Mapping[str, Value]) -> DivideSubmodule:
    """Pieces of sound that is still coming."""
    return DivideSubmodule()


def caption(settings: Mapping[str, Value]) -> CaptionSubmodule:
    """Token ids → text as it is written."""
    checkpoint = _recogniser(folder(settings, "asr", "whisper-tiny-en"))
    return CaptionSubmodule(checkpoint.tokenizer, checkpoint.ids)


def told(settings: Mapping[str, Value]) -> TellingSubmodule:
    """Token ids and what they were heard in → text with the times of its words."""
    path = folder(settings, "asr", "whisper-tiny-en")
    checkpoint = _recogniser(path)
    heads = alignment_heads(path, checkpoint.config)
    return TellingSubmodule(_network(path), checkpoint.ids, checkpoint.tokenizer, heads)
