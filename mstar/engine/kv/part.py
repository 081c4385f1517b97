"""One component of the K/V engine: its code, its memory, and what each of its firings is to compute."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from mstar.engine.api import Deferred, Failed, Firing, Partial
from mstar.engine.attention.backend import FixedSizes
from mstar.engine.attention.choose import MakeBackend
from mstar.engine.batch import attempt
from mstar.engine.graphs.runner import CudaRecorder, GraphRunner, Network
from mstar.engine.kv.ledger import Holding, Ledger, Recall
from mstar.engine.kv.pages import OutOfPages
from mstar.engine.kv.sequences import KVPool, common_prefix
from mstar.engine.kv.settings import KVSettings
from mstar.submodule import Call, Capturable, Divisible, KVSubmodule, Recomputable, Row, Silent

PASSED = 16
"""Steps in a row in which a prompt may get nothing for the sake of shorter ones."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A firing that has its sequence; `keys` are those of the positions to compute."""

    firing: Firing
    call: Call
    holding: Holding
    keys: np.ndarray
    opened: bool  # by this firing: a deferral gives everything back
    whole: bool = True  # else a piece of a prompt or of what was preempted, behind which more comes
    prompt: np.ndarray | None = None  # all keys of the prompt that this is a piece of
    starts: np.ndarray | None = None  # of what is computed again (see `KVSequence.starts`)
    singles: bool = False  # it was computed one by one

    def fit(self, row: Row) -> Row:
        """The row as the submodule wants it, each position seeing those before it as when it was decoded."""
        return replace(row, blocks=(1,) * row.tokens) if self.singles and row.tokens > 1 else row


