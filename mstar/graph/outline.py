"""A walk's section read once: its nodes and loops in order, and every edge resolved to what it means.

An edge whose producer and consumer meet in a `Sequential` goes forward if the producer stands first, else it is a
loop-back of the innermost loop around both; inside a `Parallel` it always goes forward. The *home* of an edge is that
innermost loop: it carries one value a pass of it. Signals leave a loop through its `outputs` and `accumulated` only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from typing import Literal, TypeAlias

from mstar.errors import GraphError
from mstar.graph.declare import (
    DynamicLoop,
    Edge,
    GraphEdge,
    GraphNode,
    Loop,
    Parallel,
    Section,
    Sequential,
    Walk,
)

Source: TypeAlias = tuple[Literal["node", "loop"], int]
"""What produces a signal: a node (its outputs) or a loop (what it gives out at its end), by id."""

Step: TypeAlias = tuple[Literal["in order", "side by side", "loop"], int, int]
"""One step from the walk down to a node: the kind of section, which one of the walk, which of its members."""

ROOT = 0
"""Id of the walk itself among its loops: one pass."""


@dataclass(frozen=True, slots=True)
class Spot:
    """A node or loop of the walk: the loop whose body it belongs to directly, and the way down to it."""

    loop: int
    way: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Link:
    """An edge to a port: of a source, or (None) of what is put into the walk under the port's name."""

    source: Source | None
    name: str
    node: int
    input: str
    home: int
    back: bool = False


@dataclass(frozen=True, slots=True)
class Gift:
    """Loop `loop` gives out the signal `name` of a source in its body: its last value, or all of them."""

    loop: int
    name: str
    source: Source
    all: bool


@dataclass(slots=True)
class Outline:
    """A walk with integer ids; loop 0 is the walk itself."""

    where: str
    streaming: frozenset[tuple[str, str]]  # (node, input) of ports that streams end in
    nodes: list[GraphNode] = field(default_factory=list)
    node_spots: list[Spot] = field(default_factory=list)
    loops: list[Loop | DynamicLoop] = field(default_factory=list)  # loops[0] stands for the walk
    loop_spots: list[Spot] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)
    gifts: list[Gift] = field(default_factory=list)
    ids: dict[str, int] = field(default_factory=dict)  # node name → id
    sections: int = 0

    def spot(self, source: Source) -> Spot:
        return (self.node_spots if source[0] == "node" else self.loop_spots)[source[1]]

    def title(self, source: Source) -> str:
        """The source as it is called in a sentence."""
        kind, index = source
        return f"node {self.nodes[index].name}" if kind == "node" else f"loop {self.loops[index].name}"

    def edges(self, source: Source) -> tuple[Edge, ...]:
        kind, index = source
        if kind == "node":
            return self.nodes[index].outputs
        return self.loops[index].outputs + self.loops[index].accumulated

    def sources(self) -> Iterator[Source]:
        for node in range(len(self.nodes)):
            yield ("node", node)
        for loop in range(1, len(self.loops)):
            yield ("loop", loop)

    def around(self, loop: int) -> tuple[int, ...]:
        """The loops from `loop` outwards, without the walk."""
        chain = []
        while loop != ROOT:
            chain.append(loop)
            loop = self.loop_spots[loop].loop
        return tuple(chain)

    def is_streaming(self, node: int, name: str) -> bool:
        return (self.nodes[node].name, name) in self.streaming

    def __post_init__(self) -> None:
        self.loops.append(Loop("", Sequential(()), 1))
        self.loop_spots.append(Spot(ROOT, ()))


def outline(partition: str, walk: Walk, streaming: frozenset[tuple[str, str]]) -> Outline:
    """Read a walk. Raises GraphError for what makes no sense by itself, whoever feeds the walk."""
    plan = Outline(f"walk {partition}.{walk.name}", streaming)
    section = walk.section
    if (
        isinstance(section, GraphNode)
        and section.inputs
        and all((section.name, x) in streaming for x in section.inputs)
    ):
        section = DynamicLoop(section.name, section, None)
    _place(plan, section, ROOT, ())
    for source in plan.sources():
        plan.links += (
            _link(plan, source, edge) for edge in plan.edges(source) if isinstance(edge, GraphEdge) and edge.to
        )
    for loop in range(1, len(plan.loops)):
        plan.gifts += _gifts(plan, loop)
    _check_feeds(plan)
    _check_cycles(plan)
    plan.links += _walk_inputs(plan)
    return plan


