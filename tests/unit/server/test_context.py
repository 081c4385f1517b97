"""Long conversations go on: the prompt stays within the model's context as `truncation` says."""

from __future__ import annotations

from typing import Any

import pytest

from server.session.log import Entry
from server.session.responder import MOST_APART
from tests.unit.server.driver import OFFER, Driver


def turn(driver: Driver, number: int) -> list[str]:
    """One turn in text → contents of the prompt."""
    content = [{"type": "input_text", "text": f"question {number} " + "word " * 30}]
    driver.client({"type": "conversation.item.create", "item": {"type": "message", "role": "user", "content": content}})
    driver.client({"type": "response.create"})
    task = driver.running("answer_text")
    if task is None:
        return []
    history: Any = task.inputs["history"]
    chars = sum(len(each["content"]) for each in history)
    driver.text(task.key, f"answer {number} " + "word " * 30)
    driver.emit(task.key, "usage", {"prompt": chars // 4, "reused": 0, "generated": 35, "reason": "stop"})
    driver.done(task.key)
    return [each["content"] for each in history]


def text_session(truncation: Any) -> Driver:
    driver = Driver()
    session = {"type": "realtime", "output_modalities": ["text"], "truncation": truncation, "instructions": "Be kind."}
    driver.client({"type": "session.update", "session": session})
    return driver


@pytest.mark.parametrize("truncation", ["auto", {"type": "retention_ratio", "retention_ratio": 0.5}])
def test_sixty_turns_go_on(truncation: Any) -> None:
    driver = text_session(truncation)
    prompts = [turn(driver, number) for number in range(60)]
    assert driver.types().count("response.done") == 60
    assert all(prompt[0] == "Be kind." for prompt in prompts)
    assert all(prompt[-1].startswith(f"question {number} ") for number, prompt in enumerate(prompts))
    assert all(sum(map(len, prompt)) / 4 < OFFER.context for prompt in prompts)
    kept = [len(prompt) for prompt in prompts]
    assert max(kept) > 12
    cuts = [number for number in range(1, 60) if kept[number] < kept[number - 1]]
    assert 2 <= len(cuts) <= 20  # seldom, so that the cached prefix mostly holds
    shrunk = min(kept[cut] / kept[cut - 1] for cut in cuts)
    assert shrunk == pytest.approx(0.8 if truncation == "auto" else 0.5, abs=0.15)


def test_disabled_truncation_fails_loudly() -> None:
    driver = text_session("disabled")
    for number in range(60):
        turn(driver, number)
    done = driver.last("response.done")["response"]
    assert done["status"] == "failed"
    assert done["status_details"]["error"]["code"] == "context_length_exceeded"


def test_a_prompt_that_the_model_refuses_is_shortened() -> None:
    driver = text_session("auto")
    for number in range(4):
        turn(driver, number)
    content = [{"type": "input_text", "text": "last"}]
    driver.client({"type": "conversation.item.create", "item": {"type": "message", "role": "user", "content": content}})
    driver.client({"type": "response.create"})
    first = driver.task("answer_text")
    driver.done(first.key, "failed", code="context_length_exceeded", cause="too long")
    second = driver.task("answer_text")
    longer: Any = first.inputs["history"]
    shorter: Any = second.inputs["history"]
    assert len(shorter) < len(longer)
    assert shorter[-1] == longer[-1]
    driver.text(second.key, "ok")
    driver.done(second.key)
    assert driver.last("response.done")["response"]["status"] == "completed"


def test_calls_without_output_do_not_poison_the_prompt() -> None:
    driver = text_session("auto")
    driver.client({"type": "response.create"})
    key = driver.task("answer").key
    driver.emit(key, "call", {"name": "f", "arguments": "{}"})
    driver.done(key)
    call = driver.last("response.done")["response"]["output"][0]
    prompt = turn(driver, 1)
    assert len(prompt) == 2
    output = {"type": "function_call_output", "call_id": call["call_id"], "output": "sunny"}
    driver.client({"type": "conversation.item.create", "item": output})
    driver.client({"type": "response.create"})
    history: Any = driver.task("answer").inputs["history"]
    assert [each["role"] for each in history] == ["system", "user", "assistant", "assistant", "tool"]
    assert history[3]["tool_calls"] == [{"name": "f", "arguments": "{}"}]


def told(driver: Driver, count: int, text: str) -> None:
    for number in range(count):
        content = [{"type": "input_text", "text": text}]
        item = {"type": "message", "id": f"i{number}", "role": "user", "content": content}
        driver.client({"type": "conversation.item.create", "item": item})


def test_work_on_a_prompt_grows_with_the_conversation_and_no_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = text_session("auto")
    looks = 0

    class Looked(Entry):
        @property
        def text(self) -> str:
            nonlocal looks
            looks += 1
            return super().text

    monkeypatch.setattr("server.session.items.Entry", Looked)
    told(driver, 3_000, "word " * 10)
    driver.client({"type": "response.create"})
    assert driver.running("answer_text") is not None
    assert 3_000 <= looks < 4 * 3_000


@pytest.mark.parametrize("truncation", ["auto", "disabled"])
def test_a_prompt_without_hope_is_not_given_to_the_model(truncation: str) -> None:
    driver = text_session(truncation)
    told(driver, 1, "word " * 100 * OFFER.context)
    driver.client({"type": "response.create"})
    assert driver.running("answer_text") is None
    ended = driver.last("response.done")["response"]
    assert (ended["status"], ended["status_details"]["error"]["code"]) == ("failed", "context_length_exceeded")
    told_next = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "and this"}]}
    driver.client({"type": "conversation.item.delete", "item_id": "i0"})
    driver.client({"type": "conversation.item.create", "item": told_next})
    driver.client({"type": "response.create"})
    assert driver.running("answer_text") is not None


