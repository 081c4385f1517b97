"""Who holds which sequence: requests that live, sessions that keep theirs as a cache, and nobody any more."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from mstar.engine.attention.backend import CrossContext
from mstar.engine.kv.index import PrefixIndex
from mstar.engine.kv.pages import OutOfPages
from mstar.engine.kv.sequences import KVPool, KVSequence, common_prefix
from mstar.engine.kv.settings import KVSettings

UNHELD = ""
"""Owner of sequences whose session has ended."""


@dataclass(frozen=True, slots=True)
class Recall:
    """What stood at a preempted request's positions, and where the step began that computed each."""

    keys: np.ndarray  # [positions] int64
    starts: np.ndarray  # [positions] int32

    def piece(self, begin: int, together: int) -> tuple[int, bool]:
        """Where the positions from `begin` on end that are computed again at once, so that their bits are the same.

        Those of one step; or up to `together` that were one step each, which is the second value.
        """
        total = len(self.keys)
        stop = begin
        while stop < total and stop - begin < together and self.starts[stop] == stop and self._alone(stop):
            stop += 1
        if stop > begin:
            return stop, True
        stop = begin + 1
        while stop < total and self.starts[stop] == self.starts[begin]:
            stop += 1
        return stop, False

    def _alone(self, position: int) -> bool:
        return position + 1 == len(self.keys) or self.starts[position + 1] == position + 1


@dataclass(slots=True, eq=False)
class Holding:
    """What one request holds of one component's K/V memory."""

    session: str
    sequences: dict[str, KVSequence] = field(default_factory=dict)  # label → sequence
    cross: CrossContext = field(default_factory=dict)
    prompt: int = 0  # leading positions of the main sequence that the request did not generate itself
    cached: int = 0  # positions that were there when its prompt began
    divided: bool = False  # its prompt is under way, in pieces
    recall: Recall | None = None  # its main sequence is to be computed again, from `length` on

    def sequence(self, label: str) -> KVSequence:
        """The label's sequence, empty at first."""
        return self.sequences.setdefault(label, KVSequence())

    @property
    def pages(self) -> int:
        return sum(len(sequence.pages) for sequence in self.sequences.values())


