"""Speaking sessions, long prompts, planners and starving requests on one worker, with an engine whose work has a price.

The clock is turned by the engine alone: a step costs what its firings cost. Listeners play what has come, in time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import pytest

from mstar.bus.local import LocalBus
from mstar.clock import ManualClock
from mstar.engine.api import Completed, Deferred, Firing, Outcome, Partial
from mstar.graph.check import check
from mstar.graph.declare import (
    Component,
    DynamicLoop,
    Emit,
    Graph,
    GraphEdge,
    GraphNode,
    Keep,
    Partition,
    StreamingGraphEdge,
    Task,
    Walk,
)
from mstar.messages import BeginRequest, BeginWalk, Credit, Emission, SessionOpened, StepFailed, WalkDone
from mstar.placement import one_rank
from mstar.streaming.policies import FixedChunkPolicy
from mstar.tensors import Value
from mstar.transport.inline import InlineTransport
from mstar.worker.executor import InlineExecutor
from mstar.worker.hosted import host
from mstar.worker.scheduler import STARVED
from mstar.worker.worker import Worker

NAME, RATE, CHUNK = "worker.main", 24_000, 6_000
TOKENS = 5  # of text for a chunk of sound


def graph() -> Graph:
    """`say`: a prompt, tokens one by one, five of which are a chunk of sound. `plan`: an action, without sound."""
    words = StreamingGraphEdge("words", "speech", "voice", FixedChunkPolicy(TOKENS), bound=64)
    write = GraphNode("LM", ("token",), (GraphEdge("token", "LM"), words))
    return Graph(
        name="f",
        components=(Component("LM", "none:none", engine="kv"), Component("voice", "n:n"), Component("planner", "n:n")),
        partitions=(
            Partition(
                "text",
                (
                    Walk("prefill", GraphNode("LM", ("tokens",), (Keep("token"),), prompt=True), then="decode"),
                    Walk("decode", DynamicLoop("tokens", write, 10_000)),
                ),
            ),
            Partition("speech", (Walk("sound", GraphNode("voice", ("words",), (Emit("audio", "audio", 2 * RATE),))),)),
            Partition("acting", (Walk("act", GraphNode("planner", ("x",), (Emit("action", "action"),))),)),
        ),
        tasks=(
            Task("say", {"text": "prefill", "speech": "sound"}, ("tokens",)),
            Task("plan", {"acting": "act"}, ("x",)),
        ),
    )


@dataclass
class Priced:
    """Seconds of each kind of work; prompts are read `piece` positions a step."""

    clock: ManualClock
    piece: int = 64
    position: float = 0.001
    decode: tuple[float, float] = (0.012, 0.001)  # a step, and each of its firings
    chunk: float = 0.030
    plan: float = 0.050
    left: dict[str, int] = field(default_factory=dict)  # positions of a prompt to compute
    said: dict[str, int] = field(default_factory=dict)
    batches: list[tuple[str, str, tuple[str, ...]]] = field(default_factory=list)

    def step(self, firings: Sequence[Firing]) -> list[Outcome]:
        first = firings[0]
        self.batches.append((first.component, first.walk, tuple(firing.request for firing in firings)))
        match first.component, first.walk:
            case "f/LM", "prefill":
                return [self._read(firing, spent=i > 0) for i, firing in enumerate(firings)]
            case "f/LM", _:
                self.clock.advance(self.decode[0] + self.decode[1] * len(firings))
                return [self._write(firing) for firing in firings]
            case "f/voice", _:
                self.clock.advance(self.chunk * len(firings))
                return [Completed({"audio": {"pcm": np.zeros(CHUNK, np.float32)}}, stop=False) for _ in firings]
        self.clock.advance(self.plan * len(firings))
        return [Completed({"action": firing.request}, stop=False) for firing in firings]

    def _read(self, firing: Firing, *, spent: bool) -> Outcome:
        left = self.left.setdefault(firing.request, cast("int", firing.inputs["tokens"]))
        if spent:
            return Partial(0)
        part = min(left, self.piece)
        self.clock.advance(part * self.position)
        self.left[firing.request] = left - part
        return Completed({"token": 0}, stop=False) if left == part else Partial(part)

    def _write(self, firing: Firing) -> Outcome:
        said = self.said[firing.request] = self.said.get(firing.request, 0) + 1
        return Completed({"token": said, "words": said}, stop=said >= cast("int", firing.settings["length"]))

    def end_request(self, request: str) -> None: ...

    def end_session(self, session: str) -> None: ...

    def give(self, request: str, component: str) -> Value:
        return None

    def take(self, request: str, component: str, image: Value) -> Deferred | None:
        return None

    def preempt(self, request: str, component: str) -> int:
        return 0

    def census(self) -> Mapping[str, int]:
        return {}

    def counters(self) -> Mapping[str, int]:
        return {}


@dataclass
class Listener:
    began: float
    sounded: int = 0
    until: float = 0.0  # when what it has is played
    first: float | None = None
    underrun: float = 0.0

    def hear(self, now: float) -> None:
        if self.first is None:
            self.first = self.until = now
        self.underrun += max(0.0, now - self.until)
        self.until = max(self.until, now) + CHUNK / RATE
        self.sounded += CHUNK

    def played(self, now: float) -> int:
        return self.sounded - round(max(0.0, self.until - now) * RATE)


class Bench:
    """A worker, its conductor and its clients."""

    def __init__(self, **prices: Any) -> None:
        declared = graph()
        check(declared)
        self.clock = ManualClock(10.0)
        self.engine = Priced(self.clock, **prices)
        bus = LocalBus()
        self.conductor, self.client = bus.endpoint("conductor"), bus.endpoint("client")
        names = [f"f/{component.name}" for component in declared.components]
        self.worker = Worker(
            NAME,
            {"f": host("f", declared, one_rank().place("f", declared), NAME)},
            dict.fromkeys(names, self.engine),
            dict.fromkeys(names, 8),
            bus.endpoint(NAME),
            self.clock,
            InlineExecutor(),
            InlineTransport(),
        )
        self.listeners: dict[str, Listener] = {}
        self.ended: dict[str, float] = {}
        self.refused: dict[str, StepFailed] = {}
        self.walks = 0
        self.messages = 0  # to the conductor

    def begin(self, name: str, task: str = "say", tokens: int = 20, **settings: Any) -> None:
        self.worker.handle(SessionOpened(name, "f", "client", (NAME,)))
        request = f"{name}.1"
        inputs = {"tokens": tokens} if task == "say" else {"x": 1}
        self.worker.handle(BeginRequest(name, request, task, 1, inputs, {"length": 2_000, **settings}))
        if task == "say":
            self.listeners[request] = Listener(self.clock.now())
        for partition, walk in {"say": (("text", "prefill"), ("speech", "sound")), "plan": (("acting", "act"),)}[task]:
            self.walks += 1
            self.worker.handle(BeginWalk(request, partition, walk))

    def turn(self) -> None:
        """One step, or 5 ms of waiting; then the clients and the conductor do their part."""
        if not self.worker.schedule():
            self.clock.advance(0.005)
        self.worker.collect()
        now = self.clock.now()
        for message in self.conductor.receive():
            self.messages += 1
            match message:
                case WalkDone(request=request, walk="prefill"):
                    self.walks += 1
                    self.worker.handle(BeginWalk(request, "text", "decode"))
                case StepFailed(request=request):
                    self.refused[request] = message
                case _:
                    pass
        for told in self.client.receive():
            match told:
                case Emission(request=request, output="audio"):
                    self.listeners[request].hear(now)
                case Emission(request=request):
                    self.ended[request] = now
                case _:
                    pass
        for request, listener in self.listeners.items():
            played = listener.played(now)
            self.worker.handle(Credit(request, "audio", played + 2 * RATE, played))

    def run(self, seconds: float) -> None:
        until = self.clock.now() + seconds
        while self.clock.now() < until:
            self.turn()

    def underrun(self) -> float:
        return sum(listener.underrun for listener in self.listeners.values())


def speaking(count: int, **prices: Any) -> Bench:
    """A worker on which `count` sessions have spoken for three seconds."""
    bench = Bench(**prices)
    for n in range(count):
        bench.begin(f"s{n}")
    bench.run(3.0)
    assert all(listener.sounded > RATE for listener in bench.listeners.values())
    return bench


def test_a_long_prompt_beside_three_speaking_sessions_starves_no_listener() -> None:
    bench = speaking(3)
    bench.begin("new", tokens=4_000)
    bench.run(20.0)
    assert bench.underrun() == 0.0
    newcomer = bench.listeners["new.1"]
    assert newcomer.first is not None
    assert newcomer.first - newcomer.began < 12.0  # 4 s of work, in what three speakers leave of the machine
    assert bench.engine.left["new.1"] == 0


def test_the_same_prompt_in_one_step_would() -> None:
    bench = speaking(3, piece=4_000)
    bench.begin("new", tokens=4_000)
    bench.run(10.0)
    assert bench.underrun() > 1.0


def test_no_message_to_the_conductor_for_a_token_or_a_chunk() -> None:
    bench = speaking(3)
    tokens, chunks = sum(bench.engine.said.values()), sum(one.sounded for one in bench.listeners.values()) // CHUNK
    assert tokens > 150
    assert chunks > 30
    assert bench.messages == 3  # each prompt's walk is done, once
    assert bench.walks == 9


def test_a_session_joins_the_running_batch_at_the_next_step() -> None:
    bench = speaking(3)
    bench.begin("new", tokens=64)
    while bench.engine.left.get("new.1") != 0:
        bench.turn()
    before = len(bench.engine.batches)
    bench.run(1.0)
    decodes = [batch for _, walk, batch in bench.engine.batches[before:] if walk == "decode"]
    assert "new.1" in decodes[0]
    assert any(len(batch) == 4 for batch in decodes)


def test_batches_of_chunks_hold_forty_milliseconds_of_work() -> None:
    for chunk, most in ((0.030, 1), (0.019, 2), (0.010, 4)):
        bench = Bench(chunk=chunk, decode=(0.001, 0.0))
        for n in range(4):
            bench.begin(f"s{n}")
        bench.run(4.0)
        sizes = [len(batch) for component, _, batch in bench.engine.batches if component == "f/voice"]
        assert max(sizes[4:]) == most
        assert bench.underrun() == 0.0


def test_planners_are_served_by_their_deadlines() -> None:
    bench = Bench()
    for name, deadline in (("none", None), ("late", 900), ("soon", 300), ("mid", 600)):
        settings = {} if deadline is None else {"deadline_ms": deadline}
        bench.begin(name, "plan", **settings)
    bench.worker._ready._limits = dict.fromkeys(bench.worker._ready._limits, 1)
    bench.run(0.5)
    assert sorted(bench.ended, key=lambda name: bench.ended[name]) == ["soon.1", "mid.1", "late.1", "none.1"]


def test_a_near_deadline_goes_before_a_prompt_and_leaves_speakers_their_sound() -> None:
    bench = speaking(2)
    bench.begin("new", tokens=4_000)
    bench.run(0.3)
    for n in range(5):
        bench.begin(f"robot{n}", "plan", deadline_ms=350)
    began = bench.clock.now()
    bench.run(2.0)
    assert len(bench.ended) == 5
    assert max(bench.ended.values()) - began < 0.5
    assert bench.underrun() == 0.0


@pytest.mark.parametrize("wrong", [0, -5, True, "soon", float("inf"), float("nan")])
def test_a_wrong_deadline_is_refused(wrong: Any) -> None:
    bench = Bench()
    bench.begin("r", "plan", deadline_ms=wrong)
    bench.turn()
    assert bench.refused["r.1"].param == "settings.deadline_ms"


def test_overloaded_the_last_one_is_passed_over_a_bounded_number_of_steps() -> None:
    """Speakers who always run short would keep a prompt from being read for ever."""
    bench = Bench(decode=(0.080, 0.030), chunk=0.200)
    for n in range(4):
        bench.begin(f"s{n}")
    bench.run(10.0)
    assert bench.underrun() > 1.0
    bench.begin("new", tokens=128)
    before = len(bench.engine.batches)
    while bench.engine.left.get("new.1") != 0 and len(bench.engine.batches) < before + 1_000:
        bench.turn()
    mine = [n for n, (_, _, batch) in enumerate(bench.engine.batches[before:], 1) if "new.1" in batch]
    assert len(mine) == 2
    assert all(later - earlier <= STARVED + 1 for earlier, later in zip([0, *mine], mine, strict=False))
