"""What is wrong with a frame, and `session.update` as a deep merge that is checked whole."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from mstar.errors import Rejected
from server.events.client import InputAudioBufferAppend, SessionUpdate
from server.events.decode import MOST_LEVELS, BadEvent, decode, settings_in
from server.events.session import MOST_WRITTEN, SemanticVad, ServerVad, Session, SessionPatch, updated
from tests.unit.server.driver import Driver

SESSION = Session("realtime", "realtime.session", "sess_1", "demo", 1_900_000_000)


def patch(**given: Any) -> SessionPatch:
    return msgspec.convert({"type": "realtime", **given}, SessionPatch)


@pytest.mark.parametrize(
    ("frame", "code", "param"),
    [
        ("", "invalid_json", None),
        ("{", "invalid_json", None),
        ("[" * 10_000, "invalid_json", None),
        ('{"type": "session.update", "session": ' + "[" * 10_000, "invalid_json", None),
        ("\ud800", "invalid_json", None),
        ("3", "invalid_type", None),
        ("[]", "invalid_type", None),
        ('{"event_id": "e"}', "missing_required_parameter", "type"),
        ('{"type": 3, "event_id": "e"}', "invalid_value", "type"),
        ('{"type": "no.such", "event_id": "e"}', "invalid_value", "type"),
        ('{"type": "input_audio_buffer.append", "event_id": "e"}', "missing_required_parameter", "audio"),
        ('{"type": "input_audio_buffer.append", "audio": 3, "event_id": "e"}', "invalid_type", "audio"),
        ('{"type": "input_audio_buffer.append", "audio": "*", "event_id": "e"}', "invalid_value", "audio"),
        ('{"type": "response.cancel", "extra": 1, "event_id": "e"}', "unknown_parameter", "extra"),
        (
            '{"type": "session.update", "session": {"type": "realtime", "audio": {"output": {"speed": 9}}}}',
            "invalid_value",
            "session.audio.output.speed",
        ),
        (
            '{"type": "session.update", "session": {"type": "realtime", "audio": {"in": {}}}}',
            "unknown_parameter",
            "session.audio.in",
        ),
        (
            '{"type": "session.update", "session": {"type": "realtime", "output_modalities": ["audio", "text"]}}',
            "invalid_value",
            "session.output_modalities",
        ),
        (
            '{"type": "conversation.item.truncate", "item_id": "a", "audio_end_ms": -1}',
            "invalid_value",
            "audio_end_ms",
        ),
        ('{"type": "conversation.item.truncate", "item_id": "a", "audio_end_ms": NaN}', "invalid_json", None),
    ],
)
def test_bad_frames(frame: str, code: str, param: str | None) -> None:
    with pytest.raises(BadEvent) as caught:
        decode(frame)
    assert (caught.value.code, caught.value.param) == (code, param)
    assert caught.value.event_id == ("e" if '"e"' in frame else None)


def test_sound_is_decoded_from_base64() -> None:
    event = decode('{"type": "input_audio_buffer.append", "audio": "AAEC"}')
    assert isinstance(event, InputAudioBufferAppend)
    assert event.audio == b"\x00\x01\x02"


def test_what_real_clients_send_first_is_taken() -> None:
    first = {
        "type": "session.update",
        "session": {
            "type": "realtime",
            "model": "gpt-realtime",
            "instructions": "You are kind.",
            "output_modalities": ["audio"],
            "audio": {
                "input": {
                    "format": {"type": "audio/pcm", "rate": 24000},
                    "noise_reduction": None,
                    "transcription": {"model": "gpt-4o-mini-transcribe"},
                    "turn_detection": {"type": "semantic_vad"},
                },
                "output": {"format": {"type": "audio/pcm", "rate": 24000}, "voice": "ash", "speed": 1},
            },
            "tools": [],
            "tool_choice": "auto",
            "tracing": "auto",
        },
    }
    event = decode(json.dumps(first))
    assert isinstance(event, SessionUpdate)
    session = updated(SESSION, event.session)
    assert session.model == "demo"
    assert session.audio.input.turn_detection == SemanticVad()
    assert session.tracing == "auto"


def test_absent_fields_are_unchanged_and_null_clears() -> None:
    session = updated(SESSION, patch(audio={"input": {"turn_detection": {"type": "server_vad", "threshold": 0.7}}}))
    assert session.audio.input.turn_detection == ServerVad(threshold=0.7)
    session = updated(session, patch(audio={"input": {"turn_detection": {"silence_duration_ms": 300}}}))
    assert session.audio.input.turn_detection == ServerVad(threshold=0.7, silence_duration_ms=300)
    session = updated(session, patch(audio={"input": {"transcription": {"model": "m", "language": "en"}}}))
    session = updated(session, patch(audio={"input": {"transcription": {"language": "de"}}}))
    assert session.audio.input.transcription is not None
    assert (session.audio.input.transcription.model, session.audio.input.transcription.language) == ("m", "de")
    session = updated(session, patch(audio={"input": {"turn_detection": None, "transcription": None}}))
    assert session.audio.input.turn_detection is None
    assert session.audio.input.transcription is None
    session = updated(session, patch(instructions="x", tools=[{"type": "function", "name": "f"}]))
    assert len(session.tools) == 1
    session = updated(session, patch(instructions="", tools=[]))
    assert (session.instructions, session.tools) == ("", ())


@pytest.mark.parametrize(
    ("given", "param"),
    [
        ({"input": {"format": {"type": "audio/pcm", "rate": 16000}}}, "session.audio.input.format.rate"),
        ({"output": {"format": {"type": "audio/pcmu", "rate": 24000}}}, "session.audio.output.format.rate"),
        (
            {"input": {"turn_detection": {"type": "semantic_vad", "threshold": 0.5}}},
            "session.audio.input.turn_detection.threshold",
        ),
    ],
)
def test_refused_updates_name_the_field_and_change_nothing(given: Any, param: str) -> None:
    driver = Driver()
    before = driver.core.session
    session = {"type": "realtime", "instructions": "new", "audio": given}
    driver.client({"type": "session.update", "event_id": "mine", "session": session})
    error = driver.wire[-1]["error"]
    assert (error["param"], error["event_id"]) == (param, "mine")
    assert driver.core.session == before


def test_the_voice_is_fixed_once_it_was_heard() -> None:
    other = patch(audio={"output": {"voice": "other"}})
    assert updated(SESSION, other).audio.output.voice == "other"
    with pytest.raises(Rejected, match="voice") as caught:
        updated(SESSION, other, spoken=True)
    assert caught.value.code == "cannot_update_voice"
    same = patch(audio={"output": {"voice": SESSION.audio.output.voice}})
    assert updated(SESSION, same, spoken=True) == SESSION


def test_the_input_format_is_fixed_while_sound_waits() -> None:
    with pytest.raises(Rejected, match="commit or clear"):
        updated(SESSION, patch(audio={"input": {"format": {"type": "audio/pcma"}}}), buffered=True)


def test_items_are_checked() -> None:
    driver = Driver()
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"type": "message", "role": "user"}, "missing_required_parameter"),
        (
            {"type": "message", "role": "user", "content": [{"type": "output_text", "text": ""}]},
            "unsupported_content_type",
        ),
        ({"type": "message", "role": "user", "content": [{"type": "input_text"}]}, "missing_required_parameter"),
        ({"type": "function_call_output", "call_id": "unknown", "output": ""}, "invalid_tool_call_id"),
        ({"type": "function_call", "name": "f"}, "missing_required_parameter"),
        ({"type": "strange"}, "invalid_value"),
    ]
    for item, code in wrong:
        driver.client({"type": "conversation.item.create", "item": item})
        assert driver.wire[-1]["error"]["code"] == code


def test_clients_order_and_name_items() -> None:
    driver = Driver()

    def create(item_id: str, after: str | None = None) -> dict[str, Any]:
        item = {"id": item_id, "type": "message", "role": "user", "content": [{"type": "input_text", "text": item_id}]}
        driver.client({"type": "conversation.item.create", "previous_item_id": after, "item": item})
        return driver.wire[-1]

    assert create("b")["previous_item_id"] is None
    assert create("d")["previous_item_id"] == "b"
    assert create("c", "b")["previous_item_id"] == "b"
    assert create("a", "root")["previous_item_id"] is None
    assert create("a")["error"]["code"] == "item_already_exists"
    assert create("e", "nobody")["error"]["param"] == "previous_item_id"
    driver.client({"type": "conversation.item.delete", "item_id": "c"})
    driver.client({"type": "response.create"})
    history: Any = driver.task("answer").inputs["history"]
    assert [each["content"] for each in history] == ["a", "b", "d"]


def test_a_response_beside_the_conversation_leaves_no_trace_in_it() -> None:
    driver = Driver()
    driver.client({"type": "response.create"})
    active = driver.task("answer").key
    given = [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "apart"}]}]
    params = {"conversation": "none", "input": given, "output_modalities": ["text"]}
    driver.client({"type": "response.create", "response": params})
    apart = driver.task("answer_text")
    history: Any = apart.inputs["history"]
    assert [each["content"] for each in history] == ["apart"]
    driver.text(apart.key, "aside")
    driver.done(apart.key)
    done = driver.last("response.done")["response"]
    assert (done["status"], done["conversation_id"]) == ("completed", None)
    assert "conversation.item.added" not in driver.types()
    assert active in driver.tasks


def nested(levels: int) -> str:
    return "[" * levels + "]" * levels


TOOL = '{"name": "f", "parameters": {"a": %s}}'


@pytest.mark.parametrize("levels", [MOST_LEVELS, 300, 600])
@pytest.mark.parametrize(
    "event",
    [
        '{"type": "session.update", "event_id": "e", "session": {"type": "realtime", "prompt": %s}}',
        '{"type": "session.update", "event_id": "e", "session": {"type": "realtime", "tools": [' + TOOL + "]}}",
        '{"type": "response.create", "event_id": "e", "response": {"reasoning": %s}}',
    ],
)
def test_what_may_be_anything_is_no_deeper_than_can_be_shown(event: str, levels: int) -> None:
    with pytest.raises(BadEvent) as bad:
        decode(event % nested(levels))
    assert (bad.value.code, bad.value.event_id) == ("invalid_value", "e")
    assert decode(event % nested(MOST_LEVELS // 2))


@pytest.mark.parametrize("levels", [MOST_LEVELS, 980, 100_000])
def test_settings_of_a_request_are_no_deeper_either(levels: int) -> None:
    with pytest.raises(Rejected):
        settings_in(f'{{"type": "realtime", "prompt": {nested(levels)}}}', SessionPatch, "session")


LONG = "a" * (MOST_WRITTEN + 1)


@pytest.mark.parametrize(
    "event",
    [
        {"type": "session.update", "session": {"type": "realtime", "instructions": LONG}},
        {
            "type": "conversation.item.create",
            "item": {"type": "message", "role": "user", "content": [{"type": "input_text", "text": LONG}]},
        },
        {"type": "conversation.item.retrieve", "item_id": LONG},
    ],
)
def test_text_is_bounded(event: dict[str, Any]) -> None:
    with pytest.raises(BadEvent) as bad:
        decode(json.dumps({**event, "event_id": "e"}))
    assert (bad.value.code, bad.value.event_id) == ("event_too_long", "e")


@pytest.mark.parametrize("sign", ["a", "é", "€", "🙂"])
def test_bounds_are_in_bytes_however_a_frame_comes(sign: str) -> None:
    head, tail = '{"type": "conversation.item.retrieve", "item_id": "', '"}'
    room = MOST_WRITTEN - len(head) - len(tail)
    fits = head + sign * (room // len(sign.encode())) + tail
    for frame in (fits, fits.encode()):
        assert decode(frame)
    beyond = head + sign + fits.removeprefix(head)
    for frame in (beyond, beyond.encode()):
        with pytest.raises(BadEvent) as bad:
            decode(frame)
        assert bad.value.code == "event_too_long"


def test_sound_of_items_does_not_count_as_text() -> None:
    content = [{"type": "input_audio", "audio": "A" * (2 * MOST_WRITTEN)}]
    item = {"type": "message", "role": "user", "content": content}
    assert decode(json.dumps({"type": "conversation.item.create", "item": item}))
    assert decode(json.dumps({"type": "response.create", "response": {"input": [item, item]}}))


def test_a_session_does_not_grow_beyond_what_can_be_shown() -> None:
    session = updated(SESSION, patch(instructions="a" * (MOST_WRITTEN // 2)))
    with pytest.raises(Rejected) as why:
        updated(session, patch(prompt="a" * (MOST_WRITTEN // 2)))
    assert why.value.code == "session_too_large"
