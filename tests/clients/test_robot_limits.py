"""What robots, their cameras and those who look at them may use of a key's allowance."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import aiohttp
import numpy as np
import pytest

from server.robot.frames import Sound, pack_sound
from tests.clients.conftest import PLANNER, Serving, serving
from tests.clients.robot_rtc import CameraTrack, plain, posted
from tests.clients.rtc import RATE
from tests.clients.test_robot_rtc import RED
from tests.clients.test_whip import asked, peer_of

KEYS = {name: {"Authorization": f"Bearer sk-{name}"} for name in ("robot", "camera", "other")}


@pytest.fixture(scope="module")
def limited() -> Iterator[Serving]:
    keys = [word for name in KEYS for word in ("--api-key", f"sk-{name}")]
    limits = ("--key-sessions", "1", "--max-sessions", "3", "--key-seconds", "1")
    yield from serving(PLANNER, "toy", *keys, *limits)


async def test_guests_count_as_sessions_of_their_key(limited: Serving) -> None:
    """One each, three in all."""
    async with aiohttp.ClientSession() as http:
        url = f"{limited.url}/v1/robot/session"
        async with http.ws_connect(url, headers=KEYS["robot"]) as socket, peer_of() as camera, peer_of() as viewer:
            created = await socket.receive_json()
            session, token = created["session"]["id"], created["session"]["resume"]
            camera.addTransceiver(CameraTrack(lambda _: plain(RED)), direction="sendonly")
            viewer.addTransceiver("video", direction="recvonly")
            whip, whep = f"{limited.url}/whip/{session}", f"{limited.url}/whep/{session}"
            status, body, headers = await posted(whip, camera, **KEYS["robot"])
            assert (status, json.loads(body)["error"]["code"]) == (429, "rate_limit_exceeded")
            assert int(headers["Retry-After"]) >= 1
            status, _, headers = await posted(whip, camera, **KEYS["camera"])
            assert status == 201
            address = headers["Location"]
            assert (await posted(whep, viewer, **KEYS["camera"]))[0] == 429
            assert (await posted(whep, viewer, **KEYS["other"]))[0] == 201
            status, body, _ = await posted(f"{limited.url}/v1/robot/calls", viewer, **KEYS["other"])
            assert status == 429
            # Whoever resumes takes the place of the connection that it ends.
            async with http.ws_connect(url, headers=KEYS["robot"], params={"resume": token}) as again:
                assert (await again.receive_json())["session"]["epoch"] == 2
                assert (await asked(limited, "DELETE", address, **KEYS["camera"]))[0] == 200
                await again.close()
        assert await asyncio.to_thread(seats, limited) == 0


def seats(server: Serving) -> float:
    """Sessions that are open, when the last has ended."""
    while True:
        rows = [line for line in server.get("/metrics")[1].splitlines() if line.startswith("mstar_sessions{")]
        if not (found := sum(float(row.split()[-1]) for row in rows)):
            return found


async def test_who_may_not_be_heard_any_more_is_told_once(limited: Serving) -> None:
    async with (
        aiohttp.ClientSession() as http,
        http.ws_connect(f"{limited.url}/v1/robot/session", headers=KEYS["other"]) as socket,
    ):
        for _ in range(40):
            await socket.send_bytes(pack_sound(Sound(RATE, np.zeros(RATE // 4, np.int16))))
        await socket.send_str(json.dumps({"type": "dance"}))
        errors: list[dict[str, Any]] = []
        while len(errors) < 2:
            event = await asyncio.wait_for(socket.receive_json(), 60)
            errors += [event] if event["type"] == "error" else []
        assert {(error["code"], error["param"]) for error in errors} == {
            ("rate_limit_exceeded", None),
            ("invalid_value", "type"),
        }
        await socket.send_str(json.dumps({"type": "dance"}))
        while (event := await asyncio.wait_for(socket.receive_json(), 60))["type"] != "error":
            pass
        assert event["code"] == "invalid_value"  # told once
