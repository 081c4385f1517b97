"""A session's trace as a file that Perfetto and chrome://tracing open (Chrome's trace event format, JSON).

One track for each component on each rank, one for the turns; arrows join the stages of a request along the edges of its
graph. Source: "Trace Event Format", Chromium project. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import msgspec

from mstar.client import Record
from server.events.server import Mark

Event = dict[str, Any]

TURNS = 1
"""Process id of the track of turns; ranks follow."""


@dataclass(frozen=True, slots=True)
class Turn:
    """The moments of one turn: milliseconds since the session was opened."""

    response_id: str
    item_id: str | None
    marks: Mapping[str, Mark]


@dataclass(frozen=True, slots=True)
class Story:
    """All that is known of a session; `opened` is on the clock of the records."""

    name: str
    family: str
    opened: float
    turns: Sequence[Turn]
    records: Sequence[Record]
    graph: Mapping[str, Any] = field(default_factory=dict)


def chrome_trace(story: Story) -> bytes:
    """The file."""
    order = _order(story.graph)
    places = _places(story.records, order)
    events = [
        *_names(places),
        *_turns(story.turns),
        *(_firing(record, story.opened, places) for record in story.records),
        *_arrows(story, places),
    ]
    about = {"session": story.name, "family": story.family}
    return msgspec.json.encode({"traceEvents": events, "displayTimeUnit": "ms", "otherData": about})


Places = Mapping[tuple[str, str], tuple[int, int]]
"""(worker, component) → (process id, thread id)."""


def _order(graph: Mapping[str, Any]) -> Mapping[str, int]:
    """Components in the order of their declaration."""
    return {component["name"]: number for number, component in enumerate(graph.get("components", ()), 1)}


def _places(records: Sequence[Record], order: Mapping[str, int]) -> Places:
    workers = {worker: number for number, worker in enumerate(sorted({record.worker for record in records}), TURNS + 1)}
    unknown = sorted({record.component for record in records} - set(order))
    threads = {**order, **{name: number for number, name in enumerate(unknown, len(order) + 1)}}
    return {
        (record.worker, record.component): (workers[record.worker], threads[record.component]) for record in records
    }


def _names(places: Places) -> Iterator[Event]:
    yield _name("process_name", TURNS, 0, "turns")
    for worker, pid in dict.fromkeys((worker, pid) for (worker, _), (pid, _) in sorted(places.items())):
        yield _name("process_name", pid, 0, worker)
    for (_, component), (pid, tid) in sorted(places.items()):
        yield _name("thread_name", pid, tid, component)
        yield {"ph": "M", "name": "thread_sort_index", "pid": pid, "tid": tid, "args": {"sort_index": tid}}


def _name(kind: str, pid: int, tid: int, name: str) -> Event:
    return {"ph": "M", "name": kind, "pid": pid, "tid": tid, "args": {"name": name}}


def _turns(turns: Sequence[Turn]) -> Iterator[Event]:
    """Each turn as a slice from its first moment to its last; the moments inside it, and as marks of their own."""
    for turn in turns:
        moments = sorted(((mark.ms, name, mark.sample) for name, mark in turn.marks.items()), key=lambda each: each[:2])
        if not moments:
            continue
        first, last = moments[0][0], moments[-1][0]
        args = {"response": turn.response_id, "item": turn.item_id}
        yield _slice("turn", TURNS, TURNS, first * 1000, (last - first) * 1000, args)
        for (start, name, _), (end, _, _) in pairwise(moments):
            yield _slice(f"after {name}", TURNS, TURNS, start * 1000, (end - start) * 1000, {})
        for at, name, sample in moments:
            told = {"sample": sample} if isinstance(sample, int) else {}
            yield {"ph": "i", "s": "t", "name": name, "pid": TURNS, "tid": TURNS, "ts": at * 1000, "args": told}


def _firing(record: Record, opened: float, places: Places) -> Event:
    pid, tid = places[record.worker, record.component]
    args: dict[str, Any] = {"request": record.request, "walk": record.walk, "batch": record.batch}
    args["iteration"] = record.iteration
    if record.new >= 0:
        args |= {"new items": record.new, "first item": record.first}
    return _slice(record.node or record.component, pid, tid, _us(record, opened), record.ms * 1000, args)


def _slice(name: str, pid: int, tid: int, start: float, long: float, args: Mapping[str, Any]) -> Event:
    return {
        "ph": "X",
        "cat": "mstar",
        "name": name,
        "pid": pid,
        "tid": tid,
        "ts": round(start, 1),
        "dur": round(long, 1),
        "args": args,
    }


def _us(record: Record, opened: float) -> float:
    return (record.at - opened) * 1e6


# -------------------------------------------------------------------------------------------------------------- arrows


def _arrows(story: Story, places: Places) -> Iterator[Event]:
    """For every request and edge of the graph, from the first firing that fed it to the first one that it fed."""
    edges = _edges(story.graph)
    first: dict[tuple[str, str, str], Record] = {}  # (request, walk, node) → its first firing
    for record in sorted(story.records, key=lambda record: record.at):
        first.setdefault((record.request, record.walk, record.node), record)
    number = 0
    for request in dict.fromkeys(record.request for record in story.records):
        for (from_walk, from_node), (to_walk, to_node) in edges:
            one = first.get((request, from_walk, from_node))
            other = first.get((request, to_walk, to_node))
            if one is None or other is None or other.at < one.at:
                continue
            number += 1
            begins = _us(one, story.opened) + one.ms * 500
            yield _arrow("s", number, one, places, begins)
            yield _arrow("f", number, other, places, max(begins, _us(other, story.opened)))


def _arrow(phase: str, number: int, record: Record, places: Places, at: float) -> Event:
    pid, tid = places[record.worker, record.component]
    arrow: Event = {"ph": phase, "cat": "mstar", "name": "feeds", "id": number, "pid": pid, "tid": tid}
    return {**arrow, "ts": round(at, 1), **({"bp": "e"} if phase == "f" else {})}


Use = tuple[str, str]
"""(walk, node)."""


def _edges(graph: Mapping[str, Any]) -> list[tuple[Use, Use]]:
    """Pairs of nodes of which one feeds the other: by an edge, a stream, or what a walk keeps for the next one."""
    found: dict[tuple[Use, Use], None] = {}
    walks = {
        (partition["name"], walk["name"]): walk
        for partition in graph.get("partitions", ())
        for walk in partition["walks"]
    }
    for (partition, name), walk in walks.items():
        for edge in walk["edges"]:
            if edge["kind"] == "edge":
                found[(name, edge["maker"]), (name, edge["to"])] = None
            if edge["kind"] == "keep" and walk["then"]:
                following = walks[partition, walk["then"]]
                takers = [
                    each["to"]
                    for each in following["edges"]
                    if each["kind"] == "input" and each["name"] == edge["name"]
                ]
                found.update({((name, edge["maker"]), (walk["then"], taker)): None for taker in takers})
    for stream in graph.get("streams", ()):
        consumers = [
            walk_name
            for (partition, walk_name), walk in walks.items()
            if partition == stream["partition"] and any(node["name"] == stream["to"] for node in walk["nodes"])
        ]
        for origin in stream["from"]:
            if origin["partition"]:
                maker = (origin["walk"], origin["maker"])
                found.update({(maker, (to, stream["to"])): None for to in consumers})
    return list(found)
