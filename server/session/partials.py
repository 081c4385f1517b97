"""Words while somebody is speaking: passes of the recogniser over what was said so far.

A pass reads the turn anew from its *anchor*, so passes are spread: the next one comes when that stretch has grown by a
second, and by a share of its length. The anchor is where the turn begins, and moves to a pause once the stretch before
it is long enough; its words are settled then. So passes cost a small multiple of the sound, however long a turn is.
There is one at a time, and until a turn is committed they run in the background. The pass at a pause is over just what
is committed if the turn ends there: its words are known at once then.
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
"""Growth of a stretch between two passes: seconds, and a share of its length; the larger counts."""
SETTLED_SECONDS = 8.0
"""A stretch of this length is settled at its next pause."""
LONGEST_SECONDS = 28.0
"""Longer stretches, without any pause, are read at the end of their turn: a pass is one piece of the recogniser."""


@dataclass(slots=True)
class _Turn:
    item_id: str
    first: int
    anchor: int  # item from which passes read
    settled: str = ""  # words before it
    prefix: Prefix = field(default_factory=Prefix)
    read: int = 0  # items of the last pass begun
    running: _Pass | None = None
    known: tuple[int, str] | None = None  # the words up to an item: of the pass at the last pause


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
        length = stop - turn.anchor
        grown = length - turn.read >= max(self._items(SECONDS), SHARE * turn.read)
        if turn.running is None and grown and length <= self._items(LONGEST_SECONDS):
            self._begin(turn, stop, at_pause=False)

    def paused(self, item_id: str, first: int, stop: int) -> None:
        """The turn may end here."""
        turn = self._of(item_id, first)
        self._interrupt(turn)
        self._begin(turn, stop, at_pause=True)

    def commit(self, entry: Entry, first: int, stop: int, now: float) -> None:
        """The turn is over: its words are wanted. An entry that no turn led to is written down as it is."""
        turn, self._turn = self._turn, None
        if turn is None or turn.item_id != entry.id or turn.first != first:
            self._leave(turn)
            self._transcripts.want(entry)
            return
        self._transcripts.growing[entry] = turn.prefix
        running = turn.running
        if turn.known is not None and turn.known[0] == stop:
            self._interrupt(turn)
            self._transcripts.take(entry, turn.known[1], now)
        elif running is not None and running.at_pause and running.stop == stop:
            running.entry = entry
        else:
            self._interrupt(turn)
            self._begin(turn, stop, at_pause=True, entry=entry)

    def drop(self) -> None:
        """The open turn is not wanted."""
        turn, self._turn = self._turn, None
        self._leave(turn)

    def told(self, one: _Pass, text: str, now: float) -> None:
        """A pass has its words."""
        turn = one.turn
        whole = " ".join(part for part in (turn.settled, text.strip()) if part)
        if one.entry is not None:
            self._transcripts.take(one.entry, whole, now)
        elif turn is self._turn:
            if added := turn.prefix.hear(whole):
                self._out.send(TranscriptionDelta(item_id=turn.item_id, content_index=0, delta=added))
            if one.at_pause:
                turn.known = (one.stop, whole)
                if one.stop - turn.anchor >= self._items(SETTLED_SECONDS):
                    turn.anchor, turn.settled, turn.read = one.stop, whole, 0

    def ended(self, one: _Pass) -> None:
        """A pass is over. One that failed is not tried again, unless an entry waits for its words."""
        if one.turn.running is one:
            one.turn.running = None
        if one.entry is not None and one.entry.sound is not None:
            self._transcripts.want(one.entry)

    def _items(self, seconds: float) -> float:
        return seconds * self._mic.rate / self._mic.item

    def _of(self, item_id: str, first: int) -> _Turn:
        if self._turn is None or self._turn.item_id != item_id:
            self._leave(self._turn)
            self._turn = _Turn(item_id, first, first)
        return self._turn

    def _begin(self, turn: _Turn, stop: int, *, at_pause: bool, entry: Entry | None = None) -> None:
        turn.read = stop - turn.anchor
        one = turn.running = _Pass(self, turn, stop, at_pause=at_pause, entry=entry)
        settings: dict[str, Value] = {"background": True} if entry is None else {}
        sound = self._mic.sound(turn.anchor, stop)
        one.key = self._tasks.start(TaskRequest(self._task, {"audio": sound.audio}, settings), one)

    def _interrupt(self, turn: _Turn) -> None:
        if turn.running is not None and turn.running.key is not None:
            self._tasks.interrupt(turn.running.key)
        turn.running = None

    def _leave(self, turn: _Turn | None) -> None:
        if turn is not None:
            self._interrupt(turn)


class _Pass:
    """Owner of one transcription, up to item `stop`. `entry`: the committed one whose words it brings."""

    def __init__(self, partials: Partials, turn: _Turn, stop: int, *, at_pause: bool, entry: Entry | None) -> None:
        self.turn = turn
        self.stop = stop
        self.at_pause = at_pause
        self.entry = entry
        self.key: int | None = None
        self._partials = partials

    def emission(self, output: str, _index: int, value: Value, now: float) -> None:
        if output == "transcript":
            self._partials.told(self, emissions.text(value), now)

    def ended(self, _end: Ended, _now: float) -> None:
        self._partials.ended(self)
