"""What leaves a connection: sound is coded when it leaves, and ends where it is cut off."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from typing import Any

import numpy as np
import pytest

from media.decode import decode_any
from server.outbound import MOST, Frame
from server.speech.socket import NOTHING, Later, Line, _reason
from server.speech.sound import Coding, Outlet, Shape

RATE = 24_000
TONE = (0.5 * np.sin(np.arange(2 * RATE) * (2 * np.pi * 200 / RATE))).astype(np.float32)


def line() -> Line:
    unused: Any = None
    return Line(unused, unused, "test", AsyncExitStack(), unused)


async def leaving(line: Line, count: int) -> list[Any]:
    """So many frames leave → what they were."""
    found = []
    for _ in range(count):
        frame = await line._outbound.pop()
        assert isinstance(frame, Frame)
        found.append(frame.make() if isinstance(frame, Later) else frame.body)
        line._outbound.written(frame)
    return found


@pytest.mark.parametrize(("coding", "rate"), [("wav", 24_000), ("mp3", 24_000), ("opus", 48_000), ("flac", 24_000)])
async def test_what_did_not_leave_is_never_coded_and_what_did_ends_in_silence(coding: Coding, rate: int) -> None:
    way, outlet = line(), Outlet(RATE, Shape(coding, rate))
    for at in range(0, len(TONE), 1000):
        way.sound(TONE[at : at + 1000], outlet, bytes, "a")
        way.send({"of": "b"}, "b")
    waits = way._outbound.waiting
    left = [each for each in await leaving(way, 30) if each is not None and not each.startswith(b"{")]
    assert way._outbound.waiting < waits
    heard, _ = decode_any(b"".join(left) + way.cut("a", outlet))
    assert 10_000 * rate / RATE <= len(heard) <= (15_000 + 192 + 4 * 1152) * rate / RATE
    assert np.abs(heard[-rate // 1000 :]).max() < 0.05
    assert np.abs(np.diff(heard)).max() < 0.08  # of the tone itself 0.03
    assert [json.loads(each)["of"] for each in await leaving(way, 33)] == ["b"] * 33  # the others are there
    assert way._outbound.waiting == 0


async def test_a_message_of_no_sound_is_none_and_one_behind_knows_what_left() -> None:
    way, outlet = line(), Outlet(RATE, Shape("mp3", RATE))
    total = 0

    def told(sound: bytes) -> bytes:
        nonlocal total
        total += len(sound)
        return sound

    way.sound(TONE[:100], outlet, told, "a")
    way.border(outlet, told, "a", last=True)
    way.send_later(lambda: total, "a")
    nothing, sound, count = await leaving(way, 3)
    assert nothing is None
    assert count == len(sound) > 0
    assert outlet.size(NOTHING) == 0


class _Deaf:
    """A socket whose client neither writes nor reads."""

    async def receive(self) -> Any:
        await asyncio.Event().wait()

    async def send_frame(self, *_: Any) -> None:
        await asyncio.Event().wait()


class _Dialect:
    idle_seconds = 3600.0
    busy = True

    def __init__(self) -> None:
        self.left = 0

    def gone(self) -> None:
        self.left += 1


async def test_a_dialect_whose_client_is_given_up_is_told_so() -> None:
    deaf: Any = _Deaf()
    unused: Any = None
    dialect: Any = _Dialect()
    way = Line(deaf, unused, "test", AsyncExitStack(), unused)
    for _ in range(2):
        way.send_bytes(bytes(MOST), "a")
    await way.run(lambda _: dialect)
    assert dialect.left == 1


@pytest.mark.parametrize("text", ["é" * 100, "🙂" * 40, "a" + "🙂" * 40, "\ud83d" * 200, ""])
def test_a_closes_reason_is_text_that_fits(text: str) -> None:
    reason = _reason(text)
    assert len(reason) <= 120
    assert text.encode(errors="replace").startswith(reason)
    reason.decode()
