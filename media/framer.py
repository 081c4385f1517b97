"""A sample stream cut into items of fixed size, with absolute sample positions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

Sample = TypeVar("Sample", np.int16, np.float32)

MIC_ITEM = 512
"""Samples of a microphone item at 16 kHz (32 ms)."""


@dataclass(frozen=True, slots=True)
class Item(Generic[Sample]):
    """`pcm` [size] stands at samples `start` … `start + size`; the first `real` of them are from the stream."""

    start: int
    pcm: npt.NDArray[Sample]
    real: int


class Framer(Generic[Sample]):
    """Chunks of any size in, items of exactly `size` samples out. `dtype` is np.int16 or np.float32 and is kept."""

    def __init__(self, size: int, dtype: type[Sample]) -> None:
        if size < 1:
            raise ValueError(f"size must be at least 1 sample, not {size}")
        self.size = size
        self._dtype: np.dtype[Sample] = np.dtype(dtype)
        self._start = 0
        self._parts: list[npt.NDArray[Sample]] = []
        self._pending = 0

    @property
    def position(self) -> int:
        """Absolute position of the next sample to be fed."""
        return self._start + self._pending

    @property
    def pending(self) -> int:
        """Samples fed that no item holds yet, less than `size`."""
        return self._pending

    def feed(self, pcm: npt.NDArray[Sample]) -> list[Item[Sample]]:
        """[n] → the items that are complete now. ValueError on another dtype or shape."""
        if pcm.dtype != self._dtype or pcm.ndim != 1:
            raise ValueError(f"pcm must be {self._dtype} [n], not {pcm.dtype} {list(pcm.shape)}")
        if pcm.size:
            self._parts.append(pcm)
            self._pending += pcm.size
        if self._pending < self.size:
            return []
        joined = np.concatenate(self._parts)
        whole = joined.size - joined.size % self.size
        items = [Item(self._start + i, joined[i : i + self.size], self.size) for i in range(0, whole, self.size)]
        self._keep(joined[whole:], self._start + whole)
        return items

    def flush(self, *, pad: bool) -> Item[Sample] | None:
        """The incomplete rest as an item, filled up with zeros (`pad`) or short; None if there is none.

        Positions go on where the real samples ended: padding takes no time of the stream.
        """
        if not self._pending:
            return None
        rest = np.concatenate(self._parts)
        item = Item(self._start, np.pad(rest, (0, self.size - rest.size)) if pad else rest, rest.size)
        self._keep(rest[:0], self._start + rest.size)
        return item

    def reset(self, position: int | None = None) -> None:
        """Drop the incomplete rest; the next sample stands at `position` (default: where it would have stood)."""
        self._keep(np.zeros(0, dtype=self._dtype), self.position if position is None else position)

    def _keep(self, rest: npt.NDArray[Sample], start: int) -> None:
        self._parts = [rest.copy()] if rest.size else []
        self._pending = rest.size
        self._start = start


class PreRoll(Generic[Sample]):
    """The last `capacity` samples of a stream, addressed by absolute position."""

    def __init__(self, capacity: int, dtype: type[Sample]) -> None:
        if capacity < 1:
            raise ValueError(f"capacity must be at least 1 sample, not {capacity}")
        self._ring: npt.NDArray[Sample] = np.zeros(capacity, dtype=dtype)
        self._first = 0  # nothing before this position was ever pushed
        self.end = 0
        """Absolute position after the newest sample."""

    @property
    def start(self) -> int:
        """Absolute position of the oldest sample kept."""
        return max(self._first, self.end - self._ring.size)

    def push(self, pcm: npt.NDArray[Sample]) -> None:
        """Append [n]; what is older than `capacity` falls out."""
        if pcm.dtype != self._ring.dtype or pcm.ndim != 1:
            raise ValueError(f"pcm must be {self._ring.dtype} [n], not {pcm.dtype} {list(pcm.shape)}")
        kept = pcm[-self._ring.size :]
        at = (self.end + pcm.size - kept.size + np.arange(kept.size)) % self._ring.size
        self._ring[at] = kept
        self.end += pcm.size

    def since(self, position: int) -> tuple[int, npt.NDArray[Sample]]:
        """Samples from `position` on (from the oldest kept one if that is gone) → (their start, copy [n])."""
        start = min(max(position, self.start), self.end)
        return start, self._ring[np.arange(start, self.end) % self._ring.size]

    def reset(self, position: int) -> None:
        """Forget all; the next sample stands at `position`."""
        self._first = self.end = position
