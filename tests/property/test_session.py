"""Whatever clients say, families emit and time does: the session core keeps its promises."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from openai.types.realtime import RealtimeServerEvent
from pydantic import TypeAdapter

from mstar.client import Slice
from server.session.commands import StartTask
from server.session.options import Options
from tests.unit.server.driver import Driver

STRICT: TypeAdapter[Any] = TypeAdapter(RealtimeServerEvent)

ITEMS = st.sampled_from(["item_1", "item_2", "item_3", "mine", "nobody"])
EVENTS = st.one_of(
    st.just({"type": "response.create"}),
    st.builds(
        lambda conversation, modality: {
            "type": "response.create",
            "response": {"conversation": conversation, "output_modalities": [modality], "metadata": {"a": "b"}},
        },
        st.sampled_from(["auto", "none"]),
        st.sampled_from(["audio", "text"]),
    ),
    st.just({"type": "response.cancel"}),
    st.just({"type": "input_audio_buffer.commit"}),
    st.just({"type": "input_audio_buffer.clear"}),
    st.just({"type": "output_audio_buffer.clear"}),
    st.builds(
        lambda role, text, after: {
            "type": "conversation.item.create",
            "previous_item_id": after,
            "item": {"type": "message", "role": role, "content": [{"type": "input_text", "text": text}]},
        },
        st.sampled_from(["user", "system"]),
        st.text(max_size=5),
        st.none() | st.just("root") | ITEMS,
    ),
    st.builds(lambda item: {"type": "conversation.item.retrieve", "item_id": item}, ITEMS),
    st.builds(lambda item: {"type": "conversation.item.delete", "item_id": item}, ITEMS),
    st.builds(
        lambda item, ms: {"type": "conversation.item.truncate", "item_id": item, "audio_end_ms": ms},
        ITEMS,
        st.integers(-10, 5000) | st.floats(0, 100),
    ),
    st.builds(
        lambda detection: {
            "type": "session.update",
            "session": {"type": "realtime", "audio": {"input": {"turn_detection": detection}}},
        },
        st.none()
        | st.just({"type": "server_vad", "create_response": False})
        | st.just({"type": "server_vad", "interrupt_response": False, "prepare": False})
        | st.just({"type": "server_vad", "silence_duration_ms": 0, "idle_timeout_ms": 1000})
        | st.just({"type": "semantic_vad"}),
    ),
    st.just({"type": "session.update", "session": {"type": "realtime", "instructions": "Be brief."}}),
    st.sampled_from(
        [
            {"type": "session.update", "session": {"type": "realtime", "audio": {"input": {"transcription": {}}}}},
            {"type": "session.update", "session": {"type": "nothing"}},
            {"type": "what"},
            {"no": "type"},
            [],
            1,
        ]
    ),
)

STEPS = st.one_of(
    st.tuples(st.just("client"), EVENTS),
    st.tuples(st.just("frame"), st.binary(max_size=20)),
    st.tuples(st.just("hear"), st.lists(st.sampled_from([0.02, 0.9]), min_size=1, max_size=4)),
    st.tuples(st.just("append"), st.lists(st.sampled_from([0.02, 0.9]), min_size=1, max_size=40)),
    st.tuples(st.just("listen"), st.integers(1, 60)),
    st.tuples(st.just("emit"), st.sampled_from(["text", "audio", "alignment", "transcript", "usage", "call"])),
    st.tuples(st.just("end"), st.sampled_from(["done", "failed"])),
    st.tuples(st.just("wait"), st.floats(0.01, 3)),
    st.tuples(st.just("congested"), st.booleans()),
    st.tuples(st.just("played"), st.integers(0, 60_000)),
)
VALUES: dict[str, Any] = {
    "text": {"text": "word ", "at": 0},
    "audio": {"pcm": np.full(9000, 0.1, dtype=np.float32), "start": 0},
    "alignment": {"words": [[0, 5, 0, 9000]]},
    "transcript": {"text": "said", "segments": []},
    "usage": {"prompt": 9, "reused": 1, "generated": 4, "reason": "stop"},
    "call": {"name": "f", "arguments": "{}"},
}


def play(driver: Driver, steps: list[tuple[str, Any]]) -> None:
    for kind, what in steps:
        newest = next((t for t in reversed(driver.tasks.values()) if t.task != "listen"), None)
        match kind:
            case "client" | "frame":
                driver.client(what)
            case "hear":
                driver.hear(list(what) * 3)
            case "append":
                driver.append(np.repeat(what, 6))
            case "listen":
                driver.listen(what)
            case "wait":
                driver.wait(what)
            case "congested":
                driver.run(driver.core.congested(what, driver.now))
            case "played":
                driver.run(driver.core.played("resp_1", what, driver.now))
            case "emit" if newest is not None:
                emit(driver, newest, what)
            case "end" if newest is not None:
                driver.done(newest.key, what)


def emit(driver: Driver, task: StartTask, what: str) -> None:
    if task.task == "judge":
        driver.emit(task.key, "complete", 0.7)
    elif task.task == "transcribe":
        driver.emit(task.key, "transcript", VALUES["transcript"])
    elif what != "transcript" or "audio" in task.task.split("_")[1]:
        driver.emit(task.key, what, VALUES[what])


def settle(driver: Driver) -> None:
    """Let everything that has begun come to its end."""
    driver.client(
        {"type": "session.update", "session": {"type": "realtime", "audio": {"input": {"turn_detection": None}}}}
    )
    driver.run(driver.core.congested(False, driver.now))
    for _ in range(50):
        for key in [key for key, task in driver.tasks.items() if task.task != "listen"]:
            if key in driver.tasks:
                driver.done(key)
        for response in [e["response"]["id"] for e in driver.wire if e["type"] == "response.created"]:
            driver.run(driver.core.played(response, 10**9, driver.now))
        driver.wait(1.0)
        if not driver.tasks:
            return


def check(driver: Driver) -> None:
    for command in driver.commands:
        if isinstance(command, StartTask):
            audio = command.inputs.get("audio")
            assert not isinstance(audio, Slice) or 0 <= audio.start < audio.stop
    ids = [event["event_id"] for event in driver.wire]
    assert len(ids) == len(set(ids))
    created: set[str] = set()
    done: set[str] = set()
    opened: dict[tuple[str, str], int] = {}
    for event in driver.wire:
        STRICT.validate_python(event, strict=True)
        kind = event["type"]
        response: str = event.get("response_id") or (event.get("response") or {}).get("id") or ""
        if kind == "response.created":
            assert response not in created
            created.add(response)
        elif response and not kind.startswith("output_audio_buffer"):
            assert response in created - done, f"{kind} outside of its response"
        for word in ("response.output_item", "response.content_part"):
            if kind.startswith(word):
                name = (word, event.get("item_id") or event["item"]["id"])
                opened[name] = opened.get(name, 0) + (1 if kind.endswith("added") else -1)
                assert opened[name] in (0, 1)
        if kind.startswith(("response.output_audio.", "response.output_text.")):
            assert opened["response.content_part", event["item_id"]] == 1
        if kind == "response.done":
            done.add(response)
            assert event["response"]["usage"] is not None
    assert created == done
    assert not any(opened.values())
    added = [e["item"]["id"] for e in driver.wire if e["type"] == "conversation.item.added"]
    finished = [e["item"]["id"] for e in driver.wire if e["type"] == "conversation.item.done"]
    assert len(added) == len(set(added))
    assert sorted(added) == sorted(finished)


@settings(max_examples=150, deadline=None)
@given(st.lists(STEPS, max_size=40), st.booleans())
def test_promises(steps: list[tuple[str, Any]], counted: bool) -> None:
    driver = Driver(Options(counted=counted))
    play(driver, steps)
    settle(driver)
    check(driver)
    assert not driver.tasks
    assert driver.core.running == 0


CONVERSATION: list[tuple[str, Any]] = [
    ("hear", [0.9] * 4),
    ("hear", [0.02] * 6),
    ("emit", "transcript"),
    ("emit", "text"),
    ("emit", "alignment"),
    ("emit", "audio"),
    ("emit", "call"),
    ("emit", "usage"),
    ("end", "done"),
    ("wait", 3.0),
]


@settings(max_examples=40, deadline=None)
@given(st.integers(0, len(CONVERSATION)), st.sampled_from(["cancel", "speech", "clear", "delete"]), st.booleans())
def test_an_interruption_at_every_boundary(at: int, how: str, counted: bool) -> None:
    driver = Driver(Options(counted=counted))
    play(driver, CONVERSATION[:at])
    match how:
        case "cancel":
            driver.client({"type": "response.cancel"})
        case "speech":
            driver.hear([0.9] * 5)
        case "clear":
            driver.client({"type": "input_audio_buffer.clear"})
        case "delete":
            for item in ("item_1", "item_2"):
                driver.client({"type": "conversation.item.delete", "item_id": item})
    play(driver, CONVERSATION[at:])
    settle(driver)
    check(driver)
    assert driver.core.running == 0
