"""The checkpoints of a voice, each read once a process however many nodes use it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from models.llama.checkpoint import Checkpoint, open_checkpoint
from models.llama.tokenizer import Tokenizer, read_tokenizer
from models.piper.voice import Voice
from models.pull import part_dir
from models.whisper import weights as whisper
from models.whisper.network import Whisper
from mstar.errors import WeightsError
from mstar.tensors import Value


def folder(settings: Mapping[str, Value], name: str, part: str) -> Path:
    """The path that a setting gives, else the folder of the pulled part. Raises WeightsError if that is not there."""
    given = settings.get(name)
    if isinstance(given, str):
        return Path(given)
    pulled = part_dir(part)
    if not pulled.is_dir():
        raise WeightsError(f"{pulled}: no such folder; `mstar pull voice` fetches it")
    return pulled


def threads(settings: Mapping[str, Value]) -> int:
    """Threads of the rank."""
    given = settings.get("threads")
    return given if isinstance(given, int) else 1


@cache
def recogniser(path: Path) -> whisper.Checkpoint:
    """A Whisper checkpoint."""
    return whisper.load(path)


@cache
def recogniser_network(path: Path) -> Whisper:
    """Its network."""
    checkpoint = recogniser(path)
    return Whisper(checkpoint.config, checkpoint.tensors, kernel="int8")


@cache
def language_checkpoint(path: Path) -> Checkpoint:
    """The language model's checkpoint, opened."""
    return open_checkpoint(path)


@cache
def tokenizer(path: Path) -> Tokenizer:
    """The language model's tokenizer."""
    return read_tokenizer(language_checkpoint(path))


@cache
def speaker(path: Path, count: int) -> Voice:
    """The Piper voice in a folder (or at the path of its .onnx), with `count` threads."""
    if path.is_file():
        return Voice.load(path, threads=count)
    found = sorted(path.glob("*.onnx"))
    if len(found) != 1:
        raise WeightsError(f"{path}: holds {len(found)} .onnx files, expected one voice")
    return Voice.load(found[0], threads=count)
