"""Where to cut speech that is longer than one piece: at its pauses."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

ITEM = 512
"""Samples that one probability of speech stands for."""
LIMIT = 30 * 16_000
"""Samples of the longest piece."""
PAUSE = 0.35
"""Below this probability an item is silent."""


def cut(samples: int, speech: Sequence[float] | NDArray[np.float32], *, limit: int = LIMIT) -> tuple[int, ...]:
    """Ends of the pieces of `samples` samples, ascending, the last one `samples` itself; () for no samples.

    speech [n]: probability of speech in each 512 samples; what lies behind the last one counts as silent. Each piece
    is at most `limit` samples. It is cut in the middle of the longest pause of its second half (of the latest, among
    equals); where there is none, at the item that is likeliest silent.

    Raises ValueError for a limit below four items.
    """
    if limit < 4 * ITEM:
        raise ValueError(f"limit: {limit} samples are fewer than four items of {ITEM}")
    items = -(-samples // ITEM)
    heard = np.zeros(items, dtype=np.float32)
    given = np.asarray(speech, dtype=np.float32)[:items]
    heard[: len(given)] = given
    ends: list[int] = []
    start = 0
    while samples - start > limit:
        first, last = -(-(start + limit // 2) // ITEM), (start + limit) // ITEM  # whole items of the second half
        start = _quietest(heard[first:last], first)
        ends.append(start)
    return (*ends, samples) if samples else ()


def _quietest(heard: NDArray[np.float32], first: int) -> int:
    """Sample in the middle of the longest pause of `heard`, whose first item is number `first`."""
    silent = np.concatenate(([False], heard < PAUSE, [False]))
    borders = np.flatnonzero(silent[1:] != silent[:-1]).reshape(-1, 2)  # [pauses, (begin, end)] in items
    if len(borders):
        lengths = borders[:, 1] - borders[:, 0]
        begin, end = borders[len(lengths) - 1 - int(lengths[::-1].argmax())]
        return (2 * first + int(begin) + int(end)) * ITEM // 2
    return (2 * (first + int(heard.argmin())) + 1) * ITEM // 2
