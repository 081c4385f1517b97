"""The user's sound as items of the runtime's live stream `mic`, and its clock: positions ↔ milliseconds ↔ arrival."""

from __future__ import annotations

from collections import deque
from itertools import islice

import numpy as np
import numpy.typing as npt

from media.framer import Framer
from media.frames import Pcm16, PcmF, to_float, to_int16
from mstar.client import Slice
from server.session.commands import FeedMic
from server.session.log import Sound
from server.session.outbox import Outbox

STREAM = "mic"
WINDOW = 128
"""Items that may be on their way to the listening task: what is appended in one piece is fed as fast as it is heard."""
_ARRIVALS = 1024


class Microphone:
    """Samples at the family's rate. A commit in the middle of an item fills it up with zeros, which take no time.

    `recent`: seconds of sound that are kept as samples.
    """

    def __init__(self, out: Outbox, rate: int, item: int, history: int, recent: int) -> None:
        self.rate = rate
        self.item = item
        self.items = 0
        """Whole items so far: index of the next one."""
        self._out = out
        self._history = history
        self._framer = Framer(item, np.float32)
        self._padding = 0  # samples that were never said
        self._backlog: deque[npt.NDArray[np.float32]] = deque()  # [items, samples]
        self._fed = 0
        self._answered: int | None = None  # items the listening task has answered; None = nobody listens
        self._arrivals: deque[tuple[int, float]] = deque(maxlen=_ARRIVALS)
        self._recent: deque[Pcm16] = deque(maxlen=recent * rate // item)

    @property
    def position(self) -> int:
        """Samples so far."""
        return self.items * self.item + self._framer.pending

    @property
    def backlog(self) -> int:
        """Items that wait to be fed."""
        return self.items - self._fed

    def append(self, pcm: npt.NDArray[np.float32], now: float) -> None:
        self._push([item.pcm for item in self._framer.feed(pcm)])
        self._arrivals.append((self.position, now))

    def pad(self) -> None:
        """Complete the item in progress."""
        rest = self._framer.flush(pad=True)
        if rest is not None:
            self._padding += self.item - rest.real
            self._push([rest.pcm])

    def listen(self) -> int:
        """Someone listens from now on → the first item they get."""
        self._answered = self._fed
        return self._fed

    def resume(self) -> int:
        """Someone listens in the place of one that was lost → the first item that nobody has answered."""
        return self.listen() if self._answered is None else self._answered

    @property
    def unanswered(self) -> int:
        """Items that were fed and that nobody has answered yet."""
        return 0 if self._answered is None else self._fed - self._answered

    def answered(self, items: int) -> None:
        """The listening task has dealt with all items before this one."""
        if self._answered is not None:
            self._answered = max(self._answered, items)
            self._feed()

    def deaf(self) -> None:
        """Nobody listens any more."""
        self._answered = None
        self._feed()

    def ms(self, sample: int) -> int:
        """Position on the input clock: milliseconds of sound that the client had appended."""
        return max(0, (sample - self._padding) * 1000 // self.rate)

    def arrival(self, sample: int, now: float) -> float:
        """When a sample had come."""
        for end, at in self._arrivals:
            if end >= sample:
                return at
        return now

    def sound(self, first: int, stop: int) -> Sound:
        """Items [first, stop) as something to transcribe or answer; of too many the last ones."""
        first = max(first, stop - self._history, 0)
        return Sound(Slice(STREAM, first, stop), (stop - first) * self.item / self.rate)

    def recent(self, first: int, stop: int) -> PcmF | None:
        """Samples [n] of items [first, stop); None if they are not all at hand."""
        oldest = self.items - len(self._recent)
        if not oldest <= first < stop <= self.items:
            return None
        return to_float(np.concatenate(list(islice(self._recent, first - oldest, stop - oldest))))

    def _push(self, pcm: list[npt.NDArray[np.float32]]) -> None:
        if pcm:
            self._backlog.append(np.stack(pcm))
            self._recent.extend(to_int16(item) for item in pcm)
            self.items += len(pcm)
            self._feed()

    def _feed(self) -> None:
        while self._backlog:
            free = len(self._backlog[0]) if self._answered is None else self._answered + WINDOW - self._fed
            if free <= 0:
                return
            rows = self._backlog.popleft()
            if len(rows) > free:
                self._backlog.appendleft(rows[free:])
                rows = rows[:free]
            self._out.do(FeedMic(self._fed, rows))
            self._fed += len(rows)
