"""The tensors of a SNAC checkpoint, weight norm folded into the weights."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from mstar.errors import WeightsError

_PARAMETRISED = "parametrizations.weight"


class SnacWeights:
    """Tensors by public name (`decoder.model.0.bias`); `weight` of a convolution is the folded one.

    Weight norm (Salimans & Kingma 2016): weight = g · v / ‖v‖, the norm over all dimensions but the first.
    """

    __slots__ = ("_device", "_source", "_tensors")

    def __init__(self, tensors: Mapping[str, Tensor], source: str = "snac", device: str = "cpu") -> None:
        self._tensors = tensors
        self._source = source
        self._device = device

    def take(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """float32; raises WeightsError: missing, or of another shape."""
        tensor = self._tensors.get(name)
        if tensor is None:
            raise WeightsError(f"{self._source}: tensor {name} is missing")
        if tuple(tensor.shape) != shape:
            raise WeightsError(
                f"{self._source}: tensor {name} has shape {tuple(tensor.shape)}, the config asks {shape}"
            )
        return tensor.to(self._device, torch.float32).contiguous()

    def kernel(self, name: str, shape: tuple[int, int, int]) -> Tensor:
        """The weight of the convolution `name`."""
        gain = self.take(f"{name}.{_PARAMETRISED}.original0", (shape[0], 1, 1))
        direction = self.take(f"{name}.{_PARAMETRISED}.original1", shape)
        length = torch.linalg.vector_norm(direction, dim=(1, 2), keepdim=True)
        folded: Tensor = gain * direction / length
        return folded


def read_weights(file: Path, device: str = "cpu") -> SnacWeights:
    """`pytorch_model.bin`: tensors only, code in the pickle is never run. Raises WeightsError."""
    try:
        tensors = torch.load(file, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise WeightsError(f"{file}: missing") from None
    except (OSError, RuntimeError, EOFError, ValueError, pickle.UnpicklingError) as cause:
        said = str(cause).partition("\n")[0] or type(cause).__name__
        raise WeightsError(f"{file}: {said}") from None
    if not isinstance(tensors, dict) or not all(isinstance(tensor, Tensor) for tensor in tensors.values()):
        raise WeightsError(f"{file}: holds no tensors by name")
    return SnacWeights(tensors, str(file), device)
