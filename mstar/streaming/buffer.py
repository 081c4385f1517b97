"""One stream of one request at its consumer: items in, in any order; chunks out, as the policy allows (pure, no clock).

Items have indices. They are delivered in order, each once; the end carries their count, so it can not overtake them.
A stream is divided into *segments* by cuts: a chunk never reaches over a cut, and sees no context from before it.

Chunks of one stream keep these promises:
 - every item is new in exactly one chunk (unless it was dropped, which is counted);
 - every segment with items has exactly one `segment_final` chunk, its last. It holds the segment's last item if the cut
   was known when it was taken, else it comes later, has nothing new and is not the stream's final one;
 - an ended stream has exactly one `final` chunk, its last. Under a policy with context it is one that found fewer new
   items than the policy wants, so it may have nothing new: then the stream ends without running the node. A consumer
   that holds something back until it hears the end must therefore be given a cut.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from typing import Literal

from mstar.errors import GraphError, Rejected
from mstar.streaming.chunk import Chunk
from mstar.streaming.policies import ChunkPolicy, rule
from mstar.streaming.store import Rows, Singles, Store
from mstar.tensors import Value


class StreamBuffer:
    """The items of one stream that its consumer has not had yet, and those it will see again as context.

    `bound` = items it may hold before the producer should wait. With `full="drop_oldest"` it holds no more: the oldest
    ones that wait are dropped and counted, and context starts anew behind the gap. `start` = index of the first item
    that counts; earlier ones are ignored. Times are milliseconds of the caller's clock; they matter to deadlines only.
    """

    __slots__ = (
        "_arrivals",
        "_bound",
        "_chunks",
        "_closed",
        "_count",
        "_cuts",
        "_dropped",
        "_drops",
        "_finished",
        "_floor",
        "_in_segment",
        "_parked",
        "_read",
        "_rows",
        "_rule",
        "_seen",
        "_segment",
        "_segment_start",
        "_start",
        "_store",
        "_stream",
        "_written",
    )

    def __init__(
        self,
        policy: ChunkPolicy,
        bound: int,
        items: Literal["one", "rows"] = "one",
        *,
        stream: str = "",
        start: int = 0,
        full: Literal["wait", "drop_oldest"] = "wait",
    ) -> None:
        self._rule = rule(policy)
        if bound < self._rule.largest:
            raise GraphError(f"stream {stream}: a bound of {bound} items is less than a chunk of {self._rule.largest}")
        self._bound = bound
        self._stream = stream
        self._start = start
        self._rows = items == "rows"
        self._drops = full == "drop_oldest"
        self.clear()

    def clear(self) -> None:
        """Forget everything: the buffer is as new."""
        self._store: Store = Rows(self._start) if self._rows else Singles(self._start)
        self._parked: dict[int, tuple[Value, int, float]] = {}  # first index → value, its items, its time
        self._arrivals: deque[tuple[int, float]] = deque()  # (stop, time) of what waits; kept for deadlines only
        self._cuts: list[int] = []  # positions of cuts to come, ascending
        self._count: int | None = None
        self._written = self._seen = self._read = self._floor = self._segment_start = self._start
        self._segment = self._chunks = self._in_segment = self._dropped = 0
        self._closed = self._finished = False

    # ------------------------------------------------------------------------------------------------------ producer

    def put(self, index: int, value: Value, *, rows: bool | None = None, cut: bool = False, now: float = 0.0) -> int:
        """Item `index`, or the items [index, index + n) if the rows of the value are items. Returns their number.

        Duplicates are dropped, items ahead of a gap wait. `cut` ends the segment after them. `rows` says what it is
        where that is not how the stream keeps its items: an array whose rows are items, or one item.
        Raises Rejected for an index below 0 or beyond the stream's end, or for rows of what has none.
        """
        values = self._store.pieces(value, self._rows if rows is None else rows)
        stop = index + sum(n for _, n in values)
        if index < 0 or (self._count is not None and stop > self._count):
            raise Rejected(f"stream {self._stream}: items {index} to {stop} of {self._count}", param="index")
        self._seen = max(self._seen, stop)
        at = index
        for one, n in values:
            self._arrive(at, one, n, now)
            at += n
        if cut:
            self.cut(stop)
        if self._rule.latest or self._drops:
            self._drop()
        return stop - index

    def _arrive(self, index: int, value: Value, n: int, now: float) -> None:
        if index > self._written:
            parked = self._parked.get(index)
            if parked is None or parked[1] < n:
                self._parked[index] = (value, n, now)
            return
        self._append(index, value, index + n, now)
        while self._parked and (first := min(self._parked)) <= self._written:
            held, count, came = self._parked.pop(first)
            self._append(first, held, first + count, came)

    def cut(self, index: int) -> None:
        """End the segment before item `index`. A segment without items, or one that was cut there, is left as it is."""
        if index <= self._segment_start or index < self._read or self._closed:
            return
        at = bisect_left(self._cuts, index)
        if at == len(self._cuts) or self._cuts[at] != index:
            self._cuts.insert(at, index)

    def end(self, count: int) -> None:
        """The stream has `count` items in all. Raises Rejected if it has had more, or another end."""
        if count < self._seen or self._count not in {None, count}:
            raise Rejected(f"stream {self._stream}: ended at {count}, has {self._seen} items", param="count")
        self._count = count

    def _append(self, index: int, value: Value, stop: int, now: float) -> None:
        if stop <= self._written:
            return
        self._store.append(value, self._written - index)
        self._written = stop
        if self._rule.wait_ms is not None:
            self._arrivals.append((stop, now))

    def _drop(self) -> None:
        """Let go of the oldest waiting items: all but the newest of an open segment, or what is beyond the bound."""
        read = self._read
        if self._rule.latest and not self._cuts:
            read = max(read, self._written - 1)
        if self._drops and self._written - read + self._context() > self._bound:
            read = max(read + 1, self._written - self._bound)
        if read > self._read:
            self._dropped += read - self._read
            self._read = self._floor = read
            self._in_segment = 0
            while self._cuts and self._cuts[0] < read:
                self._next_segment(self._cuts.pop(0))
            self._store.let_go(read)

    # ------------------------------------------------------------------------------------------------------ consumer

    def ready(self, now: float = 0.0) -> bool:
        """Whether `take(now)` gives a chunk."""
        if self._finished:
            return False
        stop = self._stop()
        waiting = stop - self._read
        if waiting >= self._wanted() or self._at_border(stop):
            return True
        return bool(waiting and self._rule.wait_ms is not None and now >= self._due())

    def next_deadline(self) -> float | None:
        """When a chunk will be ready that is not yet, if nothing more comes; None = not by waiting."""
        stop = self._stop()
        waiting = stop - self._read
        if self._rule.wait_ms is None or not 0 < waiting < self._wanted() or self._at_border(stop):
            return None
        return self._due()

    def take(self, now: float = 0.0) -> Chunk:
        """The next chunk. Raises RuntimeError if none is ready."""
        if not self.ready(now):
            raise RuntimeError(f"stream {self._stream}: no chunk is ready")
        stop = self._stop()
        wanted = self._wanted()
        if self._rule.latest and stop - self._read > 1:  # a segment that ended while several items waited
            self._dropped += stop - 1 - self._read
            self._read = self._floor = stop - 1
        n_context = self._context()
        n_new = min(stop - self._read, wanted)
        first = self._read - n_context
        value = self._store.slice(first, self._read + n_new)
        self._read += n_new
        self._chunks += 1
        self._in_segment += 1
        at_cut = bool(self._cuts) and self._cuts[0] == self._read
        exhausted = self._count == self._read
        says_cut = at_cut and not n_new  # a chunk for the cut's sake alone is not the last: its node has to run
        ends = exhausted and not self._closed and not says_cut and (at_cut or n_new < wanted or not self._rule.context)
        self._finished = ends and not self._rule.continues
        segment = self._segment
        self._advance(at_cut, ends)
        return Chunk(self._stream, first, n_context, n_new, segment, at_cut or ends, self._finished, value)

    def _advance(self, at_cut: bool, ends: bool) -> None:
        if at_cut:
            self._next_segment(self._cuts.pop(0))
        if ends:
            self._closed = True
            self._floor = self._read
        self._store.let_go(self._read - self._context())
        while self._arrivals and self._arrivals[0][0] <= self._read:
            self._arrivals.popleft()

    def _next_segment(self, start: int) -> None:
        self._segment += 1
        self._in_segment = 0
        self._segment_start = start
        self._floor = max(self._floor, start)

    def _stop(self) -> int:
        """Where the next chunk ends at the latest: the next cut, or the last item that is there."""
        return min(self._cuts[0], self._written) if self._cuts else self._written

    def _at_border(self, stop: int) -> bool:
        """Whether nothing can follow `stop` in its segment, so that the policy need not be waited for."""
        return self._count == stop or (bool(self._cuts) and self._cuts[0] == stop)

    def _wanted(self) -> int:
        sizes = self._rule.sizes
        return sizes[min(self._in_segment if self._rule.per_segment else self._chunks, len(sizes) - 1)]

    def _context(self) -> int:
        return min(self._rule.context, self._read - self._floor)

    def _due(self) -> float:
        while self._arrivals[0][0] <= self._read:
            self._arrivals.popleft()
        return self._arrivals[0][1] + (self._rule.wait_ms or 0.0)

    # ---------------------------------------------------------------------------------------------------- accounting

    @property
    def free(self) -> int:
        """Items the producer may still put."""
        held = self._written - self._read + self._context() + sum(n for _, n, _ in self._parked.values())
        return max(0, self._bound - held)

    @property
    def bound(self) -> int:
        """Items it may hold before the producer should wait."""
        return self._bound

    @property
    def room(self) -> int:
        """Index behind the last item it could hold now; never falls."""
        return self._read - self._context() + self._bound

    @property
    def depth(self) -> int:
        """Items that wait to be taken."""
        return self._written - self._read

    @property
    def dropped(self) -> int:
        """Items that were let go untaken."""
        return self._dropped

    @property
    def items_seen(self) -> int:
        """Index behind the last item of the gapless run received: all before it have come, or do not count."""
        return self._written

    @property
    def read(self) -> int:
        """Index of the next item that will be new in a chunk."""
        return self._read

    @property
    def ended(self) -> bool:
        """Whether the final chunk was taken; of a continuing stream, the one that closed it."""
        return self._closed
