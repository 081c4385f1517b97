"""The ear in the voice graph."""

from __future__ import annotations

from collections.abc import Mapping

from models.ear.nodes import SpeechSubmodule, TurnSubmodule
from models.voice.nodes.checkpoints import folder, threads
from mstar.tensors import Value


def vad(settings: Mapping[str, Value]) -> SpeechSubmodule:
    """Is somebody speaking."""
    return SpeechSubmodule(folder(settings, "ear", "ear") / "silero_vad.onnx", threads=1)


def turn(settings: Mapping[str, Value]) -> TurnSubmodule:
    """Has the speaker finished."""
    path = folder(settings, "ear", "ear") / "smart-turn-v3.2-cpu.onnx"
    return TurnSubmodule(path, threads=threads(settings))
