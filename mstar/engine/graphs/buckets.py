"""The sizes of steps that are captured; a step is made up to the next one (pure)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

DECODES = (1, 2, 4, 8, 16, 24, 32, 48, 64)
PROMPTS = (64, 128, 256, 512, 1024)
SEVERAL = 4


@dataclass(frozen=True, slots=True)
class Bucket:
    """Rows and tokens of a captured step."""

    rows: int
    tokens: int


@dataclass(frozen=True, slots=True)
class Buckets:
    """`decodes`: rows of one token each; `prompts`: tokens of one row, or of fewer than `several`."""

    decodes: Sequence[int] = DECODES
    prompts: Sequence[int] = PROMPTS
    several: int = SEVERAL

    def ahead(self, rows: int, tokens: int, together: int) -> Sequence[Sequence[int]]:
        """Rows of steps, one for each graph that decodes of up to `rows`, a prompt of up to `tokens`, or several of up
        to `together` tokens may need.
        """
        decodes = [(1,) * size for size in _up_to(rows, self.decodes)]
        prompts = [(size - less,) for size in _up_to(tokens, self.prompts) for less in (0, 1)]
        more = (1,) * (self.several - 2)
        return [*decodes, *prompts, *((size - 1 - len(more), *more) for size in _up_to(together, self.prompts))]

    def choose(self, sizes: Sequence[int]) -> Bucket | None:
        """For rows of these sizes; None if they fit none.

        Rows of a token are made up by more of them. Rows of prompts are made up by others, since their own lengths can
        not be changed.
        """
        if all(size == 1 for size in sizes):
            rows = next((rows for rows in sorted(self.decodes) if rows >= len(sizes)), None)
            return None if rows is None else Bucket(rows, rows)
        if len(sizes) >= self.several:
            return None
        alone = len(sizes) == 1
        least = sizes[0] if alone else sum(sizes) + self.several - len(sizes)
        tokens = next((tokens for tokens in sorted(self.prompts) if tokens >= least), None)
        if tokens is None:
            return None
        return Bucket((1 if tokens == least else 2) if alone else self.several, tokens)


def _up_to(most: int, sizes: Sequence[int]) -> Sequence[int]:
    """The sizes that hold up to `most`."""
    ordered = sorted(sizes)
    return ordered[: next((place + 1 for place, size in enumerate(ordered) if size >= most), len(ordered))]
