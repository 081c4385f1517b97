"""When words and characters are said, handed out with the sound they begin in (pure)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from server.speech.context import Word


@dataclass(frozen=True, slots=True)
class Span:
    """A word or a character, said in samples [start, end) of the context's sound."""

    text: str
    start: int
    end: int

    def cut(self, end: int) -> Span:
        """Ending at `end` at the latest."""
        return Span(self.text, self.start, min(self.end, end))


def spans(words: Sequence[Word]) -> list[Span]:
    """The words by themselves."""
    return [Span(word.text, word.start, word.end) for word in words]


def characters(words: Sequence[Word]) -> list[Span]:
    """Characters divide their word; those between two words take no time, where the next one begins."""
    found = []
    for word in words:
        found += [Span(each, word.start, word.start) for each in word.before]
        count, length = len(word.text), word.end - word.start
        found += [
            Span(each, word.start + length * at // count, word.start + length * (at + 1) // count)
            for at, each in enumerate(word.text)
        ]
    return found


class Timeline:
    """What was told ahead of its sound."""

    def __init__(self) -> None:
        self._waiting: deque[Span] = deque()

    def add(self, told: Iterable[Span]) -> None:
        self._waiting += told

    def take(self, end: int) -> list[Span]:
        """Those that begin before sample `end`."""
        taken = []
        while self._waiting and self._waiting[0].start < end:
            taken.append(self._waiting.popleft())
        return taken
