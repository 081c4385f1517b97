"""The streams of a graph, collected from the edges that feed them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from mstar.errors import GraphError
from mstar.graph.declare import (
    DynamicLoop,
    Edge,
    Graph,
    GraphNode,
    Loop,
    Parallel,
    Section,
    Sequential,
    StreamingGraphEdge,
)

CLIENT = ""
"""Stands for the client among the partitions that feed a stream."""


@dataclass(frozen=True, slots=True)
class Stream:
    """One stream: identified by its name and the partition it ends in, fed by partitions or the client."""

    edge: StreamingGraphEdge
    producers: tuple[str, ...]

    @property
    def key(self) -> tuple[str, str]:
        return self.edge.name, self.edge.partition

    @property
    def input(self) -> str:
        return self.edge.input or self.edge.name


def section_nodes(section: Section) -> Iterator[GraphNode]:
    """All nodes of a section, in order."""
    match section:
        case GraphNode():
            yield section
        case Sequential(sections=members) | Parallel(sections=members):
            for member in members:
                yield from section_nodes(member)
        case Loop() | DynamicLoop():
            yield from section_nodes(section.section)


def section_edges(section: Section) -> Iterator[tuple[str, Edge]]:
    """All edges of a section, each with the name of the node or loop it belongs to."""
    match section:
        case GraphNode():
            yield from ((section.name, edge) for edge in section.outputs)
        case Sequential(sections=members) | Parallel(sections=members):
            for member in members:
                yield from section_edges(member)
        case Loop() | DynamicLoop():
            yield from section_edges(section.section)
            yield from ((section.name, edge) for edge in section.outputs + section.accumulated)


def streams_of(graph: Graph) -> tuple[Stream, ...]:
    """All streams. Raises GraphError where two declarations of one stream disagree."""
    found: dict[tuple[str, str], Stream] = {}
    for producer, edge in _declared(graph):
        key = (edge.name, edge.partition)
        known = found.get(key)
        if known is not None and known.edge != edge:
            raise GraphError(f"stream {edge.name} into partition {edge.partition} is declared twice, not alike")
        producers = known.producers if known is not None else ()
        found[key] = Stream(edge, (*dict.fromkeys((*producers, producer)),))
    return tuple(found.values())


def streaming_ports(streams: tuple[Stream, ...], partition: str) -> frozenset[tuple[str, str]]:
    """(node, input) of the ports in this partition that streams end in."""
    return frozenset((stream.edge.to, stream.input) for stream in streams if stream.edge.partition == partition)


def _declared(graph: Graph) -> Iterator[tuple[str, StreamingGraphEdge]]:
    for partition in graph.partitions:
        for walk in partition.walks:
            for _, edge in section_edges(walk.section):
                if isinstance(edge, StreamingGraphEdge):
                    yield partition.name, edge
    for live in graph.live:
        for edge in live.edges:
            yield CLIENT, edge
