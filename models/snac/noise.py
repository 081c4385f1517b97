"""Gaussian noise by position: any stretch of it can be drawn alone, and is the same however a stream is cut."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

_BLOCK = 4  # 64-bit words that a step of Philox's counter gives
_HALF = np.uint64(32)
_UNIT = 2.0**-32


@dataclass(frozen=True, slots=True)
class SeededNoise:
    """The noise of one sound: item i of block b is a function of (seed, segment, b, i) alone.

    Philox (Salmon et al. 2011) gives a 64-bit word an item, whose halves become a normal number (Box & Muller 1958).
    `level` scales it: 1 is what the decoder was trained with.
    """

    seed: int
    segment: int = 0
    level: float = 1.0

    def __call__(self, block: int, start: int, stop: int) -> Tensor:
        """[stop - start] float32."""
        stream = np.random.SeedSequence((abs(self.seed), int(self.seed < 0), self.segment, block))
        source = np.random.Philox(stream)
        source.advance(start // _BLOCK)
        skipped = start % _BLOCK
        words = source.random_raw(skipped + stop - start)[skipped:]
        radius = np.sqrt(-2 * np.log(((words >> _HALF).astype(np.float64) + 1) * _UNIT))
        angle = (words & np.uint64(0xFFFFFFFF)).astype(np.float64) * (2 * np.pi * _UNIT)
        return torch.from_numpy((self.level * radius * np.cos(angle)).astype(np.float32))
