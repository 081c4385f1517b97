"""The toy family gives the same under every placement, and tells the conductor nothing more."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from models.toy.model import DRAWN_STEPS, FAMILY
from mstar.client import Session, Slice
from mstar.local import LocalSystem
from tests.system.answers import Answer, answer_of
from tests.system.shapes import SHAPES, shape
from tests.system.toy import end_of, items, tones, values

REUSED = ("reused",)
"""Fields that tell how much of a prompt was cached, which depends on where."""


def ask(text: str, *before: tuple[str, str]) -> dict[str, object]:
    history = [{"role": role, "content": content} for role, content in (*before, ("user", text))]
    return {"history": history, "tools": []}


def make(name: str) -> LocalSystem:
    return LocalSystem({"toy": FAMILY.graph({})}, placement=shape(name))


def talk(system: LocalSystem, session: Session) -> list[Answer]:
    """Turns, one of them spoken to, a text fed piece by piece, a rollout, pictures; all of it at once."""
    rows = items(tones("hello name"))
    session.feed("mic", 0, rows, rows=True)
    requests = [
        session.start("answer_audio_speech", {"history": [], "tools": [], "audio": Slice("mic", 0, len(rows))}),
        session.start("answer_speech", ask("count")),
        session.start("say"),
        session.start("roll", {"state": np.array([1.0, 2.0])}, {"horizon": 3}),
        session.start("answer_text", ask("please call weather")),
        session.start("draw", {"prompt": "a small house"}, {"seed": 3}),
        session.start("draw_packed", {"prompt": "a small house"}, {"seed": 3}),
    ]
    for index, word in enumerate(("one", "two")):
        requests[2].feed("word", index, {"text": word, "from": 4 * index, "to": 4 * index + 4})
    requests[2].commit("word", 2)
    for request in requests:
        request.credit("audio", 10**9)
    system.run()
    answers = [answer_of(request.drain(), REUSED) for request in requests]
    again = session.start("answer_text", ask("again", ("user", "hello"), ("assistant", "hello")))
    system.run()
    return [*answers, answer_of(again.drain(), REUSED)]


@pytest.fixture(scope="module")
def expected() -> list[Answer]:
    system = make("one rank")
    return talk(system, system.open("toy"))


@pytest.mark.parametrize("name", SHAPES)
def test_every_placement_gives_the_same_and_leaves_nothing(name: str, expected: list[Answer]) -> None:
    system = make(name)
    baseline = system.census()
    sessions = [system.open("toy") for _ in range(3)]
    for session in sessions:
        assert talk(system, session) == expected
    for session in sessions:
        system.close(session)
    assert system.census() == baseline


@pytest.mark.parametrize("name", SHAPES)
def test_an_interrupt_reaches_every_worker_and_no_conductor_hears_of_tokens(name: str) -> None:
    system = make(name)
    baseline = system.census()
    session = system.open("toy")
    told = []
    for text in ("hello", "count"):
        before = system.conductor.counters["messages"]
        request = session.start("answer_speech", ask(text))
        request.credit("audio", 10**9)
        system.run()
        request.drain()
        told.append(system.conductor.counters["messages"] - before)
    assert told[0] == told[1]
    cut = session.start("answer_speech", ask("long"))
    cut.credit("audio", 10**9)
    system.run(lambda: bool(values(list(cut._events), "audio")))
    cut.interrupt()
    before = sum(worker.steps for worker in system.workers.values())
    system.run()
    assert sum(worker.steps for worker in system.workers.values()) - before <= 2 * len(system.workers)
    assert end_of(cut.drain()).status == "cancelled"
    system.close(session)
    assert system.census() == baseline


def test_one_rank_sends_nothing_between_workers() -> None:
    system = make("one rank")
    talk(system, system.open("toy"))
    assert list(system.workers) == ["worker.main"]
    assert ("worker.main", "worker.main") not in system.bus.sent_to
    counters = system.ask("counters", of="worker.main")
    assert (counters["firings_sent"], counters["images_given"], counters["inline_bytes"]) == (0, 0, 0)


def test_sessions_are_spread_over_replicas_and_stay_on_theirs() -> None:
    system = make("replicas")
    sessions = [system.open("toy", trace=True) for _ in range(4)]
    ran: list[set[tuple[str, str]]] = []
    for session in sessions:
        rows: list[tuple[Any, ...]] = []
        session.on_trace = lambda traced, rows=rows: rows.extend(traced.records)
        for _ in range(2):
            session.start("answer_speech", ask("hello")).credit("audio", 10**9)
            system.run()
        ran.append({(row[1], row[3]) for row in rows if row[3] in {"LM", "tone", "vocoder"}})
    assert all(len(each) == 3 for each in ran)
    for component in ("LM", "tone", "vocoder"):
        workers = [worker for each in ran for worker, name in each if name == component]
        assert len(set(workers)) == 2
        assert max(workers.count(worker) for worker in workers) == 2


def test_prefill_on_one_rank_and_decode_on_another_move_the_sequence_once_an_answer() -> None:
    system = make("prefill")
    session = system.open("toy")
    for turn in range(1, 4):
        session.start("answer_text", ask("hello there"))
        system.run()
        assert system.ask("counters", of="worker.prefill")["images_given"] == turn
    firings = system.ask("counters", of="worker.main")
    assert firings["firings_sent"] == 3 * 3  # prompt, prefill, and the first token where the sequence has to be awaited
    assert system.ask("counters", of="worker.prefill")["engine_prefilled_tokens"] > 0
    assert firings["engine_prefilled_tokens"] == 0


def test_who_works_for_a_sound_knows_how_far_it_is_ahead_of_its_listener() -> None:
    system = make("partitions")
    session = system.open("toy")
    request = session.start("answer_speech", ask("long"))
    system.run()
    [worker] = [worker for name, worker in system.workers.items() if name == "worker.language"]
    upstream = worker._sessions[session.id].requests[request.id]
    sounded = sum(len(chunk["pcm"]) for chunk in values(list(request._events), "audio"))
    assert upstream.begun
    assert 0 <= sounded - upstream.sounded < 0.1 * 24_000
    request.credit("audio", 0, played=24_000)
    system.run()
    assert upstream.played == 24_000
    told = system.bus.sent_to[("worker.sound", "worker.language")]
    request.credit("audio", 0, played=24_010)  # too little to be worth a message
    system.run()
    assert system.bus.sent_to[("worker.sound", "worker.language")] == told


def test_room_is_told_before_it_is_used_up_and_not_for_every_item() -> None:
    system = make("partitions")
    session = system.open("toy")
    request = session.start("answer_text", ask("long"))
    system.run()
    tokens = values(request.drain(), "usage")[-1]["generated"]
    items = system.bus.sent_to[("worker.language", "worker.writing")]
    rooms = system.bus.sent_to[("worker.writing", "worker.language")]
    assert items >= tokens  # one message a token, none of them by way of the conductor
    assert rooms <= tokens / 100


def test_a_hop_in_one_process_is_a_message_and_no_copy() -> None:
    system = make("loop")
    session = system.open("toy")
    request = session.start("roll", {"state": np.zeros(100_000)}, {"horizon": 2})
    system.run()
    assert end_of(request.drain()).status == "done"
    for name in system.workers:
        counters = system.ask("counters", of=name)
        assert (counters["inline_bytes"], counters["shared_bytes"]) == (0, 0)


def drawn(system: LocalSystem, session: Session, task: str, **settings: Any) -> list[Any]:
    request = session.start(task, {"prompt": "a small house"}, {"seed": 3, **settings})
    system.run()
    return answer_of(request.drain())["drawn"]


@pytest.mark.parametrize("name", SHAPES)
def test_branches_of_guidance_apart_draw_what_they_draw_as_labels_of_one_step(name: str) -> None:
    system = make(name)
    session = system.open("toy", trace=True)
    rows: list[tuple[Any, ...]] = []
    session.on_trace = lambda traced: rows.extend(traced.records)
    together = drawn(system, session, "draw_packed")
    assert drawn(system, session, "draw") == together
    assert drawn(system, session, "draw", strength=1.0) != together  # the branch without a prompt counts
    if name == "guidance":
        ran = {branch: {row[1] for row in rows if row[3] == branch} for branch in ("prompted", "free")}
        assert ran == {"prompted": {"worker.read", "worker.a"}, "free": {"worker.read", "worker.b"}}


def test_branches_apart_work_at_the_same_time_and_their_caches_move_once() -> None:
    system = make("guidance")
    session = system.open("toy")
    request = session.start("draw", {"prompt": "a small house"})
    steps: list[tuple[int, int]] = []
    while not request.ended:
        before = [system.workers[f"worker.{name}"].steps for name in "ab"]
        system.turn()
        after = [system.workers[f"worker.{name}"].steps for name in "ab"]
        steps.append((after[0] - before[0], after[1] - before[1]))
        request.drain()
    assert steps.count((1, 1)) == DRAWN_STEPS
    assert not {(0, 1), (1, 0)} & set(steps)
    assert system.ask("counters", of="worker.read")["images_given"] == 2
