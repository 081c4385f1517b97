"""The checkpoints of a speech model, each read once a process however many nodes use it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from models.llama.checkpoint import HubFolder
from models.llama.config import LlamaConfig, read_config
from models.llama.tokenizer import Tokenizer, read_tokenizer
from models.llama.weights import Weights, read_weights
from models.orpheus import tiny
from models.orpheus.prompt import speech_tokens
from models.orpheus.tokens import LEVEL_SLOTS, SpeechTokens
from models.snac.codec import Snac
from models.snac.config import read_config as read_codec_config
from mstar.errors import WeightsError
from mstar.tensors import Value


@dataclass(frozen=True, slots=True)
class SpeechModel:
    """What the nodes read of the language model's checkpoint."""

    config: LlamaConfig
    weights: Weights
    tokenizer: Tokenizer
    tokens: SpeechTokens


def is_tiny(settings: Mapping[str, Value]) -> bool:
    """Whether small parts of random weights are asked for (a command line gives text)."""
    return settings.get("tiny") in (True, "true", "1")


def folder(settings: Mapping[str, Value], name: str, published: str) -> Path:
    """The path that a setting gives. Raises WeightsError if there is none."""
    given = settings.get(name)
    if not isinstance(given, str):
        raise WeightsError(f"orpheus: set {name} to a folder with {published}, or set tiny for random weights")
    return Path(given)


def speech_model(settings: Mapping[str, Value]) -> SpeechModel:
    """The language model of the settings."""
    if is_tiny(settings):
        return _tiny_model()
    path = folder(settings, "llm", "canopylabs/orpheus-3b-0.1-ft")
    codec = read_codec_config(folder(settings, "snac", "hubertsiuzdak/snac_24khz") / "config.json")
    return _published(path, codec.codebook)


def codec(settings: Mapping[str, Value]) -> Snac:
    """The codec of the settings. Raises WeightsError if its levels are not those of a speech token's frame."""
    device = str(settings.get("device", "cpu"))
    if is_tiny(settings):
        return tiny.codec(device)
    return _published_codec(folder(settings, "snac", "hubertsiuzdak/snac_24khz"), device)


@cache
def _tiny_model() -> SpeechModel:
    words = tiny.tokenizer()
    tokens = speech_tokens(words, tiny.CODEBOOK)
    config = tiny.config(tokens)
    return SpeechModel(config, tiny.TinyWeights(config, tokens), words, tokens)


@cache
def _published(path: Path, codebook: int) -> SpeechModel:
    checkpoint = HubFolder(path)
    config = read_config(checkpoint)
    words = read_tokenizer(checkpoint)
    return SpeechModel(config, read_weights(checkpoint, config), words, speech_tokens(words, codebook))


@cache
def _published_codec(path: Path, device: str) -> Snac:
    snac = Snac.load(path, device)
    if [snac.config.frame // stride for stride in snac.config.levels] != [len(slots) for slots in LEVEL_SLOTS]:
        raise WeightsError(f"{path}: vq_strides {snac.config.levels} are not those of a frame of 7 codes")
    return snac
