"""Tensors of V-JEPA 2 checkpoints under one set of names, Meta's own.

encoder.patch_embed.proj · encoder.blocks.N.{norm1, attn.qkv, attn.proj, norm2, mlp.fc1, mlp.fc2} · encoder.norm
predictor.predictor_embed · predictor.predictor_blocks.N.… · predictor.predictor_norm · predictor.predictor_proj
predictor.mask_tokens  |  predictor.action_encoder · predictor.state_encoder
pooler.… · classifier (as on the hub)
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from mstar.errors import WeightsError


class Weights(Protocol):
    """Tensors by name. `dtype`: what products are to be computed in."""

    dtype: torch.dtype

    def take(self, name: str, *shape: int) -> Tensor:
        """float32. Raises WeightsError: missing, or of another shape."""
        ...


class Loaded:
    """Tensors read from a file; what was never taken is named by `untaken`."""

    __slots__ = ("_device", "_path", "_taken", "_tensors", "dtype")

    def __init__(
        self, path: Path, tensors: Mapping[str, Tensor], device: str = "cpu", dtype: torch.dtype = torch.float32
    ) -> None:
        self.dtype = dtype
        self._path = path
        self._tensors = dict(tensors)
        self._taken: set[str] = set()
        self._device = device

    def take(self, name: str, *shape: int) -> Tensor:
        tensor = self._tensors.get(name)
        if tensor is None:
            raise WeightsError(f"{self._path}: tensor {name} is missing")
        if tuple(tensor.shape) != shape:
            raise WeightsError(f"{self._path}: tensor {name} is {tuple(tensor.shape)}, the config asks for {shape}")
        self._taken.add(name)
        return tensor.to(self._device, torch.float32).contiguous()

    def untaken(self, within: str) -> tuple[str, ...]:
        """Names that begin with `within` and were not asked for."""
        return tuple(sorted(name for name in self._tensors if name.startswith(within) and name not in self._taken))


class Drawn:
    """Random weights, the same for the same seed and name: a network to try things with, without a checkpoint."""

    __slots__ = ("_device", "_seed", "dtype")

    def __init__(self, seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float32) -> None:
        self.dtype = dtype
        self._seed = seed
        self._device = device

    def take(self, name: str, *shape: int) -> Tensor:
        generator = torch.Generator().manual_seed(hash_of(name) + self._seed)
        values = torch.randn(shape, generator=generator)
        if "norm" in name:
            values = 0.1 * values + float(name.endswith("weight"))
        elif len(shape) > 1:
            values /= (values[0].numel()) ** 0.5
        else:
            values *= 0.1
        return values.to(self._device)


def hash_of(name: str) -> int:
    """A number of the text, the same in every process."""
    value = 0
    for byte in name.encode():
        value = (value * 131 + byte) % (1 << 31)
    return value


def read_weights(path: Path, device: str = "cpu", dtype: torch.dtype = torch.float32, part: str = "") -> Loaded:
    """A hub folder (`model.safetensors`), a folder with one Meta file, or such a file (`.pt`, `.pth`, `.safetensors`).

    `part`: what the names of the wanted tensors begin with; files are mapped, so that the others are not read. Pickled
    code is never run: `.pt` files are read with torch's restricted unpickler. Raises WeightsError.
    """
    file = _file_of(path)
    try:
        if file.suffix == ".safetensors":
            tensors = load_file(file)
        else:
            loaded = torch.load(file, map_location="cpu", weights_only=True, mmap=True)
            tensors = dict(_flattened(file, loaded))
    except FileNotFoundError:
        raise WeightsError(f"{file}: missing") from None
    except (OSError, SafetensorError, RuntimeError, pickle.UnpicklingError, EOFError) as cause:
        raise WeightsError(f"{file}: {str(cause).splitlines()[0]}") from None
    named = {plain: tensor for name, tensor in tensors.items() if (plain := _plain(name)).startswith(part)}
    hub = any(".layer." in name for name in named)
    return Loaded(file, _from_hub(file, named) if hub else _from_meta(named), device, dtype)


def _file_of(path: Path) -> Path:
    if not path.is_dir():
        return path
    if (path / "model.safetensors").is_file():
        return path / "model.safetensors"
    found = sorted(path.glob("*.safetensors")) or sorted(path.glob("*.pt")) + sorted(path.glob("*.pth"))
    if len(found) != 1:
        raise WeightsError(f"{path}: holds {len(found)} checkpoint files, expected one")
    return found[0]


def _flattened(file: Path, loaded: Any) -> Iterable[tuple[str, Tensor]]:
    """`{"encoder": {name: tensor}, "predictor": …}` and what else a training run left there."""
    if not isinstance(loaded, Mapping):
        raise WeightsError(f"{file}: not a map of state dictionaries")
    parts = {"encoder": loaded.get("encoder", loaded.get("target_encoder")), "predictor": loaded.get("predictor")}
    for part, tensors in parts.items():
        if isinstance(tensors, Mapping):
            yield from ((f"{part}.{name}", tensor) for name, tensor in tensors.items() if isinstance(tensor, Tensor))


def _plain(name: str) -> str:
    """Without the wrappers that a name may have been saved under."""
    return re.sub(r"(?<![^.])(module|backbone|vjepa2)\.", "", name)


def _from_meta(tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """Drops what is not used (`pos_embed`, the encoder of extrinsics), joins the mask tokens of masked predictors."""
    masks = sorted((name for name in tensors if re.fullmatch(r"predictor\.mask_tokens\.\d+", name)), key=_last_number)
    kept = {
        name: tensor
        for name, tensor in tensors.items()
        if name not in masks and "pos_embed" not in name and "extrinsics_encoder" not in name
    }
    if masks:
        kept["predictor.mask_tokens"] = torch.stack([tensors[name].reshape(-1) for name in masks])
    return kept


def _last_number(name: str) -> int:
    return int(name.rpartition(".")[2])


_FROM_HUB = (
    (r"^encoder\.embeddings\.patch_embeddings\.", "encoder.patch_embed."),
    (r"^encoder\.layer\.", "encoder.blocks."),
    (r"^encoder\.layernorm\.", "encoder.norm."),
    (r"^predictor\.embeddings\.predictor_embeddings\.", "predictor.predictor_embed."),
    (r"^predictor\.embeddings\.mask_tokens$", "predictor.mask_tokens"),
    (r"^predictor\.layer\.", "predictor.predictor_blocks."),
    (r"^predictor\.layernorm\.", "predictor.predictor_norm."),
    (r"^predictor\.proj\.", "predictor.predictor_proj."),
    (r"\.attention\.", ".attn."),
)


def _from_hub(file: Path, tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """Renames, and puts query, key and value side by side."""
    named: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        target = name
        if not name.startswith(("pooler.", "classifier.")):
            for pattern, replacement in _FROM_HUB:
                target = re.sub(pattern, replacement, target)
        named[target] = tensor
    for query in [name for name in named if ".attn.query." in name]:
        parts = []
        for part in ("query", "key", "value"):
            one = named.pop(query.replace(".query.", f".{part}."), None)
            if one is None:
                raise WeightsError(f"{file}: {query} has no {part} beside it")
            parts.append(one)
        named[query.replace(".query.", ".qkv.")] = torch.cat(parts)
    masks = named.get("predictor.mask_tokens")
    if masks is not None:
        named["predictor.mask_tokens"] = masks.reshape(masks.shape[0], -1)
    return named
