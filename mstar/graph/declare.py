"""The words a family is written in: components, walks, edges, streams, tasks. Frozen data, no behaviour (torch-free).

A family's `model.py` builds one `Graph` from these; `mstar.graph.check` refuses a wrong one with a sentence that names
the culprit, `mstar.graph.plan` compiles each walk to flat tables shared by all requests.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from mstar.streaming.policies import ChunkPolicy, FixedChunkPolicy

Modality: TypeAlias = Literal["audio", "text", "video", "image", "action", "signal"]


@dataclass(frozen=True, slots=True)
class Component:
    """A part of the model: what a node runs.

    `submodule` is `"module:factory"`, resolved by the worker only: `factory(settings) → Submodule`, where settings is
    the family's frozen settings object sent as a mapping, with the rank's `device` and `threads`, and the `walks` that
    the component has there. `state` says to whom its committed state belongs. `memory`:
    what its K/V memory is to be (`pages` or `bytes` …; see `mstar.placement.memory`), unless the placement says so.
    """

    name: str
    submodule: str
    engine: Literal["stateless", "kv"] = "stateless"
    state: Literal["request", "session"] = "request"
    memory: Mapping[str, int | bool | str] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class GraphEdge:
    """Carries the named output to one node's input (`input`, by default of the same name) inside the same walk.

    A signal does not leave a loop by an edge, but through the loop's `outputs` or `accumulated`. `to=""` declares an
    output that goes nowhere but there.
    """

    name: str
    to: str
    input: str = ""


@dataclass(frozen=True, slots=True)
class Emit:
    """Carries the named output to the client.

    `window` bounds what may be on its way: the producer may fire while the weight emitted so far is below the client's
    credit, which starts at `window`. The weight of an audio emission is its samples, of any other 1. None = unbounded
    (small, rare signals only).
    """

    name: str
    modality: Modality
    window: int | None = None


@dataclass(frozen=True, slots=True)
class Keep:
    """Keeps the named output for a later walk of the same partition, where it feeds the walk input of the same name."""

    name: str


@dataclass(frozen=True, slots=True)
class StreamingGraphEdge:
    """Carries the named output, item by item, into a stream of the same name that feeds node `to` of `partition`.

    `items="one"`: a value is one item (`Many` = several); `items="rows"`: the rows of an array are items.
    `bound` = items the buffer may hold before the producer waits.
    An edge into a partition that the request's task does not run goes nowhere.
    """

    name: str
    partition: str
    to: str
    policy: ChunkPolicy = field(default_factory=lambda: FixedChunkPolicy(1))
    items: Literal["one", "rows"] = "one"
    bound: int = 256
    input: str = ""


Edge: TypeAlias = GraphEdge | Emit | Keep | StreamingGraphEdge


@dataclass(frozen=True, slots=True)
class GraphNode:
    """A use of a component in a walk, with named inputs and outputs.

    `name` is the component's, unless the walk uses one twice: then `component` names it, `name` tells the uses apart.
    Streaming inputs are listed in `inputs` like the others; which they are follows from the streams that end there.
    `prompt=True` (KV components): the node's keys describe the whole sequence, so that a cached prefix is reused.
    """

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[Edge, ...] = ()
    prompt: bool = False
    component: str = ""

    @property
    def runs(self) -> str:
        """Name of the component."""
        return self.component or self.name


@dataclass(frozen=True, slots=True)
class Sequential:
    sections: tuple[Section, ...]


@dataclass(frozen=True, slots=True)
class Parallel:
    sections: tuple[Section, ...]


@dataclass(frozen=True, slots=True)
class Loop:
    """Bounded iteration: `max_iters` passes.

    An edge of the body to its own node, or to one that stands before it in a `Sequential`, is a loop-back: it feeds the
    next pass, and the first value must come from outside. What comes from outside otherwise is held for all passes.
    `outputs`: edges fed at the end with the last value of that name; `accumulated`: edges fed once with the list of the
    values of all passes; neither is fed if there was none. The two name different signals. Where several members of the
    body produce the name, it is the last one's; an inner loop's signals are those it gives out itself.
    """

    name: str
    section: Section
    max_iters: int
    outputs: tuple[Edge, ...] = ()
    accumulated: tuple[Edge, ...] = ()


@dataclass(frozen=True, slots=True)
class DynamicLoop:
    """A loop that ends early for a request: a body node's verdict says stop, or its stream's final chunk is consumed.

    `max_iters=None` is allowed only where the body has a streaming input.
    """

    name: str
    section: Section
    max_iters: int | None
    outputs: tuple[Edge, ...] = ()
    accumulated: tuple[Edge, ...] = ()


Section: TypeAlias = GraphNode | Sequential | Parallel | Loop | DynamicLoop


@dataclass(frozen=True, slots=True)
class Walk:
    """A named section. `then` names the walk the partition goes on with when this one is done, "" = partition done.

    A section that is one node with only streaming inputs stands for a `DynamicLoop` without bound around that node.
    """

    name: str
    section: Section
    then: str = ""


@dataclass(frozen=True, slots=True)
class Partition:
    """Walks that advance as one state machine. Partitions of one request run at the same time, joined by streams."""

    name: str
    walks: tuple[Walk, ...]


@dataclass(frozen=True, slots=True)
class LiveInput:
    """A stream whose producer is the client.

    `scope="session"`: it outlives requests (microphone, camera); `edges` feed nodes of running tasks from the position
    where the task starts, and `slices` names the nodes that may take a `Slice(stream, start, stop)` of it as an input;
    the last `history` items are kept for slices. `scope="request"`: it belongs to one request (text of a TTS context).
    `full` says what happens beyond an edge's bound: the client waits for credit, or the oldest items are dropped and
    counted.
    """

    name: str
    edges: tuple[StreamingGraphEdge, ...] = ()
    slices: tuple[str, ...] = ()
    scope: Literal["session", "request"] = "session"
    full: Literal["wait", "drop_oldest"] = "drop_oldest"
    history: int = 0


@dataclass(frozen=True, slots=True)
class Task:
    """What a client may ask for: which partitions run and the walk each begins with. `inputs` feed walk inputs by name.

    `standing=True`: runs as long as its session (the walks that listen).
    """

    name: str
    start: Mapping[str, str]  # partition → first walk
    inputs: tuple[str, ...] = ()
    standing: bool = False


@dataclass(frozen=True, slots=True)
class Graph:
    """A family: G (components) and W (walks in partitions), its live inputs and its tasks."""

    name: str
    components: tuple[Component, ...]
    partitions: tuple[Partition, ...]
    tasks: tuple[Task, ...]
    live: tuple[LiveInput, ...] = ()
