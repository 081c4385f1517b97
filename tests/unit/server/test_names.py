"""A client names items as it likes: equal names of different things are told apart, or refused."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np

from tests.unit.server.driver import Driver

SOUND = base64.b64encode(np.zeros(4_800, dtype="<i2").tobytes()).decode()


def written(text: str, **more: Any) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}], **more}


def spoken(**more: Any) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": [{"type": "input_audio", "audio": SOUND}], **more}


def test_an_item_that_is_being_said_keeps_its_name() -> None:
    driver = Driver()
    driver.hear([0.9] * 5)
    name = driver.last("input_audio_buffer.speech_started")["item_id"]
    driver.client({"type": "conversation.item.create", "event_id": "mine", "item": written("hello", id=name)})
    assert driver.last("error")["error"] | {"message": ""} == {
        "type": "invalid_request_error",
        "code": "item_already_exists",
        "message": "",
        "param": "item.id",
        "event_id": "mine",
    }
    driver.hear([0.01] * 20)
    assert driver.last("input_audio_buffer.committed")["item_id"] == name
    assert driver.last("response.created")


def test_sounds_of_one_name_beside_the_conversation_are_each_written_down() -> None:
    driver = Driver()
    items = [spoken(id="same"), spoken(id="same"), written("hello")]
    driver.client({"type": "response.create", "response": {"input": items, "output_modalities": ["text"]}})
    heard = [task for task in driver.tasks.values() if task.task == "transcribe"]
    assert len(heard) == 2
    for number, task in enumerate(heard):
        driver.emit(task.key, "transcript", {"text": f"word {number}", "segments": []})
        driver.done(task.key)
    history: Any = driver.task("answer_text").inputs["history"]
    assert [message["content"] for message in history] == ["word 0", "word 1", "hello"]


def test_a_sound_beside_the_conversation_may_have_the_name_of_one_in_it() -> None:
    driver = Driver()
    driver.client({"type": "conversation.item.create", "item": spoken(id="same")})
    items = [{"type": "item_reference", "id": "same"}, spoken(id="same"), written("hello")]
    driver.client({"type": "response.create", "response": {"input": items, "output_modalities": ["text"]}})
    for task in [task for task in driver.tasks.values() if task.task == "transcribe"]:
        driver.emit(task.key, "transcript", {"text": f"word {task.key}", "segments": []})
        driver.done(task.key)
    history: Any = driver.task("answer_text").inputs["history"]
    assert len({message["content"] for message in history}) == 3


def test_an_item_in_the_place_of_one_that_prompts_leave_out_is_not_left_out() -> None:
    driver = Driver()
    driver.client({"type": "session.update", "session": {"type": "realtime", "output_modalities": ["text"]}})
    for name in ("old", "new"):
        driver.client({"type": "conversation.item.create", "item": written(name + " word" * 4_000, id=name)})
    driver.client({"type": "response.create"})
    history: Any = driver.task("answer_text").inputs["history"]
    assert [message["content"][:3] for message in history] == ["new"]
    driver.done(driver.task("answer_text").key)
    for name in ("old", "new"):
        driver.client({"type": "conversation.item.delete", "item_id": name})
    driver.client({"type": "conversation.item.create", "item": written("short", id="old")})
    driver.client({"type": "response.create"})
    history = driver.task("answer_text").inputs["history"]
    assert [message["content"] for message in history] == ["short"]
