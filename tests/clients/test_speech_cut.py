"""A cancelled sound falls to silence within 8 ms, in every protocol and format, before the cancel is answered."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
import pytest

from media.decode import decode_any
from tests.clients.conftest import Serving
from tests.clients.raw import connected
from tests.clients.speech import RATE, frame

TEXT = "hello weather " * 40
FORMAT = {"container": "raw", "encoding": "pcm_s16le", "sample_rate": RATE}
CARTESIA = {"context_id": "a", "model_id": "sonic", "voice": {"mode": "id", "id": "default"}, "output_format": FORMAT}
CONFIG = {"type": "session.config", "response_format": "pcm", "sample_rate": RATE, "stream_audio": True}

# address, what makes it speak, what stops it, field and value of the answer, field of the sound
WAYS: dict[str, tuple[str, list[dict[str, Any]], dict[str, Any], tuple[str, Any], str]] = {
    "vllm": (
        "/v1/audio/speech/stream",
        [CONFIG, {"type": "input.text", "text": TEXT}, {"type": "input.done"}],
        {"type": "input.cancel"},
        ("type", "input.cancelled"),
        "",
    ),
    "elevenlabs": (
        f"/v1/text-to-speech/default/multi-stream-input?output_format=pcm_{RATE}",
        [{"text": TEXT, "context_id": "a"}],
        {"context_id": "a", "close_context": True},
        ("isFinal", True),
        "audio",
    ),
    "cartesia": (
        "/tts/websocket",
        [{"transcript": TEXT, **CARTESIA}],
        {"context_id": "a", "cancel": True},
        ("status_code", 499),
        "data",
    ),
    "deepgram": (
        f"/v1/speak?encoding=linear16&sample_rate={RATE}",
        [{"type": "Speak", "text": TEXT}],
        {"type": "Clear"},
        ("type", "Cleared"),
        "",
    ),
}


def raw_pieces(found: list[dict[str, Any] | bytes], field: str) -> list[bytes]:
    sounds = [each if isinstance(each, bytes) else base64.b64decode(each.get(field) or "") for each in found]
    return [sound for sound in sounds if sound]


def pieces(found: list[dict[str, Any] | bytes], field: str) -> list[np.ndarray]:
    return [np.frombuffer(sound, "<i2").astype(np.float64) / 32768 for sound in raw_pieces(found, field)]


async def cancelled(server: Serving, path: str, begin: list[dict[str, Any]], way: str, sounds: int = 1) -> list[Any]:
    """All frames of a context that is stopped when so many of them had sound, the answer to it the last."""
    _, _, stop, (at, value), field = WAYS[way]
    found: list[dict[str, Any] | bytes] = []
    async with connected(server, path) as raw:
        for message in begin:
            await raw.send(message)
        while len(raw_pieces(found, field)) < sounds:
            found.append(await frame(raw))
        await raw.send(stop)
        while True:
            found.append(each := await frame(raw))
            if isinstance(each, dict) and each.get(at) == value:
                return found


CODED = {
    **{("vllm", form): form for form in ("mp3", "opus", "flac")},
    **{("elevenlabs", form): form.partition("_")[0] for form in ("mp3_44100_128", "mp3_22050_32", "opus_48000_64")},
}


@pytest.mark.parametrize(("way", "form"), CODED)
async def test_a_cancelled_sound_in_frames_is_decoded_to_its_end_and_that_is_silence(
    toy_server: Serving, way: str, form: str
) -> None:
    path, begin, *_, field = WAYS[way]
    begin = [{**each, "response_format": form, "sample_rate": None} if each is CONFIG else each for each in begin]
    found = await cancelled(toy_server, path.replace(f"pcm_{RATE}", form), begin, way, sounds=4)
    heard, rate = decode_any(b"".join(raw_pieces(found, field)))
    assert rate // 10 < len(heard) < rate * 20
    assert np.abs(heard).max() > 0.1
    assert abs(heard[-1]) < 0.01
    assert np.abs(heard[-rate // 1000 :]).max() < 0.05
    steps = np.abs(np.diff(heard))
    end = len(heard) - rate // 5  # behind it lie the frames that were begun, and the fade
    assert steps[end:].max() <= steps[:end].max() * 1.5 + 1e-3


@pytest.mark.parametrize("way", WAYS)
async def test_a_cancelled_sound_fades(toy_server: Serving, way: str) -> None:
    path, begin, *_, field = WAYS[way]
    found = await cancelled(toy_server, path, begin, way)
    *sound, fade = pieces(found, field)
    assert len(fade) <= round(0.010 * RATE)
    assert abs(fade[-1]) < 0.02
    whole = np.concatenate([*sound, fade])
    assert len(whole) < RATE * 20  # not all of the text
    steps = np.abs(np.diff(whole))
    border = len(whole) - len(fade) - 1
    assert steps[border:].max() <= steps[:border].max() * 2.5  # no click where it was cut; its word may be a higher one
    assert np.abs(whole[:border]).max() > 0.1
