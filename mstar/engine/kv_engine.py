"""The engine of components with a K/V cache."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import torch

from mstar.engine.api import Deferred, Failed, Firing, Outcome, Partial
from mstar.engine.attention.backend import PagedRow, PlannedAttention
from mstar.engine.attention.choose import MakeBackend, torch_backend
from mstar.engine.batch import attempt, call_of, check_step, commit_state, conclude, count, groups, isolate
from mstar.engine.device import stepping
from mstar.engine.kv.image import RequestImage, check_image, image_of, install
from mstar.engine.kv.pages import OutOfPages
from mstar.engine.kv.part import Part, Prepared
from mstar.engine.kv.settings import KVSettings
from mstar.engine.sampling import Draw, RowSampler, resolve_sampling
from mstar.engine.states import StateStore
from mstar.submodule import Call, KVSubmodule, Outputs, Packed, Row, Step
from mstar.tensors import Value

__all__ = ["KVCacheEngine", "KVSettings"]

COUNTED = ("replays", "captures", "eager")
UNKEYED = -1
"""What stands at the positions of labels other than the first, which are never shared."""


class KVCacheEngine:
    """Runs submodules whose sequences live in paged memory (see `mstar.engine.api.Engine`).

    The first label of a component's geometry is keyed: `KVSubmodule.keys` describes it, prompts reuse what their
    session has cached of it, and it outlives its request as a cache. Sequences of the other labels begin empty at every
    prompt and end with the request. Components with cross-attention reuse nothing: their K/V depend on the context too.
    """

    def __init__(
        self,
        submodules: Mapping[str, KVSubmodule],
        *,
        settings: Mapping[str, KVSettings] | None = None,
        session_state: Collection[str] = (),
        backend: MakeBackend = torch_backend,
    ) -> None:
        chosen = {name: (settings or {}).get(name, KVSettings()) for name in submodules}
        self._parts = {name: Part(submodule, chosen[name], backend) for name, submodule in submodules.items()}
        self._states = StateStore(session_state)
        self._counters: Counter[str] = Counter(
            steps=0,
            firings=0,
            failed=0,
            deferred=0,
            retries=0,
            prefilled_tokens=0,
            reused_tokens=0,
            gathers=0,
            given_bytes=0,
            taken_bytes=0,
            preemptions=0,
            recomputed_tokens=0,
        )

    def step(self, firings: Sequence[Firing]) -> list[Outcome]:
        if not firings:
            return []
        check_step(firings)
        part = self._parts[firings[0].component]
        outcomes: list[Outcome] = []
        with torch.inference_mode(), stepping(part.settings.device):
            for group in groups(firings, part.submodule.max_batch):
                outcomes += self._group(part, group)
        count(outcomes, self._counters)
        return outcomes

    def capture(self) -> None:
        """Capture ahead the steps of components that can be captured, before there are requests."""
        for part in self._parts.values():
            with torch.inference_mode(), stepping(part.settings.device):
                part.capture()

    def end_request(self, request: str) -> None:
        self._states.end_request(request)
        for part in self._parts.values():
            part.end_request(request)

    def end_session(self, session: str) -> None:
        self._states.end_session(session)
        for part in self._parts.values():
            part.end_session(session)

    def give(self, request: str, component: str) -> Value:
        part = self._parts[component]
        session, state = self._states.session(request), self._states.give(request, component)
        holding = part.ledger.holding(request)
        if holding is None:
            return RequestImage(session, state).value()
        with torch.inference_mode():
            image = image_of(holding, part.pool, part.backend, state)
        part.ledger.end_request(request)
        self._counters["given_bytes"] += image.bytes
        return image.value()

    def take(self, request: str, component: str, image: Value) -> Deferred | None:
        part, given = self._parts[component], RequestImage.of(image)
        check_image(given, part.submodule.geometry)
        if part.ledger.holding(request) is not None:
            raise ValueError(f"request {request} holds something of {component} already")
        if given.labels is not None:
            full = part.no_context()
            if full is not None:
                return full
            try:
                with torch.inference_mode():
                    install(given, request, part.ledger, part.backend)
            except OutOfPages as short:
                return part.no_pages(short, request)
        self._states.take(given.session, request, component, given.state)
        self._counters["taken_bytes"] += given.bytes
        return None

    def preempt(self, request: str, component: str) -> int:
        freed = self._parts[component].preempt(request)
        self._counters["preemptions"] += bool(freed)
        return freed

    def census(self) -> Mapping[str, int]:
        parts = self._parts.values()
        free = sum(part.pool.pages.free + part.ledger.pages_unheld for part in parts)
        return {
            "states": len(self._states),
            "requests": sum(part.ledger.requests for part in parts),
            "sequences": sum(part.ledger.held for part in parts),
            "idle_sequences": sum(part.ledger.idle for part in parts),
            "cross_contexts": sum(part.ledger.cross_contexts for part in parts),
            "pages_free": free,
            "pages_held": sum(part.pool.pages.total for part in parts) - free,
            "pages_live": sum(part.ledger.pages_live for part in parts),
        }

    def counters(self) -> Mapping[str, int]:
        parts = self._parts.values()
        return {
            **self._counters,
            **{f"graph_{name}": sum(p.graphs.counters[name] for p in parts if p.graphs) for name in COUNTED},
            "relocations": sum(part.pool.counters.relocations for part in parts),
            "relocated_bytes": sum(part.pool.counters.relocated_bytes for part in parts),
            "copied_pages": sum(part.pool.counters.copied_pages for part in parts),
            "scattered": sum(part.pool.counters.scattered for part in parts),
            "shared_tokens": sum(part.ledger.shared_tokens for part in parts),
            "pages_cached": sum(part.ledger.pages_unheld for part in parts),
            "evictions": sum(part.ledger.evictions for part in parts),
        }

    def _group(self, part: Part, firings: Sequence[Firing]) -> list[Outcome]:
        """Outcomes of at most `max_batch` firings."""
        calls = [call_of(firing, self._states) for firing in firings]
        prepared: dict[int, Prepared | Outcome] = {}
        before: list[Prepared] = []
        for n in part.order(firings, calls):
            one = prepared[n] = attempt(part.prepare, firings[n], calls[n], tuple(before))
            before += [one] if isinstance(one, Prepared) else []
        places = [prepared[n] for n in range(len(firings))]
        ready = [one for one in places if isinstance(one, Prepared)]
        ran: dict[int, Outcome] = {}
        for again in (False, True):  # what was preempted is computed apart, with rows of a prompt, in what room is left
            several = [one for one in ready if (one.starts is not None) is again]
            outcomes = isolate(several, partial(self._execute, part), self._counters) if several else []
            ran |= {id(one): outcome for one, outcome in zip(several, outcomes, strict=True)}
        return [ran[id(one)] if isinstance(one, Prepared) else one for one in places]

    def _execute(self, part: Part, prepared: Sequence[Prepared]) -> list[Outcome]:
        """Reserve, run, commit. When it raises, and for firings that fail or wait, all reservations are given back."""
        refused: dict[int, Outcome] = {}
        try:
            running = list(range(len(prepared)))
            while running:
                batch = [prepared[i] for i in running]
                calls = [one.call for one in batch]
                packed = part.submodule.collate(calls)
                _check_rows(packed.rows, batch, part)
                rows = tuple(batch[row.call].fit(row) for row in packed.rows)
                lacking = self._reserve(part, rows, batch)
                if lacking:
                    refused |= {running[i]: outcome for i, outcome in lacking.items()}
                    running = [i for n, i in enumerate(running) if n not in lacking]
                    continue
                outputs, attention = _run(part, calls, packed, rows, batch)
                results = conclude(part.submodule, calls, outputs)
                done: list[Outcome] = []
                for n, (one, result) in enumerate(zip(batch, results, strict=True)):
                    if isinstance(result, Failed):
                        done.append(result)
                    else:
                        self._commit(part, n, one, rows, attention)
                        done.append(
                            commit_state(self._states, one.firing, result) if one.whole else Partial(len(one.keys))
                        )
                refused |= dict(zip(running, done, strict=True))
                self._counters["gathers"] += attention.gathered if attention else 0
                break
        finally:
            for one in prepared:
                for sequence in one.holding.sequences.values():
                    part.pool.trim(sequence)
        return self._settle(part, prepared, refused)

    def _settle(self, part: Part, prepared: Sequence[Prepared], outcomes: Mapping[int, Outcome]) -> list[Outcome]:
        """Outcomes in order; a firing that waits and had just opened its request gives back what it holds."""
        for i, one in enumerate(prepared):
            if isinstance(outcomes[i], Deferred) and one.opened:
                part.ledger.end_request(one.firing.request)
        return [outcomes[i] for i in range(len(prepared))]

    def _reserve(self, part: Part, rows: Sequence[Row], batch: Sequence[Prepared]) -> dict[int, Outcome]:
        """Pages for the rows' new positions, evicting idle sequences; returns what becomes of calls that got none."""
        lacking: dict[int, Outcome] = {}
        for row in rows:
            if row.call in lacking:
                continue
            sequence = batch[row.call].holding.sequence(row.label)
            needed = part.pool.page_count(sequence.length + row.tokens)
            if needed > part.pool.pages.total:
                lacking[row.call] = Failed(
                    f"needs {needed} pages, the pool has {part.pool.pages.total}", "out_of_memory"
                )
                continue
            try:
                part.ledger.reserve(sequence, row.tokens)
            except OutOfPages as short:
                lacking[row.call] = part.no_pages(short, batch[row.call].firing.request)
        return lacking

    def _commit(
        self, part: Part, n: int, one: Prepared, rows: Sequence[Row], attention: PlannedAttention | None
    ) -> None:
        for row in rows:
            if row.call == n and row.store:
                sequence = one.holding.sequence(row.label)
                if row.label != part.main:
                    part.pool.commit(sequence, np.full(row.tokens, UNKEYED, dtype=np.int64))
                    continue
                prompt = one.firing.prompt or one.starts is not None
                part.ledger.commit(sequence, one.keys, prompt=prompt, starts=one.starts)
                if one.holding.recall is not None and sequence.length == len(one.holding.recall.keys):
                    one.holding.recall = None
        if attention is not None and n in attention.written_cross:
            one.holding.cross = {**one.holding.cross, **attention.written_cross[n]}
        if one.starts is not None:
            self._counters["recomputed_tokens"] += len(one.keys)
        if one.firing.prompt:
            self._counters["prefilled_tokens"] += len(one.keys)
            self._counters["reused_tokens"] += one.call.cached if one.whole else 0


