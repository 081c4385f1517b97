"""A graph compiled to flat tables of integers, once, for all requests: what a `Cursor` moves over.

A port's value lives in *cells*. The first cell holds what comes from outside the loops that feed the port back; each of
those loops, from outside in, adds a cell with the value as seen inside it. The node reads the last one. So a new pass
of a loop only writes cells: loop-backs into the loop's own cell, the outer value again into the cells of loops inside
it; nothing into those of held externals, nor of ports that are produced anew, whose nodes wait for them by count.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from mstar.errors import GraphError
from mstar.graph.declare import DynamicLoop, Emit, Graph, GraphEdge, Keep, Partition, StreamingGraphEdge, Walk
from mstar.graph.outline import ROOT, Link, Outline, Source, feeds, outline
from mstar.graph.streams import Stream, streaming_ports, streams_of


@dataclass(frozen=True, slots=True)
class Slot:
    """A port as one of its sources sees it: the node, and the cells that a value from there fills."""

    node: int
    cells: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Route:
    """Where one signal of one source goes."""

    ahead: tuple[Slot, ...] = ()
    backs: tuple[int, ...] = ()  # loop-backs it fills for the next pass
    out: tuple[Emit | StreamingGraphEdge | Keep, ...] = ()
    last: tuple[int, ...] = ()  # registers of loops that give out its last value
    every: tuple[int, ...] = ()  # registers of loops that give out all its values


@dataclass(frozen=True, slots=True)
class NodePlan:
    id: int
    name: str
    component: str
    prompt: bool
    loop: int  # innermost loop around it
    around: tuple[int, ...]  # all loops around it, from inside out
    stops: int  # innermost DynamicLoop around it; the walk itself if there is none
    plain: tuple[tuple[str, int], ...]  # inputs that edges feed, with the cell they are read from
    streams: tuple[tuple[str, int], ...]  # inputs that streams feed, with their queue
    routes: Mapping[str, Route]  # output name → route
    emits: tuple[Emit, ...]  # what it sends to the client, by itself or through the loops around it
    feeds: tuple[StreamingGraphEdge, ...]  # the streams it feeds, likewise


@dataclass(frozen=True, slots=True)
class Gives:
    """What a loop gives out at its end."""

    register: int
    route: Route


@dataclass(frozen=True, slots=True)
class LoopPlan:
    """A loop, or (id 0) the walk itself, and what a new pass of it does."""

    id: int
    name: str
    parent: int
    max_iters: int | None
    members: int  # nodes and loops directly in its body: what a pass must see resolved
    nodes: tuple[tuple[int, int], ...]  # nodes in its body, inner loops' included; plain inputs each of them waits for
    inner: tuple[int, ...]  # loops in its body, their inner loops included
    fed_back: tuple[tuple[int, tuple[int, ...]], ...]  # loop-back, cells it fills
    again: tuple[tuple[int, tuple[int, ...]], ...]  # cell outside, cells inside inner loops that start with it again
    last: tuple[Gives, ...]
    every: tuple[Gives, ...]


@dataclass(frozen=True, slots=True)
class WalkPlan:
    """One walk. Node ids are positions in `nodes`, in the order of the declaration."""

    name: str
    partition: str
    nodes: tuple[NodePlan, ...]
    loops: tuple[LoopPlan, ...]
    inputs: Mapping[str, tuple[Slot, ...]]  # what has to be put in, by name
    cells: int
    backs: int
    registers: int
    queues: tuple[int, ...]  # streaming inputs: the node of each
    node_ids: tuple[int, ...]

    def component(self, node: int) -> str:
        """Name of the component that a node runs."""
        return self.nodes[node].component

    def prompt(self, node: int) -> bool:
        """Whether the keys of this KV node describe its whole sequence."""
        return self.nodes[node].prompt

    def emits(self, node: int) -> tuple[Emit, ...]:
        """What the node sends to the client, by itself or through the outputs of loops around it."""
        return self.nodes[node].emits

    def streams_out(self, node: int) -> tuple[StreamingGraphEdge, ...]:
        """The streams the node feeds, by itself or through the outputs of loops around it."""
        return self.nodes[node].feeds


@dataclass(frozen=True, slots=True)
class GraphPlan:
    """All walks by (partition, walk), and all streams by (stream, partition)."""

    name: str
    walks: Mapping[tuple[str, str], WalkPlan]
    streams: Mapping[tuple[str, str], Stream] = field(default_factory=dict)

    def walk(self, partition: str, name: str) -> WalkPlan:
        """The walk of that name. Raises GraphError if the partition has none."""
        try:
            return self.walks[(partition, name)]
        except KeyError:
            raise GraphError(f"graph {self.name}: partition {partition} has no walk {name}") from None


def compile_graph(graph: Graph) -> GraphPlan:
    """Compile every walk. Raises GraphError for one that makes no sense by itself; `mstar.graph.check` sees more."""
    streams = streams_of(graph)
    walks = {
        (partition.name, walk.name): compile_walk(partition, walk, streams)
        for partition in graph.partitions
        for walk in partition.walks
    }
    return GraphPlan(graph.name, walks, {stream.key: stream for stream in streams})


def compile_walk(partition: Partition, walk: Walk, streams: tuple[Stream, ...]) -> WalkPlan:
    """One walk's tables."""
    return _Compiler(outline(partition.name, walk, streaming_ports(streams, partition.name))).walk(partition.name, walk)


