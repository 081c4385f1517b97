"""Runs a walk's cursor with plain functions as nodes, and writes down what fires and what leaves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mstar.graph.cursor import Cursor, Delivery, Kept, ToClient, ToStream
from mstar.graph.declare import Graph, LiveInput, Partition, Section, StreamingGraphEdge, Walk
from mstar.graph.plan import WalkPlan, compile_graph
from mstar.streaming.chunk import Chunk

Node = Callable[..., Mapping[str, Any]]
STOP = "stop!"
"""Key in a node's result that is its verdict."""


def plan_of(section: Section, *streams: str) -> WalkPlan:
    """The walk `p.w`; streams are given as "node.input"."""
    edges = [port.split(".") for port in streams]
    live = tuple(LiveInput(name, (StreamingGraphEdge(name, "p", node),)) for node, name in edges)
    return compile_graph(Graph("g", (), (Partition("p", (Walk("w", section),)),), (), live)).walk("p", "w")


def chunk(*items: Any, first: int = 0, final: bool = False, n_context: int = 0) -> Chunk:
    """A chunk of these items, all of them new but for the context."""
    value = items[0] if len(items) == 1 else (items or None)
    return Chunk("s", first, n_context, len(items) - n_context, 0, final, final, value)


class Drive:
    """A cursor with its nodes. `fired` = names in order, `left` = (kind, name, value) of what left the walk."""

    def __init__(self, plan: WalkPlan, *, limits: Mapping[str, int] | None = None, **nodes: Node) -> None:
        self.cursor = Cursor(plan, limits=limits)
        self.nodes = nodes
        self.ids = {node.name: node.id for node in plan.nodes}
        self.fired: list[str] = []
        self.iterations: list[int] = []
        self.left: list[tuple[str, str, Any]] = []

    def put(self, **values: Any) -> Drive:
        for name, value in values.items():
            self.cursor.put(name, value)
        return self

    def ready(self) -> list[str]:
        return [self.cursor.plan.component(node) for node in self.cursor.ready()]

    def wants(self) -> dict[str, tuple[str, ...]]:
        return {self.cursor.plan.component(node): ports for node, ports in self.cursor.wants()}

    def chunk(self, node: str, port: str, piece: Chunk) -> None:
        self.cursor.chunk(self.ids[node], port, piece)
        self._note(self.cursor.flush())

    def fire(self, name: str) -> Mapping[str, Any]:
        """Fire a node from beginning to end; returns its inputs."""
        taken = self.cursor.take(self.ids[name])
        outputs = dict(self.nodes[name](**taken.inputs))
        stop = bool(outputs.pop(STOP, False))
        self.fired.append(name)
        self.iterations.append(taken.iteration)
        self._note(self.cursor.complete(self.ids[name], outputs, stop))
        return taken.inputs

    def run(self, most: int = 1000) -> Drive:
        """Fire whatever is ready until nothing is."""
        while ready := self.ready():
            self.fire(ready[0])
            assert len(self.fired) <= most, "the walk does not end"
        return self

    def done(self) -> bool:
        return self.cursor.done

    def client(self, name: str) -> list[Any]:
        return [value for kind, edge, value in self.left if (kind, edge) == ("client", name)]

    def _note(self, deliveries: Sequence[Delivery]) -> None:
        for delivery in deliveries:
            match delivery:
                case ToClient(edge=edge, value=value):
                    self.left.append(("client", edge.name, value))
                case ToStream(edge=stream, value=value):
                    self.left.append(("stream", stream.name, value))
                case Kept(name=name, value=value):
                    self.left.append(("kept", name, value))


def counting(output: str, stop_at: int = -1) -> Node:
    """A node that gives 1, 2, 3 … whatever it is fed, and says stop with the `stop_at`th."""
    count = 0

    def node(**_: Any) -> Mapping[str, Any]:
        nonlocal count
        count += 1
        return {output: count, STOP: count == stop_at}

    return node
