"""Clients that leave at any moment leave nothing behind: sessions, tasks, descriptors, pages, streams."""

from __future__ import annotations

import asyncio
import base64
import random
from pathlib import Path

import pytest

from tests.clients.conftest import Serving
from tests.clients.raw import connected
from tests.clients.tones import silence, spoken

VISITS = 200


def held(server: Serving) -> dict[str, float]:
    """Everything that can leak, by name."""
    status, text = server.get("/metrics")
    assert status == 200
    wanted = ("mstar_sessions{", "mstar_held{", "mstar_event_loop_tasks")
    rows = [line.rpartition(" ") for line in text.splitlines() if line.startswith(wanted)]
    found = {name: float(value) for name, _, value in rows}
    found["descriptors"] = len(list(Path(f"/proc/{server.process}/fd").iterdir()))
    return found


async def visit(server: Serving, choice: random.Random) -> None:
    """Some events of a conversation, left in the middle: politely, or by cutting the line."""
    async with connected(server, "/v1/realtime?events=ext") as raw:
        for _ in range(choice.randrange(6)):
            match choice.randrange(4):
                case 0:
                    sound = base64.b64encode(spoken("count") + silence(0.7)).decode()
                    await raw.send({"type": "input_audio_buffer.append", "audio": sound})
                    for _ in range(choice.randrange(20)):  # a spoken answer has more events than these
                        await raw.next()
                case 1:
                    content = [{"type": "input_text", "text": choice.choice(["long", "count", "fail"])}]
                    item = {"type": "message", "role": "user", "content": content}
                    await raw.send({"type": "conversation.item.create", "item": item})
                    await raw.send({"type": "response.create"})
                case 2:
                    await raw.send({"type": "response.cancel"})
                case _:
                    for _ in range(choice.randrange(8)):
                        await raw.send({"type": "nonsense"})
                        await raw.next()
        if choice.random() < 0.5:
            raw.socket._writer.transport.abort()


async def test_random_disconnects(toy_server: Serving) -> None:
    async with connected(toy_server) as raw:
        await raw.next()
    seed = 7
    choice = random.Random(seed)
    before = await quiet(toy_server)
    for _ in range(VISITS // 4):
        await asyncio.gather(*(visit(toy_server, choice) for _ in range(4)))
    assert await quiet(toy_server, before) == pytest.approx(before)


async def quiet(server: Serving, wanted: dict[str, float] | None = None) -> dict[str, float]:
    """What is held when nothing moves any more (or what was wanted is reached)."""
    now = held(server)
    for _ in range(40):
        await asyncio.sleep(0.25)
        before, now = now, held(server)
        if now == (before if wanted is None else wanted):
            break
    return now
