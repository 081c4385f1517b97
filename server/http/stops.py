"""Texts that end an answer (pure)."""

from __future__ import annotations

from collections.abc import Sequence


class Stops:
    """Gives text out as soon as it can not be the beginning of a stop any more; the stop itself is not given out."""

    def __init__(self, stops: Sequence[str]) -> None:
        self.hit = False
        """A stop has come; nothing more is given out."""
        self._stops = [stop for stop in stops if stop]
        self._held = ""

    def feed(self, text: str) -> str:
        if self.hit:
            return ""
        held = self._held + text
        at = min((place for stop in self._stops if (place := held.find(stop)) >= 0), default=-1)
        if at >= 0:
            self.hit, self._held = True, ""
            return held[:at]
        keep = self._possible(held)
        self._held = held[len(held) - keep :]
        return held[: len(held) - keep]

    def flush(self) -> str:
        """What was held, at the end of the answer."""
        held, self._held = self._held, ""
        return held

    def _possible(self, text: str) -> int:
        """Length of the longest end of `text` that begins a stop."""
        longest = max((len(stop) for stop in self._stops), default=1) - 1
        for n in range(min(longest, len(text)), 0, -1):
            if any(stop.startswith(text[-n:]) for stop in self._stops):
                return n
        return 0
