"""One walk in progress of one request: which node may fire now, and where its outputs go (pure; no value is looked at).

Every port takes one *token* a pass of its edge's home loop: a value, or the word that nothing comes this pass. A node
fires when all its ports have values. With a "nothing" among them it is skipped: it counts as done for this pass and
passes "nothing" on. A pass ends when every node and loop in the body has fired or was skipped, so it always ends.

A loop ends after a pass in which
 - its bound is reached, or a verdict said stop (pass k's outputs are delivered, pass k + 1 never begins),
 - a node in it consumed the final chunk of a stream, or found it to have nothing new (then the node does not run),
 - nothing fired at all: nothing ever would.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import msgspec

from mstar.errors import Rejected
from mstar.graph.declare import Emit, Keep, StreamingGraphEdge
from mstar.graph.outline import ROOT
from mstar.graph.plan import LoopPlan, NodePlan, Route, Slot, WalkPlan
from mstar.streaming.chunk import Chunk
from mstar.tensors import Output, Value


@dataclass(frozen=True, slots=True, eq=False)
class ToClient:
    """A value on its way to the client."""

    edge: Emit
    value: Output


@dataclass(frozen=True, slots=True, eq=False)
class ToStream:
    """A value on its way into a stream."""

    edge: StreamingGraphEdge
    value: Output


@dataclass(frozen=True, slots=True, eq=False)
class Kept:
    """A value for a later walk of the partition."""

    name: str
    value: Output


Delivery: TypeAlias = ToClient | ToStream | Kept


class Taken(msgspec.Struct, frozen=True, eq=False):
    """What a node fires with: a value per input, the span of each streaming one, the pass of its innermost loop."""

    inputs: Mapping[str, Value]
    spans: Mapping[str, Chunk]
    iteration: int


class _Nothing:
    """Stands in a cell where no value comes this pass."""

    def __repr__(self) -> str:
        return "nothing"


_NOTHING: Any = _Nothing()


class Cursor:
    """The state of one walk: cells, counters of its loops, chunks that wait. Costs a few microseconds a firing.

    `limits`: loop name → most passes for this request, below the declared bound; other names are ignored.
    Raises Rejected for a limit below 1.
    """

    __slots__ = (
        "_backs",
        "_bounds",
        "_busy",
        "_cells",
        "_fired",
        "_left",
        "_missing",
        "_passes",
        "_pending",
        "_queues",
        "_ran",
        "_ready",
        "_registers",
        "_stops",
        "_waiting",
        "_wanting",
        "done",
        "plan",
    )

    def __init__(self, plan: WalkPlan, *, limits: Mapping[str, int] | None = None) -> None:
        self.plan = plan
        self._bounds = [loop.max_iters for loop in plan.loops]
        for loop in plan.loops[1:]:
            limit = limits.get(loop.name) if limits else None
            if limit is not None:
                if limit < 1:
                    raise Rejected(f"{loop.name} is {limit}, must be at least 1", param=loop.name)
                self._bounds[loop.id] = limit if loop.max_iters is None else min(limit, loop.max_iters)
        self.clear()

    def clear(self) -> None:
        """Back to the beginning: nothing was put, nothing has fired."""
        plan = self.plan
        self._waiting: dict[str, deque[Value]] = {}  # walk inputs given in this pass → values for its next ones
        self._queues: list[deque[Chunk]] = [deque() for _ in plan.queues]
        self._begin_walk()

    def again(self) -> None:
        """Begin the walk anew; values and chunks that wait behind those of the pass that is done come to their turn."""
        waiting = self._waiting
        self._waiting = {}
        self._begin_walk()
        for name, values in waiting.items():
            if values:
                self.put(name, values.popleft())
                self._waiting[name].extend(values)

    def _begin_walk(self) -> None:
        plan, loops = self.plan, len(self.plan.loops)
        self._cells: list[Any] = [_NOTHING] * plan.cells
        self._backs: list[Any] = [_NOTHING] * plan.backs
        self._registers: list[Any] = [_NOTHING] * plan.registers
        self._missing = [0] * len(plan.nodes)
        self._left, self._passes = [0] * loops, [0] * loops  # members yet to be done this pass; passes before it
        self._fired, self._ran = [False] * loops, [False] * loops  # in this pass; in any
        self._stops = [False] * loops
        self._ready: dict[int, None] = {}  # in the order they became so
        self._wanting: dict[int, tuple[str, ...]] = {}
        self._busy: set[int] = set()
        self._pending: list[Delivery] = []
        self.done = False
        self._begin(plan.loops[ROOT])

    # --------------------------------------------------------------------------------------------------------- inputs

    def put(self, name: str, value: Value) -> None:
        """Feed a walk input; None = it stays without a value. A second value waits for the walk's next pass (`again`).

        Raises Rejected for a name that the walk does not take.
        """
        slots = self.plan.inputs.get(name)
        if slots is None:
            raise Rejected(f"walk {self.plan.partition}.{self.plan.name} has no input {name}", param=name)
        if name in self._waiting:
            self._waiting[name].append(value)
            return
        self._waiting[name] = deque()
        for slot in slots:
            self._arrive(slot, _NOTHING if value is None else value)

    def chunk(self, node: int, name: str, chunk: Chunk) -> None:
        """Feed a streaming input; chunks wait behind one another. May end loops: see `flush`.

        Raises Rejected for an input that no stream feeds.
        """
        for port, queue in self.plan.nodes[node].streams:
            if port == name:
                self._queues[queue].append(chunk)
                if node in self._wanting:
                    self._look(self.plan.nodes[node])
                return
        raise Rejected(f"node {self.plan.nodes[node].name} has no streaming input {name}", param=name)

    # ---------------------------------------------------------------------------------------------------------- nodes

    def ready(self) -> list[int]:
        """Nodes that have all they need."""
        return list(self._ready)

    def wants(self) -> list[tuple[int, tuple[str, ...]]]:
        """Nodes that only miss chunks, each with the inputs that miss one."""
        return list(self._wanting.items())

    def missing_streams(self, node: int) -> tuple[str, ...]:
        """The streaming inputs that a node which misses nothing else misses; () for any other node."""
        return self._wanting.get(node, ())

    def can_take(self, node: int) -> bool:
        """Whether the node is ready."""
        return node in self._ready

    def take(self, node: int) -> Taken:
        """Fire a ready node: it is busy until `complete` or `untake`. Raises RuntimeError if it is not ready."""
        if node not in self._ready:
            raise RuntimeError(f"node {self.plan.nodes[node].name} is not ready")
        del self._ready[node]
        self._busy.add(node)
        plan = self.plan.nodes[node]
        cells = self._cells
        inputs: dict[str, Value] = {port: cells[cell] for port, cell in plan.plain}
        spans: dict[str, Chunk] = {}
        for port, queue in plan.streams:
            chunk = spans[port] = self._queues[queue][0]
            inputs[port] = chunk.value
        return Taken(inputs, spans, self._passes[plan.loop])

    def untake(self, node: int) -> None:
        """The firing did not take place: the node is ready as before. Raises RuntimeError if it is not busy."""
        self._settle(node)
        self._ready[node] = None

    def complete(self, node: int, outputs: Mapping[str, Output], stop: bool = False) -> list[Delivery]:
        """A busy node has fired. An output that is None or absent puts nothing on its edges this pass.

        `stop` ends the innermost DynamicLoop around the node after this pass. Returns what leaves the walk, in order.
        Raises ValueError for an output that the graph does not know, RuntimeError if the node is not busy.
        """
        plan = self.plan.nodes[node]
        if not outputs.keys() <= plan.routes.keys():
            unknown = [name for name in outputs.keys() - plan.routes.keys() if outputs[name] is not None]
            if unknown:  # None may come under a name of another use of the component, which shares the batch
                raise ValueError(f"node {plan.name} gave an output {min(unknown)}, which the graph does not declare")
        self._settle(node)
        if plan.streams:
            self._consume(plan)
        if stop:
            self._stops[plan.stops] = True
        for name, route in plan.routes.items():
            self._send(route, outputs.get(name))
        self._resolve(plan.loop, fired=True)
        return self.flush()

    def flush(self) -> list[Delivery]:
        """What has left the walk since it was last asked: a chunk that ends a loop makes its outputs leave."""
        left, self._pending = self._pending, []
        return left

    @property
    def stopped(self) -> bool:
        """Whether a verdict said stop outside of any DynamicLoop."""
        return self._stops[ROOT]

    # ------------------------------------------------------------------------------------------------------- the flow

    def _settle(self, node: int) -> None:
        if node not in self._busy:
            raise RuntimeError(f"node {self.plan.nodes[node].name} is not busy")
        self._busy.remove(node)

    def _arrive(self, slot: Slot, token: Any) -> None:
        node = slot.node
        for cell in slot.cells:
            self._cells[cell] = token
        self._missing[node] -= 1
        if not self._missing[node]:
            self._filled(self.plan.nodes[node])

    def _filled(self, node: NodePlan) -> None:
        """All plain ports have their tokens."""
        cells = self._cells
        for _, cell in node.plain:
            if cells[cell] is _NOTHING:
                self._skip(node)
                return
        if node.streams:
            self._look(node)
        else:
            self._ready[node.id] = None

    def _look(self, node: NodePlan) -> None:
        """Only chunks can be missing: see whether they are, or whether they end the stream."""
        lacking = tuple([port for port, queue in node.streams if not self._queues[queue]])
        if lacking:
            self._wanting[node.id] = lacking
            return
        self._wanting.pop(node.id, None)
        final = new = False
        for _, queue in node.streams:
            chunk = self._queues[queue][0]
            final |= chunk.final
            new |= chunk.n_new > 0
        if final and not new:
            self._consume(node)
            self._skip(node)
        else:
            self._ready[node.id] = None

    def _consume(self, node: NodePlan) -> None:
        for _, queue in node.streams:
            if self._queues[queue].popleft().final:
                for loop in node.around:
                    self._stops[loop] = True

    def _skip(self, node: NodePlan) -> None:
        for route in node.routes.values():
            self._send(route, None)
        self._resolve(node.loop, fired=False)

    def _send(self, route: Route, value: Output) -> None:
        if value is None:
            for slot in route.ahead:
                self._arrive(slot, _NOTHING)
            return
        for edge in route.out:
            self._pending.append(_delivery(edge, value))
        for back in route.backs:
            self._backs[back] = value
        for register in route.last:
            self._registers[register] = value
        for register in route.every:
            self._registers[register].append(value)
        for slot in route.ahead:
            self._arrive(slot, value)

    # ---------------------------------------------------------------------------------------------------------- loops

    def _begin(self, loop: LoopPlan) -> None:
        """A new pass: fill the cells that are known, and let go who misses nothing."""
        cells, backs = self._cells, self._backs
        for back, targets in loop.fed_back:
            for cell in targets:
                cells[cell] = backs[back]
            backs[back] = _NOTHING
        for source, targets in loop.again:
            for cell in targets:
                cells[cell] = cells[source]
        self._left[loop.id] = loop.members
        self._fired[loop.id] = False
        for inner in loop.inner:
            self._reset(self.plan.loops[inner])
        full = []
        for node, waits in loop.nodes:
            self._missing[node] = waits
            if not waits:
                full.append(node)
        for node in full:
            self._filled(self.plan.nodes[node])

    def _reset(self, loop: LoopPlan) -> None:
        """A loop whose outer loop begins a pass is before its first."""
        self._left[loop.id] = loop.members
        self._passes[loop.id] = 0
        self._fired[loop.id] = self._ran[loop.id] = self._stops[loop.id] = False
        for back, _ in loop.fed_back:
            self._backs[back] = _NOTHING
        for give in loop.last:
            self._registers[give.register] = None
        for give in loop.every:
            self._registers[give.register] = []

    def _resolve(self, loop: int, *, fired: bool) -> None:
        """A member of the loop's body is done for this pass."""
        if fired:
            self._fired[loop] = True
        self._left[loop] -= 1
        if self._left[loop]:
            return
        if loop == ROOT:
            self.done = True
            return
        plan = self.plan.loops[loop]
        self._ran[loop] |= self._fired[loop]
        self._passes[loop] += 1
        if self._stops[loop] or not self._fired[loop] or self._passes[loop] == self._bounds[loop]:
            self._finish(plan)
        else:
            self._begin(plan)

    def _finish(self, loop: LoopPlan) -> None:
        for give in loop.last:
            self._send(give.route, self._registers[give.register])
        for give in loop.every:
            self._send(give.route, self._registers[give.register] or None)
        self._resolve(loop.parent, fired=self._ran[loop.id])


def _delivery(edge: Emit | StreamingGraphEdge | Keep, value: Output) -> Delivery:
    match edge:
        case Emit():
            return ToClient(edge, value)
        case StreamingGraphEdge():
            return ToStream(edge, value)
        case Keep():
            return Kept(edge.name, value)
