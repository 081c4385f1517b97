"""Words of a transcript that is still growing, told when they are sure enough never to be taken back (pure)."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher


class Prefix:
    """What was told of one transcript.

    A word is told when two passes in a row agree on it and on all words before it, and the newer one has heard another
    word behind it: the last word of a pass may be half a word, and its marks are guesses. Later passes, and the final
    one, go on behind what was told, wherever they have that.
    """

    def __init__(self) -> None:
        self.told: list[str] = []
        self._before: list[str] = []  # of the pass before, behind what was told when it came

    def hear(self, text: str) -> str:
        """What one more pass over the sound so far adds, "" for nothing."""
        words = text.split()
        fresh = words[self._place(words) :]
        agreed = 0
        for one, other in zip(self._before, fresh[:-1], strict=False):
            if _plain(one) != _plain(other):
                break
            agreed += 1
        self._before = fresh[agreed:]
        return self._tell(fresh[:agreed])

    def finish(self, text: str) -> tuple[str, str]:
        """The pass over the whole sound → what it adds, and the whole text: what was told, and what is behind it."""
        words = text.split()
        added = self._tell(words[self._place(words) :])
        return added, " ".join(self.told)

    def _tell(self, words: Sequence[str]) -> str:
        before = bool(self.told)
        self.told += words
        return " " * (before and bool(words)) + " ".join(words)

    def _place(self, words: Sequence[str]) -> int:
        """Where `words` go on behind what was told."""
        told = [_plain(word) for word in self.told]
        heard = [_plain(word) for word in words]
        if heard[: len(told)] == told:
            return len(told)
        place = 0
        for _, first, last, start, stop in SequenceMatcher(None, told, heard, autojunk=False).get_opcodes():
            if last == len(told) and first < last:  # the stretch that holds the last word told
                return min(stop, start + last - first)
            place = stop
        return place


def _plain(word: str) -> str:
    """A word without case and marks, or its marks if it is nothing else."""
    return "".join(char for char in word.casefold() if char.isalnum()) or word
