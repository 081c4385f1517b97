"""What a step's rows are to a kernel over paged memory: flat tables of integers (pure)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from mstar.engine.attention.backend import PagedRow
from mstar.submodule import Row

Ints = NDArray[np.int32]
Sight = Literal["causal", "whole", "masked"]
"""What a row's tokens see: the positions up to their own, all positions, or those that a mask names."""


@dataclass(frozen=True, slots=True)
class Tables:
    """A step of `rows` rows with `tokens` new positions.

    Row r asks with tokens `queries[r] … queries[r + 1]` and sees the pages `pages[starts[r] … starts[r + 1]]`, the last
    of which holds `filled[r]` positions, its new ones included.
    """

    queries: Ints  # [rows + 1]
    starts: Ints  # [rows + 1]
    pages: Ints  # [starts[-1]]
    filled: Ints  # [rows]
    owner: Ints  # [tokens], the row of each token
    positions: Ints  # [tokens], its position in the row's sequence
    sight: Sight
    mask: NDArray[np.bool_] | None  # [sum over rows of tokens · positions], where sight is "masked"

    @property
    def rows(self) -> int:
        return len(self.filled)

    @property
    def tokens(self) -> int:
        return len(self.owner)

    @property
    def decodes(self) -> bool:
        """Every row has one token, which sees everything."""
        return self.tokens == self.rows and self.sight != "masked"


def tables(rows: Sequence[PagedRow], page_size: int) -> Tables:
    """The tables of a step's rows, in row order."""
    tokens = [each.row.tokens for each in rows]
    stops = [each.start + each.row.tokens for each in rows]
    pages = [list(each.pages[: -(-stop // page_size)]) for each, stop in zip(rows, stops, strict=True)]
    sight = _sight(rows)
    return Tables(
        queries=_sums(tokens),
        starts=_sums([len(each) for each in pages]),
        pages=np.array([page for each in pages for page in each], dtype=np.int32),
        filled=np.array([(stop - 1) % page_size + 1 for stop in stops], dtype=np.int32),
        owner=np.repeat(np.arange(len(rows), dtype=np.int32), tokens),
        positions=np.concatenate([np.arange(each.start, stop) for each, stop in zip(rows, stops, strict=True)]).astype(
            np.int32
        ),
        sight=sight,
        mask=np.concatenate([_mask(each).ravel() for each in rows]) if sight == "masked" else None,
    )


def _sums(counts: Sequence[int]) -> Ints:
    return np.array([0, *accumulate(counts)], dtype=np.int32)


def _sight(rows: Sequence[PagedRow]) -> Sight:
    several = [each for each in rows if each.row.tokens > 1]
    if not several:  # one token sees everything either way
        return "causal"
    kinds = {_kind(each.row) for each in several}
    if kinds == {"causal"}:
        return "causal"
    if kinds == {"whole"}:
        return "whole"
    return "masked"


def _kind(row: Row) -> Sight:
    """What the tokens of a row of several see. Blocks of one token each, or one block of all, need no mask."""
    if row.blocks and 1 < len(row.blocks) < row.tokens:
        return "masked"
    return "causal" if (len(row.blocks) == row.tokens or (row.causal and not row.blocks)) else "whole"


def _mask(each: PagedRow) -> NDArray[np.bool_]:
    """[tokens, positions], True where a token sees a position."""
    tokens, stop = each.row.tokens, each.start + each.row.tokens
    if each.row.blocks:
        ends = np.repeat(list(accumulate(each.row.blocks)), each.row.blocks)
    elif each.row.causal:
        ends = np.arange(1, tokens + 1)
    else:
        ends = np.full(tokens, tokens)
    return np.arange(stop)[None, :] < (each.start + ends)[:, None]


def padded(step: Tables, rows: int, tokens: int, scratch: int, page_size: int) -> Tables:
    """The same step with `rows` rows and `tokens` tokens: the added ones lie in the page `scratch`, which nobody reads.

    Raises ValueError where that can not be: a row added has a token at least.
    """
    more_rows, more = rows - step.rows, tokens - step.tokens
    if more_rows < 0 or more < more_rows or (more and not more_rows) or step.sight == "masked":
        raise ValueError(f"{step.rows} rows of {step.tokens} tokens can not become {rows} of {tokens}")
    sizes = [1] * (more_rows - 1) + [more - more_rows + 1] if more_rows else []
    pages = [-(-size // page_size) for size in sizes]
    return Tables(
        queries=np.concatenate([step.queries, step.queries[-1] + _sums(sizes)[1:]]).astype(np.int32),
        starts=np.concatenate([step.starts, step.starts[-1] + _sums(pages)[1:]]).astype(np.int32),
        pages=np.concatenate([step.pages, np.full(sum(pages), scratch)]).astype(np.int32),
        filled=np.concatenate([step.filled, [(size - 1) % page_size + 1 for size in sizes]]).astype(np.int32),
        owner=np.concatenate([step.owner, np.repeat(np.arange(step.rows, rows), sizes)]).astype(np.int32),
        positions=np.concatenate([step.positions, *(np.arange(size) for size in sizes)]).astype(np.int32),
        sight=step.sight,
        mask=None,
    )