class Part:
    """Prepares the firings of one component."""

    def __init__(
        self,
        submodule: KVSubmodule,
        settings: KVSettings,
        backend: MakeBackend,
    ) -> None:
        geometry = submodule.geometry
        self.submodule = submodule
        self._passed: dict[str, tuple[str, int]] = {}  # prompts passed over: session, and how often in a row
        self._divisible = submodule if isinstance(submodule, Divisible) and settings.piece else None
        shared = settings.shared and self._divisible is not None  # else a prompt is not cut on a grid
        self.settings = settings = replace(settings, shared=shared)
        self.backend = backend(geometry, settings)
        self.capturable = submodule if isinstance(submodule, Capturable) and submodule.capturable else None
        self.compiled: Network | None = None
        if self.capturable is not None and settings.compile:
            self.compiled = torch.compile(self.capturable.compute, dynamic=True)
        self.graphs = self._graphs()
        self.main = geometry.labels[0]
        self.crosses = geometry.cross_context > 0
        self.pool = KVPool(self.backend, settings.grain)
        left = 0 if isinstance(submodule, Silent) and submodule.silent else 1
        self.ledger = Ledger(self.pool, self.main, settings, reuse=settings.reuse and not self.crosses, left=left)
        alone = not self.crosses and len(geometry.labels) == 1
        self._recomputable = submodule if alone and isinstance(submodule, Recomputable) else None

    def _graphs(self) -> GraphRunner | None:
        """Captured graphs, where the device, the attention and the submodule allow them."""
        if self.capturable is None or not self.settings.graphs or not isinstance(self.backend, FixedSizes):
            return None
        return GraphRunner(self.compiled or self.capturable.compute, self.backend.fixed, CudaRecorder())

    def capture(self) -> None:
        """Capture ahead the steps that requests will take, so that none of them waits for it."""
        if self.graphs is not None and self.capturable is not None and isinstance(self.backend, FixedSizes):
            piece = self.settings.piece
            sizes = (self.submodule.max_batch, piece, piece + self.settings.budget)
            self.graphs.prepare(self.capturable.blank, self.backend.scratch, self.settings.page_size, sizes)

    def prepare(self, firing: Firing, call: Call, before: Sequence[Prepared]) -> Prepared | Deferred | Partial:
        """Find out what the firing computes, and give it its sequence cut to what it may reuse.

        `before`: what the step does already. Raises what the submodule raises.
        """
        keys = self.submodule.keys(call)
        if firing.prompt and not len(keys):
            raise ValueError("a prompt has no keys")
        holding = self.ledger.holding(firing.request)
        if (firing.prompt or (holding and holding.recall)) and self._waits(firing, keys, before):
            self._passed[firing.request] = (firing.session, self._times_passed(firing) + 1)
            return Partial(0)
        self._passed.pop(firing.request, None)
        opened = holding is None
        if holding is None:
            full = self.no_context()
            if full is not None:
                return full
            holding = self.ledger.open(firing.request, firing.session)
        if firing.prompt:
            return self._prompt(firing, call, keys, holding, opened=opened)
        if holding.recall is not None and self._recomputable is not None:
            return self._again(firing, call, holding, holding.recall, self._recomputable)
        length = holding.sequence(self.main).length
        if not length:
            holding.prompt = len(keys)
        return Prepared(firing, replace(call, length=length), holding, keys, opened)

    def order(self, firings: Sequence[Firing], calls: Sequence[Call]) -> Sequence[int]:
        """Which firings are prepared first: of several prompts that share a budget, the one with the least to compute.

        So the first of them is done early, instead of all late. One that was passed over too often goes before all.
        """
        places = range(len(firings))
        if self._divisible is None or len(firings) < 2 or not firings[0].prompt:
            return places

        def key(n: int) -> tuple[bool, int, int]:
            often = self._times_passed(firings[n]) >= PASSED
            return (not often, 0 if often else self._left(firings[n], calls[n]), n)

        return sorted(places, key=key)

    def _left(self, firing: Firing, call: Call) -> int:
        """Positions of a prompt that are to be computed, 0 for one that is wrong."""
        keys = attempt(lambda: self.submodule.keys(call))
        if isinstance(keys, Failed) or not len(keys):
            return 0
        holding = self.ledger.holding(firing.request)
        have = holding.sequence(self.main).length if holding else self.ledger.cached(firing.session, keys)
        return len(keys) - have

    def end_request(self, request: str) -> None:
        """Free what the request holds."""
        self._passed.pop(request, None)
        self.ledger.end_request(request)

    def end_session(self, session: str) -> None:
        """Free what the session and its requests hold."""
        self._passed = {request: each for request, each in self._passed.items() if each[0] != session}
        self.ledger.end_session(session)

    def _times_passed(self, firing: Firing) -> int:
        return self._passed.get(firing.request, ("", 0))[1]

    def preempt(self, request: str) -> int:
        """Drop a live request's K/V; returns the pages that became free."""
        holding = self.ledger.holding(request)
        return self.ledger.preempt(holding) if holding is not None and self._recomputable is not None else 0

    def no_context(self) -> Deferred | None:
        """What a request is told that finds no place for its cross-attention context."""
        limit = self.settings.cross_contexts
        if self.crosses and self.ledger.requests >= limit:
            return Deferred(f"needs 1 cross-attention context, 0 free, {limit} held by {limit} requests")
        return None

    def no_pages(self, short: OutOfPages, request: str) -> Deferred:
        """What a firing is told that finds no pages."""
        holders = self.ledger.holders
        sessions = len({holding.session for holding in holders.values()})
        others = tuple(name for name in holders if name != request)
        held = self.pool.pages.total - short.free
        return Deferred(
            f"{short}, {held} held by {sessions} session{'s' * (sessions != 1)}",
            others,
            others if self._recomputable is not None else (),
            request in holders or bool((mine := self.ledger.holding(request)) and mine.recall),
        )

    def _waits(self, firing: Firing, keys: np.ndarray, before: Sequence[Prepared]) -> bool:
        """Whether the step has its tokens, or a firing before this one computes what it would compute too."""
        if self._divisible is None:
            return False
        spent = sum(len(one.keys) for one in before if one.firing.prompt or not one.whole)
        if spent and spent >= self.settings.budget:
            return True
        if not (firing.prompt and self.settings.shared and self.settings.reuse):
            return False
        holding = self.ledger.holding(firing.request)
        have = holding.sequence(self.main).length if holding else self.ledger.cached(firing.session, keys)
        for one in before:
            if one.prompt is None or one.holding.sequence(self.main).canonical < one.call.reused:
                continue
            common = self.settings.shareable(common_prefix(one.prompt, keys), len(keys))
            if one.call.reused < common > have:
                return True
        return False

    def _prompt(self, firing: Firing, call: Call, keys: np.ndarray, holding: Holding, *, opened: bool) -> Prepared:
        """The prompt from what is there on: all of it, or its next piece."""
        holding.recall = None
        reused = self.ledger.begin_prompt(holding, keys)
        if not holding.divided:
            holding.cached = reused
        holding.prompt = len(keys)
        call = replace(call, reused=reused, cached=holding.cached, length=reused)
        prompt, holding.divided = keys, False
        if self._divisible is not None and (stop := self._stop(reused)) < len(keys):
            holding.divided = True
            call = self._divisible.cut(call, stop)
            keys = keys[:stop]
        return Prepared(firing, call, holding, keys[reused:], opened, not holding.divided, prompt)

    def _stop(self, start: int) -> int:
        """Where a piece that begins at `start` ends.

        If it begins with a grain, on a grid, so that a prompt is cut into the same pieces whatever of it was shared.
        """
        piece = self.settings.piece
        if start % self.settings.grain:
            return start + piece
        return (start // piece + 1) * piece

    def _again(
        self, firing: Firing, call: Call, holding: Holding, recall: Recall, submodule: Recomputable
    ) -> Prepared | Deferred:
        """The next piece of what was preempted, computed as it was; then the firing itself comes.

        It begins when there is room for all of it, so that it does not take, piece by piece, what others need.
        """
        missing = self.pool.page_count(len(recall.keys) + 1) - holding.pages
        if missing > self.ledger.available:
            return self.no_pages(OutOfPages(missing, self.ledger.available), firing.request)
        self.ledger.restore(holding, recall)
        own = holding.sequence(self.main)
        begin = own.length
        stop, singles = recall.piece(begin, submodule.together)
        again = replace(submodule.recompute(call, recall.keys[:stop]), reused=begin, length=begin)
        starts = recall.starts[begin:stop]
        return Prepared(firing, again, holding, recall.keys[begin:stop], False, False, None, starts, singles)
