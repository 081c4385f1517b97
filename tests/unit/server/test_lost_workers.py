"""What a session makes of workers that are lost: the conversation goes on, nothing of it is forgotten."""

from __future__ import annotations

from typing import Any

from tests.unit.server.driver import Driver
from tests.unit.server.test_turns import PAUSE, SILENCE, SPEECH, prompt, starts

LOST = {"code": "worker_lost", "cause": "worker.main ended with status -9 (SIGKILL); it is being replaced"}


def asked(driver: Driver) -> None:
    """A spoken turn whose answer is under way."""
    driver.hear(SPEECH + PAUSE + SILENCE)


def test_an_answer_ends_with_the_code_and_its_words_are_asked_for_again() -> None:
    driver = Driver()
    asked(driver)
    key = driver.task("answer_audio_speech").key
    driver.done(key, "failed", **LOST)
    response = driver.last("response.done")["response"]
    assert response["status"] == "failed"
    assert response["status_details"]["error"]["code"] == "worker_lost"
    words = driver.task("transcribe")
    assert words.inputs == {"audio": starts(driver, "answer_audio_speech")[0].inputs["audio"]}
    driver.emit(words.key, "transcript", {"text": "my name is Ann", "segments": []})
    driver.done(words.key)
    asked(driver)
    assert ("user", "my name is Ann") in prompt(driver.task("answer_audio_speech"))


def test_what_was_said_of_an_answer_stays_in_the_conversation() -> None:
    driver = Driver()
    asked(driver)
    key = driver.task("answer_audio_speech").key
    driver.emit(key, "transcript", {"text": "hi"})
    driver.text(key, "Hello ")
    driver.emit(key, "alignment", {"words": [[0, 5, 0, 4800]]})
    driver.sound(key, 0.3)
    driver.done(key, "failed", **LOST)
    assert driver.last("response.done")["response"]["output"][0]["status"] == "incomplete"
    driver.wait(1)
    asked(driver)
    said = prompt(driver.task("answer_audio_speech"))
    assert said[:1] == [("user", "hi")]
    assert said[1][0] == "assistant"
    assert said[1][1].startswith("Hello")


def test_sound_with_which_two_workers_were_lost_is_not_given_to_a_third() -> None:
    driver = Driver()
    transcribing: Any = {"input": {"transcription": {}}}
    driver.client({"type": "session.update", "session": {"type": "realtime", "audio": transcribing}})
    asked(driver)
    driver.done(driver.task("answer_audio_speech").key, "failed", **LOST)
    driver.done(driver.task("transcribe").key, "failed", **LOST)
    assert driver.running("transcribe") is None
    failed = driver.last("conversation.item.input_audio_transcription.failed")
    assert failed["error"]["code"] == "worker_lost"
    asked(driver)
    assert driver.running("answer_audio_speech") is not None


def test_words_are_asked_for_again_where_the_new_worker_is_long_in_coming() -> None:
    driver = Driver()
    asked(driver)
    driver.done(driver.task("answer_audio_speech").key, "failed", **LOST)
    for _ in range(3):
        driver.done(driver.task("transcribe").key, "failed", code="not_ready", cause="being replaced")
    words = driver.task("transcribe")
    driver.emit(words.key, "transcript", {"text": "my name is Ann", "segments": []})
    driver.done(words.key)
    asked(driver)
    assert ("user", "my name is Ann") in prompt(driver.task("answer_audio_speech"))


def test_no_session_waits_for_ever() -> None:
    driver = Driver()
    asked(driver)
    driver.done(driver.task("answer_audio_speech").key, "failed", **LOST)
    for _ in range(4):
        driver.done(driver.task("transcribe").key, "failed", code="not_ready", cause="being replaced")
    assert driver.running("transcribe") is None


def test_an_answer_that_was_lost_while_it_was_prepared_is_asked_for_again() -> None:
    driver = Driver()
    driver.hear(SPEECH + PAUSE)
    first = driver.task("answer_audio_speech")
    driver.done(first.key, "failed", **LOST)
    driver.hear(SILENCE)
    again = driver.task("answer_audio_speech")
    assert again.inputs == first.inputs
    driver.emit(again.key, "transcript", {"text": "hi"})
    driver.text(again.key, "Hello.")
    driver.sound(again.key, 0.3)
    driver.done(again.key)
    assert driver.last("response.done")["response"]["status"] == "completed"


def test_the_ear_goes_on_where_it_was() -> None:
    driver = Driver()
    driver.hear(SPEECH)
    ear = driver.task("listen")
    driver.append(PAUSE + SILENCE[: len(SILENCE) // 2])
    driver.done(ear.key, "failed", code="worker_lost", cause="worker.ear was lost")
    again = driver.task("listen")
    assert again.positions["mic"] == len(SPEECH)
    driver.append(SILENCE)
    driver.listen()
    assert "error" not in driver.types()
    assert driver.types().count("input_audio_buffer.committed") == 1
    assert driver.running("answer_audio_speech") is not None


def test_an_ear_that_is_lost_twice_at_one_item_passes_it_by() -> None:
    driver = Driver()
    driver.hear(SPEECH)
    driver.append(PAUSE)
    for _ in range(2):
        driver.done(driver.task("listen").key, "failed", code="worker_lost", cause="worker.ear was lost")
    assert driver.last("error")["error"]["code"] == "worker_lost"
    assert driver.running("listen") is None
    driver.append(PAUSE)
    assert driver.task("listen").positions["mic"] == len(SPEECH) + len(PAUSE)


def test_an_ear_that_no_worker_is_ready_for_is_tried_again_with_every_sound() -> None:
    driver = Driver()
    for _ in range(10):
        driver.append(PAUSE)
        driver.done(driver.task("listen").key, "failed", code="not_ready", cause="being replaced")
    assert driver.last("error")["error"]["code"] == "not_ready"
    driver.hear(SPEECH + PAUSE + SILENCE)
    assert driver.running("answer_audio_speech") is not None


def test_an_ear_that_owes_nothing_may_be_lost_as_often_as_it_likes() -> None:
    driver = Driver()
    driver.hear(SPEECH)
    for _ in range(10):
        driver.done(driver.task("listen").key, "failed", code="worker_lost", cause="worker.ear was lost")
    assert "error" not in driver.types()
    driver.hear(PAUSE + SILENCE)
    assert driver.running("answer_audio_speech") is not None
