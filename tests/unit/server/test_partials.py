"""Words while somebody is speaking: what was told is never taken back, and what it may cost."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from mstar.client import Slice
from server.session.commands import InterruptTask, StartTask
from server.session.options import Options
from server.session.partials import LONGEST_SECONDS, SETTLED_SECONDS
from server.session.prefix import Prefix
from tests.unit.server.driver import ITEM_SECONDS, Driver

WORDS = st.lists(st.sampled_from(["one", "One,", "two", "three.", "four", "their", "there"]), max_size=8)
DELTA = "conversation.item.input_audio_transcription.delta"
COMPLETED = "conversation.item.input_audio_transcription.completed"


def test_two_passes_must_agree_and_the_last_word_waits() -> None:
    prefix = Prefix()
    assert prefix.hear("Hello wor") == ""
    assert prefix.hear("Hello world.") == "Hello"
    assert prefix.hear("Hello world, how are") == " world,"
    assert prefix.hear("Hello world, how are you?") == " how are"
    assert prefix.finish("Hello world. How are you, Joe?") == (" you, Joe?", "Hello world, how are you, Joe?")


def test_a_pass_that_hears_otherwise_goes_on_behind_what_was_told() -> None:
    prefix = Prefix()
    for _ in range(2):
        prefix.hear("there is a cat on the")
    assert prefix.told == ["there", "is", "a", "cat", "on"]
    assert prefix.finish("their is the cat on the mat") == (" the mat", "there is a cat on the mat")


def test_no_words_are_no_words() -> None:
    prefix = Prefix()
    assert prefix.hear("") == ""
    assert prefix.finish("") == ("", "")


@given(st.lists(WORDS, max_size=6), WORDS)
def test_what_was_told_is_the_beginning_of_the_whole(passes: list[list[str]], last: list[str]) -> None:
    prefix = Prefix()
    told = "".join(prefix.hear(" ".join(words)) for words in passes)
    added, whole = prefix.finish(" ".join(last))
    assert told + added == whole
    if not told:
        assert whole == " ".join(last)


def transcribing(detection: Any = "vad") -> Driver:
    driver = Driver(Options(transcribing=True))
    if detection is None:
        session = {"type": "transcription", "audio": {"input": {"turn_detection": None}}}
        driver.client({"type": "session.update", "session": session})
    return driver


def passes(driver: Driver) -> list[StartTask]:
    return [each for each in driver.commands if isinstance(each, StartTask) and each.task == "transcribe"]


def deltas(driver: Driver) -> str:
    return "".join(event["delta"] for event in driver.wire if event["type"] == DELTA)


def test_words_come_while_the_user_speaks() -> None:
    driver = transcribing()
    said = ["this", "is", "what", "somebody", "says", "in", "some", "seconds"]
    for second in range(1, 7):
        driver.hear([0.9] * round(1 / ITEM_SECONDS))
        for task in passes(driver):
            if task.key in driver.tasks:
                driver.emit(task.key, "transcript", {"text": " ".join(said[: second + 1])})
                driver.done(task.key)
    before = deltas(driver)
    assert before.split() == said[: len(before.split())]
    assert len(before.split()) >= 3
    items = {event["item_id"] for event in driver.wire if event["type"] == DELTA}
    assert items == {driver.last("input_audio_buffer.speech_started")["item_id"]}
    assert all(each.settings == {"background": True} for each in passes(driver))
    driver.hear([0.01] * round(0.6 / ITEM_SECONDS))
    last = passes(driver)[-1]
    assert last.key in driver.tasks
    driver.emit(last.key, "transcript", {"text": " ".join(said)})
    done = driver.last(COMPLETED)
    assert done["transcript"] == " ".join(said) == deltas(driver)
    assert {done["item_id"]} == items


def test_the_pass_at_the_pause_is_what_is_committed() -> None:
    driver = transcribing()
    driver.hear([0.9] * 40 + [0.01] * 5)
    one = passes(driver)[-1]
    driver.emit(one.key, "transcript", {"text": "hello"})
    driver.done(one.key)
    assert COMPLETED not in driver.types()
    driver.hear([0.01] * 15)
    assert driver.last(COMPLETED)["transcript"] == "hello"
    assert passes(driver)[-1] is one
    assert driver.core.running == 1  # who listens


def test_going_on_after_a_pause_is_one_turn() -> None:
    driver = transcribing()
    driver.hear([0.9] * 40 + [0.01] * 5)
    one = passes(driver)[-1]
    driver.hear([0.9] * 10)
    driver.emit(one.key, "transcript", {"text": "hello"})
    driver.done(one.key)
    driver.hear([0.9] * 30 + [0.01] * 20)
    last = passes(driver)[-1]
    driver.emit(last.key, "transcript", {"text": "hello again"})
    assert driver.last(COMPLETED)["transcript"] == "hello again"
    assert driver.types().count(COMPLETED) == 1


def test_all_passes_together_cost_a_small_multiple_of_one() -> None:
    driver = transcribing()
    for _ in range(40):
        driver.hear([0.9] * round(1 / ITEM_SECONDS))
        for task in passes(driver):
            if task.key in driver.tasks:
                driver.emit(task.key, "transcript", {"text": "so far"})
                driver.done(task.key)
    lengths = [(each.inputs["audio"].stop - each.inputs["audio"].start) * ITEM_SECONDS for each in passes(driver)]  # type: ignore[union-attr]
    assert max(lengths) <= LONGEST_SECONDS
    assert lengths == sorted(lengths)
    assert sum(lengths) < 6 * max(lengths)
    assert lengths[0] < 1.5


def test_a_long_turn_is_settled_at_its_pauses() -> None:
    driver = transcribing()
    said: list[str] = []
    for second in range(60):
        said.append(f"w{second}")
        driver.hear([0.9] * round(0.8 / ITEM_SECONDS) + [0.01] * 5)  # too short a pause to end the turn
        for task in passes(driver):
            if task.key in driver.tasks:
                given = task.inputs["audio"]
                assert isinstance(given, Slice)
                words = said[round(given.start * ITEM_SECONDS * 0.96) : round(given.stop * ITEM_SECONDS)]
                driver.emit(task.key, "transcript", {"text": " ".join(words)})
                driver.done(task.key)
    slices = [each.inputs["audio"] for each in passes(driver)]
    lengths = [(each.stop - each.start) * ITEM_SECONDS for each in slices if isinstance(each, Slice)]
    assert max(lengths) < SETTLED_SECONDS + 2
    assert sum(lengths) < 7 * 60
    driver.hear([0.01] * 20)
    done = driver.last(COMPLETED)
    assert done["transcript"] == deltas(driver)
    assert driver.types().count(COMPLETED) == 1
    assert len(done["transcript"].split()) > 50


def test_one_pass_at_a_time_and_none_is_left() -> None:
    driver = transcribing()
    driver.hear([0.9] * round(5 / ITEM_SECONDS))
    assert len(passes(driver)) == 1
    driver.client({"type": "input_audio_buffer.clear"})
    assert [each.key for each in driver.commands if isinstance(each, InterruptTask)] == [passes(driver)[0].key]
    assert driver.core.running == 1


def test_a_pass_that_fails_is_not_missed_and_a_commit_asks_again() -> None:
    driver = transcribing()
    driver.hear([0.9] * 40 + [0.01] * 20)
    one = passes(driver)[-1]
    driver.done(one.key, "failed", code="node_failed")
    again = passes(driver)[-1]
    assert again is not one
    driver.emit(again.key, "transcript", {"text": "hello"})
    assert driver.last(COMPLETED)["transcript"] == "hello"


def test_without_turn_detection_the_buffer_is_the_turn() -> None:
    driver = transcribing(None)
    for text in ("this is", "this is what", "this is what I"):
        driver.append([0.5] * round(1.2 / ITEM_SECONDS))
        task = passes(driver)[-1]
        driver.emit(task.key, "transcript", {"text": text})
        driver.done(task.key)
    assert deltas(driver) == "this is what"
    driver.client({"type": "input_audio_buffer.commit"})
    last = passes(driver)[-1]
    driver.emit(last.key, "transcript", {"text": "this is what I say"})
    assert driver.last(COMPLETED)["transcript"] == deltas(driver) == "this is what I say"
    assert driver.last(COMPLETED)["item_id"] == driver.last("input_audio_buffer.committed")["item_id"]


def test_answering_sessions_have_no_passes() -> None:
    driver = Driver()
    driver.hear([0.9] * round(5 / ITEM_SECONDS))
    assert passes(driver) == []