def _check_rows(rows: Sequence[Row], batch: Sequence[Prepared], part: Part) -> None:
    """Raise ValueError unless the rows are what the keys and the geometry promise."""
    seen: set[tuple[int, str]] = set()
    for row in rows:
        if not 0 <= row.call < len(batch):
            raise ValueError(f"a row names call {row.call} of {len(batch)}")
        if row.label not in part.submodule.geometry.labels:
            raise ValueError(f"a row names label {row.label!r}, the geometry has {part.submodule.geometry.labels}")
        if (row.call, row.label) in seen:
            raise ValueError(f"call {row.call} has two rows of label {row.label!r}")
        seen.add((row.call, row.label))
        if row.tokens < 1 or (row.blocks and sum(row.blocks) != row.tokens):
            raise ValueError(f"a row of {row.tokens} tokens with blocks {row.blocks}")
        if row.store and row.label == part.main and row.tokens != len(batch[row.call].keys):
            raise ValueError(f"a row of {row.tokens} tokens for {len(batch[row.call].keys)} new keys")


def _run(
    part: Part, calls: Sequence[Call], packed: Packed, rows: Sequence[Row], batch: Sequence[Prepared]
) -> tuple[Outputs, PlannedAttention | None]:
    """One forward: through a captured graph or a compiled network where the component has one."""
    sampler = _sampler(part, batch)
    if not rows:
        return part.submodule.forward(packed, Step(calls, None, sampler)), None
    paged = []
    for row in rows:
        holding = batch[row.call].holding
        sequence = holding.sequence(row.label)
        paged.append(PagedRow(row, sequence.pages, sequence.length, holding.cross))
    replayed = part.graphs.run(paged, packed.tensors) if part.graphs is not None else None
    if replayed is not None and part.capturable is not None:
        computed, attention = replayed
        return part.capturable.conclude(computed, packed, Step(calls, attention, sampler)), attention
    attention = part.backend.plan(paged)
    step = Step(calls, attention, sampler)
    if part.compiled is not None and part.capturable is not None:
        return part.capturable.conclude(part.compiled(packed.tensors, attention), packed, step), attention
    return part.submodule.forward(packed, step), attention


def _sampler(part: Part, batch: Sequence[Prepared]) -> RowSampler | None:
    defaults = part.submodule.sampling
    if defaults is None:
        return None
    draws = []
    for one in batch:
        sampling = resolve_sampling(defaults, one.call.settings)
        draw = Draw(sampling, one.call.seed, one.call.length + len(one.keys))
        if sampling.repetition_penalty != 1.0 and not one.firing.prompt:
            earlier = one.holding.sequence(part.main).keys[one.holding.prompt :]
            draw = replace(draw, generated=np.concatenate([earlier, one.keys]))
        draws.append(draw)
    return RowSampler(draws)
