"""The recorded flows of the Realtime API, replayed against the session core: the same events, order and fields."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from openai.types.realtime import RealtimeServerEvent
from pydantic import TypeAdapter

from tests.unit.server.driver import Driver

DATA = Path(__file__).parents[2] / "data" / "realtime"
STRICT: TypeAdapter[Any] = TypeAdapter(RealtimeServerEvent)
TRANSCRIPTION = "conversation.item.input_audio_transcription."


def golden(name: str) -> list[dict[str, Any]]:
    lines = (DATA / f"{name}.jsonl").read_text().splitlines()
    return [event for line in lines if ">" not in (event := json.loads(line))]


def fields(value: Any, path: str = "") -> set[str]:
    """Names of all fields that are there, list items as one."""
    if isinstance(value, dict):
        return {path}.union(*(fields(inner, f"{path}.{name}") for name, inner in value.items()))
    if isinstance(value, list):
        return {path}.union(*(fields(inner, f"{path}[]") for inner in value))
    return {path}


def same(wire: list[dict[str, Any]], recorded: list[dict[str, Any]]) -> None:
    """Types in order; runs of deltas count as one; every recorded field is there, and no other."""

    def folded(events: list[dict[str, Any]]) -> list[str]:
        out: list[str] = []
        for event in events:
            kind = event["type"]
            if kind.startswith(TRANSCRIPTION):
                continue  # they may come anywhere
            if kind.endswith(".delta") and any(kind == seen for seen in out[-2:]):
                continue
            out.append(kind)
        return out

    assert folded(wire) == folded(recorded)
    assert [e["type"] for e in wire if e["type"].startswith(TRANSCRIPTION)] == [
        e["type"] for e in recorded if e["type"].startswith(TRANSCRIPTION)
    ]
    wanted: dict[str, list[set[str]]] = {}
    for event in recorded:
        wanted.setdefault(event["type"], []).append(fields(event))
    for event in wire:
        if event["type"] != "session.updated":
            assert fields(event) in wanted[event["type"]], event["type"]
        assert STRICT.validate_python(event, strict=True).type == event["type"]
    ids = [event["event_id"] for event in wire]
    assert len(ids) == len(set(ids))


def answer(driver: Driver) -> int:
    key = driver.task("answer_audio_speech").key
    driver.text(key, "Hello ")
    driver.sound(key, 0.05)
    driver.text(key, "there.")
    driver.sound(key, 0.05)
    return key


def finish(driver: Driver, key: int) -> None:
    driver.emit(key, "usage", {"prompt": 20, "reused": 0, "generated": 10, "reason": "stop"})
    driver.done(key)


def test_audio_turn_with_server_vad() -> None:
    driver = Driver()
    session = {"type": "realtime", "audio": {"input": {"transcription": {"model": "whisper-1"}}}}
    driver.client({"type": "session.update", "session": session})
    driver.say()
    key = driver.task("answer_audio_speech").key
    driver.emit(key, "transcript", {"text": "hi", "segments": []})
    finish(driver, answer(driver))
    same(driver.wire, golden("a"))
    order = driver.types()
    assert order.index("conversation.item.added") < order.index(f"{TRANSCRIPTION}completed")


def test_text_turn() -> None:
    driver = Driver()
    driver.client({"type": "session.update", "session": {"type": "realtime", "output_modalities": ["text"]}})
    said = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}
    driver.client({"type": "conversation.item.create", "item": said})
    driver.client({"type": "response.create", "response": {"metadata": {"client_event_id": "x"}}})
    task = driver.task("answer_text")
    assert task.inputs["history"] == [{"role": "user", "content": "hi"}]
    driver.text(task.key, "Hel", "lo")
    finish(driver, task.key)
    same(driver.wire, golden("b"))
    assert driver.last("response.done")["response"]["metadata"] == {"client_event_id": "x"}


def test_manual_commit() -> None:
    driver = Driver()
    session = {"type": "realtime", "audio": {"input": {"turn_detection": None}}}
    driver.client({"type": "session.update", "session": session})
    driver.client({"type": "input_audio_buffer.clear"})
    driver.hear([0.9] * 20)
    driver.client({"type": "input_audio_buffer.commit"})
    driver.client({"type": "response.create"})
    finish(driver, answer(driver))
    same(driver.wire, golden("c"))


def test_barge_in() -> None:
    driver = Driver()
    driver.say()
    key = answer(driver)
    interruption = len(driver.commands)
    driver.hear([0.9] * 5)
    assert key not in driver.tasks
    names = [type(command).__name__ for command in driver.commands[interruption:]]
    assert names.index("Send") < names.index("InterruptTask")  # speech_started before anything is torn down
    item = driver.last("response.output_item.added")["item"]["id"]
    driver.client({"type": "conversation.item.truncate", "item_id": item, "content_index": 0, "audio_end_ms": 50})
    driver.client({"type": "conversation.item.retrieve", "item_id": item})
    driver.hear([0.9] * 20 + [0.01] * 17)
    upto = driver.types().index("input_audio_buffer.committed", driver.types().index("conversation.item.retrieved"))
    [part] = driver.last("conversation.item.retrieved")["item"]["content"]
    assert part.pop("audio")  # the recorded server kept none
    same(driver.wire[: upto + 1], golden("d"))
    assert driver.last("conversation.item.retrieved")["item"]["content"][0]["transcript"] == ""


def test_errors_have_the_recorded_codes_and_words() -> None:
    driver = Driver()
    wanted = {event["error"]["code"]: event for event in golden("f") if event["type"] == "error"}
    driver.client({"type": "response.create"})
    driver.client({"type": "response.create", "event_id": "ce_1"})
    driver.client({"type": "input_audio_buffer.commit", "event_id": "ce_2"})
    driver.client({"type": "response.cancel"})
    driver.client({"type": "response.cancel"})
    errors = {event["error"]["code"]: event for event in driver.wire if event["type"] == "error"}
    assert set(errors) == set(wanted)
    for code, event in errors.items():
        given = event["error"]
        recorded = wanted[code]["error"]
        assert given["message"].split(":")[0] == recorded["message"].split(":")[0]
        assert {name: given[name] for name in ("type", "param", "event_id")} == {
            name: recorded[name] for name in ("type", "param", "event_id")
        }
        STRICT.validate_python(event, strict=True)


@pytest.mark.parametrize(
    ("status", "reason", "wanted"),
    [("failed", "stop", "failed"), ("done", "length", "incomplete")],
)
def test_ends_other_than_completed(status: str, reason: str, wanted: str) -> None:
    driver = Driver()
    driver.client({"type": "response.create"})
    key = driver.task("answer").key
    driver.emit(key, "usage", {"prompt": 20, "reused": 0, "generated": 10, "reason": reason})
    driver.done(key, status, code="engine_error" if status == "failed" else "", cause="boom")
    event = driver.last("response.done")
    recorded = next(e for e in golden("f") if e.get("response", {}).get("status") == wanted)
    assert event["response"]["status"] == wanted
    assert event["response"]["status_details"] == recorded["response"]["status_details"] | (
        {} if wanted == "incomplete" else {"error": {"type": "server_error", "code": "engine_error", "message": "boom"}}
    )
    assert fields(event) == fields(recorded)
    STRICT.validate_python(event, strict=True)
