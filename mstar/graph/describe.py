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
    signal out; `maker` is the node that makes it in both cases. A stream's `from` are `{partition, walk, node, maker}`,
    all "" for the client, where `node` may be a loop.
    Raises GraphError for a graph that makes no sense.
    """
    streams = streams_of(graph)
    plans = {
        (partition.name, walk.name): outline(partition.name, walk, streaming_ports(streams, partition.name))
        for partition in graph.partitions
        for walk in partition.walks
    }
    return {
        "name": graph.name,
        "components": [{"name": c.name, "engine": c.engine, "state": c.state} for c in graph.components],
        "partitions": [
            {
                "name": partition.name,
                "walks": [_walk(walk, plans[partition.name, walk.name]) for walk in partition.walks],
            }
            for partition in graph.partitions
        ],
        "streams": [_stream(graph, stream, plans) for stream in streams],
        "live": [_live(live) for live in graph.live],
        "tasks": [
            {"name": task.name, "start": dict(task.start), "inputs": list(task.inputs), "standing": task.standing}
            for task in graph.tasks
        ],
    }


def _walk(walk: Walk, plan: Outline) -> Json:
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
            **_origin(plan, link.source, link.name),
            "kind": kind,
            "name": link.name,
            "to": plan.nodes[link.node].name,
            "input": link.input,
        }
    for source in plan.sources():
        for edge in plan.edges(source):
            out = {**_origin(plan, source, edge.name), "name": edge.name}
            match edge:
                case Emit(modality=modality):
                    yield {**out, "kind": "emit", "modality": modality}
                case Keep():
                    yield {**out, "kind": "keep"}
                case StreamingGraphEdge(partition=partition, to=to):
                    yield {**out, "kind": "stream", "partition": partition, "to": to, "input": edge.input or edge.name}
                case GraphEdge():
                    pass  # a link


def _origin(plan: Outline, source: Source | None, name: str) -> dict[str, Json]:
    if source is None:
        return {"from": "", "from_loop": False, "maker": ""}
    return {"from": _named(plan, source), "from_loop": source[0] == "loop", "maker": _maker(plan, source, name)}


def _maker(plan: Outline, source: Source, name: str) -> str:
    """The node that makes a signal, also where loops give it out."""
    while source[0] == "loop":
        source = next(gift.source for gift in plan.gifts if (gift.loop, gift.name) == (source[1], name))
    return plan.nodes[source[1]].name


def _stream(graph: Graph, stream: Stream, plans: Mapping[tuple[str, str], Outline]) -> Json:
    nobody: Json = {"partition": CLIENT, "walk": "", "node": "", "maker": ""}
    origins: list[Json] = [nobody] if CLIENT in stream.producers else []
    for partition in graph.partitions:
        for walk in partition.walks:
            for owner, edge in section_edges(walk.section):
                if edge == stream.edge:
                    plan = plans[partition.name, walk.name]
                    source = next(
                        each for each in plan.sources() if edge in plan.edges(each) and _named(plan, each) == owner
                    )
                    maker = _maker(plan, source, edge.name)
                    origins.append({"partition": partition.name, "walk": walk.name, "node": owner, "maker": maker})
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


def _named(plan: Outline, source: Source) -> str:
    return plan.loops[source[1]].name if source[0] == "loop" else plan.nodes[source[1]].name


def _live(live: LiveInput) -> Json:
    return {
        "name": live.name,
        "scope": live.scope,
        "full": live.full,
        "history": live.history,
        "to": [{"partition": edge.partition, "node": edge.to} for edge in live.edges],
        "slices": list(live.slices),
    }
