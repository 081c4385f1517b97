"""CTranslate2's file of a Whisper (`model.bin`, version 6) → shape and tensors under the public hub's names.

The file: u32 version, spec, u32 revision, u32 count; then per variable its name, u8 rank, u32 dimensions, u8 type, u32
bytes, data; then aliases. A word is a u16 length, which counts the closing zero, and the bytes. Little-endian.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from models.whisper.config import WhisperConfig
from mstar.errors import WeightsError

_TYPES: dict[int, type[np.generic]] = {0: np.float32, 1: np.int8, 2: np.int16, 3: np.int32, 4: np.float16}


def read_ct2(path: Path) -> tuple[WhisperConfig, dict[str, Tensor]]:
    """Shape and float32 tensors of the file.

    Raises WeightsError, one line with path and cause.
    """
    try:
        with path.open("rb") as file:  # mapped: what is float32 already is not copied
            found = dict(_variables(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)))
    except (OSError, ValueError, KeyError, struct.error, UnicodeDecodeError) as error:
        raise WeightsError(f"{path}: not a readable CTranslate2 Whisper of version 6 ({error})") from error
    try:
        config = WhisperConfig(
            d_model=found["encoder/conv1/weight"].shape[0],
            encoder_layers=_layers(found, "encoder"),
            decoder_layers=_layers(found, "decoder"),
            encoder_attention_heads=int(found["encoder/num_heads"].item()),
            decoder_attention_heads=int(found["decoder/num_heads"].item()),
            encoder_ffn_dim=found["encoder/layer_0/ffn/linear_0/weight"].shape[0],
            decoder_ffn_dim=found["decoder/layer_0/ffn/linear_0/weight"].shape[0],
            num_mel_bins=found["encoder/conv1/weight"].shape[1],
            vocab_size=found["decoder/embeddings/weight"].shape[0],
            max_source_positions=found["encoder/position_encodings/encodings"].shape[0],
            max_target_positions=found["decoder/position_encodings/encodings"].shape[0],
        )
        return config, _hub_names(found, config)
    except KeyError as error:
        raise WeightsError(f"{path}: there is no variable {error}") from error


def _variables(blob: mmap.mmap) -> Iterator[tuple[str, np.ndarray]]:
    """Name and data of every variable."""
    at = 0

    def number(kind: str) -> int:
        nonlocal at
        (value,) = struct.unpack_from("<" + kind, blob, at)
        at += struct.calcsize(kind)
        return int(value)

    def word() -> str:
        nonlocal at
        length = number("H")  # with its closing zero
        at += length
        return blob[at - length : at - 1].decode()

    version, spec = number("I"), word()
    if version != 6 or spec != "WhisperSpec":
        raise ValueError(f"version {version} of {spec}")
    number("I")  # revision of the spec
    for _ in range(number("I")):
        name = word()
        shape = tuple(number("I") for _ in range(number("B")))
        kind = np.dtype(_TYPES[number("B")])
        size = number("I")
        if at + size > len(blob) or size != int(np.prod(shape)) * kind.itemsize:
            raise ValueError(f"the data of {name} is cut short")
        yield name, np.frombuffer(blob, kind, count=size // kind.itemsize, offset=at).reshape(shape)
        at += size


def _layers(found: dict[str, np.ndarray], side: str) -> int:
    return len({name.split("/")[1] for name in found if name.startswith(f"{side}/layer_") and name.count("/") > 2})


def _hub_names(found: dict[str, np.ndarray], config: WhisperConfig) -> dict[str, Tensor]:
    """CTranslate2's variables under the hub's names, its stacked projections taken apart."""
    d = config.d_model
    out: dict[str, Tensor] = {}

    def take(name: str) -> Tensor:
        array = found[name]
        if array.dtype not in (np.float32, np.float16):
            raise KeyError(f"{name} in floating point (found {array.dtype})")
        return torch.from_numpy(np.require(array, requirements="A")).float()

    def norm(source: str, target: str) -> None:
        out[f"{target}.weight"], out[f"{target}.bias"] = take(f"{source}/gamma"), take(f"{source}/beta")

    def linear(source: str, *targets: str) -> None:
        weight, bias = take(f"{source}/weight"), take(f"{source}/bias")
        for part, target in enumerate(targets):
            out[f"{target}.weight"] = weight[part * d : (part + 1) * d] if len(targets) > 1 else weight
            if not target.endswith("k_proj"):
                out[f"{target}.bias"] = bias[part * d : (part + 1) * d] if len(targets) > 1 else bias

    for conv in ("conv1", "conv2"):
        out[f"encoder.{conv}.weight"], out[f"encoder.{conv}.bias"] = (
            take(f"encoder/{conv}/weight"),
            take(f"encoder/{conv}/bias"),
        )
    out["decoder.embed_tokens.weight"] = take("decoder/embeddings/weight")
    for side, layers in (("encoder", config.encoder_layers), ("decoder", config.decoder_layers)):
        out[f"{side}.embed_positions.weight"] = take(f"{side}/position_encodings/encodings")
        norm(f"{side}/layer_norm", f"{side}.layer_norm")
        for layer in range(layers):
            old, new = f"{side}/layer_{layer}", f"{side}.layers.{layer}"
            norm(f"{old}/self_attention/layer_norm", f"{new}.self_attn_layer_norm")
            attn = f"{new}.self_attn"
            linear(f"{old}/self_attention/linear_0", f"{attn}.q_proj", f"{attn}.k_proj", f"{attn}.v_proj")
            linear(f"{old}/self_attention/linear_1", f"{attn}.out_proj")
            norm(f"{old}/ffn/layer_norm", f"{new}.final_layer_norm")
            linear(f"{old}/ffn/linear_0", f"{new}.fc1")
            linear(f"{old}/ffn/linear_1", f"{new}.fc2")
            if side == "decoder":
                norm(f"{old}/attention/layer_norm", f"{new}.encoder_attn_layer_norm")
                attn = f"{new}.encoder_attn"
                linear(f"{old}/attention/linear_0", f"{attn}.q_proj")
                linear(f"{old}/attention/linear_1", f"{attn}.k_proj", f"{attn}.v_proj")
                linear(f"{old}/attention/linear_2", f"{attn}.out_proj")
    return out
