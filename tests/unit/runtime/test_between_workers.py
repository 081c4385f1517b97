"""What workers of one request say to each other: early, late, and after its end."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from models.toy.model import FAMILY
from mstar.bus.local import LocalBus
from mstar.client import RequestEnded
from mstar.clock import ManualClock
from mstar.graph.declare import (
    Component,
    DynamicLoop,
    Emit,
    Graph,
    GraphEdge,
    GraphNode,
    LiveInput,
    Partition,
    Sequential,
    StreamingGraphEdge,
    Task,
    Walk,
)
from mstar.local import LocalSystem
from mstar.messages import (
    Answer,
    Ask,
    BeginRequest,
    BeginWalk,
    Emission,
    EndRequest,
    Fire,
    Fired,
    Give,
    Image,
    Items,
    Message,
    Pace,
    Piece,
    Room,
    SessionClosed,
    SessionOpened,
    StepFailed,
)
from mstar.placement import Rank, placement_of
from mstar.streaming.chunk import Span
from mstar.streaming.policies import FixedChunkPolicy
from mstar.transport.local import LocalTransport, Shelf
from mstar.worker.build import build_worker
from mstar.worker.executor import InlineExecutor

HERE, THERE = "worker.here", "worker.there"
WORD = {"text": "one", "from": 0, "to": 4}
SAY = BeginRequest("s", "s.1", "speak", 1)
NODES = {"tone": "here", "predict": "here", "encode": "there", "guide": "there", "combine": "there"}


class Bench:
    """The worker that makes tones; words are written elsewhere, the vocoder and most of the rollout run elsewhere."""

    def __init__(self) -> None:
        graph = FAMILY.graph({})
        ranks: dict[str, Any] = {"here": {}, "there": {}}
        placement = placement_of({"ranks": ranks, "families": {"toy": {"default": "there", "nodes": NODES}}})
        placed = placement.place("toy", graph)
        seating = placed.seat()
        assert seating.homes["tone"] == HERE
        assert seating.homes["world"] == THERE
        bus = LocalBus()
        self.ends = {name: bus.endpoint(name) for name in ("conductor", "client", THERE)}
        self.shelf = Shelf()
        self.remote = LocalTransport(self.shelf)
        self.worker = build_worker(
            HERE,
            Rank("here"),
            {"toy": graph},
            {"toy": placed},
            {"toy": {}},
            bus.endpoint(HERE),
            ManualClock(),
            InlineExecutor(),
            LocalTransport(self.shelf),
        )
        self.worker.handle(SessionOpened("s", "toy", "client", seating.workers, live=seating.live))
        self.drain()
        self.baseline = self.census()

    def words(self, index: int, *words: Any, end: int | None = None) -> Items:
        pieces = tuple(Piece(self.remote.pack(word, HERE, ("s.1", 1))) for word in words)
        return Items("s.1", "word", "tone", index, pieces, end)

    def run(self) -> None:
        while self.worker.schedule():
            self.worker.collect()

    def drain(self) -> dict[str, list[Message]]:
        return {name: list(end.receive()) for name, end in self.ends.items()}

    def _asked(self, what: str) -> dict[str, int]:
        self.worker.handle(Ask(what, "client", 1))
        self.worker.collect()
        [answer] = [message for message in self.ends["client"].receive() if isinstance(message, Answer)]
        return dict(answer.value)

    def census(self) -> dict[str, int]:
        return self._asked("census")

    def late(self) -> int:
        return self._asked("counters")["late_messages"]


@pytest.fixture
def bench() -> Bench:
    return Bench()


def begin(bench: Bench) -> None:
    bench.worker.handle(SAY)
    bench.worker.handle(BeginWalk("s.1", "tone", "tone"))
    bench.run()


def test_items_that_come_before_their_request_and_out_of_order_are_kept_for_it(bench: Bench) -> None:
    bench.worker.handle(bench.words(2, end=2))
    bench.worker.handle(bench.words(1, WORD))
    bench.worker.handle(bench.words(0, WORD))
    assert bench.census()["early_messages"] == 3
    begin(bench)
    told = bench.drain()
    assert [message.output for message in told["client"] if isinstance(message, Emission)] == ["alignment"] * 2
    frames = [message for message in told[THERE] if isinstance(message, Items)]
    assert [(message.index, message.end) for message in frames] == [(0, None), (25, None), (50, 50)]
    assert bench.late() == 0
    for message in frames:
        for piece in message.pieces:
            bench.remote.drop(piece.value)
    bench.worker.handle(EndRequest("s.1"))
    bench.worker.collect()
    assert bench.census() == bench.baseline


@pytest.mark.parametrize(
    "message",
    [
        Room("s.1", "frames", "vocoder", 900),
        Pace("s.1", 1, 0, begun=True),
        Fired("s.1", 7, {}),
        Give("s.1", "LM", THERE, 1),
        Image("s.1", "LM", 1, {}),
    ],
    ids=lambda message: type(message).__name__,
)
def test_what_comes_after_the_end_is_late_and_leaves_nothing(bench: Bench, message: Message) -> None:
    begin(bench)
    bench.worker.handle(EndRequest("s.1"))
    bench.worker.handle(message)
    bench.worker.handle(bench.words(0, WORD))
    bench.run()
    assert bench.late() == 2
    assert bench.shelf.values == {}
    assert bench.census() == bench.baseline


def test_what_waits_for_a_request_that_is_refused_is_dropped_with_it(bench: Bench) -> None:
    bench.worker.handle(bench.words(0, WORD))
    bench.worker.handle(EndRequest("s.1"))
    bench.worker.handle(bench.words(1, WORD))
    assert bench.late() == 1
    bench.worker.handle(SessionClosed("s"))
    bench.worker.collect()
    bench.drain()
    assert bench.census()["early_messages"] == 0


def test_a_firing_that_was_sent_here_goes_home_and_one_that_fails_ends_its_request(bench: Bench) -> None:
    bench.worker.handle(BeginRequest("s", "s.1", "roll", 1, {"state": [1.0]}))

    def fire(number: int, inputs: Any) -> None:
        packed = bench.remote.pack(inputs, HERE, ("s.1", 1))
        node = 1  # predict
        bench.worker.handle(Fire("s.1", number, "world", "roll", node, packed, {"x": Span("x", 0, 0, 1)}))
        bench.run()

    fire(1, {"latent": 2.0, "context": 1.0})
    [back] = [message for message in bench.drain()[THERE] if isinstance(message, Fired)]
    assert back.number == 1
    assert bench.remote.unpack(back.outputs) == {"main": 5.0}
    fire(2, {"latent": "no number", "context": 1.0})
    told = bench.drain()
    [failed] = [message for message in told["conductor"] if isinstance(message, StepFailed)]
    assert (failed.request, failed.node) == ("s.1", "predict")
    assert told[THERE] == []
    assert bench.census() == bench.baseline


def test_a_firing_waits_for_the_state_it_needs(bench: Bench) -> None:
    bench.worker.handle(BeginRequest("s", "s.1", "roll", 1, {"state": [1.0]}))
    packed = bench.remote.pack({"latent": 2.0, "context": 1.0}, HERE, ("s.1", 1))
    bench.worker.handle(Fire("s.1", 1, "world", "roll", 1, packed, image=1))
    bench.run()
    assert bench.drain()[THERE] == []
    image = bench.remote.pack({"session": "s", "state": None}, HERE, ("s.1", 1))
    bench.worker.handle(Image("s.1", "predict", 1, image))
    bench.worker.collect()
    bench.run()
    assert [type(message) for message in bench.drain()[THERE]] == [Fired]


def test_state_is_given_behind_what_uses_it(bench: Bench) -> None:
    begin(bench)
    bench.worker.handle(bench.words(0, WORD))
    bench.run()
    bench.drain()
    bench.worker.handle(Give("s.1", "tone", THERE, 1))
    bench.worker.collect()
    [image] = [message for message in bench.drain()[THERE] if isinstance(message, Image)]
    assert bench.remote.unpack(image.image)["state"] == 25 * 240  # type: ignore[index,call-overload]
    assert bench.census()["engine_states"] == 0


ENDING = Graph(
    "ending",
    tuple(Component(name, "models.toy.nodes.rolling:guide") for name in ("near", "far")),
    (
        Partition(
            "eye",
            (
                Walk(
                    "look",
                    Sequential(
                        (
                            DynamicLoop(
                                "looks",
                                GraphNode("near", ("latent",), (Emit("other", "signal"),)),
                                None,
                                outputs=(GraphEdge("other", "far", "latent"),),
                            ),
                            GraphNode("far", ("latent",), (Emit("other", "signal"),)),
                        )
                    ),
                ),
            ),
        ),
    ),
    (Task("look", {"eye": "look"}),),
    (
        LiveInput(
            "camera",
            (StreamingGraphEdge("camera", "eye", "near", FixedChunkPolicy(1), input="latent"),),
            scope="request",
        ),
    ),
)


def test_what_the_end_of_a_stream_makes_able_elsewhere_leaves_at_once() -> None:
    """Nothing ran that would give occasion for it, and no message comes any more."""
    placement = placement_of(
        {"ranks": {"here": {}, "there": {}}, "families": {"ending": {"default": "here", "nodes": {"far": "there"}}}}
    )
    system = LocalSystem({"ending": ENDING}, placement=placement)
    request = system.open("ending").start("look")
    request.feed("camera", 0, np.ones(4, np.float32))
    system.run()
    assert len(request.drain()) == 1
    request.commit("camera", 1)
    system.turn()
    assert system.workers[HERE]._account.told(0)["firings_sent"] == 1
    system.run()
    assert [type(event) for event in request.drain()] == [Emission, RequestEnded]
