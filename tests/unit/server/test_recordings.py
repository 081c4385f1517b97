"""Items that are asked for again come with their sound, as far as it is kept."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
import pytest

from media.frames import from_bytes
from media.g711 import mulaw_decode
from server.events.session import AudioFormat
from server.session.options import Options
from server.session.recordings import LONGEST_SECONDS, Recordings
from tests.unit.server.driver import ITEM, OFFER, Driver

PCM = AudioFormat("audio/pcm", 24_000)


def audio_of(driver: Driver, item_id: str) -> bytes | None:
    driver.client({"type": "conversation.item.retrieve", "item_id": item_id})
    [part] = driver.last("conversation.item.retrieved")["item"]["content"]
    return base64.b64decode(part["audio"]) if "audio" in part else None


def ramp(samples: int) -> np.ndarray:
    return np.linspace(0, 0.5, samples, dtype=np.float32)


def turn(driver: Driver, seconds: float = 1.0) -> tuple[str, str]:
    """A spoken turn and its answer → ids of their items."""
    driver.say()
    user = driver.last("conversation.item.added")["item"]["id"]
    key = driver.task("answer").key
    driver.emit(key, "transcript", {"text": "hi"})
    driver.text(key, "Hello there.")
    driver.emit(key, "audio", {"pcm": ramp(round(seconds * OFFER.speech_rate)), "start": 0})
    driver.done(key)
    driver.wait(seconds + 1)
    return user, driver.last("response.done")["response"]["output"][0]["id"]


def formats(driver: Driver, kind: str) -> None:
    wanted = {"format": {"type": kind}}
    driver.client(
        {"type": "session.update", "session": {"type": "realtime", "audio": {"input": wanted, "output": wanted}}}
    )


def test_both_sides_of_a_turn() -> None:
    driver = Driver()
    user, answer = turn(driver)
    heard = audio_of(driver, user)
    assert heard is not None
    stop = driver.last("input_audio_buffer.speech_stopped")["audio_end_ms"]
    start = driver.last("input_audio_buffer.speech_started")["audio_start_ms"]
    assert start == 0
    assert stop < len(heard) / 48 < stop + 160  # to the pause in which the turn ended
    middle = from_bytes(heard)[2_000:22_000]
    assert np.abs(middle / 32768 - 0.9).max() < 0.01
    said = audio_of(driver, answer)
    assert said is not None
    assert len(said) == 48_000
    assert np.allclose(from_bytes(said)[:-50] / 32768, np.linspace(0, 0.5, 24_000)[:-50], atol=0.002)


def test_sound_comes_in_the_formats_of_the_session() -> None:
    driver = Driver()
    formats(driver, "audio/pcmu")
    user, answer = turn(driver)
    heard, said = audio_of(driver, user), audio_of(driver, answer)
    assert heard is not None
    assert said is not None
    assert len(said) == 8000
    assert np.abs(mulaw_decode(said) / 32768 - np.linspace(0, 0.5, 8000))[50:-50].max() < 0.03
    assert np.abs(mulaw_decode(heard)[1000:7000] / 32768 - 0.9).max() < 0.03


def test_a_truncated_answer_sounds_as_far_as_it_was_heard() -> None:
    driver = Driver()
    _, answer = turn(driver)
    driver.client({"type": "conversation.item.truncate", "item_id": answer, "content_index": 0, "audio_end_ms": 400})
    said = audio_of(driver, answer)
    assert said is not None
    assert len(said) == 400 * 48


def test_sound_that_a_client_put_in_comes_back() -> None:
    driver = Driver()
    pcm = (8000 * np.sin(np.arange(24_000) * 0.02)).astype("<i2")
    content = [{"type": "input_audio", "audio": base64.b64encode(pcm.tobytes()).decode()}]
    item: dict[str, Any] = {"type": "message", "role": "user", "id": "mine", "content": content}
    driver.client({"type": "conversation.item.create", "item": item})
    back = audio_of(driver, "mine")
    assert back is not None
    assert len(back) == pcm.nbytes
    assert np.abs(from_bytes(back)[500:-500].astype(int) - pcm[500:-500]).max() < 100


def test_what_is_too_long_for_an_event_comes_without() -> None:
    driver = Driver()
    driver.client(
        {"type": "session.update", "session": {"type": "realtime", "audio": {"input": {"turn_detection": None}}}}
    )
    for seconds, known in ((LONGEST_SECONDS, True), (LONGEST_SECONDS + 1, False)):
        driver.append([0.5] * (seconds * OFFER.mic_rate // ITEM))
        driver.client({"type": "input_audio_buffer.commit"})
        user = driver.last("conversation.item.added")["item"]["id"]
        assert (audio_of(driver, user) is not None) is known
    recordings = Recordings()
    for _ in range(100):
        recordings.add("long", 24_000, ramp(LONGEST_SECONDS * 24_000 // 99))
    assert recordings.held == LONGEST_SECONDS * 48_000
    assert recordings.audio("long", PCM) is None
    whole = recordings.audio("long", PCM, LONGEST_SECONDS * 24_000)
    assert whole is not None
    assert len(whole) * 4 // 3 < 1 << 19


def test_the_oldest_sound_goes_first_and_none_is_kept_in_part() -> None:
    recordings = Recordings(most_bytes=1000)
    for name in "abc":
        recordings.add(name, 24_000, ramp(200))
    assert recordings.held == 800
    assert recordings.audio("a", PCM) is None
    recordings.add("a", 24_000, ramp(10))
    assert recordings.audio("a", PCM) is None
    assert len(recordings.audio("b", PCM) or b"") == 400
    recordings.add("c", 24_000, ramp(200))
    assert recordings.audio("b", PCM) is None
    assert len(recordings.audio("c", PCM) or b"") == 800
    recordings.add("c", 24_000, ramp(200))
    assert recordings.held == 0
    assert recordings.audio("c", PCM) is None


def test_a_deleted_item_takes_its_sound_along() -> None:
    driver = Driver()
    user, answer = turn(driver)
    for item in (user, answer):
        driver.client({"type": "conversation.item.delete", "item_id": item})
    assert driver.core._conversation._recordings.held == 0


@pytest.mark.parametrize("counted", [True, False])
def test_over_webrtc_no_sound_travels_in_events(counted: bool) -> None:
    driver = Driver(Options(counted=counted))
    driver.say()
    user = driver.last("conversation.item.added")["item"]["id"]
    assert (audio_of(driver, user) is None) is counted
