"""What can run is kept up to date change by change: never more and never less than a look at everything finds."""

from __future__ import annotations

import numpy as np
import pytest

from models.toy.model import FAMILY, RATE, SPEECH_WINDOW
from mstar.carried import Slice
from mstar.client import Request, RequestEnded
from mstar.client.client import Event
from mstar.graph.check import check
from mstar.graph.declare import Component, Edge, Emit, Graph, GraphNode, Partition, StreamingGraphEdge, Task, Walk
from mstar.local import LocalSystem
from mstar.placement import one_rank
from mstar.streaming.policies import FixedChunkPolicy
from mstar.worker.hosted import host
from mstar.worker.ready import Ready
from mstar.worker.worker import Worker
from tests.system.shapes import SHAPES, shape
from tests.system.toy import end_of, items, tones

WORDS = 40
"""Their sound is more than a listener takes at first, and more than waits between the nodes that make it."""


def keys(ready: Ready) -> list[set[tuple[str, str, int]]]:
    ready._look()
    return [set(ready._runnable), set(ready._leaving)]


def anew(worker: Worker) -> list[set[tuple[str, str, int]]]:
    """What can run when every walk is looked at, changed or not."""
    for session in worker._sessions.values():
        for request in session.requests.values():
            for partition in request.cursors:
                worker._ready.refresh(request, partition)
    return keys(worker._ready)


def started(system: LocalSystem) -> list[Request]:
    """Requests of every kind at once: loops, streams, credit, text that comes piece by piece."""
    session = system.open("toy")
    rows = items(tones("hello name"))
    session.feed("mic", 0, rows, rows=True)
    requests = [
        session.start("answer_audio_speech", {"history": [], "tools": [], "audio": Slice("mic", 0, len(rows))}),
        session.start("say"),
        session.start("roll", {"state": np.array([1.0, 2.0])}, {"horizon": 3}),
    ]
    for index in range(WORDS):
        requests[1].feed("word", index, {"text": "one", "from": 4 * index, "to": 4 * index + 4})
    requests[1].commit("word", WORDS)
    return requests


@pytest.mark.parametrize("name", SHAPES)
def test_after_every_turn_a_look_at_everything_finds_the_same(name: str) -> None:
    system = LocalSystem({"toy": FAMILY.graph({})}, placement=shape(name))
    requests = started(system)
    events: list[list[Event]] = [[] for _ in requests]
    credited = 0
    while not all(any(isinstance(event, RequestEnded) for event in heard) for heard in events):
        if not system.turn():
            credited += 1
            assert credited < WORDS
            for request in requests:
                request.credit("audio", SPEECH_WINDOW + credited * RATE)
        for worker in system.workers.values():
            assert keys(worker._ready) == anew(worker)
        for request, heard in zip(requests, events, strict=True):
            heard.extend(request.drain())
    assert credited
    assert {end_of(heard).status for heard in events} == {"done"}


def test_a_firing_touches_who_shares_its_streams_or_its_credit() -> None:
    edge = StreamingGraphEdge("words", "speech", "voice", FixedChunkPolicy(1))

    def partition(name: str, node: str, *outputs: Edge) -> Partition:
        return Partition(name, (Walk("w", GraphNode(node, ("words" if node == "voice" else "x",), outputs)),))

    graph = Graph(
        name="shared",
        components=tuple(Component(name, "none:none") for name in ("write", "spell", "voice", "sing", "look")),
        partitions=(
            partition("writing", "write", edge),
            partition("spelling", "spell", edge),
            partition("speech", "voice", Emit("audio", "audio", RATE)),
            partition("singing", "sing", Emit("audio", "audio", RATE)),
            partition("looking", "look", Emit("seen", "signal")),
        ),
        tasks=tuple(
            Task(name, dict.fromkeys((name, "speech", "singing", "looking"), "w"), ("x",))
            for name in ("writing", "spelling")
        ),
    )
    check(graph)
    hosted = host("shared", graph, one_rank().place("shared", graph), "worker.main")
    assert hosted.touched == {
        "writing": ("speech", "spelling", "writing"),
        "spelling": ("speech", "spelling", "writing"),
        "speech": ("singing", "speech", "spelling", "writing"),
        "singing": ("singing", "speech"),
        "looking": ("looking",),
    }
