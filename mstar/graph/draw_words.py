"""How the parts of a described graph are put into words: policies, bounds, inputs and outputs of nodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

Tree: TypeAlias = Mapping[str, Any]

Kind: TypeAlias = Literal["input", "stream", "emit", "keep"]


@dataclass(frozen=True, slots=True)
class Tag:
    """Something that enters or leaves a node other than by an edge to its neighbour."""

    kind: Kind
    words: str


def policy(tree: Tree) -> str:
    """A chunk policy: "3 items", "ramp 16 ×2 → 64", …"""
    match tree:
        case {"policy": "fixed", "k": k}:
            words = "each item" if k == 1 else f"{k} items"
        case {"policy": "sliding_window", "w": w, "s": s}:
            words = f"window {w}, step {s}"
        case {"policy": "left_context", "k": k, "c": c}:
            words = f"{k} items after {c}"
        case {"policy": "ramp", "first": first, "growth": growth, "k": k, "c": c}:
            words = f"ramp {first} ×{growth} → {k}" + (f" after {c}" if c else "")
        case {"policy": "latest"}:
            words = "newest"
        case {"policy": "continue", "inner": inner}:
            words = f"{policy(inner)}, then on"
        case {"policy": "deadline", "inner": inner, "ms": ms}:
            words = f"{policy(inner)} or {ms:g} ms"
        case _:
            words = str(tree["policy"])
    return words


def stream(tree: Tree) -> str:
    """A stream as its consumer takes it: name, policy, bound."""
    rows = " of rows" if tree["items"] == "rows" else ""
    return f"{tree['name']}: {policy(tree['policy'])}{rows}, ≤ {tree['bound']}"


def loop(tree: Tree) -> str:
    """A loop: its name and when it ends."""
    bound = "" if tree["max_iters"] is None else f" ≤ {tree['max_iters']}"
    return f"{tree['name']} ↺{bound}{' or stop' if tree['dynamic'] and bound else ''}"


def framed(walk: Tree) -> list[Tree]:
    """Loops of a walk that are worth a frame: all but those that only stand for one firing a chunk."""
    return [each for each in walk["loops"] if not _implicit(walk, each)]


def _implicit(walk: Tree, each: Tree) -> bool:
    inside = [node for node in walk["nodes"] if node["loop"] == each["name"]]
    return each["max_iters"] is None and [node["name"] for node in inside] == [each["name"]] == [
        node["name"] for node in walk["nodes"]
    ]


def title(node: Tree) -> str:
    """A node's name, with its component where that is another."""
    return str(node["name"]) if node["name"] == node["component"] else f"{node['name']} ({node['component']})"


def enters(graph: Tree, partition: str, walk: Tree, node: Tree) -> Iterator[Tag]:
    """What is put into the walk for this node, and the streams that feed it."""
    for edge in walk["edges"]:
        if edge["kind"] == "input" and edge["to"] == node["name"]:
            sliced = [live["name"] for live in graph["live"] if node["name"] in live["slices"]]
            words = f"{edge['name']} (slice of {', '.join(sliced)})" if sliced else str(edge["name"])
            yield Tag("input", words)
    ports = {port["name"] for port in node["inputs"] if port["streaming"]}
    for each in graph["streams"]:
        if each["partition"] == partition and each["to"] == node["name"] and each["input"] in ports:
            yield Tag("stream", f"~ {each['name']}")


def leaves(walk: Tree, node: Tree) -> Iterator[Tag]:
    """What goes to the client, is kept, or goes into streams, with what the loops around give out of it."""
    seen = set()
    for edge in walk["edges"]:
        if edge["maker"] != node["name"]:
            continue
        last = " at the end" if edge["from_loop"] else ""
        match edge:
            case {"kind": "emit"}:
                tag = Tag("emit", f"⇥ {edge['name']}: {edge['modality']}{last}")
            case {"kind": "keep"}:
                tag = Tag("keep", f"keeps {edge['name']}{last}")
            case {"kind": "stream"}:
                tag = Tag("stream", f"{edge['name']} ~{last}")
            case _:
                continue
        if tag not in seen:
            seen.add(tag)
            yield tag


def tasks(graph: Tree, partition: str, walk: str) -> list[str]:
    """Tasks that begin with this walk of the partition."""
    return [task["name"] for task in graph["tasks"] if task["start"].get(partition) == walk]
