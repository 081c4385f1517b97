"""Voice and camera in one session: a spoken "stop", understood by Whisper, ends what a planner was asked for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from media.frames import to_int16
from media.resample import resample
from tests.clients.conftest import PLANNER, Serving, serving
from tests.clients.robot_rtc import CameraTrack, robot
from tests.clients.rtc import RATE as TRACK_RATE
from tests.clients.rtc import Microphone
from tests.clients.test_robot_rtc import bars, raw
from tests.system.voice_client import RATE, silence, speech

pytestmark = pytest.mark.slow


@pytest.fixture
def server(smollm2: Path, whisper_tiny_en: Path, piper_joe: Path, ear: Path) -> Iterator[Serving]:
    yield from serving("voice", PLANNER)


def spoken(text: str) -> np.ndarray:
    """As a microphone of 48 kHz hears it, with silence around."""
    sound = np.concatenate((silence(0.4), speech(text), silence(1.0)))
    return to_int16(resample(sound, RATE, TRACK_RATE))


async def test_a_spoken_stop_ends_the_plan(server: Serving) -> None:
    microphone = Microphone()
    async with robot(server, [CameraTrack(lambda _: bars(), rate=10), microphone], model=PLANNER) as client:
        client.send("session.update", session={"wait_ms": 60000})
        client.state(0.0, 0.0)
        client.goal("home", raw(bars()))
        client.send("ask", id="on", repeat=True)
        await client.event("chunk", 3)
        microphone.hear(spoken("Please go on with the red block."))
        first = await client.event("heard")
        assert "stop" not in first["text"].lower()
        chunks = sum(event["type"] == "chunk" for event in client.events)
        await client.event("chunk", chunks + 1)  # it goes on
        microphone.hear(spoken("Stop!"))
        stopped = await client.event("session.stopped")
        assert (stopped["said"], stopped["epoch"]) == ("stop", 2)
        ended = await client.event("ask.ended")
        assert (ended["ask"], ended["reason"]) == ("on", "stopped")
        kinds = [event["type"] for event in client.events]
        assert "chunk" not in kinds[kinds.index("session.stopped") :]
        client.send("ask", id="again")
        again = await client.event("chunk", kinds.count("chunk") + 1)
        assert (again["epoch"], again["first"]) == (2, 0)
