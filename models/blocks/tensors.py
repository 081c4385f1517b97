"""Tensors of a network by name: where a network takes its weights from."""

from __future__ import annotations

import math
import zlib
from typing import Protocol

import torch
from torch import Tensor


class Tensors(Protocol):
    """Named tensors of any float type."""

    def __contains__(self, name: object) -> bool: ...

    def take(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """Raises WeightsError: missing, or of another shape."""
        ...


class Under:
    """The tensors whose names begin with `prefix`, by the rest of their names, on `device`."""

    __slots__ = ("_device", "_prefix", "_tensors")

    def __init__(self, tensors: Tensors, prefix: str, device: str | None = None) -> None:
        self._tensors = tensors
        self._prefix = prefix
        self._device = device

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self._prefix + name in self._tensors

    def take(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """As `Tensors.take`."""
        tensor = self._tensors.take(self._prefix + name, shape)
        return tensor if self._device is None else tensor.to(self._device)


class RandomTensors:
    """Any tensor asked for, drawn from (seed, its name): matrices with a variance of 1 / inputs, vectors of 0.01."""

    __slots__ = ("_seed",)

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str)

    def take(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """[shape] float32."""
        generator = torch.Generator().manual_seed(zlib.crc32(name.encode(), self._seed))
        inputs = math.prod(shape[1:]) if len(shape) > 1 else 100
        return torch.randn(shape, generator=generator) / math.sqrt(inputs)
