"""What the tests of speech sockets share: frames as they come, and what the runtime holds."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

import aiohttp
import numpy as np

from models.toy.language import tone_of
from tests.clients.conftest import Serving
from tests.clients.raw import Raw

RATE = 24_000
WORD = RATE // 4
"""Samples of a word of the toy family."""


async def frame(raw: Raw) -> dict[str, Any] | bytes:
    """The next frame: JSON, or bytes."""
    message = await asyncio.wait_for(raw.socket.receive(), 20)
    if message.type is aiohttp.WSMsgType.BINARY:
        return bytes(message.data)
    assert message.type is aiohttp.WSMsgType.TEXT, message
    return dict(json.loads(message.data))


async def frames(raw: Raw, stop: str, at: str = "type") -> list[dict[str, Any] | bytes]:
    """Frames up to and with the first whose field `at` is `stop`."""
    found = []
    while True:
        found.append(each := await frame(raw))
        if isinstance(each, dict) and each.get(at) == stop:
            return found


def sound(found: list[dict[str, Any] | bytes], field: str = "") -> np.ndarray:
    """Sound of the frames, binary or base64 in a field; int16."""
    pieces = [each if isinstance(each, bytes) else base64.b64decode(each.get(field) or "") for each in found]
    return np.frombuffer(b"".join(pieces), "<i2")


def shape(found: list[dict[str, Any] | bytes], at: str = "type") -> list[str]:
    """Kinds of the frames; several alike in a row count once."""
    kinds: list[str] = []
    for each in found:
        kind = "bytes" if isinstance(each, bytes) else str(each[at])
        if kinds[-1:] != [kind]:
            kinds.append(kind)
    return kinds


def says(pcm: np.ndarray, text: str, rate: int = RATE) -> bool:
    """Whether the sound is that of the toy's words, no more and no less."""
    words, length = text.split(), rate // 4
    if len(pcm) != len(words) * length:
        return False
    for at, word in enumerate(words):
        piece = pcm[at * length : (at + 1) * length].astype(np.float64)
        hertz = np.argmax(np.abs(np.fft.rfft(piece * np.hanning(length), rate)))
        if abs(hertz - tone_of(word)) > 4:
            return False
    return True


def held(server: Serving) -> dict[str, float]:
    """What the runtime and the server hold."""
    found = {}
    for line in server.get("/metrics")[1].splitlines():
        if line.startswith(("mstar_held{", "mstar_sessions{")):
            name, value = line.rsplit(" ", 1)
            if float(value):
                found[name] = float(value)
    return found


def settles(server: Serving, baseline: dict[str, float]) -> bool:
    """Whether the server comes to hold what it held before; asks a few hundred times."""
    return any(held(server) == baseline for _ in range(300))
