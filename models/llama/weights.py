"""Tensors of a checkpoint under the public hub's names, as the checkpoint holds them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from models.blocks.quantise import Grouped4, Grouped8, Stored, moved
from models.llama.checkpoint import Checkpoint, HubFolder
from models.llama.config import LlamaConfig
from models.llama.gguf_file import GgufFile, GgufTensor
from mstar.errors import WeightsError


class Weights(Protocol):
    """Tensors by public name, e.g. `model.layers.0.self_attn.q_proj.weight`."""

    def __contains__(self, name: object) -> bool: ...

    def take(self, name: str, shape: tuple[int, ...]) -> Stored:
        """Raises WeightsError: missing, or of another shape."""
        ...


def read_weights(checkpoint: Checkpoint, config: LlamaConfig) -> Weights:
    """Raises WeightsError when the tensors' files are missing or damaged; the tensors are read when taken."""
    match checkpoint:
        case HubFolder(path):
            return HubWeights(path)
        case GgufFile():
            return GgufWeights(checkpoint, config)


class HubWeights:
    """`model.safetensors`, or the shards that `model.safetensors.index.json` names."""

    __slots__ = ("_files", "_path")

    def __init__(self, path: Path) -> None:
        self._path = path
        self._files = _locate(path)

    def __contains__(self, name: object) -> bool:
        return name in self._files

    def take(self, name: str, shape: tuple[int, ...]) -> Tensor:
        file = self._files.get(name)
        if file is None:
            raise WeightsError(f"{self._path}: tensor {name} is missing")
        try:
            with safe_open(file, framework="pt") as tensors:
                tensor: Tensor = tensors.get_tensor(name)
        except (OSError, SafetensorError) as cause:
            raise WeightsError(f"{file}: tensor {name}: {cause}") from None
        if tuple(tensor.shape) != shape:
            raise WeightsError(f"{file}: tensor {name} has shape {tuple(tensor.shape)}, the config asks for {shape}")
        if not tensor.is_floating_point():
            raise WeightsError(f"{file}: tensor {name} is {tensor.dtype}, not a float type")
        return tensor


class MovedWeights:
    """Weights that are moved to a device as they are taken."""

    __slots__ = ("_device", "_weights")

    def __init__(self, weights: Weights, device: torch.device) -> None:
        self._weights = weights
        self._device = device

    def __contains__(self, name: object) -> bool:
        return name in self._weights

    def take(self, name: str, shape: tuple[int, ...]) -> Stored:
        return moved(self._weights.take(name, shape), self._device)


def _locate(path: Path) -> Mapping[str, Path]:
    index = path / "model.safetensors.index.json"
    if index.exists():
        names = HubFolder(path).json(index.name).get("weight_map")
        if not isinstance(names, Mapping):
            raise WeightsError(f"{index}: weight_map is missing")
        files = {str(name): path / str(shard) for name, shard in names.items()}
        for file in sorted(set(files.values())):
            if file.parent != path or not file.is_file():
                raise WeightsError(f"{file}: missing, but named by {index.name}")
        return files
    single = path / "model.safetensors"
    try:
        with safe_open(single, framework="pt") as tensors:
            return dict.fromkeys(tensors.keys(), single)
    except FileNotFoundError:
        raise WeightsError(f"{single}: missing, and no {index.name}") from None
    except (OSError, SafetensorError) as cause:
        raise WeightsError(f"{single}: {cause}") from None


_GGUF_TOP = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}
_GGUF_LAYER = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "mlp.gate": "ffn_gate_inp",
}
_GGUF_EXPERT = {"gate_proj": "ffn_gate_exps", "up_proj": "ffn_up_exps", "down_proj": "ffn_down_exps"}


class GgufWeights:
    """A GGUF's tensors. Q4_1, Q4_0 and Q8_0 keep their codes; other quantised types come as float32.

    A llama GGUF holds the rows of q and k so that the channels of a rotary pair are neighbours; they are put back into
    the halves layout. `rope_freqs.weight` keeps its name.
    """

    __slots__ = ("_config", "_file")

    def __init__(self, file: GgufFile, config: LlamaConfig) -> None:
        self._file = file
        self._config = config

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and _gguf_name(name)[0] in self._file.tensors

    def take(self, name: str, shape: tuple[int, ...]) -> Stored:
        key, expert = _gguf_name(name)
        tensor = self._file.tensors.get(key)
        if tensor is None:
            raise WeightsError(f"{self._file.path}: tensor {key} ({name}) is missing")
        if expert is not None:
            if not 0 <= expert < tensor.shape[0]:
                raise WeightsError(f"{self._file.path}: tensor {key} has no expert {expert}")
            tensor = GgufTensor(tensor.kind, tensor.shape[1:], tensor.raw[expert])
        if tensor.shape != shape:
            raise WeightsError(f"{self._file.path}: tensor {key} has shape {tensor.shape}, the config asks for {shape}")
        stored = _stored(self._file.path, key, tensor)
        if self._config.family != "llama":
            return stored
        if ".self_attn.q_proj." in name:
            return _halves(stored, self._config.heads)
        if ".self_attn.k_proj." in name:
            return _halves(stored, self._config.kv_heads)
        return stored


