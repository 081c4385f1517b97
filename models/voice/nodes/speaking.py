"""Speech in the voice graph."""

from __future__ import annotations

from collections.abc import Mapping

from models.piper.nodes import AcousticSubmodule, DecoderSubmodule, FlowSubmodule
from models.piper.voice import Voice
from models.speech.nodes import ClauseSubmodule, PhonemeSubmodule
from models.voice.nodes.checkpoints import folder, speaker, threads
from mstar.tensors import Value


def _voice(settings: Mapping[str, Value]) -> Voice:
    return speaker(folder(settings, "voice", "piper-joe"), threads(settings))


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
