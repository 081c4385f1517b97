"""Speech in the voice graph."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from models.piper.nodes import AcousticSubmodule, DecoderSubmodule, FlowSubmodule
from models.piper.voice import Voice
from models.speech.nodes import ClauseSubmodule, PhonemeSubmodule
from models.voice.nodes.checkpoints import folder, threads
from mstar.errors import WeightsError
from mstar.tensors import Value


@cache
def _speaker(path: Path, count: int) -> Voice:
    """The Piper voice in a folder (or at the path of its .onnx), with `count` threads."""
    if path.is_file():
        return Voice.load(path, threads=count)
    found = sorted(path.glob("*.onnx"))
    if len(found) != 1:
        raise WeightsError(f"{path}: holds {len(found)} .onnx files, expected one voice")
    return Voice.load(found[0], threads=count)


def _voice(settings: Mapping[str, Value]) -> Voice:
    return _speaker(folder(settings, "voice", "piper-joe"), threads(settings))


def clauses(settings: Mapping[str, Value]) -> ClauseSubmodule:
    """Pieces of text → clauses."""
    return ClauseSubmodule(language=_voice(settings).config.language)


def phonemes(settings: Mapping[str, Value]) -> PhonemeSubmodule:
    """A clause → phoneme ids."""
    config = _voice(settings).config
    return PhonemeSubmodule(config.ids, config.language)


def acoustic(settings: Mapping[str, Value]) -> AcousticSubmodule:
    """Phoneme ids → latents."""
    return AcousticSubmodule(_voice(settings))


def flow(settings: Mapping[str, Value]) -> FlowSubmodule:
    """Latents → frames."""
    return FlowSubmodule(_voice(settings))


def decoder(settings: Mapping[str, Value]) -> DecoderSubmodule:
    """Frames → sound."""
    return DecoderSubmodule(_voice(settings))
