"""Words of what the user said: transcription tasks, and the events that tell the client."""

from __future__ import annotations

from collections.abc import Callable

from mstar.tensors import Value
from server.events.server import Duration, FailedBy, TranscriptionCompleted, TranscriptionDelta, TranscriptionFailed
from server.events.session import Session
from server.session import emissions
from server.session.log import Entry, Log
from server.session.outbox import Outbox
from server.session.prefix import Prefix
from server.session.tasks import Ended, TaskRequest, Tasks

MOST_LOSSES = 2
"""Workers that may be lost with the sound of one entry."""
MOST_WAITS = 3
"""How often the words of one entry may be asked for in vain while a worker is being replaced."""


class Transcripts:
    """`session` is the effective session object; `known` is called when words are known, or will never be.

    `always`: the client is told whatever the session says.
    """

    def __init__(
        self, out: Outbox, tasks: Tasks, log: Log, task: str, session: Session, *, always: bool = False
    ) -> None:
        self.session = session
        self.growing: dict[Entry, Prefix] = {}
        """What was told of the words of items while they were being said."""
        self._always = always
        self.known: Callable[[float], None] = _nobody
        self._out = out
        self._tasks = tasks
        self._log = log
        self._task = task
        self._running: dict[Entry, int] = {}  # → key

    def want(self, entry: Entry) -> None:
        """Transcribe an entry, unless that is under way or done."""
        if entry.sound is None or entry in self._running:
            return
        request = TaskRequest(self._task, {"audio": entry.sound.audio})
        self._running[entry] = self._tasks.start(request, _Transcribing(self, entry))

    def leave(self, entry: Entry) -> None:
        """An answer brings the words; stop transcribing."""
        key = self._running.pop(entry, None)
        if key is not None:
            self._tasks.interrupt(key)

    def forget(self, entry: Entry, now: float) -> None:
        """An entry is not in the conversation any more; nobody need wait for its words."""
        self.leave(entry)
        self.growing.pop(entry, None)
        if entry.sound is not None:
            entry.sound = None
            self.known(now)

    def take(self, entry: Entry, text: str, now: float) -> None:
        """The words of an entry."""
        sound, entry.sound = entry.sound, None
        if sound is None:
            return
        prefix = self.growing.pop(entry, None)
        added, text = (text, text) if prefix is None else prefix.finish(text)
        entry.say(text)
        if self._tells(entry):
            if added:
                self._out.send(TranscriptionDelta(item_id=entry.id, content_index=0, delta=added))
            usage = Duration(round(sound.seconds, 3))
            self._out.send(TranscriptionCompleted(item_id=entry.id, content_index=0, transcript=text, usage=usage))
        self.known(now)

    def fail(self, entry: Entry, end: Ended, now: float) -> None:
        """The words of an entry will not be known; the conversation goes on without them."""
        entry.sound = None
        self.growing.pop(entry, None)
        if self._tells(entry):
            why = FailedBy("server_error", end.code or "transcription_failed", end.cause or "The transcription failed.")
            self._out.send(TranscriptionFailed(item_id=entry.id, content_index=0, error=why))
        self.known(now)

    def _tells(self, entry: Entry) -> bool:
        wanted = self._always or self.session.audio.input.transcription is not None
        return wanted and self._log.find(entry.id) is entry

    def ended(self, entry: Entry, end: Ended, now: float) -> None:
        """A transcription has ended; without words it has failed, unless it may be tried again."""
        self._running.pop(entry, None)
        if end.lost:
            self.lose(entry, end, now)
            self.want(entry)
        elif end.code == "not_ready" and entry.waits < MOST_WAITS:  # it waited for a worker, and may do so again
            entry.waits += 1
            self.want(entry)
        elif entry.sound is not None:
            self.fail(entry, end, now)

    def lose(self, entry: Entry, end: Ended, now: float) -> None:
        """A worker was lost with the sound of an entry. It is given to another one once: it may be what ended it."""
        entry.losses += 1
        if entry.sound is not None and entry.losses >= MOST_LOSSES:
            self.fail(entry, end, now)


def _nobody(now: float) -> None:
    """Nobody waits for words."""


class _Transcribing:
    """Owner of one transcription task."""

    def __init__(self, transcripts: Transcripts, entry: Entry) -> None:
        self._transcripts = transcripts
        self._entry = entry

    def emission(self, output: str, _index: int, value: Value, now: float) -> None:
        if output == "transcript":
            self._transcripts.take(self._entry, emissions.text(value), now)

    def ended(self, end: Ended, now: float) -> None:
        self._transcripts.ended(self._entry, end, now)
