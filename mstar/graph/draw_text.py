"""A described graph as text: for terminals, and for reading aloud what the drawing shows."""

from __future__ import annotations

from collections.abc import Iterator

from mstar.graph.draw_words import Tree, enters, framed, leaves, loop, stream, tasks, title


def text(graph: Tree) -> str:
    """Lines without markup, at most a few words each."""
    return "\n".join(_lines(graph)) + "\n"


def _lines(graph: Tree) -> Iterator[str]:
    yield graph["name"]
    for live in graph["live"]:
        to = [f"~> {each['partition']}.{each['node']}" for each in live["to"]]
        slices = [f"slices for {', '.join(live['slices'])}"] if live["slices"] else []
        yield f"  {live['name']}: live, of the {live['scope']}; {', '.join(to + slices)}"
    for task in graph["tasks"]:
        started = ", ".join(f"{partition}.{walk}" for partition, walk in task["start"].items())
        given = f"({', '.join(task['inputs'])})" if task["inputs"] else ""
        yield f"  task {task['name']}{given}: {started}{', standing' if task['standing'] else ''}"
    for partition in graph["partitions"]:
        yield ""
        yield f"partition {partition['name']}"
        for each in graph["streams"]:
            if each["partition"] == partition["name"]:
                yield f"  ~ {stream(each)} → {each['to']}, from {_origins(each)}"
        for walk in partition["walks"]:
            yield from _walk(graph, partition["name"], walk)


def _origins(each: Tree) -> str:
    names = [
        f"{one['partition']}.{one['walk']}.{one['node']}" if one["partition"] else "client" for one in each["from"]
    ]
    return ", ".join(names)


def _walk(graph: Tree, partition: str, walk: Tree) -> Iterator[str]:
    then = f", then {walk['then']}" if walk["then"] else ""
    begun = tasks(graph, partition, walk["name"])
    yield f"  walk {walk['name']}{then}{'   ⟵ ' + ', '.join(begun) if begun else ''}"
    frames = {each["name"]: each for each in framed(walk)}
    opened: list[str] = []
    for node in walk["nodes"]:
        around = _around(walk, node["loop"], frames)
        while opened and opened[-1] not in around:
            yield f"    {'│ ' * (len(opened) - 1)}└"
            opened.pop()
        for name in around[len(opened) :]:
            yield f"    {'│ ' * len(opened)}┌ {loop(frames[name])}"
            opened.append(name)
        yield f"    {'│ ' * len(opened)}{_node(graph, partition, walk, node)}"
    for depth in range(len(opened), 0, -1):
        yield f"    {'│ ' * (depth - 1)}└"


def _around(walk: Tree, name: str, frames: dict[str, Tree]) -> list[str]:
    """Framed loops around a node, from outside in."""
    parents = {each["name"]: each["parent"] for each in walk["loops"]}
    chain = []
    while name:
        if name in frames:
            chain.append(name)
        name = parents[name]
    return chain[::-1]


def _node(graph: Tree, partition: str, walk: Tree, node: Tree) -> str:
    given = [tag.words for tag in enters(graph, partition, walk, node)]
    gone = [tag.words for tag in leaves(walk, node)]
    for edge in walk["edges"]:
        if edge["kind"] in ("edge", "back") and edge["maker"] == node["name"]:
            arrow = "↺" if edge["kind"] == "back" else "→"
            gone.append(f"{edge['name']} {arrow} {edge['to']}")
    return title(node) + (f"({', '.join(given)})" if given else "") + (f": {'; '.join(gone)}" if gone else "")
