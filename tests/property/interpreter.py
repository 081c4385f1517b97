"""Evaluates a walk the plain way: nodes one after the other in the order they are written, loops as loops.

It knows nothing of plans and cursors. It wants sections in which edges between members of a `Parallel` point forward.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mstar.graph.declare import DynamicLoop, Edge, GraphEdge, GraphNode, Loop, Parallel, Section, Sequential
from mstar.streaming.chunk import Chunk

Port = tuple[str, str]
Function = Callable[[str, Mapping[str, Any]], tuple[Mapping[str, Any], bool]]
"""(node, inputs) → (outputs, verdict)."""

NOTHING = object()


def nodes_of(section: Section) -> list[GraphNode]:
    match section:
        case GraphNode():
            return [section]
        case Sequential(sections=members) | Parallel(sections=members):
            return [node for member in members for node in nodes_of(member)]
        case Loop() | DynamicLoop():
            return nodes_of(section.section)


@dataclass
class Pass:
    """One pass of a loop's body: what its ports hold, what they will hold in the next one, what it gave."""

    ports: dict[Port, Any]
    following: dict[Port, Any] = field(default_factory=dict)
    given: dict[str, Any] = field(default_factory=dict)
    fired: bool = False


@dataclass
class Running:
    """A loop that runs: whether this pass is its last."""

    dynamic: bool
    over: bool = False


class Interpreter:
    """`left[name]` = what left the walk by the edges of that name, in order."""

    def __init__(
        self, section: Section, function: Function, inputs: Mapping[str, Any], chunks: Mapping[Port, Sequence[Chunk]]
    ) -> None:
        self.function = function
        self.order = {node.name: place for place, node in enumerate(nodes_of(section))}
        self.chunks = {port: list(pieces) for port, pieces in chunks.items()}
        self.left: dict[str, list[Any]] = {}
        self.fired: dict[str, int] = dict.fromkeys(self.order, 0)
        self.loops: list[Running] = []
        ports = {
            (node.name, port): inputs[port] for node in nodes_of(section) for port in node.inputs if port in inputs
        }
        self.section(section, Pass(ports))

    def section(self, section: Section, now: Pass) -> None:
        match section:
            case GraphNode():
                self.node(section, now)
            case Sequential(sections=members) | Parallel(sections=members):
                for member in members:
                    self.section(member, now)
            case Loop() | DynamicLoop():
                self.loop(section, now)

    def node(self, node: GraphNode, now: Pass) -> None:
        plain = {port: now.ports[(node.name, port)] for port in node.inputs if (node.name, port) not in self.chunks}
        streams = [port for port in node.inputs if (node.name, port) in self.chunks]
        outputs: Mapping[str, Any] = {}
        if NOTHING not in plain.values():
            pieces = {port: self.chunks[(node.name, port)].pop(0) for port in streams}
            if any(piece.final for piece in pieces.values()):
                for running in self.loops:
                    running.over = True
            if any(piece.n_new or not piece.final for piece in pieces.values()) or not pieces:
                values = {port: piece.value for port, piece in pieces.items()}
                outputs, stop = self.function(node.name, {**plain, **values})
                self.fired[node.name] += 1
                now.fired = True
                dynamic = [running for running in self.loops if running.dynamic]
                if stop and dynamic:
                    dynamic[-1].over = True
        place = self.order[node.name]
        self.send(node.outputs, {name: outputs.get(name) for name in {e.name for e in node.outputs}}, place, now)

    def loop(self, loop: Loop | DynamicLoop, outer: Pass) -> None:
        inside = [self.order[node.name] for node in nodes_of(loop.section)]
        fed_back = self.fed_back(loop.section)
        self.loops.append(running := Running(isinstance(loop, DynamicLoop)))
        last: dict[str, Any] = {}
        every: dict[str, list[Any]] = {}
        ports = dict(outer.ports)
        passes = 0
        while True:
            now = Pass(dict(ports))
            self.section(loop.section, now)
            passes += 1
            outer.fired |= now.fired
            for name, value in now.given.items():
                last[name] = value
                every.setdefault(name, []).append(value)
            if running.over or not now.fired or passes == loop.max_iters:
                break
            ports = {**outer.ports, **{port: now.following.get(port, NOTHING) for port in fed_back}}
        self.loops.pop()
        gives = {edge.name: last.get(edge.name) for edge in loop.outputs}
        gives |= {edge.name: every.get(edge.name) for edge in loop.accumulated}
        self.send(loop.outputs + loop.accumulated, gives, max(inside), outer)

    def send(self, edges: Sequence[Edge], values: Mapping[str, Any], place: int, now: Pass) -> None:
        for edge in edges:
            value = values[edge.name]
            if value is not None:
                now.given[edge.name] = value
            if isinstance(edge, GraphEdge):
                if not edge.to:
                    continue
                port = (edge.to, edge.input or edge.name)
                ports = now.ports if self.order[edge.to] > place else now.following
                ports[port] = NOTHING if value is None else value
            elif value is not None:
                self.left.setdefault(edge.name, []).append(value)

    def fed_back(self, body: Section) -> set[Port]:
        """Ports that a pass of this body fills for the next one."""
        match body:
            case GraphNode():
                edges, place = body.outputs, self.order[body.name]
            case Sequential(sections=members) | Parallel(sections=members):
                return {port for member in members for port in self.fed_back(member)}
            case Loop() | DynamicLoop():
                edges = body.outputs + body.accumulated
                place = max(self.order[node.name] for node in nodes_of(body.section))
        return {
            (edge.to, edge.input or edge.name)
            for edge in edges
            if isinstance(edge, GraphEdge) and edge.to and self.order[edge.to] <= place
        }
