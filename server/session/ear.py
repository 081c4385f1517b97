"""The tasks that listen: probabilities of speech for every item, and the turn model's opinion of a pause."""

from __future__ import annotations

from collections.abc import Callable

from mstar.errors import Rejected
from mstar.tensors import Value
from server.session import emissions
from server.session.log import Sound
from server.session.microphone import STREAM, Microphone
from server.session.outbox import Outbox
from server.session.tasks import Ended, TaskRequest, Tasks

MOST_RESTARTS = 3


class Ear:
    """Owner of the standing task; `heard(item, probability, now)` is called in order of the items."""

    def __init__(
        self, out: Outbox, tasks: Tasks, mic: Microphone, task: str, heard: Callable[[int, float, float], None]
    ) -> None:
        self._out = out
        self._tasks = tasks
        self._mic = mic
        self._task = task
        self._heard = heard
        self._key: int | None = None
        self._first = 0
        self._failures = 0
        self._lost_at: int | None = None

    def open(self) -> None:
        """Listen from the next item on, if nobody does."""
        if self._key is None and self._failures <= MOST_RESTARTS:
            self._listen(self._mic.listen())

    def _listen(self, first: int) -> None:
        self._first = first
        self._key = self._tasks.start(TaskRequest(self._task, positions={STREAM: first}), self)

    def close(self) -> None:
        if self._key is not None:
            self._tasks.interrupt(self._key)
            self._key = None
            self._mic.deaf()

    def question(self, task: str, sound: Sound) -> TaskRequest:
        """Is a turn over that sounds like this?"""
        return TaskRequest(task, {"audio": sound.audio})

    def emission(self, output: str, index: int, value: Value, now: float) -> None:
        if output == "speech":
            item = self._first + index
            self._heard(item, emissions.probability(value), now)
            self._mic.answered(item + 1)

    def ended(self, end: Ended, _now: float) -> None:
        """The task should stand as long as the session; it is started anew with the next sound, a few times.

        Where its worker was lost it goes on at once: what was said meanwhile waits to be heard. An item at which two
        were lost may be what ended them.
        """
        first = self._mic.resume()
        if end.lost and (first != self._lost_at or not self._mic.unanswered):
            self._lost_at = first
            self._listen(first)
            return
        self._key = None
        self._failures += end.code != "not_ready"  # no fault of the ear's
        self._mic.deaf()
        why = Rejected(f"Turn detection failed: {end.cause or end.status}", code=end.code or "turn_detection_failed")
        self._out.refuse(why, None, kind="server_error")


class Judgement:
    """Owner of one question to the turn model, about the pause that began at sample `at`."""

    def __init__(self, at: int, judged: Callable[[int, Value, float], None]) -> None:
        self._at = at
        self._judged = judged

    def emission(self, output: str, _index: int, value: Value, now: float) -> None:
        if output == "complete":
            self._judged(self._at, value, now)

    def ended(self, _end: Ended, _now: float) -> None:
        """Without an opinion the cap of the eagerness ends the turn."""
