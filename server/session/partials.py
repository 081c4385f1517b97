"""Words while somebody is speaking: passes of the recogniser over what was said so far.

A pass reads the whole turn anew, so passes are spread: the next one comes when the turn has grown by a second, and by a
share of its length. All of them together cost a small multiple of one over the whole turn; they have the lowest
urgency, and there is one at a time. The pass at a pause is over just what is committed if the turn ends there: its
words are known at once then.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from mstar.tensors import Value
from server.events.server import TranscriptionDelta
from server.session import emissions
from server.session.log import Entry
from server.session.microphone import Microphone
from server.session.outbox import Outbox
from server.session.prefix import Prefix
from server.session.tasks import Ended, TaskRequest, Tasks
from server.session.transcripts import Transcripts

SECONDS = 1.0
SHARE = 0.25
"""Growth of a turn between two passes: seconds, and a share of its length; the larger counts."""
LONGEST_SECONDS = 28.0
"""Turns beyond this are written down at their end only: a pass is one piece of the recogniser."""


@dataclass(slots=True)
class _Turn:
    item_id: str
    first: int
    prefix: Prefix = field(default_factory=Prefix)
    read: int = 0  # items of the last pass begun
    running: _Pass | None = None
    whole: tuple[int, str] | None = None  # last item and text of the pass at the last pause


class Partials:
    """The turn that is open, and its passes."""

    def __init__(self, out: Outbox, tasks: Tasks, transcripts: Transcripts, mic: Microphone, task: str) -> None:
        self._out = out
        self._tasks = tasks
        self._transcripts = transcripts
        self._mic = mic
        self._task = task
        self._turn: _Turn | None = None

    @property
    def item_id(self) -> str | None:
        """The item that the open turn will be."""
        return self._turn.item_id if self._turn is not None else None

    def heard(self, item_id: str, first: int, stop: int) -> None:
        """Items [first, stop) of the microphone are said of a turn that goes on."""
        turn = self._of(item_id, first)
        length = stop - first
        second = self._mic.rate / self._mic.item
        grown = length - turn.read >= max(SECONDS * second, SHARE * turn.read)
        if turn.running is None and grown and length <= LONGEST_SECONDS * second:
            self._begin(turn, stop, urgent=False)

    def paused(self, item_id: str, first: int, stop: int) -> None:
        """The turn may end here."""
        turn = self._of(item_id, first)
        self._interrupt(turn)
        self._begin(turn, stop, urgent=True)

    def commit(self, entry: Entry, first: int, stop: int, now: float) -> None:
        """The turn is over: its words are wanted. An entry that no turn led to is written down as it is."""
        turn, self._turn = self._turn, None
        if turn is None or turn.item_id != entry.id:
            self._leave(turn)
            self._transcripts.want(entry)
            return
        self._transcripts.growing[entry.id] = turn.prefix
        if turn.whole is not None and turn.first == first and turn.whole[0] == stop:
            self._interrupt(turn)
            self._transcripts.take(entry, turn.whole[1], now)
            return
        running = turn.running
        if running is not None and running.urgent and (turn.first, running.stop) == (first, stop):
            running.entry = entry
            return
        self._interrupt(turn)
        self._transcripts.want(entry)

    def drop(self) -> None:
        """The open turn is not wanted."""
        turn, self._turn = self._turn, None
        self._leave(turn)

    def told(self, one: _Pass, text: str, now: float) -> None:
        """A pass has its words."""
        if one.entry is not None:
            self._transcripts.take(one.entry, text, now)
            return
        turn = one.turn
        if one.urgent:
            turn.whole = (one.stop, text)
        if turn is self._turn and (added := turn.prefix.hear(text)):
            self._out.send(TranscriptionDelta(item_id=turn.item_id, content_index=0, delta=added))

    def ended(self, one: _Pass) -> None:
        """A pass is over. One that failed is not tried again, unless an entry waits for it."""
        if one.turn.running is one:
            one.turn.running = None
        if one.entry is not None and one.entry.sound is not None:
            self._transcripts.want(one.entry)

    def _of(self, item_id: str, first: int) -> _Turn:
        if self._turn is None or self._turn.item_id != item_id:
            self._leave(self._turn)
            self._turn = _Turn(item_id, first)
        return self._turn

    def _begin(self, turn: _Turn, stop: int, *, urgent: bool) -> None:
        turn.read = stop - turn.first
        one = turn.running = _Pass(self, turn, stop, urgent=urgent)
        settings: dict[str, Value] = {} if urgent else {"background": True}
        sound = self._mic.sound(turn.first, stop)
        one.key = self._tasks.start(TaskRequest(self._task, {"audio": sound.audio}, settings), one)

    def _interrupt(self, turn: _Turn) -> None:
        if turn.running is not None and turn.running.key is not None:
            self._tasks.interrupt(turn.running.key)
        turn.running = None

    def _leave(self, turn: _Turn | None) -> None:
        if turn is not None:
            self._interrupt(turn)


class _Pass:
    """Owner of one transcription. `entry`: the committed one whose words it brings."""

    def __init__(self, partials: Partials, turn: _Turn, stop: int, *, urgent: bool) -> None:
        self.turn = turn
        self.stop = stop
        self.urgent = urgent
        self.key: int | None = None
        self.entry: Entry | None = None
        self._partials = partials

    def emission(self, output: str, _index: int, value: Value, now: float) -> None:
        if output == "transcript":
            self._partials.told(self, emissions.text(value), now)

    def ended(self, _end: Ended, _now: float) -> None:
        self._partials.ended(self)
