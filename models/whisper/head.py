"""The output projection of the decoder: hidden → logits over the vocabulary.

It is the largest matrix of the decoder by far (tiny.en: 80 of 113 MB in float32), read whole for every token. On a CPU
it is read in 8 bits; the likeliest tokens, and all times, are then computed anew in float32, so that a choice among
them is that of the float32 projection.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from models.blocks.linear import Int8Linear

SHORTLIST = 256
"""Tokens computed anew: those never taken (about 100) may stand before the best one."""


class Head(Protocol):
    """hidden [rows, d_model] → logits [rows, vocab] float32, a tensor that the caller may change."""

    def __call__(self, hidden: Tensor) -> Tensor: ...


class ExactHead:
    """The projection as it is."""

    def __init__(self, embedding: Tensor) -> None:
        self._embedding = embedding  # [vocab, d_model]

    def __call__(self, hidden: Tensor) -> Tensor:
        return torch.nn.functional.linear(hidden, self._embedding)


class ShortlistHead:
    """8 bits for all tokens, float32 for the likeliest and for the times. A row does not depend on the others."""

    def __init__(self, embedding: Tensor, first_stamp: int) -> None:
        self._embedding = embedding
        self._first_stamp = first_stamp
        self._stamps = embedding[first_stamp:].contiguous()
        self._rough = Int8Linear(embedding)

    def __call__(self, hidden: Tensor) -> Tensor:
        logits = self._rough(hidden).float()
        for row, state in zip(logits, hidden, strict=True):
            likely = row.topk(min(SHORTLIST, len(row))).indices
            row[likely] = torch.mv(self._embedding[likely], state)
            row[self._first_stamp :] = torch.mv(self._stamps, state)
        return logits