# ------------------------------------------------------------------------------------------------------------- places


def _place(plan: Outline, section: Section, loop: int, way: tuple[Step, ...]) -> None:
    plan.sections += 1
    number = plan.sections
    match section:
        case GraphNode():
            _place_node(plan, section, Spot(loop, way))
        case Sequential(sections=members) | Parallel(sections=members):
            if not members:
                raise GraphError(f"{plan.where}: a {type(section).__name__} has no sections")
            kind: Literal["in order", "side by side"] = (
                "in order" if isinstance(section, Sequential) else "side by side"
            )
            for index, member in enumerate(members):
                _place(plan, member, loop, (*way, (kind, number, index)))
        case Loop() | DynamicLoop():
            inner = _place_loop(plan, section, Spot(loop, way))
            first = len(plan.nodes)
            _place(plan, section.section, inner, (*way, ("loop", inner, 0)))
            if section.max_iters is None and not any(
                plan.is_streaming(node, name)
                for node in range(first, len(plan.nodes))
                for name in plan.nodes[node].inputs
            ):
                raise GraphError(
                    f"{plan.where}: loop {section.name} has no bound and no streaming input that could end it"
                )


def _place_node(plan: Outline, node: GraphNode, spot: Spot) -> None:
    if node.name in plan.ids:
        raise GraphError(f"{plan.where}: node {node.name} stands in it twice")
    if not node.inputs:
        raise GraphError(f"{plan.where}: node {node.name} has no inputs, so nothing would ever fire it")
    if len(set(node.inputs)) < len(node.inputs):
        raise GraphError(f"{plan.where}: node {node.name} names an input twice")
    plan.ids[node.name] = len(plan.nodes)
    plan.nodes.append(node)
    plan.node_spots.append(spot)


def _place_loop(plan: Outline, loop: Loop | DynamicLoop, spot: Spot) -> int:
    if any(loop.name == other.name for other in plan.loops):
        raise GraphError(f"{plan.where}: two loops are called {loop.name!r}")
    if loop.max_iters is not None and loop.max_iters < 1:
        raise GraphError(f"{plan.where}: loop {loop.name} has {loop.max_iters} iterations")
    both = {edge.name for edge in loop.outputs} & {edge.name for edge in loop.accumulated}
    if both:
        raise GraphError(f"{plan.where}: loop {loop.name} names {min(both)} in outputs and in accumulated")
    plan.loops.append(loop)
    plan.loop_spots.append(spot)
    return len(plan.loops) - 1


# -------------------------------------------------------------------------------------------------------------- edges


def _link(plan: Outline, source: Source, edge: GraphEdge) -> Link:
    sentence = f"{plan.where}: edge {edge.name} of {plan.title(source)}"
    node = plan.ids.get(edge.to)
    if node is None:
        raise GraphError(f"{sentence} goes to node {edge.to}, which is not in this walk")
    port = edge.input or edge.name
    if port not in plan.nodes[node].inputs:
        raise GraphError(f"{sentence} goes to input {port}, which node {edge.to} does not have")
    if plan.is_streaming(node, port):
        raise GraphError(f"{sentence} goes to input {port} of node {edge.to}, which a stream feeds")
    home, back = _meeting(plan, source, node)
    if plan.spot(source).loop != home:
        leaves = plan.loops[plan.spot(source).loop].name
        raise GraphError(f"{sentence} leaves loop {leaves}: name it in the loop's outputs or accumulated")
    if back and home == ROOT:
        raise GraphError(f"{sentence} goes back to node {edge.to}, but no loop is around both")
    return Link(source, edge.name, node, port, home, back)


