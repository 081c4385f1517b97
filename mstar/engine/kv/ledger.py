"""Who holds which sequence: requests that live, and sessions that keep theirs as a cache."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from mstar.engine.attention.backend import CrossContext
from mstar.engine.kv.pages import OutOfPages
from mstar.engine.kv.sequences import KVPool, KVSequence, common_prefix


@dataclass(slots=True, eq=False)
class Holding:
    """What one request holds of one component's K/V memory."""

    session: str
    sequences: dict[str, KVSequence] = field(default_factory=dict)  # label → sequence
    cross: CrossContext = field(default_factory=dict)
    prompt: int = 0  # leading positions of the main sequence that the request did not generate itself
    cached: int = 0  # positions that were there when its prompt began
    divided: bool = False  # its prompt is under way, in pieces

    def sequence(self, label: str) -> KVSequence:
        """The label's sequence, empty at first."""
        return self.sequences.setdefault(label, KVSequence())


class Ledger:
    """Holdings by request, and idle sequences by session, least recently used first.

    When a request ends, its main sequence stays as a cache of its session, which keeps at most `kept` of them. With
    `reuse=False` nothing is kept: K/V depend on more than the keys then (cross-attention).
    """

    def __init__(self, pool: KVPool, main: str, *, reuse: bool, kept: int) -> None:
        self.pool = pool
        self._main = main
        self._kept = kept if reuse else 0
        self._reuse = reuse
        self._live: dict[str, Holding] = {}
        self._idle: dict[KVSequence, str] = {}  # → session; in order of last use
        self.evictions = 0

    def holding(self, request: str) -> Holding | None:
        return self._live.get(request)

    def open(self, request: str, session: str) -> Holding:
        holding = self._live[request] = Holding(session)
        return holding

    def reserve(self, sequence: KVSequence, count: int) -> None:
        """Make the next `count` positions writable, evicting idle sequences. Raises OutOfPages when there are none."""
        while True:
            try:
                return self.pool.reserve(sequence, count)
            except OutOfPages:
                if not self.evict():
                    raise

    def begin_prompt(self, holding: Holding, keys: np.ndarray) -> int:
        """Give the holding a main sequence that is a prefix of `keys`, as long as one is cached; returns its length.

        At least the last key is left to compute. The other labels begin anew.
        """
        for label, sequence in holding.sequences.items():
            if label != self._main:
                self.pool.release(sequence)
        own = holding.sequences.get(self._main)
        if own is not None:
            self.pool.truncate(own, self._shared(own, keys))
        else:
            own = holding.sequences[self._main] = self._cached_prefix(holding.session, keys)
        return own.length

    def evict(self) -> bool:
        """Drop the idle sequence that was not used for the longest time; False when there is none."""
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
            self.pool.release(sequence)

    def end_session(self, session: str) -> None:
        for request in [request for request, holding in self._live.items() if holding.session == session]:
            self.end_request(request)
        for sequence in self._idle_of(session):
            self._drop(sequence)

    @property
    def requests(self) -> int:
        return len(self._live)

    @property
    def idle(self) -> int:
        """Sequences that only a session keeps."""
        return len(self._idle)

    @property
    def pages_live(self) -> int:
        """Pages that live requests hold; what is held beyond them is kept as a cache."""
        return len({page for sequence in self._held() for page in sequence.pages})

    @property
    def held(self) -> int:
        """Sequences of live requests that have pages."""
        return sum(bool(sequence.pages) for sequence in self._held())

    @property
    def cross_contexts(self) -> int:
        return sum(bool(holding.cross) for holding in self._live.values())

    def _held(self) -> Iterator[KVSequence]:
        for holding in self._live.values():
            yield from holding.sequences.values()

    def _shared(self, sequence: KVSequence, keys: np.ndarray) -> int:
        return min(common_prefix(sequence.keys, keys), len(keys) - 1) if self._reuse else 0

    def _cached_prefix(self, session: str, keys: np.ndarray) -> KVSequence:
        """The longest one the session has: an idle sequence cut to it, or a fork where the rest is worth keeping."""
        idle = self._idle_of(session)
        busy = [
            h.sequences[self._main] for h in self._live.values() if h.session == session and self._main in h.sequences
        ]
        best, length = None, 0
        for sequence in idle[::-1] + busy:  # of equals the one used last
            shared = self._shared(sequence, keys)
            if shared > length:
                best, length = sequence, shared
        if best is None:
            return KVSequence()
        if best in self._idle:
            del self._idle[best]
            if 2 * length >= best.length:
                self.pool.truncate(best, length)
                return best
            self._idle[best] = session
        return self.pool.fork(best, length)

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

    def _drop(self, sequence: KVSequence) -> None:
        del self._idle[sequence]
        self.pool.release(sequence)

    def _idle_of(self, session: str) -> list[KVSequence]:
        return [sequence for sequence, owner in self._idle.items() if owner == session]