class Ledger:
    """Holdings by request, and idle sequences by session, least recently used first.

    When a request ends, its main sequence stays as a cache of its session, which keeps at most `settings.kept` of
    them; when the session ends, what is canonical of it stays, `settings.unheld` at most, for other sessions'
    prompts. With `reuse=False` nothing is kept: K/V depend on more than the keys then (cross-attention).
    """

    def __init__(self, pool: KVPool, main: str, settings: KVSettings, *, reuse: bool, left: int = 1) -> None:
        """`left`: keys of a prompt that are computed anew at least."""
        self.pool = pool
        pool.make_room = self._evict_unheld
        self._main = main
        self._kept = settings.kept if reuse else 0
        self._unheld = settings.unheld if reuse and settings.shared else 0
        self._reuse = reuse
        self._left = left
        self._settings = settings
        self._index = PrefixIndex(pool.grain) if reuse and settings.shared else None
        self._live: dict[str, Holding] = {}
        self._idle: dict[KVSequence, str] = {}  # → session, or UNHELD; in order of last use
        self.evictions = 0
        self.shared_tokens = 0  # positions taken over from other sessions

    def holding(self, request: str) -> Holding | None:
        return self._live.get(request)

    def open(self, request: str, session: str) -> Holding:
        holding = self._live[request] = Holding(session)
        return holding

    # ---------------------------------------------------------------------------------------------------- positions

    def reserve(self, sequence: KVSequence, count: int) -> None:
        """Make the next `count` positions writable, evicting idle sequences. Raises OutOfPages when there are none."""
        while True:
            try:
                return self.pool.reserve(sequence, count)
            except OutOfPages:
                if not self.evict():
                    raise

    def commit(
        self,
        sequence: KVSequence,
        keys: np.ndarray,
        *,
        prompt: bool = False,
        starts: np.ndarray | None = None,
        canonical: int | None = None,
    ) -> None:
        """The positions of a main sequence were written (see `KVPool.commit`); others may find them from now on.

        `canonical`: of a copy, whose grain may be another.
        """
        self.pool.commit(sequence, keys, prompt=prompt, starts=starts)
        if canonical is not None:
            sequence.canonical = canonical // self.pool.grain * self.pool.grain
        self._changed(sequence)

    def begin_prompt(self, holding: Holding, keys: np.ndarray) -> int:
        """Give the holding a main sequence that is a prefix of `keys`, as long as one is cached; returns its length.

        At least `left` keys are left to compute. The other labels begin anew.
        """
        for label, sequence in holding.sequences.items():
            if label != self._main:
                self.pool.release(sequence)
        own = holding.sequences.get(self._main)
        if own is not None:
            common = min(common_prefix(own.keys, keys), len(keys) - self._left)
            self._truncate(own, common if self._reuse or holding.divided else 0)
        else:
            own = holding.sequences[self._main] = self._cached_prefix(holding.session, keys)
        return own.length

    def cached(self, session: str, keys: np.ndarray) -> int:
        """Leading positions that a prompt of the session would find."""
        return self._search(session, keys)[1] if self._reuse else 0

    @property
    def available(self) -> int:
        """Pages that no live request holds."""
        return self.pool.pages.total - self.pages_live

    def preempt(self, holding: Holding) -> int:
        """Drop the request's K/V, which are to be computed again; returns the pages that became free."""
        own = holding.sequence(self._main)
        if holding.recall is None:
            holding.recall = Recall(own.keys.copy(), own.starts.copy())
        before = self.pool.pages.free
        self._truncate(own, 0)
        return self.pool.pages.free - before

    def restore(self, holding: Holding, recall: Recall) -> None:
        """Begin to compute a preempted request's sequence again: what others hold of it is taken over."""
        found = self._find(recall.keys, holding.prompt)
        if found is not None and not holding.sequence(self._main).length:
            holding.sequences[self._main] = self._fork(*found)

    # ------------------------------------------------------------------------------------------------------ endings

    def evict(self) -> bool:
        """Drop the idle sequence that was not used for the longest time, those first that no session holds.

        False when there is none.
        """
        if self._evict_unheld():
            return True
        oldest = next(iter(self._idle), None)
        if oldest is None:
            return False
        self._drop(oldest)
        self.evictions += 1
        return True

    def end_request(self, request: str) -> None:
        holding = self._live.pop(request, None)
        if holding is None:
            return
        main = holding.sequences.pop(self._main, None)
        for sequence in holding.sequences.values():
            self.pool.release(sequence)
        if main is not None:
            self._keep(main, holding.session)

    def abandon(self, request: str) -> None:
        """The request's sequences are given back, and nothing of them is kept."""
        for sequence in self._live.pop(request).sequences.values():
            self._truncate(sequence, 0)

    def end_session(self, session: str) -> None:
        for request in [request for request, holding in self._live.items() if holding.session == session]:
            self.end_request(request)
        for sequence in self._idle_of(session):
            self._truncate(sequence, sequence.canonical if self._unheld else 0)
            if self._index is None or self._index.elsewhere(sequence) == sequence.length:
                self._drop(sequence)
            else:
                del self._idle[sequence]
                self._idle[sequence] = UNHELD
        while self.pages_unheld > self._unheld:
            self._evict_unheld()

    # ------------------------------------------------------------------------------------------------------- seeing

    @property
    def requests(self) -> int:
        return len(self._live)

    @property
    def idle(self) -> int:
        """Sequences that only a session keeps."""
        return sum(owner != UNHELD for owner in self._idle.values())

    @property
    def pages_live(self) -> int:
        """Pages that live requests hold; what is held beyond them is kept as a cache."""
        return len({page for sequence in self._held() for page in sequence.pages})

    @property
    def held(self) -> int:
        """Sequences of live requests that have pages."""
        return sum(bool(sequence.pages) for sequence in self._held())

    @property
    def holders(self) -> dict[str, Holding]:
        """Live requests that have pages, in the order of their beginning."""
        return {request: holding for request, holding in self._live.items() if holding.pages}

    @property
    def pages_unheld(self) -> int:
        """Pages of sequences that nobody holds: as good as free."""
        return len({page for sequence in self._idle_of(UNHELD) for page in sequence.pages} - self._pages_held())

    @property
    def cross_contexts(self) -> int:
        return sum(bool(holding.cross) for holding in self._live.values())

    def _held(self) -> Iterator[KVSequence]:
        for holding in self._live.values():
            yield from holding.sequences.values()

    def _pages_held(self) -> set[int]:
        held = {page for sequence in self._held() for page in sequence.pages}
        return held | {page for each, owner in self._idle.items() if owner != UNHELD for page in each.pages}

    # ------------------------------------------------------------------------------------------------------- inside

    def _shared(self, sequence: KVSequence, keys: np.ndarray) -> int:
        return min(common_prefix(sequence.keys, keys), len(keys) - self._left) if self._reuse else 0

    def _cached_prefix(self, session: str, keys: np.ndarray) -> KVSequence:
        """The longest there is: an idle sequence of the session cut to it; a fork where the rest is worth keeping."""
        best, length, shared = self._search(session, keys)
        if best is None:
            return KVSequence()
        self.shared_tokens += length if shared else 0
        if not shared and best in self._idle and 2 * length >= best.length:
            del self._idle[best]
            self._truncate(best, length)
            return best
        return self._fork(best, length)

    def _search(self, session: str, keys: np.ndarray) -> tuple[KVSequence | None, int, bool]:
        """The sequence with the longest prefix of `keys`, its length, and whether it is another session's."""
        idle = self._idle_of(session)
        busy = [
            h.sequences[self._main] for h in self._live.values() if h.session == session and self._main in h.sequences
        ]
        best, length = None, 0
        for sequence in idle[::-1] + busy:  # of equals the one used last
            shared = self._shared(sequence, keys)
            if shared > length:
                best, length = sequence, shared
        found = self._find(keys, len(keys))
        return (*found, True) if found is not None and found[1] > length else (best, length, False)

    def _find(self, keys: np.ndarray, prompt: int) -> tuple[KVSequence, int] | None:
        """What others have computed of a prompt, the first `prompt` of the keys."""
        return self._index.find(keys[: self._settings.shareable(len(keys), prompt)]) if self._index else None

    def _fork(self, source: KVSequence, length: int) -> KVSequence:
        """The fork counts as a use of an idle source, which is not evicted meanwhile."""
        owner = self._idle.pop(source, None)
        fork = self.pool.fork(source, length)
        if owner is not None:
            self._idle[source] = owner
        self._changed(fork)
        return fork

    def _keep(self, sequence: KVSequence, session: str) -> None:
        """Make the sequence idle, and drop what the session no longer needs beside it."""
        if not sequence.length:
            self.pool.release(sequence)
            return
        self._idle[sequence] = session
        idle = self._idle_of(session)
        prefixes = [
            one
            for i, one in enumerate(idle)
            if any(
                common_prefix(one.keys, other.keys) == one.length and (other.length > one.length or j > i)
                for j, other in enumerate(idle)
                if j != i
            )
        ]
        for one in prefixes:
            self._drop(one)
        remaining = self._idle_of(session)
        for one in remaining[: max(0, len(remaining) - self._kept)]:
            self._drop(one)

    def _evict_unheld(self) -> bool:
        oldest = next((sequence for sequence, owner in self._idle.items() if owner == UNHELD), None)
        if oldest is None:
            return False
        self._drop(oldest)
        self.evictions += 1
        return True

    def _drop(self, sequence: KVSequence) -> None:
        del self._idle[sequence]
        self._truncate(sequence, 0)

    def _truncate(self, sequence: KVSequence, length: int) -> None:
        self.pool.truncate(sequence, length)
        self._changed(sequence)

    def _changed(self, sequence: KVSequence) -> None:
        if self._index is not None:
            self._index.update(sequence)

    def _idle_of(self, session: str) -> list[KVSequence]:
        return [sequence for sequence, owner in self._idle.items() if owner == session]
