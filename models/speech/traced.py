"""Text under rewriting that keeps, for every character, where in the written text it comes from (pure)."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

Speak = Callable[[re.Match[str]], str | None]
"""What a match becomes; None leaves it as it is."""


@dataclass(frozen=True, slots=True)
class Traced:
    """Character i of `text` comes from characters [starts[i], ends[i]) of the written text; both rise."""

    text: str
    starts: tuple[int, ...]
    ends: tuple[int, ...]

    @classmethod
    def of(cls, written: str) -> Traced:
        """Text as it is written."""
        return cls(written, tuple(range(len(written))), tuple(range(1, len(written) + 1)))

    def written(self, start: int, end: int) -> tuple[int, int]:
        """The written span of the span [start, end), which is not empty."""
        return self.starts[start], self.ends[end - 1]

    def spelled(self, pattern: re.Pattern[str], speak: Speak) -> Traced:
        """Every match replaced; all of what it becomes comes from all of the match."""
        return self._rewritten(pattern, speak, words=False)

    def worded(self, pattern: re.Pattern[str], speak: Speak) -> Traced:
        """As `spelled`, and what it becomes stands apart from letters and digits around it."""
        return self._rewritten(pattern, speak, words=True)

    def _rewritten(self, pattern: re.Pattern[str], speak: Speak, *, words: bool) -> Traced:
        draft = _Draft(self)
        for match in pattern.finditer(self.text):
            said = speak(match)
            if said is not None:
                draft.replace(match.start(), match.end(), said, apart=words)
        return draft.done()

    def without(self, spans: Sequence[tuple[int, int]]) -> Traced:
        """Characters [start, end) each, in order and not empty, make room for a space."""
        draft = _Draft(self)
        for start, end in spans:
            draft.replace(start, end, " ", apart=False)
        return draft.done()

    def keeping(self, pattern: re.Pattern[str]) -> Traced:
        """Of every match only its first group is left, as it is."""
        draft = _Draft(self)
        for match in pattern.finditer(self.text):
            start, end = match.span(1)
            draft.replace(match.start(), start, "", apart=False)
            draft.replace(end, match.end(), "", apart=False)
        return draft.done()


class _Draft:
    """A text that is rewritten from left to right."""

    def __init__(self, source: Traced) -> None:
        self._source = source
        self._at = 0
        self._parts: list[str] = []
        self._starts: list[int] = []
        self._ends: list[int] = []

    def replace(self, start: int, end: int, said: str, *, apart: bool) -> None:
        """[start, end) becomes `said`, which an empty span can not."""
        source = self._source
        self._copy(start)
        if start == end:
            return
        if said and apart:
            before, behind = source.text[start - 1 : start] if start else "", source.text[end : end + 1]
            said = (" " if before.isalnum() and said[0].isalnum() else "") + said
            said += " " if behind.isalnum() and said[-1].isalnum() else ""
        self._parts.append(said)
        self._starts += [source.starts[start]] * len(said)
        self._ends += [source.ends[end - 1]] * len(said)
        self._at = end

    def done(self) -> Traced:
        if not self._at and not self._parts:
            return self._source
        self._copy(len(self._source.text))
        return Traced("".join(self._parts), tuple(self._starts), tuple(self._ends))

    def _copy(self, stop: int) -> None:
        source, at = self._source, self._at
        if at < stop:
            self._parts.append(source.text[at:stop])
            self._starts += source.starts[at:stop]
            self._ends += source.ends[at:stop]
            self._at = stop
