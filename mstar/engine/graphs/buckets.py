"""The sizes of steps that are captured; a step is made up to the next one (pure)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

DECODES = (1, 2, 4, 8, 16, 24, 32, 48, 64)
PROMPTS = (64, 128, 256, 512, 1024)


@dataclass(frozen=True, slots=True)
class Bucket:
    """Rows and tokens of a captured step."""

    rows: int
    tokens: int


@dataclass(frozen=True, slots=True)
class Buckets:
    """`decodes`: rows of one token each; `prompts`: tokens of one row."""

    decodes: Sequence[int] = DECODES
    prompts: Sequence[int] = PROMPTS

    def ahead(self, rows: int, tokens: int) -> Sequence[Sequence[int]]:
        """Rows of steps, one for each graph that decodes of up to `rows`, or a prompt of up to `tokens`, may need."""
        decodes = _up_to(rows, self.decodes)
        prompts = _up_to(tokens, self.prompts)
        return [(1,) * size for size in decodes] + [(size - less,) for size in prompts for less in (0, 1)]

    def choose(self, sizes: Sequence[int]) -> Bucket | None:
        """For rows of these sizes; None if they fit none.

        Rows of a token are made up by more of them. A row of a prompt is made up by a second one, since its own length
        can not be changed.
        """
        if all(size == 1 for size in sizes):
            rows = next((rows for rows in sorted(self.decodes) if rows >= len(sizes)), None)
            return None if rows is None else Bucket(rows, rows)
        if len(sizes) != 1:
            return None
        tokens = next((tokens for tokens in sorted(self.prompts) if tokens >= sizes[0]), None)
        return None if tokens is None else Bucket(1 if tokens == sizes[0] else 2, tokens)


def _up_to(most: int, sizes: Sequence[int]) -> Sequence[int]:
    """The sizes that hold up to `most`."""
    ordered = sorted(sizes)
    return ordered[: next((place + 1 for place, size in enumerate(ordered) if size >= most), len(ordered))]