def _gguf_name(name: str) -> tuple[str, int | None]:
    """Hub name → (GGUF name, index of an expert)."""
    if name in _GGUF_TOP:
        return _GGUF_TOP[name], None
    parts = name.split(".")
    if parts[:2] != ["model", "layers"]:
        return name, None
    block, kind = f"blk.{parts[2]}", parts[-1]
    if parts[3:5] == ["mlp", "experts"]:
        return f"{block}.{_GGUF_EXPERT[parts[6]]}.{kind}", int(parts[5])
    return f"{block}.{_GGUF_LAYER['.'.join(parts[3:-1])]}.{kind}", None


def _stored(path: Path, name: str, tensor: GgufTensor) -> Stored:
    read = _READERS.get(tensor.kind)
    if read is not None:
        return read(tensor)
    from gguf import GGMLQuantizationType, dequantize  # noqa: PLC0415 - slow to import, and few files need it

    try:
        values = dequantize(tensor.raw, GGMLQuantizationType(tensor.kind))
    except (NotImplementedError, ValueError) as cause:
        raise WeightsError(f"{path}: tensor {name}: {cause}") from None
    return torch.from_numpy(np.ascontiguousarray(values, np.float32))


def _plain(dtype: np.dtype[np.generic]) -> Callable[[GgufTensor], Tensor]:
    def read(tensor: GgufTensor) -> Tensor:
        return torch.from_numpy(tensor.raw.view(dtype).reshape(tensor.shape).astype(np.float32))

    return read


def _blocks(tensor: GgufTensor, size: int) -> np.ndarray:
    """[rows, blocks, bytes of a block] uint8."""
    return tensor.raw.reshape(tensor.shape[0], -1, size)


def _half(blocks: np.ndarray) -> Tensor:
    """Two little-endian bytes per block → [rows, blocks] float32."""
    return torch.from_numpy(np.ascontiguousarray(blocks).view("<f2")[..., 0].astype(np.float32))


def _nibbles(packed: np.ndarray) -> Tensor:
    """[rows, blocks, 16] → [rows, blocks · 32]: low nibbles are the first half of a block."""
    codes = np.concatenate((packed & 15, packed >> 4), axis=-1)
    return torch.from_numpy(codes.reshape(codes.shape[0], -1))


def _q4_0(tensor: GgufTensor) -> Grouped4:
    blocks = _blocks(tensor, 18)
    scale = _half(blocks[..., :2])
    return Grouped4(_nibbles(blocks[..., 2:]), scale, scale * -8)


def _q4_1(tensor: GgufTensor) -> Grouped4:
    blocks = _blocks(tensor, 20)
    return Grouped4(_nibbles(blocks[..., 4:]), _half(blocks[..., :2]), _half(blocks[..., 2:4]))


def _q8_0(tensor: GgufTensor) -> Grouped8:
    blocks = _blocks(tensor, 34)
    codes = np.ascontiguousarray(blocks[..., 2:]).view(np.int8).reshape(tensor.shape)
    return Grouped8(torch.from_numpy(codes), _half(blocks[..., :2]))


_READERS: Mapping[int, Callable[[GgufTensor], Stored]] = {
    0: _plain(np.dtype("<f4")),
    1: _plain(np.dtype("<f2")),
    2: _q4_0,
    3: _q4_1,
    8: _q8_0,
}


def _halves(stored: Stored, heads: int) -> Stored:
    """Rows (2i, 2i+1) of each head → rows (i, i + dim/2)."""

    def rows(part: Tensor) -> Tensor:
        pairs = part.reshape(heads, part.shape[0] // heads // 2, 2, *part.shape[1:])
        return pairs.transpose(1, 2).reshape(part.shape)

    match stored:
        case Grouped4(codes, scale, minimum):
            return Grouped4(rows(codes), rows(scale), rows(minimum))
        case Grouped8(codes, scale):
            return Grouped8(rows(codes), rows(scale))
        case _:
            return rows(stored)
