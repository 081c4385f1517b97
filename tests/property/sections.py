"""Random walks: nested loops, fan-out, joins, loop-backs over several levels, streams of any length."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

from hypothesis import strategies as st

from mstar.graph.declare import (
    DynamicLoop,
    Edge,
    Emit,
    Graph,
    GraphEdge,
    GraphNode,
    Keep,
    LiveInput,
    Loop,
    Parallel,
    Partition,
    Section,
    Sequential,
    StreamingGraphEdge,
    Walk,
)
from mstar.streaming.chunk import Chunk


@dataclass
class Sketch:
    """A node, loop or group under construction. `way` = (parent, index) from the walk down to it."""

    kind: str  # node | loop | dynamic | sequential | parallel
    name: str
    way: tuple[tuple[Sketch, int], ...]
    members: list[Sketch] = field(default_factory=list)
    inputs: list[str] = field(default_factory=list)
    outputs: list[Edge] = field(default_factory=list)
    accumulated: list[Edge] = field(default_factory=list)
    signals: list[str] = field(default_factory=list)
    place: tuple[int, int] = (0, 0)  # of its first and last node
    most: int | None = 1

    @property
    def loops(self) -> list[Sketch]:
        """Loops around it, from inside out."""
        return [parent for parent, _ in reversed(self.way) if parent.kind in {"loop", "dynamic"}]

    @property
    def home(self) -> Sketch | None:
        return self.loops[0] if self.loops else None


@dataclass
class RandomWalk:
    section: Section
    inputs: dict[str, int]
    chunks: dict[tuple[str, str], list[Chunk]]

    def graph(self) -> Graph:
        live = tuple(
            LiveInput(port, (StreamingGraphEdge(port, "p", node),), scope="request") for node, port in self.chunks
        )
        return Graph("g", (), (Partition("p", (Walk("w", self.section),)),), (), live)

    def function(self, node: str, inputs: Mapping[str, Any]) -> tuple[dict[str, Any], bool]:
        """What a node gives depends on its name and inputs only: numbers, sometimes nothing, sometimes a stop."""
        draw = zlib.crc32(repr((node, sorted(inputs.items(), key=lambda item: item[0]))).encode())
        return {f"{node}a": draw, f"{node}b": None if draw % 5 == 0 else draw // 2}, draw % 7 == 0


def _forward(source: Sketch, target: Sketch) -> bool | None:
    """Whether an edge goes forward or back; None where the two stand side by side the wrong way round."""
    for (one, i), (other, j) in zip(source.way, target.way, strict=False):
        if one is not other:
            break
        if i != j:
            if one.kind == "parallel":
                return True if i < j else None
            return i < j
    return False


class _Builder:
    def __init__(self, random: Random) -> None:
        self.random = random
        self.nodes: list[Sketch] = []
        self.loops: list[Sketch] = []
        self.chunks: dict[tuple[str, str], list[Chunk]] = {}
        self.top = self.sketch((), 0)
        self.connect()

    # a skeleton ------------------------------------------------------------------------------------------------------

    def sketch(self, way: tuple[tuple[Sketch, int], ...], depth: int) -> Sketch:
        kinds = ["sequential", "parallel", "loop", "dynamic"]
        if depth > 4 or len(self.nodes) > 8:
            kinds = []
        kind = self.random.choice(kinds + ["node"] * min(depth, 2) if kinds else ["node"])
        first = len(self.nodes)
        if kind == "node":
            made = Sketch(kind, f"n{first}", way)
            made.signals = [f"n{first}a", f"n{first}b"]
            self.nodes.append(made)
        else:
            made = Sketch(kind, f"l{len(self.loops)}", way)
            if kind in {"loop", "dynamic"}:
                self.loops.append(made)
                made.most = self.random.randint(1, 3)
            count = 1 if kind in {"loop", "dynamic"} else self.random.randint(2, 3)
            for index in range(count):
                made.members.append(self.sketch((*way, (made, index)), depth + 1))
        made.place = (first, len(self.nodes) - 1)
        return made

    # its edges -------------------------------------------------------------------------------------------------------

    def connect(self) -> None:
        for loop in reversed(self.loops):  # inner ones first: their signals are the outer ones' to give
            self.give_out(loop)
        for source in [*self.nodes, *self.loops]:
            for signal in source.signals:
                for _ in range(self.random.randint(0, 2)):
                    self.edge(source, signal)
                if self.random.random() < 0.5:
                    self.leave(source, signal)
        for node in self.nodes:
            if self.random.random() < (0.4 if node.inputs else 0.5):
                self.stream(node)
            if not node.inputs or self.random.random() < 0.2:
                node.inputs.append(f"in{self.random.randint(0, 2)}")
        for loop in self.loops:
            heads = [
                node for node in self.nodes if node.home is loop and all(x == f"s{node.name}" for x in node.inputs)
            ]
            if loop.kind == "dynamic" and heads:  # these are never skipped, so the loop ends with their streams
                loop.most = self.random.choice([None, 2, 5])

    def give_out(self, loop: Sketch) -> None:
        for source in [*self.nodes, *self.loops]:
            if source.home is loop:
                for signal in source.signals:
                    if self.random.random() < 0.4:
                        loop.signals.append(signal)

    def put(self, source: Sketch, edge: Edge) -> None:
        """An edge of a loop belongs to its outputs, or to its lists where the signal is given out as one."""
        lists = source.kind != "node" and int(edge.name[1:-1]) % 2 == 0 and edge.name.endswith("b")
        (source.accumulated if lists else source.outputs).append(edge)

    def leave(self, source: Sketch, signal: str) -> None:
        kinds: list[Edge] = [Emit(signal, "signal"), Keep(signal), StreamingGraphEdge(signal, "elsewhere", "z")]
        self.put(source, self.random.choice(kinds))

    def edge(self, source: Sketch, signal: str) -> None:
        target = self.random.choice(self.nodes)
        if source.home is not None and source.home not in target.loops:
            return
        forward = _forward(source, target)
        if forward is None or (not forward and source.home is None):
            return
        port = f"{signal}.{source.name}.{len(target.inputs)}"
        target.inputs.append(port)
        self.put(source, GraphEdge(signal, target.name, port))
        if not forward:
            self.more_sources(source, target, port)

    def more_sources(self, source: Sketch, target: Sketch, port: str) -> None:
        """A port that is fed back may be fed back by an outer loop too, and take its first value from further out."""
        inside = source.home
        for other in self.random.sample([*self.nodes, *self.loops], min(4, len(self.nodes) + len(self.loops))):
            assert inside is not None
            if not other.signals or other.home is inside or (other.home is not None and other.home not in target.loops):
                continue
            if other.home is not None and other.home not in inside.loops:
                continue
            forward = _forward(other, target)
            if forward is None or (not forward and other.home is None):
                continue
            self.put(other, GraphEdge(self.random.choice(other.signals), target.name, port))
            if forward:
                return
            inside = other.home

    def stream(self, node: Sketch) -> None:
        port = f"s{node.name}"
        node.inputs.append(port)
        count = self.random.randint(0, 5)
        pieces = [Chunk(port, i, 0, 1, 0, False, False, f"{port}:{i}") for i in range(count)]
        if pieces and self.random.random() < 0.5:
            pieces[-1] = Chunk(port, count - 1, 0, 1, 0, True, True, f"{port}:{count - 1}")
        else:
            pieces.append(Chunk(port, count, 0, 0, 0, True, True, None))
        self.chunks[(node.name, port)] = pieces

    # the section -----------------------------------------------------------------------------------------------------

    def section(self, sketch: Sketch) -> Section:
        match sketch.kind:
            case "node":
                silent = [
                    GraphEdge(signal, "")
                    for signal in sketch.signals
                    if not any(edge.name == signal for edge in sketch.outputs)
                ]
                return GraphNode(sketch.name, tuple(dict.fromkeys(sketch.inputs)), (*sketch.outputs, *silent))
            case "sequential":
                return Sequential(tuple(self.section(member) for member in sketch.members))
            case "parallel":
                return Parallel(tuple(self.section(member) for member in sketch.members))
        for signal in sketch.signals:
            if not any(edge.name == signal for edge in (*sketch.outputs, *sketch.accumulated)):
                self.put(sketch, GraphEdge(signal, ""))
        body = self.section(sketch.members[0])
        edges = tuple(sketch.outputs), tuple(sketch.accumulated)
        if sketch.kind == "loop":
            assert sketch.most is not None
            return Loop(sketch.name, body, sketch.most, *edges)
        return DynamicLoop(sketch.name, body, sketch.most, *edges)

    def walk(self) -> RandomWalk:
        section = self.section(self.top)
        names = dict.fromkeys(port for node in self.nodes for port in node.inputs)
        return RandomWalk(section, {name: zlib.crc32(name.encode()) for name in names}, self.chunks)


def random_walk(random: Random) -> RandomWalk:
    """A walk drawn from a source of randomness."""
    return _Builder(random).walk()


def random_walks() -> st.SearchStrategy[RandomWalk]:
    return st.randoms(use_true_random=False).map(random_walk)