class _Compiler:
    """Numbers the cells, loop-backs, registers and queues of one outline."""

    def __init__(self, plan: Outline) -> None:
        self.plan = plan
        self.feeds = feeds(plan)
        self.cells: dict[tuple[int, str], tuple[int, ...]] = {}  # port → its cells, from outside in
        self.levels: dict[tuple[int, str], tuple[int, ...]] = {}  # port → loops that feed it back, from outside in
        self.backs = {link: index for index, link in enumerate(link for link in plan.links if link.back)}
        self.registers = {(gift.loop, gift.name): index for index, gift in enumerate(plan.gifts)}
        self.queues: dict[tuple[int, str], int] = {}
        count = 0
        for node, declared in enumerate(plan.nodes):
            for port in declared.inputs:
                if plan.is_streaming(node, port):
                    self.queues[(node, port)] = len(self.queues)
                    continue
                fed_back = {link.home for link in self.feeds[(node, port)] if link.back}
                around = plan.around(plan.node_spots[node].loop)
                self.levels[(node, port)] = tuple(loop for loop in reversed(around) if loop in fed_back)
                self.cells[(node, port)] = tuple(range(count, count + 1 + len(fed_back)))
                count += 1 + len(fed_back)
        self.count = count

    def walk(self, partition: str, walk: Walk) -> WalkPlan:
        inputs: dict[str, tuple[Slot, ...]] = {}
        for link in self.plan.links:
            if link.source is None:
                inputs[link.name] = (*inputs.get(link.name, ()), self._slot(link))
        return WalkPlan(
            name=walk.name,
            partition=partition,
            nodes=tuple(self._node(node) for node in range(len(self.plan.nodes))),
            loops=tuple(self._loop(loop) for loop in range(len(self.plan.loops))),
            inputs=inputs,
            cells=self.count,
            backs=len(self.backs),
            registers=len(self.registers),
            queues=tuple(node for node, _ in self.queues),
            node_ids=tuple(range(len(self.plan.nodes))),
        )

    # -------------------------------------------------------------------------------------------------------- signals

    def _slot(self, link: Link) -> Slot:
        return Slot(link.node, self.cells[(link.node, link.input)])

    def _route(self, source: Source, name: str) -> Route:
        links = [link for link in self.plan.links if link.source == source and link.name == name]
        gifts = [gift for gift in self.plan.gifts if gift.source == source and gift.name == name]
        return Route(
            ahead=tuple(self._slot(link) for link in links if not link.back),
            backs=tuple(self.backs[link] for link in links if link.back),
            out=tuple(
                edge for edge in self.plan.edges(source) if edge.name == name and not isinstance(edge, GraphEdge)
            ),
            last=tuple(self.registers[(gift.loop, gift.name)] for gift in gifts if not gift.all),
            every=tuple(self.registers[(gift.loop, gift.name)] for gift in gifts if gift.all),
        )

    def _leaving(self, source: Source) -> list[Emit | StreamingGraphEdge | Keep]:
        """What a source sends out of the walk, by itself or through the loops around it."""
        leaving = [edge for edge in self.plan.edges(source) if not isinstance(edge, GraphEdge)]
        for gift in self.plan.gifts:
            if gift.source == source:
                leaving += [edge for edge in self._leaving(("loop", gift.loop)) if edge.name == gift.name]
        return leaving

    # ---------------------------------------------------------------------------------------------------------- rows

    def _node(self, node: int) -> NodePlan:
        declared = self.plan.nodes[node]
        around = self.plan.around(self.plan.node_spots[node].loop)
        names = dict.fromkeys(edge.name for edge in declared.outputs)
        leaving = dict.fromkeys(self._leaving(("node", node)))
        return NodePlan(
            id=node,
            name=declared.name,
            component=declared.runs,
            prompt=declared.prompt,
            loop=self.plan.node_spots[node].loop,
            around=around,
            stops=next((loop for loop in around if isinstance(self.plan.loops[loop], DynamicLoop)), ROOT),
            plain=tuple((port, self.cells[(node, port)][-1]) for port in declared.inputs if (node, port) in self.cells),
            streams=tuple((port, self.queues[(node, port)]) for port in declared.inputs if (node, port) in self.queues),
            routes={name: self._route(("node", node), name) for name in names},
            emits=tuple(edge for edge in leaving if isinstance(edge, Emit)),
            feeds=tuple(edge for edge in leaving if isinstance(edge, StreamingGraphEdge)),
        )

    def _loop(self, loop: int) -> LoopPlan:
        plan = self.plan
        inner = {other for other in range(1, len(plan.loops)) if loop in _outside(plan, other)}
        body = inner | {loop}
        fed_back: list[tuple[int, tuple[int, ...]]] = []
        again: list[tuple[int, tuple[int, ...]]] = []
        waits = {node: 0 for node, spot in enumerate(plan.node_spots) if spot.loop in body}
        for (node, port), cells in self.cells.items():
            if node not in waits:
                continue
            levels = self.levels[(node, port)]
            outside = len([level for level in levels if level not in inner])  # cells 0..outside are not of inner loops
            back = next((link for link in self.feeds[(node, port)] if link.back and link.home == loop), None)
            first = next(link for link in self.feeds[(node, port)] if not link.back)
            if back is not None:
                fed_back.append((self.backs[back], cells[outside:]))
            elif first.home in body:
                waits[node] += 1
            elif cells[outside + 1 :]:
                again.append((cells[outside], cells[outside + 1 :]))
        declared = plan.loops[loop]
        gives = [(gift, Gives(self.registers[(loop, gift.name)], self._route(("loop", loop), gift.name)))
                 for gift in plan.gifts if gift.loop == loop]  # fmt: skip
        return LoopPlan(
            id=loop,
            name=declared.name,
            parent=plan.loop_spots[loop].loop,
            max_iters=declared.max_iters,
            members=sum(spot.loop == loop for spot in (*plan.node_spots, *plan.loop_spots[1:])),
            nodes=tuple(waits.items()),
            inner=tuple(sorted(inner)),
            fed_back=tuple(fed_back),
            again=tuple(again),
            last=tuple(give for gift, give in gives if not gift.all),
            every=tuple(give for gift, give in gives if gift.all),
        )


def _outside(plan: Outline, loop: int) -> tuple[int, ...]:
    """The loops around a loop, the walk included."""
    return (*plan.around(plan.loop_spots[loop].loop), ROOT)
