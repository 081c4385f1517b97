"""Shape of a Whisper checkpoint, and the ids its decoding goes by."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mstar.errors import WeightsError

STAMP_SECONDS = 0.02
"""Seconds between two timestamp tokens."""


@dataclass(frozen=True, slots=True)
class WhisperConfig:
    """Shape of the network; names as in the public `config.json`."""

    d_model: int
    encoder_layers: int
    decoder_layers: int
    encoder_attention_heads: int
    decoder_attention_heads: int
    encoder_ffn_dim: int
    decoder_ffn_dim: int
    num_mel_bins: int
    vocab_size: int
    max_source_positions: int = 1500
    max_target_positions: int = 448


@dataclass(frozen=True, slots=True)
class Ids:
    """Special tokens and the tokens that decoding never takes."""

    start: int
    """<|startoftranscript|>"""
    end: int
    """<|endoftext|>"""
    no_stamps: int
    """<|notimestamps|>"""
    first_stamp: int
    """<|0.00|>; every id from here on is a time, 0.02 s apart."""
    no_speech: int
    """<|nospeech|>, or <|nocaptions|>: how likely it is behind `start` says how likely nobody speaks."""
    suppress: tuple[int, ...] = ()
    begin_suppress: tuple[int, ...] = ()
    """Not taken as the first token after the prompt."""
    max_first_stamp: int | None = 50
    """The first time lies at most this many steps after 0.00; None = anywhere."""
    languages: Mapping[str, int] = field(default_factory=dict)
    """Language code → id; empty for a checkpoint of one language."""
    transcribe: int | None = None
    translate: int | None = None

    def prompt(self, *, language: str | None = None, translate: bool = False, stamps: bool = True) -> tuple[int, ...]:
        """Ids that the decoder starts from.

        Raises ValueError for a language or a task that the checkpoint does not have.
        """
        ids = [self.start]
        if self.languages:
            code = language or "en"
            if code not in self.languages:
                raise ValueError(f"language: {code!r} is not one of {', '.join(sorted(self.languages))}")
            task = self.translate if translate else self.transcribe
            if task is None:
                raise ValueError(f"translate: the checkpoint has no token for translate={translate}")
            ids += [self.languages[code], task]
        elif translate or (language or "en") != "en":
            raise ValueError(f"language: the checkpoint transcribes English only, not {language!r}")
        return tuple(ids if stamps else [*ids, self.no_stamps])


def _json(path: Path) -> dict[str, object]:
    try:
        parsed = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise WeightsError(f"{path}: {error}") from error
    if not isinstance(parsed, dict):
        raise WeightsError(f"{path}: expected a JSON object, found {type(parsed).__name__}")
    return parsed


def _integer(found: Mapping[str, object], name: str, path: Path, default: int | None = None) -> int:
    value = found.get(name, default)
    if not isinstance(value, int):
        raise WeightsError(f"{path}: {name} should be an integer, found {value!r}")
    return value


def _integers(found: Mapping[str, object], name: str, path: Path) -> tuple[int, ...]:
    value = found.get(name) or []
    if not isinstance(value, Sequence) or not all(isinstance(item, int) for item in value):
        raise WeightsError(f"{path}: {name} should be a list of integers, found {value!r}")
    return tuple(item for item in value if item >= 0)


def _table(found: Mapping[str, object], name: str, path: Path) -> dict[str, int]:
    value = found.get(name) or {}
    if not isinstance(value, Mapping) or not all(isinstance(item, int) for item in value.values()):
        raise WeightsError(f"{path}: {name} should map words to integers, found {value!r}")
    return {str(key).strip("<|>"): item for key, item in value.items()}


def hub_config(folder: Path) -> tuple[WhisperConfig, Ids]:
    """Shape and ids of a checkpoint in the public hub layout: `config.json`, `generation_config.json`.

    Raises WeightsError, one line with path and cause.
    """
    path = folder / "config.json"
    found = _json(path)
    if found.get("model_type") != "whisper":
        raise WeightsError(f"{path}: model_type is {found.get('model_type')!r}, expected 'whisper'")
    if found.get("activation_function", "gelu") != "gelu" or found.get("scale_embedding", False):
        raise WeightsError(f"{path}: activation_function other than gelu, or scale_embedding, is not supported")
    config = WhisperConfig(
        d_model=_integer(found, "d_model", path),
        encoder_layers=_integer(found, "encoder_layers", path),
        decoder_layers=_integer(found, "decoder_layers", path),
        encoder_attention_heads=_integer(found, "encoder_attention_heads", path),
        decoder_attention_heads=_integer(found, "decoder_attention_heads", path),
        encoder_ffn_dim=_integer(found, "encoder_ffn_dim", path),
        decoder_ffn_dim=_integer(found, "decoder_ffn_dim", path),
        num_mel_bins=_integer(found, "num_mel_bins", path),
        vocab_size=_integer(found, "vocab_size", path),
        max_source_positions=_integer(found, "max_source_positions", path, 1500),
        max_target_positions=_integer(found, "max_target_positions", path, 448),
    )
    path = folder / "generation_config.json"
    rules = {**found, **(_json(path) if path.exists() else {})}
    tasks = _table(rules, "task_to_id", path)
    no_stamps = _integer(rules, "no_timestamps_token_id", path)
    ids = Ids(
        start=_integer(rules, "decoder_start_token_id", path),
        end=_integer(rules, "eos_token_id", path),
        no_stamps=no_stamps,
        first_stamp=no_stamps + 1,
        no_speech=no_stamps - 1,
        suppress=_integers(rules, "suppress_tokens", path),
        begin_suppress=_integers(rules, "begin_suppress_tokens", path),
        max_first_stamp=_integer(rules, "max_initial_timestamp_index", path, 50),
        languages=_table(rules, "lang_to_id", path),
        transcribe=tasks.get("transcribe"),
        translate=tasks.get("translate"),
    )
    return config, ids


def ct2_ids(folder: Path, words: Sequence[str]) -> Ids:
    """Ids of a CTranslate2 checkpoint: its `config.json` and the words of its vocabulary, in order of their ids.

    A checkpoint of 51,864 words transcribes English only, larger ones have language tokens.
    """
    path = folder / "config.json"
    found = _json(path)
    where = {word: number for number, word in enumerate(words) if word[:2] == "<|"}

    def id_of(word: str) -> int:
        if word not in where:
            raise WeightsError(f"{folder}: the vocabulary has no {word}")
        return where[word]

    multilingual = len(words) > 51_864
    names = {number: word.strip("<|>") for word, number in where.items()}
    languages = {names[number]: number for number in _integers(found, "lang_ids", path) if number in names}
    return Ids(
        start=id_of("<|startoftranscript|>"),
        end=id_of("<|endoftext|>"),
        no_stamps=id_of("<|notimestamps|>"),
        first_stamp=id_of("<|0.00|>"),
        no_speech=id_of("<|notimestamps|>") - 1,
        suppress=_integers(found, "suppress_ids", path),
        begin_suppress=_integers(found, "suppress_ids_begin", path),
        languages=languages if multilingual else {},
        transcribe=where.get("<|transcribe|>") if multilingual else None,
        translate=where.get("<|translate|>") if multilingual else None,
    )
