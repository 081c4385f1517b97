"""Checkpoints of Whisper → one set of tensors under the public hub's names.

Two layouts on disk: the hub's (`model.safetensors`, or shards with an index), and CTranslate2's (`model.bin` of
version 6 with `vocabulary.txt` or `vocabulary.json`). Tensors come out in float32.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from models.whisper.config import Ids, WhisperConfig, ct2_ids, hub_config
from models.whisper.ct2 import read_ct2
from models.whisper.tokenizer import Tokenizer, read_words
from mstar.errors import WeightsError


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Everything a Whisper needs from disk. Tensor names are the hub's without the leading `model.`."""

    config: WhisperConfig
    ids: Ids
    tokenizer: Tokenizer
    tensors: dict[str, Tensor]


def load(folder: Path) -> Checkpoint:
    """The checkpoint in `folder`, whichever of the two layouts it has.

    Raises WeightsError, one line with path and cause, when a file is missing, damaged or of another layout.
    """
    if not folder.is_dir():
        raise WeightsError(f"{folder}: no such folder")
    return _load_ct2(folder) if (folder / "model.bin").exists() else _load_hub(folder)


def _load_hub(folder: Path) -> Checkpoint:
    config, ids = hub_config(folder)
    index = folder / "model.safetensors.index.json"
    files = [folder / "model.safetensors"]
    tensors: dict[str, Tensor] = {}
    path = index
    try:
        if index.exists():
            files = [folder / name for name in sorted(set(json.loads(index.read_text())["weight_map"].values()))]
        for path in files:
            tensors.update(load_file(path))
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        raise WeightsError(f"{path}: {error}") from error
    tensors = {name.removeprefix("model."): tensor.float() for name, tensor in tensors.items()}
    tensors.pop("proj_out.weight", None)  # tied to the embedding
    _check(tensors, config, path)
    return Checkpoint(config, ids, Tokenizer(read_words(folder), ids.first_stamp), tensors)


def _load_ct2(folder: Path) -> Checkpoint:
    words = read_words(folder)
    ids = ct2_ids(folder, words)
    path = folder / "model.bin"
    config, tensors = read_ct2(path)
    _check(tensors, config, path)
    return Checkpoint(config, ids, Tokenizer(words, ids.first_stamp), tensors)


def _check(tensors: dict[str, Tensor], config: WhisperConfig, path: Path) -> None:
    """Every tensor is there in its shape, none too many."""
    expected = dict(expected_shapes(config))
    for name, shape in expected.items():
        if name not in tensors:
            raise WeightsError(f"{path}: tensor {name} is missing")
        if tuple(tensors[name].shape) != shape:
            raise WeightsError(f"{path}: tensor {name} is {tuple(tensors[name].shape)}, expected {shape}")
    if unknown := sorted(tensors.keys() - expected.keys()):
        raise WeightsError(f"{path}: unknown tensor {unknown[0]} ({len(unknown)} in all)")


def expected_shapes(config: WhisperConfig) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Name and shape of every tensor of a Whisper."""
    d = config.d_model
    yield "encoder.conv1.weight", (d, config.num_mel_bins, 3)
    yield "encoder.conv1.bias", (d,)
    yield "encoder.conv2.weight", (d, d, 3)
    yield "encoder.conv2.bias", (d,)
    yield "decoder.embed_tokens.weight", (config.vocab_size, d)
    sides = (
        ("encoder", config.encoder_layers, config.encoder_ffn_dim, config.max_source_positions, ("self_attn",)),
        (
            "decoder",
            config.decoder_layers,
            config.decoder_ffn_dim,
            config.max_target_positions,
            ("self_attn", "encoder_attn"),
        ),
    )
    for side, layers, wide, positions, attentions in sides:
        yield f"{side}.embed_positions.weight", (positions, d)
        norms = [f"{side}.layer_norm"]
        for layer in range(layers):
            name = f"{side}.layers.{layer}"
            norms += [f"{name}.{attention}_layer_norm" for attention in attentions] + [f"{name}.final_layer_norm"]
            for attention in attentions:
                for part in ("q_proj", "k_proj", "v_proj", "out_proj"):
                    yield f"{name}.{attention}.{part}.weight", (d, d)
                    if part != "k_proj":
                        yield f"{name}.{attention}.{part}.bias", (d,)
            yield f"{name}.fc1.weight", (wide, d)
            yield f"{name}.fc1.bias", (wide,)
            yield f"{name}.fc2.weight", (d, wide)
            yield f"{name}.fc2.bias", (d,)
        for norm in norms:
            yield f"{norm}.weight", (d,)
            yield f"{norm}.bias", (d,)
