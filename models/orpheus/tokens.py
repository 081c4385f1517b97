"""Speech tokens: their ids, how a prompt is built of them, which code of the codec each stands for (torch-free).

Behind the text vocabulary stand `<custom_token_0>`, `<custom_token_1>` …: 10 control tokens, then the codes.
A frame of the codec is 7 tokens, one of each *slot*; slot s of code c is `<custom_token_(10 + s · codebook + c)>`.
Source: the prompt and decoder of the checkpoint `canopylabs/orpheus-3b-0.1-ft`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FRAME = 7  # tokens
CONTROLS = 10  # custom tokens before the first code
LEVEL_SLOTS = ((0,), (1, 4), (2, 3, 5, 6))  # slots of a frame that make up each level of the codec


@dataclass(frozen=True, slots=True)
class SpeechTokens:
    """`first` is the id of `<custom_token_0>`, `codebook` the codes of a slot."""

    first: int
    begin_of_text: int
    end_of_turn: int
    codebook: int = 4096

    @property
    def end_of_speech(self) -> int:
        """Ends a sentence's sound."""
        return self.first + 2

    def prompt(self, text: Sequence[int]) -> list[int]:
        """Human: text (ids of "voice: what is said"); AI: speech begins."""
        start_of_speech, start_of_human, end_of_human, start_of_ai = (self.first + i for i in (1, 3, 4, 5))
        turn = [self.begin_of_text, *text, self.end_of_turn]
        return [start_of_human, *turn, end_of_human, start_of_ai, start_of_speech]

    def code(self, token: int, count: int) -> int | None:
        """The code that a token stands for behind `count` codes; None for a token that is none of this slot."""
        code = self._offset(token, count)
        return code if 0 <= code < self.codebook else None

    def published_code(self, token: int, count: int) -> int | None:
        """As the published decoder reads it: code 0 is left out, and a later slot's token is too large a code."""
        code = self._offset(token, count)
        return code if code > 0 else None

    def _offset(self, token: int, count: int) -> int:
        return token - self.first - CONTROLS - count % FRAME * self.codebook


def levels(codes: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Codes [rows, frames · 7] in the order of their tokens → by level, [rows, frames · slots of the level]."""
    frames = codes.reshape(len(codes), -1, FRAME)
    return [frames[:, :, slots].reshape(len(codes), -1) for slots in LEVEL_SLOTS]
