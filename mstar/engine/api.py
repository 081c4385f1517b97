"""What a worker says to an engine, and what it hears back.

All calls come from the worker's one compute thread, in order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

import msgspec

from mstar.submodule import Span
from mstar.tensors import Output, Value


class Firing(msgspec.Struct, frozen=True):
    """One request's firing of one component, as the worker schedules it.

    `prompt` says that the component's keys describe the whole sequence (see `KVSubmodule.keys`); `seed` is the seed of
    (request, component). `node` is the use of the component that fires: a walk may have several.
    """

    session: str
    request: str
    component: str
    walk: str
    inputs: Mapping[str, Value]
    spans: Mapping[str, Span] = {}
    settings: Mapping[str, Value] = {}
    iteration: int = 0
    prompt: bool = False
    seed: int = 0
    node: str = ""


class Completed(msgspec.Struct, frozen=True):
    """The firing ran: its value per output name, and whether its loop stops. State and K/V are committed."""

    outputs: Mapping[str, Output]
    stop: bool


@dataclass(frozen=True, slots=True)
class Failed:
    """The firing failed by itself (`"Type: text"`); nothing of it was committed, its request can only be ended.

    `code` and `param` are those of a `Rejected`, where the caller was at fault.
    """

    cause: str
    code: str = "node_failed"
    param: str = ""


@dataclass(frozen=True, slots=True)
class Deferred:
    """The firing can not run now for want of memory; nothing changed, offer it again. `reason` has the numbers.

    `holders`: the other requests that hold the component's memory, in the order of their beginning; `preemptable`:
    those of them that `Engine.preempt` may be asked for. `begun`: this one holds some too, or had to give way.
    """

    reason: str
    holders: tuple[str, ...] = field(default=(), compare=False)
    preemptable: tuple[str, ...] = field(default=(), compare=False)
    begun: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class Partial:
    """A piece of a long prompt was computed and is kept; the same firing goes on with the next piece.

    `computed` = 0: nothing was, for others' prompts had the step, or are about to compute what this one needs.
    """

    computed: int = 1  # positions


Outcome: TypeAlias = Completed | Failed | Deferred | Partial


class Engine(Protocol):
    """Runs batches of firings and keeps what lives across them."""

    def step(self, firings: Sequence[Firing]) -> list[Outcome]:
        """Run firings of one (component, walk); outcome i belongs to firing i. A request appears at most once.

        A failing batch is rolled back and its firings are tried one by one, so only the guilty ones fail.
        """
        ...

    def end_request(self, request: str) -> None:
        """Free what the request owns; its K/V sequence may stay as its session's cache. Unknown ones are ignored."""
        ...

    def end_session(self, session: str) -> None:
        """Free everything of the session, requests that were not ended included. Unknown sessions are ignored."""
        ...

    def give(self, request: str, component: str) -> Value:
        """What the request holds of the component, to go on with on another engine; here it is over.

        The image is a tree of arrays, text and numbers: the sequences of all labels, position by position, their keys,
        cross-attention context and committed state (layout: `mstar.engine.kv.image`; of a component without K/V the
        state alone). Give it between two steps of the request. Its K/V stay here as the session's cache, as they do
        when a request ends. State that belongs to a session does not move.
        """
        ...

    def take(self, request: str, component: str, image: Value) -> Deferred | None:
        """Go on with what another engine gave, bit for bit as if it had been computed here.

        Deferred when there is no memory now: nothing changed, offer it again. Raises ValueError when the image is of
        another geometry, or the request holds something here already.
        """
        ...

    def preempt(self, request: str, component: str) -> int:
        """Drop the request's K/V, to be computed again at its next firings; returns the pages that became free.

        For a request that `Deferred.preemptable` named; for others nothing happens.
        """
        ...

    def census(self) -> Mapping[str, int]:
        """What is held now; back at its baseline when every session has ended."""
        ...

    def counters(self) -> Mapping[str, int]:
        """Totals since the start."""
        ...