def asked(driver: Driver, **response: Any) -> list[str]:
    """Contents of the prompt of a response, which is answered; none if it was refused."""
    driver.client({"type": "response.create", "response": response})
    task = driver.running("answer_text")
    if task is None:
        assert driver.last("response.done")["response"]["status"] == "failed"
        return []
    history: Any = task.inputs["history"]
    driver.text(task.key, "ok")
    driver.done(task.key)
    return [each["content"] for each in history]


TOO_MUCH, FAR_TOO_MUCH = "word " * OFFER.context, "word " * 100 * OFFER.context
PROMPTS: dict[str, dict[str, Any]] = {
    "hopeless instructions": {"instructions": FAR_TOO_MUCH},
    "hopeless instructions beside the conversation": {"instructions": FAR_TOO_MUCH, "conversation": "none"},
    "instructions beside the conversation": {"instructions": TOO_MUCH, "conversation": "none"},
    "input of its own": {
        "input": [
            {"type": "item_reference", "id": "i0"},
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": TOO_MUCH}]},
        ]
    },
}


@pytest.mark.parametrize("response", PROMPTS.values(), ids=PROMPTS.keys())
def test_the_conversation_keeps_what_a_prompt_beside_it_has_no_room_for(response: dict[str, Any]) -> None:
    driver = text_session("auto")
    told(driver, 3, "said before")
    refused = FAR_TOO_MUCH in response.values()
    assert bool(asked(driver, **response)) != refused
    assert asked(driver)[:4] == ["Be kind.", *["said before"] * 3]


def test_an_input_of_its_own_may_name_what_is_left_out_of_the_conversation() -> None:
    driver = text_session("auto")
    told(driver, 1, "said first")
    content = [{"type": "input_text", "text": TOO_MUCH}]
    driver.client({"type": "conversation.item.create", "item": {"type": "message", "role": "user", "content": content}})
    assert asked(driver) == ["Be kind.", TOO_MUCH]
    assert asked(driver, input=[{"type": "item_reference", "id": "i0"}]) == ["Be kind.", "said first"]
    assert "said first" not in asked(driver)


def test_responses_beside_the_conversation_are_bounded() -> None:
    driver = text_session("auto")
    for _ in range(MOST_APART + 1):
        driver.client({"type": "response.create", "event_id": "e", "response": {"conversation": "none"}})
    assert driver.types().count("response.created") == MOST_APART
    assert driver.last("error")["error"]["code"] == "too_many_responses"
    driver.done(driver.task("answer_text").key)
    driver.client({"type": "response.create", "response": {"conversation": "none"}})
    driver.client({"type": "response.create"})
    assert driver.types().count("response.created") == MOST_APART + 2
