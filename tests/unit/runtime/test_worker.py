"""The worker's state machine with a scripted engine: waiting for memory, failures of one request, late messages."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import numpy as np
import pytest

from mstar.bus.local import LocalBus
from mstar.carried import Slice
from mstar.clock import ManualClock
from mstar.engine.api import Completed, Deferred, Failed, Firing, Outcome
from mstar.graph.check import check
from mstar.graph.declare import Component, Emit, Graph, GraphNode, LiveInput, Partition, StreamingGraphEdge, Task, Walk
from mstar.messages import (
    Answer,
    Ask,
    BeginRequest,
    BeginWalk,
    Commit,
    Credit,
    Emission,
    EndRequest,
    Feed,
    Message,
    OpenSession,
    SessionClosed,
    SessionOpened,
    StepFailed,
    Stop,
    WalkDone,
)
from mstar.placement import one_rank
from mstar.tensors import Value
from mstar.transport.inline import InlineTransport
from mstar.worker.executor import InlineExecutor
from mstar.worker.hosted import host
from mstar.worker.memory import PATIENCE
from mstar.worker.worker import Worker

NAME = "worker.main"
DONE = Completed({"text": "said"}, stop=False)


def graph() -> Graph:
    """`ask`: one node, x → text. `speak`: the same and a node that sounds. `hear`: one firing an item of `mic`.

    `both`: two partitions hear `mic`, and one node takes two slices of it.
    """
    return Graph(
        name="small",
        components=(Component("think", "none:none"), Component("sound", "none:none"), Component("ear", "none:none")),
        partitions=(
            Partition("p", (Walk("w", GraphNode("think", ("x",), (Emit("text", "text"),))),)),
            Partition("q", (Walk("v", GraphNode("sound", ("x",), (Emit("audio", "audio"),))),)),
            Partition("e", (Walk("listen", GraphNode("ear", ("mic",), (Emit("heard", "signal"),))),)),
            Partition("f", (Walk("listen", GraphNode("ear", ("mic",), (Emit("heard", "signal"),))),)),
            Partition("g", (Walk("u", GraphNode("think", ("one", "other"), (Emit("text", "text"),))),)),
        ),
        live=(LiveInput("mic", (StreamingGraphEdge("mic", "e", "ear"), StreamingGraphEdge("mic", "f", "ear"))),),
        tasks=(
            Task("ask", {"p": "w"}, ("x",)),
            Task("speak", {"q": "v"}, ("x",)),
            Task("hear", {"e": "listen"}, standing=True),
            Task("both", {"e": "listen", "f": "listen", "g": "u"}, ("one", "other")),
        ),
    )


class Scripted:
    """An engine that does what `say` says, firing by firing."""

    def __init__(self) -> None:
        self.say: Callable[[Firing], Outcome] = lambda firing: DONE
        self.batches: list[list[str]] = []
        self.ended: list[str] = []

    def step(self, firings: Sequence[Firing]) -> list[Outcome]:
        self.batches.append([firing.request for firing in firings])
        return [self.say(firing) for firing in firings]

    def end_request(self, request: str) -> None:
        self.ended.append(request)

    def end_session(self, session: str) -> None:
        self.ended.append(session)

    def give(self, request: str, component: str) -> Value:
        return None

    def take(self, request: str, component: str, image: Value) -> Deferred | None:
        return None

    def preempt(self, request: str, component: str) -> int:
        return 0

    def census(self) -> Mapping[str, int]:
        return {"held": 0}

    def counters(self) -> Mapping[str, int]:
        return {"batches": len(self.batches)}


class Bench:
    """A worker on a bus with its conductor and client, turned by hand."""

    def __init__(self) -> None:
        declared = graph()
        check(declared)
        self.engine = Scripted()
        self.clock = ManualClock()
        bus = LocalBus()
        self.conductor, self.client = bus.endpoint("conductor"), bus.endpoint("client")
        family = host("small", declared, one_rank().place("small", declared), NAME)
        names = [f"small/{component.name}" for component in declared.components]
        self.worker = Worker(
            NAME,
            {"small": family},
            dict.fromkeys(names, self.engine),
            dict.fromkeys(names, 4),
            bus.endpoint(NAME),
            self.clock,
            InlineExecutor(),
            InlineTransport(),
        )

    def open(self, *sessions: str) -> None:
        for name in sessions:
            self.worker.handle(SessionOpened(name, "small", "client", (NAME,), live={"mic": (NAME,)}))
        assert [type(message) for message in self.client.receive()] == [SessionOpened] * len(sessions)

    def begin(self, request: str, task: str = "ask", **settings: Any) -> None:
        partition, walk = {"ask": ("p", "w"), "speak": ("q", "v"), "hear": ("e", "listen")}[task]
        session = request.rpartition(".")[0]
        inputs = {} if task == "hear" else {"x": request}
        self.worker.handle(BeginRequest(session, request, task, 1, inputs, settings))
        self.worker.handle(BeginWalk(request, partition, walk))

    def step(self) -> bool:
        ran = self.worker.schedule()
        self.worker.collect()
        return ran

    def run(self) -> None:
        while self.step():
            assert len(self.engine.batches) < 1000

    def counters(self) -> dict[str, int]:
        self.worker.handle(Ask("counters", "client", 1))
        self.worker.collect()
        [answer] = [message for message in self.client.receive() if isinstance(message, Answer)]
        return dict(answer.value)

    def told(self) -> list[Message]:
        return [*self.client.receive(), *self.conductor.receive()]


@pytest.fixture
def bench() -> Bench:
    ready = Bench()
    ready.open("s", "t")
    return ready


def waits(*requests: str) -> Callable[[Firing], Outcome]:
    return lambda firing: Deferred("no memory") if firing.request in requests else DONE


def test_requests_of_all_sessions_are_one_batch_and_their_outputs_go_straight_out(bench: Bench) -> None:
    bench.begin("s.1")
    bench.begin("t.1")
    bench.run()
    assert bench.engine.batches == [["s.1", "t.1"]]
    assert bench.told() == [
        Emission("s.1", "text", 0, "said"),
        Emission("t.1", "text", 0, "said"),
        WalkDone("s.1", "p", "w", False, {"text": 1}),
        WalkDone("t.1", "p", "w", False, {"text": 1}),
    ]


@pytest.mark.parametrize("freed_by", ["a step", "the end of a request", "the end of a session"])
def test_what_waits_for_memory_is_offered_again_when_some_may_be_free(bench: Bench, freed_by: str) -> None:
    bench.engine.say = waits("s.1")
    bench.begin("t.1", "hear")
    bench.begin("s.1")
    bench.run()
    assert bench.engine.batches == [["s.1"]]
    assert bench.worker.busy
    match freed_by:
        case "a step":
            bench.begin("t.2", "speak")
        case "the end of a request":
            bench.worker.handle(EndRequest("t.1"))
        case "the end of a session":
            bench.worker.handle(SessionClosed("t"))
    bench.worker.collect()
    bench.engine.say = lambda firing: DONE if firing.component == "small/think" else Completed({}, stop=False)
    bench.run()
    assert bench.engine.batches[-1] == ["s.1"]
    assert [type(message) for message in bench.told() if getattr(message, "request", "") == "s.1"] == [
        Emission,
        WalkDone,
    ]
    assert not bench.worker.busy


def test_requests_that_wait_for_one_another_are_refused_one_by_one(bench: Bench) -> None:
    bench.engine.say = waits("s.1", "t.1")
    bench.begin("s.1")
    bench.run()
    bench.clock.advance(1)
    bench.begin("t.1")
    bench.run()
    assert bench.worker.next_wake() == PATIENCE
    bench.clock.advance(PATIENCE - 1)
    bench.run()
    refused = [message for message in bench.told() if isinstance(message, StepFailed)]
    assert [(message.request, message.code, message.cause) for message in refused] == [
        ("s.1", "out_of_memory", "no memory")
    ]
    bench.engine.say = lambda firing: DONE
    bench.run()
    assert [message for message in bench.told() if isinstance(message, Emission)] == [
        Emission("t.1", "text", 0, "said")
    ]
    assert bench.worker.next_wake() is None


def test_one_that_waits_does_not_hold_up_its_batch(bench: Bench) -> None:
    bench.engine.say = waits("s.1")
    bench.begin("s.1")
    bench.begin("t.1")
    bench.run()
    assert bench.engine.batches == [["s.1", "t.1"], ["s.1"]]
    assert [message for message in bench.told() if isinstance(message, Emission)] == [
        Emission("t.1", "text", 0, "said")
    ]


@pytest.mark.parametrize(
    ("outcome", "code", "said"),
    [
        (Completed({"ghost": 1}, stop=False), "node_failed", "ghost, which the graph does not declare"),
        (
            Completed({"text": cast("Any", object())}, stop=False),
            "node_failed",
            "TypeError: a value of type object can not travel",
        ),
        (Failed("KeyError: 'x'"), "node_failed", "KeyError: 'x'"),
        (Failed("too long", "context_length_exceeded"), "context_length_exceeded", "too long"),
    ],
)
def test_a_node_at_fault_fails_its_request_only(bench: Bench, outcome: Outcome, code: str, said: str) -> None:
    bench.engine.say = lambda firing: outcome if firing.request == "s.1" else DONE
    for request in ("s.1", "s.2", "t.1"):
        bench.begin(request)
    bench.run()
    told = bench.told()
    [failure] = [message for message in told if isinstance(message, StepFailed)]
    assert (failure.request, failure.node, failure.code) == ("s.1", "think", code)
    assert said in failure.cause
    assert {message.request for message in told if isinstance(message, WalkDone)} == {"s.2", "t.1"}
    assert bench.engine.ended == ["s.1"]
    bench.begin("s.3")
    bench.run()
    assert [type(message) for message in bench.told()] == [Emission, WalkDone]


def test_late_messages_are_counted_and_leave_nothing(bench: Bench) -> None:
    bench.begin("s.1")
    bench.worker.handle(EndRequest("s.1"))
    late: list[Message] = [
        Feed("gone", "", "mic", 0, 1.0),
        Feed("s", "", "no such stream", 0, 1.0),
        Feed("s", "s.1", "mic", 0, 1.0),
        Commit("gone", "", "mic", 1),
        Commit("s", "s.1", "mic", 1),
        Credit("gone.1", "audio", 1),
        Credit("s.1", "audio", 1),
        BeginWalk("s.1", "p", "w"),
        BeginRequest("gone", "gone.1", "ask", 1, {"x": 1}),
    ]
    for message in late:
        bench.worker.handle(message)
    bench.run()
    assert bench.engine.batches == []
    assert bench.counters()["late_messages"] == len(late)
    bench.worker.handle(EndRequest("gone.1"))
    bench.worker.handle(SessionClosed("gone"))
    assert bench.counters()["late_messages"] == len(late)


def test_early_messages_wait_for_their_request(bench: Bench) -> None:
    bench.worker.handle(Credit("s.1", "text", 5, played=3))
    bench.begin("s.1")
    assert bench.counters()["late_messages"] == 0
    request = bench.worker._sessions["s"].requests["s.1"]
    assert (request.credit["text"], request.played) == (5, 3)


def test_what_was_in_flight_when_its_request_ended_goes_nowhere(bench: Bench) -> None:
    bench.begin("s.1")
    bench.begin("t.1")
    assert bench.worker.schedule()
    bench.worker.handle(EndRequest("s.1"))
    bench.worker.collect()
    assert {message.request for message in bench.told() if isinstance(message, Emission)} == {"t.1"}
    assert bench.counters()["stale_outcomes"] == 1


def test_items_of_a_live_stream_fire_their_node_one_by_one(bench: Bench) -> None:
    bench.engine.say = lambda firing: Completed({"heard": firing.inputs["mic"]}, stop=False)
    bench.begin("s.1", "hear")
    for index in range(3):
        bench.worker.handle(Feed("s", "", "mic", index, np.full(2, index)))
        bench.run()
    heard = [message for message in bench.client.receive() if isinstance(message, Emission)]
    assert [(message.index, message.value.tolist()) for message in heard] == [(0, [0, 0]), (1, [1, 1]), (2, [2, 2])]


@pytest.mark.parametrize("wrong", ["item beyond the end", "text", "slices that are gone"])
def test_one_message_may_fail_a_request_in_two_places(bench: Bench, wrong: str) -> None:
    inputs = {"one": Slice("mic", 0, 2), "other": Slice("mic", 0, 2)}
    bench.worker.handle(BeginRequest("s", "s.1", "both", 1, inputs))
    for partition, walk in (("e", "listen"), ("f", "listen"), ("g", "u")):
        bench.worker.handle(BeginWalk("s.1", partition, walk))
    bench.begin("s.2")
    match wrong:
        case "item beyond the end":
            bench.worker.handle(Commit("s", "", "mic", 0))
            bench.worker.handle(Feed("s", "", "mic", 0, np.zeros(2)))
        case "text":
            bench.worker.handle(Feed("s", "", "mic", 0, "sound"))
        case _:
            bench.worker.handle(Feed("s", "", "mic", 0, np.zeros((9, 2)), rows=True))
    bench.run()
    told = bench.told()
    assert [message.request for message in told if isinstance(message, StepFailed)] == ["s.1"]
    assert [message.request for message in told if isinstance(message, WalkDone)] == ["s.2"]


def test_an_answer_in_text_that_has_begun_does_not_stop_a_sound_that_runs_short(bench: Bench) -> None:
    for name in ("s.ask", "t.speak"):
        bench.begin(name, name.rpartition(".")[2])
    text, sound = bench.worker._sessions["s"].requests["s.ask"], bench.worker._sessions["t"].requests["t.speak"]
    assert text.silent
    assert not sound.silent
    text.emitted["text"], sound.sounded = 1, 2400
    bench.step()
    assert bench.engine.batches == [["t.speak"]]
    bench.run()
    assert bench.engine.batches[-1] == ["s.ask"]


def test_it_stops_when_told_and_takes_nothing_else(bench: Bench) -> None:
    bench.worker.handle(Stop())
    assert bench.worker.stopped
    with pytest.raises(TypeError, match="a worker does not take OpenSession"):
        bench.worker.handle(OpenSession("u", "small", "client"))
