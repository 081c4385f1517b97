"""The two nodes of the ear. Both are ONNX models that lie in the wheel of `pipecat-ai` (see NOTICE)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from media.features import HOP, RATE, log_mel, unit_variance
from models.blocks.values import floats, record
from models.ear.session import open_session
from mstar.errors import Rejected
from mstar.submodule import STATE, Call, Output, Outputs, Packed, Step
from mstar.tensors import Value

ITEM = 512
"""Samples of one item of the microphone's stream (32 ms)."""
CONTEXT = 64
"""Samples of the item before that the model sees again."""
HEARD = 8 * RATE
"""Samples that the turn model hears, the last of the turn."""


class SpeechSubmodule:
    """Silero VAD (`silero_vad.onnx`, MIT): input `audio` float32 [512], 16 kHz → `speech`, the probability of speech.

    State, for the whole session: {"context": float32 [64], "memory": float32 [2, 128]}. Sessions are batched into one
    call of the model; a session's numbers do not depend on the others'. A firing without audio (the end of the stream)
    puts out nothing.
    """

    max_batch = 32

    def __init__(self, path: Path, *, threads: int = 1) -> None:
        self._session = open_session(path, threads=threads, inputs=("input", "state", "sr"))

    def collate(self, calls: Sequence[Call]) -> Packed:
        heard = [(_item(call), _state(call.state)) for call in calls if call.inputs["audio"] is not None]
        if not heard:
            return Packed({})
        audio = np.stack([np.concatenate((context, item)) for item, (context, _) in heard])
        memory = np.stack([before for _, (_, before) in heard], axis=1)
        return Packed({"audio": torch.from_numpy(audio), "memory": torch.from_numpy(memory)})

    def forward(self, packed: Packed, step: Step) -> Outputs:
        speech: list[Value] = [None] * len(step.calls)
        states: list[Value] = [call.state for call in step.calls]
        if packed.tensors:
            audio, memory = packed.tensors["audio"].numpy(), packed.tensors["memory"].numpy()
            rate = np.array(RATE, dtype=np.int64)
            said, after = self._session.run(None, {"input": audio, "state": memory, "sr": rate})
            firing = [number for number, call in enumerate(step.calls) if call.inputs["audio"] is not None]
            for row, number in enumerate(firing):
                speech[number] = float(said[row, 0])
                states[number] = {"context": audio[row, -CONTEXT:].copy(), "memory": after[:, row].copy()}
        return {"speech": speech, STATE: states}

    def verdict(self, call: Call, outputs: Mapping[str, Output]) -> bool:  # noqa: ARG002 - the stream's end ends it
        return False


class TurnSubmodule:
    """smart-turn v3 (`smart-turn-v3.2-cpu.onnx`, BSD-2-Clause): input `audio` float32 of any shape (taken in order),
    16 kHz, the turn so far → `complete`, the probability that the speaker has finished.

    The model hears the last 8 s, silence before them where there are fewer, at unit variance, as 80 log-mel bins.
    """

    max_batch = 1  # 70 ms of work on one core

    def __init__(self, path: Path, *, threads: int = 1) -> None:
        self._session = open_session(path, threads=threads, inputs=("input_features",))

    def collate(self, calls: Sequence[Call]) -> Packed:
        return Packed({"mel": torch.from_numpy(np.stack([_turn_features(call.inputs["audio"]) for call in calls]))})

    def forward(self, packed: Packed, step: Step) -> Outputs:  # noqa: ARG002 - all is in the packed tensor
        [said] = self._session.run(None, {"input_features": packed.tensors["mel"].numpy()})
        return {"complete": [float(row[0]) for row in said]}

    def verdict(self, call: Call, outputs: Mapping[str, Output]) -> bool:  # noqa: ARG002 - no loop is around it
        return False


def _item(call: Call) -> NDArray[np.float32]:
    item = floats(call.inputs["audio"]).reshape(-1)
    if len(item) != ITEM:
        raise Rejected(f"audio: an item has {ITEM} samples, got {len(item)}", param="audio")
    return item


def _state(state: Value) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """(context, memory); silence and zeros at the start of a session."""
    if state is None:
        return np.zeros(CONTEXT, dtype=np.float32), np.zeros((2, 128), dtype=np.float32)
    kept = record(state)
    return floats(kept["context"]), floats(kept["memory"])


def _turn_features(audio: Value) -> NDArray[np.float32]:
    """[80, 800]"""
    last = floats(audio).reshape(-1)[-HEARD:]
    return log_mel(unit_variance(np.pad(last, (HEARD - len(last), 0))), bins=80, frames=HEARD // HOP)