def _meeting(plan: Outline, source: Source, node: int) -> tuple[int, bool]:
    """The innermost loop around both ends of an edge, and whether the edge goes back in it."""
    here, there = plan.spot(source).way, plan.node_spots[node].way
    home = ROOT
    for one, other in zip(here, there, strict=False):
        if one[:2] != other[:2]:
            break
        if one[0] == "loop":
            home = one[1]
        elif one[2] != other[2]:
            return home, one[0] == "in order" and one[2] > other[2]
    return home, True  # an edge to the node itself, or of a loop into its own body


def _gifts(plan: Outline, loop: int) -> Iterator[Gift]:
    declared = plan.loops[loop]
    for edges, every in ((declared.outputs, False), (declared.accumulated, True)):
        for name in dict.fromkeys(edge.name for edge in edges):
            makers = [
                source
                for source in plan.sources()
                if plan.spot(source).loop == loop and any(edge.name == name for edge in plan.edges(source))
            ]
            if not makers:
                raise GraphError(
                    f"{plan.where}: loop {declared.name} gives out {name}, which its body does not produce"
                )
            yield Gift(loop, name, _last_of(plan, makers, declared.name, name), every)


def _last_of(plan: Outline, makers: list[Source], loop: str, name: str) -> Source:
    """The producer that stands last in the body."""
    last = makers[0]
    for maker in makers[1:]:
        for one, other in zip(plan.spot(last).way, plan.spot(maker).way, strict=False):
            if one == other:
                continue
            if one[0] == "side by side":
                titles = f"{plan.title(last)} and {plan.title(maker)}"
                raise GraphError(f"{plan.where}: loop {loop} gives out {name}, which {titles} produce side by side")
            last = maker if other[2] > one[2] else last
            break
    return last


# ------------------------------------------------------------------------------------------------------------- checks


def feeds(plan: Outline) -> Mapping[tuple[int, str], list[Link]]:
    """Port → the links that end there."""
    ports: dict[tuple[int, str], list[Link]] = {}
    for link in plan.links:
        ports.setdefault((link.node, link.input), []).append(link)
    return ports


def _check_feeds(plan: Outline) -> None:
    """One value a pass for every port: two sources may share it only if they feed different passes of it."""
    for (node, port), links in feeds(plan).items():
        backs = [link.home for link in links if link.back]
        ahead = [link.home for link in links if not link.back]
        inside = plan.around(plan.node_spots[node].loop)  # loops in which a later pass may be fed by a loop-back
        if ahead and ahead[0] != ROOT:
            inside = inside[: inside.index(ahead[0])]
        if len(ahead) > 1 or len(set(backs)) < len(backs) or not set(backs) <= set(inside):
            names = " and ".join(dict.fromkeys(plan.title(link.source) for link in links if link.source))
            raise GraphError(
                f"{plan.where}: input {port} of node {plan.nodes[node].name} is fed twice a pass, by {names}"
            )


def _check_cycles(plan: Outline) -> None:
    """No node may wait, inside one pass, for what only comes after it."""
    for home in range(len(plan.loops)):
        before: dict[str, set[str]] = {}
        for link in plan.links:
            if link.home == home and not link.back and link.source is not None:
                before.setdefault(_member(plan, link.node, home), set()).add(plan.title(link.source))
        try:
            TopologicalSorter(before).prepare()
        except CycleError as cycle:
            names = " → ".join(reversed(cycle.args[1]))
            raise GraphError(f"{plan.where}: nothing in {names} can be the first to fire") from None


def _member(plan: Outline, node: int, home: int) -> str:
    """What stands for the node directly in the body of loop `home`: itself, or the loop that holds it."""
    loop = plan.node_spots[node].loop
    if loop == home:
        return plan.title(("node", node))
    while plan.loop_spots[loop].loop != home:
        loop = plan.loop_spots[loop].loop
    return plan.title(("loop", loop))


def _walk_inputs(plan: Outline) -> list[Link]:
    """Links from outside to every port that has no first value otherwise."""
    fed = {(link.node, link.input) for link in plan.links if not link.back}
    return [
        Link(None, port, node, port, ROOT)
        for node, declared in enumerate(plan.nodes)
        for port in declared.inputs
        if (node, port) not in fed and not plan.is_streaming(node, port)
    ]
