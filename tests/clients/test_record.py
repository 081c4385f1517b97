"""Conversations recorded by a real server are said again, sample for sample, in this process and by the command."""

from __future__ import annotations

import asyncio
import base64
import subprocess
import sys
import wave
from contextlib import contextmanager
from pathlib import Path

import aiohttp
import numpy as np
import pytest

from media.frames import from_bytes
from models.toy.model import RATE as TOY_RATE
from server.record.entries import Began, Called, Emitted, Heard, Played, Recording, Said, read
from tests.clients.conftest import ROOT, Serving, serving
from tests.clients.raw import connected
from tests.clients.rtc import calling
from tests.clients.tones import silence, spoken
from tests.unit.record.made import replayed


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files of sessions: interrupted by voice, over WebRTC, cut off by the client's leaving, and speech."""
    folder = tmp_path_factory.mktemp("recordings")
    with contextmanager(serving)("toy", "--record", str(folder)) as server:
        asyncio.run(_converse(server))
    return folder


async def _converse(server: Serving) -> None:
    await interrupted(server)
    async with calling(server) as client:
        await client.frames(25)
        client.microphone.say("hello name")
        await client.event("output_audio_buffer.stopped")
    async with connected(server) as raw:
        await raw.next()
        await raw.send({"type": "conversation.item.create", "item": text("long")})
        await raw.send({"type": "response.create"})
        await raw.until("response.output_audio.delta")
    async with aiohttp.ClientSession() as http:
        wanted = {"model": "toy", "input": "hello there", "voice": "alloy", "response_format": "pcm"}
        async with http.post(f"{server.url}/v1/audio/speech", json=wanted) as answer:
            assert answer.status == 200
            assert await answer.read()


def text(words: str) -> dict[str, object]:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": words}]}


async def interrupted(server: Serving) -> None:
    async with connected(server) as raw:
        await raw.next()
        await raw.send({"type": "conversation.item.create", "item": text("count")})
        await raw.send({"type": "response.create"})
        sound = b""
        while len(sound) < 2 * TOY_RATE:
            sound += base64.b64decode((await raw.until("response.output_audio.delta"))["delta"])
        item = (await raw.next())["item_id"]
        words = base64.b64encode(spoken("again") + silence(0.8)).decode()
        await raw.send({"type": "input_audio_buffer.append", "audio": words})
        await raw.send("nonsense")
        cut = {"type": "conversation.item.truncate", "item_id": item, "content_index": 0, "audio_end_ms": 510}
        assert (await raw.until("response.done"))["response"]["status_details"]["reason"] == "turn_detected"
        await raw.send(cut)
        assert (await raw.until("response.done"))["response"]["status"] == "completed"


def of(folder: Path, number: int) -> tuple[Path, Recording]:
    path = sorted(folder.iterdir(), key=lambda path: int(path.stem.rpartition("-")[2]))[number]
    return path, read(path)


@pytest.mark.parametrize("number", [0, 1, 2, 3])
async def test_equal_sample_for_sample_on_a_manual_clock(recordings: Path, number: int) -> None:
    path, recording = of(recordings, number)
    assert recording.whole
    outcome = await replayed(path)
    assert outcome.difference == ""
    assert outcome.steps == len(recording.steps)
    assert outcome.sound


def test_a_recording_has_the_inputs_with_their_positions(recordings: Path) -> None:
    _, recording = of(recordings, 0)
    began = recording.began
    assert isinstance(began, Began)
    assert (began.protocol, began.family, began.model) == ("websocket", "toy", "toy")
    heard = [step for step in recording.steps if isinstance(step, Heard)]
    position = 0
    for step in heard:
        assert step.position == position
        position += len(step.pcm) // 4
    assert position == pytest.approx(1.2 * 16_000, abs=512)
    kinds = "".join(step.event.decode() for step in recording.steps if isinstance(step, Said))
    assert "conversation.item.truncate" in kinds
    assert "audio" in {step.output for step in recording.steps if isinstance(step, Emitted)}
    times = [step.at for step in recording.steps if hasattr(step, "at")]
    assert times == sorted(times)
    _, call = of(recordings, 1)
    assert call.began.protocol == "webrtc"
    reports = [step.samples for step in call.steps if isinstance(step, Played)]
    assert reports[-1] == 4 * TOY_RATE // 4  # four words were heard


async def test_speech_is_recorded_by_what_is_asked_of_the_runtime(recordings: Path) -> None:
    path, recording = of(recordings, 3)
    assert recording.began.protocol == "speech"
    assert any(isinstance(step, Called) for step in recording.steps)
    outcome = await replayed(path)
    assert [words.strip() for _, words in outcome.lines] == ["hello there"]
    assert [outcome.samples(request) for request in outcome.sound] == [2 * TOY_RATE // 4]


def test_the_command_says_a_conversation_again(recordings: Path, tmp_path: Path) -> None:
    path, recording = of(recordings, 0)
    command = [sys.executable, "-m", "server.cli", "replay", str(path), "--sound", str(tmp_path / "sound")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0].startswith("assistant: one, two")
    assert lines[1].startswith("assistant: again one, two")
    assert lines[2].startswith("resp_")
    assert lines[2].endswith(" s")
    assert " tokens, " in lines[2]
    assert lines[-1].startswith(f"equal: {len(recording.steps)} steps, ")
    files = sorted((tmp_path / "sound").iterdir())
    assert len(files) == 2
    with wave.open(str(files[0])) as file:
        assert (file.getframerate(), file.getnchannels()) == (TOY_RATE, 1)
        assert np.abs(from_bytes(file.readframes(file.getnframes()))).max() > 1000


async def test_a_recording_that_is_cut_off_is_run_as_far_as_it_goes(recordings: Path, tmp_path: Path) -> None:
    path, recording = of(recordings, 0)
    short = tmp_path / "short"
    short.write_bytes(path.read_bytes()[:-40])
    assert not read(short).whole
    outcome = await replayed(short)
    assert outcome.difference == ""
    assert len(recording.steps) - 3 < outcome.steps <= len(recording.steps)


def test_without_the_option_nothing_is_kept(recordings: Path, toy_server: Serving) -> None:
    before = sorted(recordings.iterdir())
    asyncio.run(interrupted(toy_server))
    assert sorted(recordings.iterdir()) == before
