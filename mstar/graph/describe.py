"""A graph in plain JSON types, for whoever draws it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeAlias

from mstar.graph.declare import (
    DynamicLoop,
    Emit,
    Graph,
    GraphEdge,
    Keep,
    LiveInput,
    Partition,
    StreamingGraphEdge,
    Walk,
)
from mstar.graph.outline import ROOT, Outline, Source, outline
from mstar.graph.streams import CLIENT, Stream, section_edges, streaming_ports, streams_of
from mstar.streaming import policies

Json: TypeAlias = "Mapping[str, Json] | list[Json] | str | int | float | bool | None"


def describe(graph: Graph) -> dict[str, Json]:
    """Everything a drawing needs, in the order of declaration.

        {name, components: [{name, engine, state}],
         partitions: [{name, walks: [{name, then, nodes, loops, edges}]}],
         streams: [{name, partition, to, input, policy, items, bound, from}], live: [...], tasks: [...]}

    A walk's `edges` are `{kind, name, from, from_loop, …}` with kind "edge" or "back" (loop-back; both with `to`,
    `input`), "input" (put into the walk, from ""), "emit" (to the client; `modality`), "keep" (for a later walk) or
    "stream" (`partition`, `to`, `input`). `from` names a node or, where `from_loop` is true, the loop that gives the
    signal out. A stream's `from` are `{partition, walk, node}`, all "" for the client.
    Raises GraphError for a graph that makes no sense.
    """
    streams = streams_of(graph)
    return {
        "name": graph.name,
        "components": [{"name": c.name, "engine": c.engine, "state": c.state} for c in graph.components],
        "partitions": [
            {"name": partition.name, "walks": [_walk(partition, walk, streams) for walk in partition.walks]}
            for partition in graph.partitions
        ],
        "streams": [_stream(graph, stream) for stream in streams],
        "live": [_live(live) for live in graph.live],
        "tasks": [
            {"name": task.name, "start": dict(task.start), "inputs": list(task.inputs), "standing": task.standing}
            for task in graph.tasks
        ],
    }


def _walk(partition: Partition, walk: Walk, streams: tuple[Stream, ...]) -> Json:
    plan = outline(partition.name, walk, streaming_ports(streams, partition.name))
    return {
        "name": walk.name,
        "then": walk.then,
        "nodes": [
            {
                "name": node.name,
                "component": node.runs,
                "loop": plan.loops[spot.loop].name,
                "inputs": [{"name": port, "streaming": plan.is_streaming(index, port)} for port in node.inputs],
            }
            for index, (node, spot) in enumerate(zip(plan.nodes, plan.node_spots, strict=True))
        ],
        "loops": [
            {
                "name": loop.name,
                "parent": plan.loops[spot.loop].name,
                "max_iters": loop.max_iters,
                "dynamic": isinstance(loop, DynamicLoop),
            }
            for loop, spot in zip(plan.loops[ROOT + 1 :], plan.loop_spots[ROOT + 1 :], strict=True)
        ],
        "edges": list(_edges(plan)),
    }


def _edges(plan: Outline) -> Iterator[Json]:
    for link in plan.links:
        kind = "input" if link.source is None else "back" if link.back else "edge"
        yield {
            **_origin(plan, link.source),
            "kind": kind,
            "name": link.name,
            "to": plan.nodes[link.node].name,
            "input": link.input,
        }
    for source in plan.sources():
        for edge in plan.edges(source):
            out = {**_origin(plan, source), "name": edge.name}
            match edge:
                case Emit(modality=modality):
                    yield {**out, "kind": "emit", "modality": modality}
                case Keep():
                    yield {**out, "kind": "keep"}
                case StreamingGraphEdge(partition=partition, to=to):
                    yield {**out, "kind": "stream", "partition": partition, "to": to, "input": edge.input or edge.name}
                case GraphEdge():
                    pass  # a link


def _origin(plan: Outline, source: Source | None) -> dict[str, Json]:
    if source is None:
        return {"from": "", "from_loop": False}
    kind, index = source
    if kind == "loop":
        return {"from": plan.loops[index].name, "from_loop": True}
    return {"from": plan.nodes[index].name, "from_loop": False}


def _stream(graph: Graph, stream: Stream) -> Json:
    origins: list[Json] = [{"partition": CLIENT, "walk": "", "node": ""}] if CLIENT in stream.producers else []
    for partition in graph.partitions:
        for walk in partition.walks:
            for owner, edge in section_edges(walk.section):
                if edge == stream.edge:
                    origins.append({"partition": partition.name, "walk": walk.name, "node": owner})
    edge = stream.edge
    return {
        "name": edge.name,
        "partition": edge.partition,
        "to": edge.to,
        "input": stream.input,
        "policy": policies.describe(edge.policy),
        "items": edge.items,
        "bound": edge.bound,
        "from": origins,
    }


def _live(live: LiveInput) -> Json:
    return {
        "name": live.name,
        "scope": live.scope,
        "full": live.full,
        "history": live.history,
        "to": [{"partition": edge.partition, "node": edge.to} for edge in live.edges],
        "slices": list(live.slices),
    }
