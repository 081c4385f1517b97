"""An answer task of the family: prepared and held back, or given to a response."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from mstar.tensors import Value
from server.session.log import Entry
from server.session.marks import Marks
from server.session.responses import Response
from server.session.tasks import Ended, TaskRequest

_MARKS = {"transcript": "transcript", "text": "first_token", "alignment": "first_clause", "audio": "first_sample"}


@dataclass(frozen=True, slots=True)
class Emitted:
    output: str
    value: Value
    at: float


Forward: TypeAlias = "Callable[[Answer, Emitted | Ended, float], None]"


class Answer:
    """Owner of an answer task. While it has no response, what it emits is held."""

    def __init__(self, marks: Marks, forward: Forward) -> None:
        self.marks = marks
        self.request: TaskRequest | None = None
        self.key: int | None = None
        self.response: Response | None = None
        self.user: Entry | None = None
        """The spoken item that this answers; its words come with the answer."""
        self.chars = 0  # of the prompt
        self.messages = 0
        self.retries = 0
        self.said = False
        self._held: list[Emitted | Ended] = []
        self._forward = forward

    def emission(self, output: str, _index: int, value: Value, now: float) -> None:
        name = _MARKS.get(output)
        if name is not None:
            self.marks.set(name, now)
        self._take(Emitted(output, value, now), now)

    def ended(self, end: Ended, now: float) -> None:
        self._take(end, now)

    def held_transcript(self) -> Emitted | None:
        """Take the words of the user out of what is held."""
        for event in self._held:
            if isinstance(event, Emitted) and event.output == "transcript":
                self._held.remove(event)
                return event
        return None

    @property
    def failed(self) -> bool:
        """It has ended before it was given to a response, and not well."""
        return any(isinstance(event, Ended) and event.status != "done" for event in self._held)

    def give(self, response: Response, now: float) -> None:
        """From now on all of it is this response's, what was held first."""
        self.response = response
        held, self._held = self._held, []
        for event in held:
            self._forward(self, event, now)

    def _take(self, event: Emitted | Ended, now: float) -> None:
        if self.response is None:
            self._held.append(event)
        else:
            self._forward(self, event, now)
