"""A sound that is cancelled falls to silence within 8 ms, in every protocol, before the cancel is answered."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
import pytest

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


def pieces(found: list[dict[str, Any] | bytes], field: str) -> list[np.ndarray]:
    sounds = [each if isinstance(each, bytes) else base64.b64decode(each.get(field) or "") for each in found]
    return [np.frombuffer(sound, "<i2").astype(np.float64) / 32768 for sound in sounds if sound]


@pytest.mark.parametrize("way", WAYS)
async def test_a_cancelled_sound_fades(toy_server: Serving, way: str) -> None:
    path, begin, stop, (at, value), field = WAYS[way]
    found: list[dict[str, Any] | bytes] = []
    async with connected(toy_server, path) as raw:
        for message in begin:
            await raw.send(message)
        while not pieces(found, field):
            found.append(await frame(raw))
        await raw.send(stop)
        while True:
            found.append(each := await frame(raw))
            if isinstance(each, dict) and each.get(at) == value:
                break
    *sound, fade = pieces(found, field)
    assert len(fade) <= round(0.010 * RATE)
    assert abs(fade[-1]) < 0.02
    whole = np.concatenate([*sound, fade])
    assert len(whole) < RATE * 20  # not all of the text
    steps = np.abs(np.diff(whole))
    border = len(whole) - len(fade) - 1
    assert steps[border:].max() <= steps[:border].max() * 1.5 + 1e-3  # no click where it was cut
    assert np.abs(whole[:border]).max() > 0.1
