"""When the parts of a turn happened, from the last word of the user to the first sound of the answer."""

from __future__ import annotations

from server.events.server import Mark


class Marks:
    """First moments by name, on the session's time axis (`opened` = its beginning)."""

    def __init__(self, opened: float) -> None:
        self._opened = opened
        self._marks: dict[str, Mark] = {}
        self.sent = False

    def set(self, name: str, at: float, sample: int | None = None) -> None:
        """Note a moment (seconds of the core's clock); only the first of a name counts."""
        if name not in self._marks:
            ms = round((at - self._opened) * 1000, 1)
            self._marks[name] = Mark(ms) if sample is None else Mark(ms, sample)

    def seconds(self, first: str, then: str) -> float | None:
        """Time between two moments, None unless both are known."""
        if first in self._marks and then in self._marks:
            return (self._marks[then].ms - self._marks[first].ms) / 1000
        return None

    @property
    def known(self) -> dict[str, Mark]:
        return dict(self._marks)
