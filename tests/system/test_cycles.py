"""A thousand callers who connect, speak and are gone: memory and descriptors of all processes stay flat."""

from __future__ import annotations

import asyncio
import base64
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import numpy as np
import pytest

from media.frames import to_bytes
from tests.clients.conftest import Serving, serving
from tests.system.voice_client import silence, speech

CYCLES = 1000
FIRST = 600
"""Cycles after which everything that is allocated once has been."""
TOGETHER = 6
GROWTH_MB = 48.0
"""What a process may gain in all further cycles: the step of an allocator, and less than half of what callers send."""

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Held:
    """What the processes of a server hold, by process."""

    megabytes: dict[str, float]
    descriptors: dict[str, int]
    shared: dict[str, int]  # mapped pieces of /dev/shm
    census: dict[str, float]


def held(server: Serving) -> Held:
    parties = {"server": server.process, **server.parties}
    folders = {name: Path(f"/proc/{process}") for name, process in parties.items()}
    status = {name: (folder / "status").read_text().split("VmRSS:")[1].split()[0] for name, folder in folders.items()}
    rows = [
        line for line in server.get("/metrics")[1].splitlines() if line.startswith(("mstar_held{", "mstar_sessions{"))
    ]
    return Held(
        {name: int(kilobytes) / 1024 for name, kilobytes in status.items()},
        {name: len(list((folder / "fd").iterdir())) for name, folder in folders.items()},
        {name: (folder / "maps").read_text().count("/dev/shm/") for name, folder in folders.items()},
        {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in rows},
    )


async def settled(server: Serving, wanted: dict[str, float] | None) -> Held:
    """When nobody is inside any more; what is held for good may be compared."""
    async with asyncio.timeout(120):
        while True:
            now = await asyncio.to_thread(held, server)
            if (wanted is None and not now.census.get('mstar_sessions{protocol="websocket"}')) or now.census == wanted:
                return now
            await asyncio.sleep(0.2)


async def cycle(http: aiohttp.ClientSession, server: Serving, draw: random.Random, said: list[str]) -> None:
    """Connect, say something, hear a little or nothing of the answer, and cut the line."""
    async with http.ws_connect(f"{server.url}/v1/realtime", max_msg_size=0) as socket:
        for piece in said[: draw.randrange(1, len(said) + 1)]:
            await socket.send_str(piece)
        for _ in range(draw.choice((0, 0, 1, 3, 6))):
            try:
                message = await asyncio.wait_for(socket.receive(), 0.5)
            except TimeoutError:  # there is nothing to hear when little was said
                break
            assert message.type is aiohttp.WSMsgType.TEXT, message
            if json.loads(message.data)["type"] == "response.output_audio.delta":
                break
        assert socket._response.connection is not None
        transport = socket._response.connection.transport
        assert isinstance(transport, asyncio.Transport)
        transport.abort()


async def cycles(server: Serving, number: int, draw: random.Random, said: list[str]) -> None:
    gate = asyncio.Semaphore(TOGETHER)

    async def one(http: aiohttp.ClientSession) -> None:
        async with gate:
            await asyncio.wait_for(cycle(http, server, draw, said), 120)

    async with aiohttp.ClientSession() as http, asyncio.TaskGroup() as group:
        for _ in range(number):
            group.create_task(one(http))


@pytest.fixture(scope="module")
def server(smollm2: Path, whisper_tiny_en: Path, piper_joe: Path, ear: Path) -> Iterator[Serving]:
    yield from serving("voice", "--seed", "7", "--max-sessions", "64")


async def test_a_thousand_callers_leave_nothing(server: Serving) -> None:
    draw = random.Random(3)
    sound = to_bytes(np.concatenate([silence(0.2), speech("Hello."), silence(0.8)]))
    step = 24_000  # bytes: half a second
    pieces = [sound[at : at + step] for at in range(0, len(sound), step)]
    said = [
        json.dumps({"type": "input_audio_buffer.append", "audio": base64.b64encode(each).decode()}) for each in pieces
    ]
    await cycles(server, FIRST, draw, said)
    before = await settled(server, None)
    await cycles(server, CYCLES, draw, said)
    after = await settled(server, before.census)
    grown = {name: after.megabytes[name] - size for name, size in before.megabytes.items()}
    print({name: f"{before.megabytes[name]:.0f} → {after.megabytes[name]:.0f} MB" for name in grown})
    assert after.descriptors == pytest.approx(before.descriptors, abs=2)  # a scrape's own connection
    assert after.shared == before.shared
    assert max(grown.values()) < GROWTH_MB, grown
