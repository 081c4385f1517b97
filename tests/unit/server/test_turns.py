"""Turn taking in two stages, barge-in, and what the log keeps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mstar.client import Slice
from server.session.commands import ClearAudio, FeedMic, GrantCredit, InterruptTask, PlayAudio, StartTask
from server.session.options import Options
from tests.unit.server.driver import ITEM, OFFER, Driver

SPEECH, PAUSE, SILENCE = [0.9] * 20, [0.01] * 3, [0.01] * 13


def detection(driver: Driver, **given: Any) -> None:
    session = {"type": "realtime", "audio": {"input": {"turn_detection": given}}}
    driver.client({"type": "session.update", "session": session})


def starts(driver: Driver, task: str) -> list[StartTask]:
    return [c for c in driver.commands if isinstance(c, StartTask) and c.task == task]


def prompt(task: StartTask) -> list[tuple[str, str]]:
    history: Any = task.inputs["history"]
    return [(each["role"], each["content"]) for each in history]


def spoken_answer(driver: Driver, *words: str, each: float = 0.5) -> int:
    """An answer with its sound and word times, not ended yet."""
    key = driver.task("answer").key
    at, text = 0, ""
    size = round(each * OFFER.speech_rate)
    for word in words:
        driver.text(key, word)
        driver.emit(key, "alignment", {"words": [[len(text), len(text) + len(word), at, at + size]]})
        driver.sound(key, each)
        text += word
        at += size
    return key


def test_the_answer_starts_at_the_pause_and_is_told_at_the_endpoint() -> None:
    driver = Driver()
    driver.hear(SPEECH + PAUSE)
    key = driver.task("answer_audio_speech").key
    driver.emit(key, "transcript", {"text": "hi"})
    driver.text(key, "Hello.")
    driver.sound(key, 0.3)
    assert "response.created" not in driver.types()
    assert not any(isinstance(c, (PlayAudio, GrantCredit)) for c in driver.commands)
    driver.hear(SILENCE)
    assert driver.types()[-1] == "response.output_audio.delta"
    assert len(starts(driver, "answer_audio_speech")) == 1
    driver.done(key)
    assert driver.last("response.done")["response"]["status"] == "completed"


def test_speech_that_goes_on_drops_what_was_prepared() -> None:
    driver = Driver()
    driver.hear(SPEECH + PAUSE)
    first = driver.task("answer_audio_speech").key
    driver.hear(SPEECH)
    assert first not in driver.tasks
    driver.hear(PAUSE + SILENCE)
    begun = starts(driver, "answer_audio_speech")
    assert len(begun) == 2
    whole: Any = begun[1].inputs["audio"]
    part: Any = begun[0].inputs["audio"]
    assert (whole.start, part.start) == (0, 0)
    assert whole.stop - part.stop == len(SPEECH) + len(PAUSE)
    assert driver.types().count("response.created") == 1


@pytest.mark.parametrize("silence_ms", [0, 100, 200, 500, 700])
def test_sound_and_prompt_are_the_same_with_and_without_preparation(silence_ms: int) -> None:
    asked = []
    for prepare in (True, False):
        driver = Driver()
        detection(driver, type="server_vad", silence_duration_ms=silence_ms, prepare=prepare)
        driver.hear([0.01] * 30 + SPEECH + [0.01] * 30)
        task = driver.task("answer_audio_speech")
        asked.append((task.task, task.inputs, task.settings))
    assert asked[0] == asked[1]
    assert isinstance(asked[0][1]["audio"], Slice)


def test_the_slice_has_the_padding_and_ends_at_the_pause() -> None:
    driver = Driver()
    driver.hear([0.01] * 40 + SPEECH + [0.01] * 30)
    sound: Any = driver.task("answer_audio_speech").inputs["audio"]
    prefix = -(-300 * 16 // ITEM)
    assert sound == Slice("mic", 40 - prefix, 40 + len(SPEECH) + len(PAUSE))
    started = driver.last("input_audio_buffer.speech_started")["audio_start_ms"]
    assert started == 40 * 32 - 300


def test_a_changed_prompt_makes_the_prepared_answer_void() -> None:
    driver = Driver()
    driver.hear(SPEECH + PAUSE)
    first = driver.task("answer_audio_speech").key
    driver.client({"type": "session.update", "session": {"type": "realtime", "instructions": "Sing."}})
    driver.hear(SILENCE)
    assert first not in driver.tasks
    assert prompt(driver.task("answer_audio_speech"))[0] == ("system", "Sing.")


def test_an_interrupted_item_ends_with_the_last_word_heard() -> None:
    driver = Driver()
    driver.say()
    driver.emit(driver.task("answer").key, "transcript", {"text": "count"})
    key = spoken_answer(driver, "one ", "two ", "three ", "four ", "five ", "six ", each=0.8)
    driver.wait(1.0)
    driver.hear([0.9] * 3)
    done = driver.last("response.done")["response"]
    assert done["status_details"]["reason"] == "turn_detected"
    item = done["output"][0]
    assert item["content"][0]["transcript"] == "one two three four "  # begun within the 3.1 s that were sent
    assert [c.key for c in driver.commands if isinstance(c, InterruptTask)][-1] == key
    assert any(isinstance(c, ClearAudio) for c in driver.commands)
    driver.client(
        {"type": "conversation.item.truncate", "item_id": item["id"], "content_index": 0, "audio_end_ms": 1700}
    )
    driver.hear([0.9] * 20 + PAUSE)
    assert prompt(driver.task("answer")) == [("user", "count"), ("assistant", "one two ")]


def test_truncation_beyond_the_end_is_clamped_and_leaves_the_text() -> None:
    driver = Driver()
    driver.client({"type": "response.create"})
    key = spoken_answer(driver, "one ", "two ")
    driver.done(key)
    item = driver.last("response.done")["response"]["output"][0]
    driver.client(
        {"type": "conversation.item.truncate", "item_id": item["id"], "content_index": 0, "audio_end_ms": 9999}
    )
    assert driver.last("conversation.item.truncated")["audio_end_ms"] == 1000
    driver.client({"type": "conversation.item.retrieve", "item_id": item["id"]})
    shown = driver.last("conversation.item.retrieved")["item"]
    assert len(shown["content"][0].pop("audio")) == 24_000 * 2 * 4 // 3
    assert shown == item


def test_strict_truncation_refuses() -> None:
    driver = Driver(Options(strict_truncate=True))
    driver.client({"type": "response.create"})
    driver.done(spoken_answer(driver, "one "))
    item = driver.last("response.done")["response"]["output"][0]
    driver.client(
        {"type": "conversation.item.truncate", "item_id": item["id"], "content_index": 0, "audio_end_ms": 600}
    )
    assert driver.last("error")["error"]["message"] == "Audio content of 500ms is already shorter than 600ms."


def test_the_words_of_an_interrupted_turn_are_found_out() -> None:
    driver = Driver()
    driver.say()
    driver.hear([0.9] * 5)
    task = driver.task("transcribe")
    driver.emit(task.key, "transcript", {"text": "hello"})
    driver.done(task.key)
    driver.hear(SPEECH + PAUSE)
    assert prompt(driver.task("answer")) == [("user", "hello")]


def test_a_response_waits_for_the_words_before_it() -> None:
    driver = Driver()
    detection(driver, type="server_vad", create_response=False)
    driver.say()
    said = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "well?"}]}
    driver.client({"type": "conversation.item.create", "item": said})
    driver.client({"type": "response.create"})
    assert driver.running("answer") is None
    task = driver.task("transcribe")
    driver.emit(task.key, "transcript", {"text": "hello"})
    assert prompt(driver.task("answer_speech")) == [("user", "hello"), ("user", "well?")]


def test_a_response_does_not_wait_for_the_words_of_a_deleted_item() -> None:
    driver = Driver()
    detection(driver, type="server_vad", create_response=False)
    driver.say()
    spoken = driver.last("conversation.item.added")["item"]["id"]
    said = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "well?"}]}
    driver.client({"type": "conversation.item.create", "item": said})
    driver.client({"type": "response.create"})
    driver.client({"type": "conversation.item.delete", "item_id": spoken})
    assert driver.running("transcribe") is None
    assert prompt(driver.task("answer_speech")) == [("user", "well?")]


def test_without_interruption_the_next_answer_waits_for_this_one() -> None:
    driver = Driver()
    detection(driver, type="server_vad", interrupt_response=False)
    driver.say()
    first = driver.task("answer").key
    driver.say()
    assert driver.types().count("input_audio_buffer.committed") == 2
    assert driver.types().count("response.created") == 1
    driver.emit(first, "transcript", {"text": "one"})
    driver.done(first)
    assert driver.types().count("response.created") == 2
    assert driver.types().count("error") == 0


def test_interruption_may_need_a_least_length() -> None:
    driver = Driver()
    detection(driver, type="server_vad", interrupt_min_ms=500)
    driver.say()
    key = driver.task("answer").key
    driver.text(key, "Hello")
    driver.hear([0.9] * 10)
    assert driver.types()[-1] == "input_audio_buffer.speech_started"
    assert key in driver.tasks
    driver.hear([0.9] * 10)
    assert driver.types()[-1] == "response.done"


def test_a_commit_by_hand_ends_the_turn_without_a_response() -> None:
    driver = Driver()
    driver.hear(SPEECH)
    started = driver.last("input_audio_buffer.speech_started")["item_id"]
    driver.client({"type": "input_audio_buffer.commit"})
    assert driver.last("input_audio_buffer.committed")["item_id"] == started
    driver.hear(PAUSE + SILENCE)
    assert "input_audio_buffer.speech_stopped" not in driver.types()
    assert "response.created" not in driver.types()


def test_semantic_vad_asks_the_turn_model_and_follows_it() -> None:
    waits = []
    for complete in (1.0, 0.25, 0.0):
        driver = Driver()
        detection(driver, type="semantic_vad", eagerness="high")
        driver.hear(SPEECH + PAUSE)
        driver.emit(driver.task("judge").key, "complete", complete)
        items = 0
        while "input_audio_buffer.committed" not in driver.types():
            driver.hear([0.01])
            items += 1
        waits.append((items + len(PAUSE)) * 32)
    assert waits == pytest.approx([224, 650, 2000], abs=33)


def test_idle_time_out_speaks_first() -> None:
    driver = Driver()
    detection(driver, type="server_vad", idle_timeout_ms=5000)
    driver.say()
    key = driver.task("answer").key
    driver.emit(key, "transcript", {"text": "hi"})
    driver.sound(key, 1.0)
    driver.done(key)
    driver.wait(5.5)
    assert "input_audio_buffer.timeout_triggered" not in driver.types()
    driver.wait(1.0)
    since = driver.types().index("input_audio_buffer.timeout_triggered")
    assert driver.types(since) == [
        "input_audio_buffer.timeout_triggered",
        "input_audio_buffer.committed",
        "conversation.item.added",
        "conversation.item.done",
        "response.created",
    ]
    assert prompt(driver.task("answer_speech"))[0] == ("user", "hi")


def test_a_whole_recording_in_one_piece_is_heard_item_by_item() -> None:
    driver = Driver()
    sound = SPEECH * 30 + SILENCE * 2
    driver.append(sound)
    for heard in range(len(sound)):
        assert heard < driver.fed <= heard + 128
        driver.listen(1)
    assert "response.created" in driver.types()
    rows = [row for c in driver.commands if isinstance(c, FeedMic) for row in c.rows]
    assert np.array_equal([row[0] for row in rows], np.array(sound, dtype=np.float32))


def test_what_was_committed_by_hand_is_not_a_turn_again() -> None:
    driver = Driver()
    driver.append(SPEECH + PAUSE + SILENCE)
    driver.client({"type": "input_audio_buffer.commit"})
    driver.listen()
    assert driver.types()[-1] == "conversation.item.done"
    driver.hear(SPEECH + PAUSE + SILENCE)
    assert driver.types().count("input_audio_buffer.committed") == 2


def test_a_session_ends_when_its_time_is_over() -> None:
    driver = Driver(Options(seconds=60))
    driver.wait(59)
    assert "error" not in driver.types()
    driver.wait(2)
    assert driver.last("error")["error"]["code"] == "session_expired"
    assert driver.closed is not None
    assert driver.core.tick(driver.now) == []


def test_transcription_sessions_listen_and_never_answer() -> None:
    driver = Driver(Options(transcribing=True))
    assert driver.wire[0]["session"]["type"] == "transcription"
    driver.say()
    task = driver.task("transcribe")
    driver.emit(task.key, "transcript", {"text": "hello"})
    assert driver.running("answer") is None
    driver.client({"type": "response.create"})
    assert driver.last("error")["error"]["code"] == "invalid_session_type"


def test_counted_playout_truncates_by_what_was_played() -> None:
    driver = Driver(Options(counted=True))
    driver.say()
    driver.emit(driver.task("answer").key, "transcript", {"text": "count"})
    key = spoken_answer(driver, "one ", "two ", "three ")
    driver.done(key)
    response = driver.last("response.done")["response"]
    assert response["status"] == "completed"
    driver.run(driver.core.played(response["id"], 100, driver.now))
    assert driver.types()[-1] == "output_audio_buffer.started"
    driver.run(driver.core.played(response["id"], OFFER.speech_rate, driver.now))
    driver.hear([0.9] * 3)
    since = driver.types().index("input_audio_buffer.speech_started", 5)
    assert driver.types(since) == [
        "input_audio_buffer.speech_started",
        "output_audio_buffer.cleared",
        "conversation.item.truncated",
    ]
    assert driver.last("conversation.item.truncated")["audio_end_ms"] == 1000
    driver.hear(SPEECH + PAUSE)
    assert prompt(driver.task("answer"))[-1] == ("assistant", "one two ")


def test_counted_playout_says_when_it_has_stopped() -> None:
    driver = Driver(Options(counted=True))
    driver.client({"type": "response.create"})
    driver.done(spoken_answer(driver, "one "))
    response = driver.last("response.done")["response"]["id"]
    driver.run(driver.core.played(response, OFFER.speech_rate, driver.now))
    assert driver.types()[-2:] == ["output_audio_buffer.started", "output_audio_buffer.stopped"]


def test_counted_playout_of_a_failed_response_ends_too() -> None:
    driver = Driver(Options(counted=True))
    driver.client({"type": "response.create"})
    key = spoken_answer(driver, "one ", "two ")
    driver.done(key, "failed", code="engine_error", cause="boom")
    assert [c.last for c in driver.commands if isinstance(c, PlayAudio)][-1]
    response = driver.last("response.done")["response"]["id"]
    driver.run(driver.core.played(response, OFFER.speech_rate, driver.now))
    assert driver.types()[-1] == "output_audio_buffer.stopped"


def test_counted_playout_beside_the_conversation_is_played_and_not_interrupted_by_speech() -> None:
    driver = Driver(Options(counted=True))
    driver.client({"type": "response.create", "response": {"conversation": "none"}})
    key = driver.task("answer").key
    driver.sound(key, 5.0)
    response = driver.last("response.created")["response"]["id"]
    for second in range(1, 3):
        driver.run(driver.core.played(response, second * OFFER.speech_rate, driver.now))
    assert driver.played() == 4 * OFFER.speech_rate
    driver.hear([0.9] * 5)
    assert key in driver.tasks
    driver.client({"type": "output_audio_buffer.clear"})
    assert key not in driver.tasks
    assert driver.last("response.done")["response"]["status"] == "cancelled"
    assert "output_audio_buffer.cleared" in driver.types()


def nothing_said(driver: Driver) -> None:
    done = driver.last("response.done")["response"]
    assert (done["status"], done["output"]) == ("completed", [])
    assert done["usage"]["output_tokens"] == 0
    assert not driver.running("answer")


def test_a_noise_without_words_is_answered_with_nothing() -> None:
    driver = Driver()
    driver.hear(SPEECH + PAUSE)
    key = driver.task("answer").key
    driver.emit(key, "transcript", {"text": ""})
    driver.done(key)
    assert "response.created" not in driver.types()
    driver.hear(SILENCE)
    nothing_said(driver)
    driver.say()
    assert prompt(driver.task("answer")) == []


def test_a_noise_known_to_hold_no_words_starts_no_task() -> None:
    driver = Driver()
    detection(driver, type="server_vad", create_response=False)
    session = {"type": "realtime", "audio": {"input": {"transcription": {"model": "any"}}}}
    driver.client({"type": "session.update", "session": session})
    driver.say()
    key = driver.task("transcribe").key
    driver.emit(key, "transcript", {"text": ""})
    driver.done(key)
    started = len(starts(driver, "answer_speech"))
    driver.client({"type": "response.create"})
    nothing_said(driver)
    assert len(starts(driver, "answer_speech")) == started
    driver.client({"type": "response.create", "response": {"instructions": "Say that you heard nothing."}})
    task = driver.task("answer_speech")
    assert task.settings["answer_silence"] is True
    assert prompt(task) == [("system", "Say that you heard nothing.")]
