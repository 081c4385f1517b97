"""A robot's live session over a running server: cameras in, chunks of actions out."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import numpy as np
import pytest

from server.robot.frames import HEADER, IMAGINED, Encoding, Frame, Kind, Shot, pack_frame
from tests.clients.conftest import Serving, serving
from tests.clients.test_leaving import quiet
from tests.unit.robot.test_frames import jpeg, smooth

LEFT, WRIST = "images/base_0_rgb", "images/left_wrist_0_rgb"
FEW = {"samples": 12, "topk": 4, "iterations": 2}
AHEAD = 5000.0
"""The robot's clock is this far ahead."""


@pytest.fixture(scope="module")
def robots() -> Iterator[Serving]:
    yield from serving("pi05", "vjepa2", "--set", "pi05.tiny=true", "--set", "vjepa2.tiny=true")


def raw(picture: np.ndarray) -> Shot:
    height, width, _ = picture.shape
    return Shot(Encoding.RGB, width, height, picture.tobytes())


class Robot:
    """One connection; pings are answered while it listens."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.socket = socket
        self.session: dict[str, Any] = {}
        self._seq = 0

    @property
    def now(self) -> float:
        return time.monotonic() + AHEAD

    async def send(self, **event: Any) -> None:
        await self.socket.send_str(json.dumps(event))

    async def frame(self, name: str, shot: Shot, *, kind: Kind = Kind.CAMERA, age: float = 0.0) -> int:
        self._seq += 1
        await self.socket.send_bytes(pack_frame(Frame(kind, name, self._seq, self.now - age, shot)))
        return self._seq

    async def next(self) -> dict[str, Any]:
        while True:
            message = await asyncio.wait_for(self.socket.receive(), 60)
            assert message.type is aiohttp.WSMsgType.TEXT, message
            event: dict[str, Any] = json.loads(message.data)
            if event["type"] != "clock.ping":
                return event
            await self.send(type="clock.pong", id=event["id"], t=self.now)

    async def until(self, kind: str) -> dict[str, Any]:
        while (event := await self.next())["type"] != kind:
            assert event["type"] != "error", event
        return event

    async def chunk(self, **ask: Any) -> dict[str, Any]:
        await self.send(type="ask", **ask)
        return await self.until("chunk")


@asynccontextmanager
async def connected(server: Serving, **query: str) -> AsyncIterator[Robot]:
    async with (
        aiohttp.ClientSession() as session,
        session.ws_connect(f"{server.url}/v1/robot/session", params=query, max_msg_size=0) as socket,
    ):
        robot = Robot(socket)
        robot.session = (await robot.next())["session"]
        await robot.send(type="session.update", session={"stale_ms": 60000})  # a busy machine may stand still
        await robot.until("session.updated")
        yield robot


def metric(server: Serving, name: str) -> float:
    rows = [line.split() for line in server.get("/metrics")[1].splitlines() if line.startswith(name)]
    return sum(float(row[-1]) for row in rows)


PICTURE = smooth(48, 64)


async def test_a_policy_acts_from_raw_and_jpeg_cameras(robots: Serving) -> None:
    async with connected(robots, model="pi05") as robot:
        assert robot.session["offer"]["cameras"][:2] == [LEFT, WRIST]
        session = {"rate": 1, "prompt": "pick up the cup", "cameras": [LEFT, WRIST]}
        await robot.send(type="session.update", session=session)
        assert (await robot.until("session.updated"))["session"]["rate"] == 1
        await robot.send(type="state", t=robot.now, values=[0.0] * 8)
        left = await robot.frame(LEFT, raw(PICTURE))
        wrist = await robot.frame(WRIST, Shot(Encoding.JPEG, 0, 0, jpeg(PICTURE)))
        before = robot.now
        chunk = await robot.chunk(id="a", settings={"seed": 1})
        after = robot.now
        assert (chunk["ask"], chunk["epoch"], chunk["missing"]) == ("a", 1, [])
        assert chunk["obs_seq"] == {LEFT: left, WRIST: wrist}
        assert np.shape(chunk["actions"]) == (10, 32)
        assert chunk["first"] == 0  # it stands
        # The server knows the robot's clock to within half a round trip, which lies in this interval.
        slack = after - before
        assert before - slack <= chunk["t_valid_from"] <= after + slack
        oldest = min(chunk["t_capture"].values())
        assert 0 <= chunk["age_ms"] / 1000 <= after - oldest + slack
        assert await robot.until("ask.ended") == {"type": "ask.ended", "ask": "a", "reason": "done"}
        await robot.frame(LEFT, raw(PICTURE))
        await robot.frame(WRIST, raw(PICTURE))
        again = await robot.chunk(id="b", settings={"seed": 2})
        assert np.abs(np.array(again["actions"]) - chunk["actions"]).max() > 0


async def test_a_blended_chunk_begins_with_rows_of_the_one_before(robots: Serving) -> None:
    async with connected(robots, model="pi05") as robot:
        await robot.send(type="session.update", session={"rate": 0.05, "prompt": "wipe", "blend": True})
        await robot.send(type="state", t=robot.now, values=[0.0] * 8)
        chunks = []
        for _ in range(4):  # rows of 20 s: all of these chunks lie in the first one's time
            await robot.frame(LEFT, raw(PICTURE))
            chunks.append(await robot.chunk())
        assert [chunk["frozen"] for chunk in chunks] == [0, 0, 1, 1]
        before, last = chunks[-2:]
        row = round((last["t_capture"][LEFT] - before["t_valid_from"]) / last["dt"])
        assert last["actions"][0] == before["actions"][row]


async def test_a_planner_plans_from_the_newest_frame_of_a_camera(robots: Serving) -> None:
    async with connected(robots, model="vjepa2") as robot:
        await robot.send(type="state", t=robot.now, values=[0.0] * 7)
        await robot.frame("shelf", Shot(Encoding.JPEG, 0, 0, jpeg(PICTURE[:, ::-1])), kind=Kind.GOAL)
        numbers = [await robot.frame("camera", raw(np.roll(PICTURE, n, axis=1))) for n in range(10)]
        chunk = await robot.chunk(settings={**FEW, "seed": 1})
        assert chunk["obs_seq"] == {"camera": numbers[-1]}
        assert np.shape(chunk["actions"]) == (2, 7)
        assert (chunk["plan"]["iteration"], chunk["deadline_hit"]) == (2, False)
        await robot.until("ask.ended")
        await robot.frame("camera", raw(np.roll(PICTURE, 9, axis=1)))
        again = await robot.chunk(settings={**FEW, "seed": 1})  # the goal is known by its name now
        np.testing.assert_allclose(again["actions"], chunk["actions"], atol=1e-6)
        await robot.frame("camera", raw(PICTURE))
        short = await robot.chunk(deadline_ms=1, settings={**FEW, "iterations": 100})
        assert (short["plan"]["iteration"], short["deadline_hit"]) == (1, True)


async def test_what_a_plan_leads_to_comes_back_as_pictures(robots: Serving) -> None:
    async with connected(robots, model="vjepa2") as robot:
        assert robot.session["offer"]["shows"]
        await robot.send(type="session.update", session={"rate": 4, "show": True})
        await robot.until("session.updated")
        await robot.send(type="state", t=robot.now, values=[0.0] * 7)
        await robot.frame("", raw(PICTURE), kind=Kind.GOAL)
        await robot.frame("camera", raw(PICTURE))
        chunk = await robot.chunk(settings={**FEW, "horizon": 3})
        pictures: list[bytes] = []
        while len(pictures) < 3:
            message = await asyncio.wait_for(robot.socket.receive(), 60)
            if message.type is aiohttp.WSMsgType.BINARY:
                pictures.append(message.data)
        for row, picture in enumerate(pictures, 1):
            version, kind, encoding, length, number, seconds, width, height = HEADER.unpack_from(picture)
            assert (version, kind, encoding, number) == (1, IMAGINED, Encoding.RGB, row)
            assert (width, height, len(picture)) == (64, 64, HEADER.size + length + 64 * 64 * 3)
            assert int(picture[HEADER.size : HEADER.size + length]) == chunk["number"]
            assert seconds == pytest.approx(row * chunk["dt"])
    async with connected(robots, model="pi05") as robot:
        await robot.send(type="session.update", session={"show": True})
        assert (await robot.next())["param"] == "session.show"


async def test_frames_that_were_not_used_are_counted(robots: Serving) -> None:
    dropped, used = ('mstar_frames_total{fate="dropped"}', 'mstar_frames_total{fate="used"}')
    before = [metric(robots, name) for name in (dropped, used)]
    async with connected(robots, model="pi05") as robot:
        await robot.send(type="session.update", session={"rate": 1, "prompt": "wipe"})
        await robot.send(type="state", t=robot.now, values=[0.0] * 8)
        for _ in range(30):
            last = await robot.frame(LEFT, raw(PICTURE))
        assert (await robot.chunk())["obs_seq"] == {LEFT: last}
    assert [metric(robots, name) for name in (dropped, used)] == [before[0] + 29, before[1] + 1]


async def test_repeated_chunks_come_until_they_are_stopped(robots: Serving) -> None:
    async with connected(robots, model="pi05") as robot:
        await robot.send(type="session.update", session={"rate": 1, "prompt": "wipe"})
        await robot.send(type="state", t=robot.now, values=[0.0] * 8)
        await robot.send(type="ask", id="all", repeat=True)
        seen = []
        for _ in range(4):
            number = await robot.frame(LEFT, raw(PICTURE))
            event = await robot.next()
            while event["type"] not in {"chunk", "chunk.late"}:
                event = await robot.next()
            seen.append((event["obs_seq"][LEFT], number))
        assert all(one == other for one, other in seen)
        await robot.send(type="stop")
        assert (await robot.until("ask.ended"))["reason"] == "stopped"


async def test_a_session_is_resumed_with_a_new_epoch_and_its_goals(robots: Serving) -> None:
    async with connected(robots, model="vjepa2") as robot:
        first = robot.session
        await robot.send(type="state", t=robot.now, values=[0.0] * 7)
        await robot.frame("shelf", raw(PICTURE), kind=Kind.GOAL)
        await robot.frame("camera", raw(PICTURE))
        await robot.chunk(settings=FEW)
        await robot.frame("camera", raw(PICTURE))
        await robot.send(type="ask", id="lost", settings={"iterations": 100, "samples": 400})
        transport = robot.socket._writer.transport
        assert transport is not None
        transport.abort()
    async with connected(robots, resume=first["resume"]) as robot:
        assert (robot.session["id"], robot.session["epoch"], robot.session["goal"]) == (first["id"], 2, "shelf")
        await robot.send(type="session.update", session={"wait_ms": 60000})
        await robot.send(type="ask", id="new", settings=FEW)
        assert (await robot.until("session.updated"))["session"]["epoch"] == 2
        await robot.send(type="state", t=robot.now, values=[0.0] * 7)
        number = await robot.frame("camera", raw(PICTURE))
        chunk = await robot.until("chunk")
        assert (chunk["ask"], chunk["epoch"], chunk["obs_seq"]) == ("new", 2, {"camera": number})
        async with connected(robots, resume=first["resume"]) as other:
            assert other.session["epoch"] == 3
            while (message := await robot.socket.receive()).type is aiohttp.WSMsgType.TEXT:
                pass
            assert message.data == 4001
        with pytest.raises(aiohttp.WSServerHandshakeError) as over:  # it was closed as it should be
            async with connected(robots, resume=first["resume"]):
                pass
        assert over.value.status == 404


HALF_A_HANDSHAKE = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13"}


@pytest.mark.parametrize("headers", [{}, HALF_A_HANDSHAKE, {**HALF_A_HANDSHAKE, "Sec-WebSocket-Key": "eA=="}])
async def test_who_does_not_come_in_ends_nobodys_connection(robots: Serving, headers: dict[str, str]) -> None:
    async with connected(robots, model="vjepa2") as robot, aiohttp.ClientSession(headers=headers) as http:
        url = f"{robots.url}/v1/robot/session"
        for token, status in ((robot.session["resume"], 426), ("none", 404)):
            async with http.get(url, params={"resume": token}) as answer:
                assert answer.status == status
        await robot.send(type="session.update", session={"rate": 3})
        assert (await robot.until("session.updated"))["session"]["epoch"] == 1


async def test_a_reset_ends_what_is_in_flight(robots: Serving) -> None:
    async with connected(robots, model="vjepa2") as robot:
        await robot.send(type="state", t=robot.now, values=[0.0] * 7)
        await robot.frame("shelf", raw(PICTURE), kind=Kind.GOAL)
        await robot.frame("camera", raw(PICTURE))
        await robot.send(type="ask", id="long", settings={"iterations": 100, "samples": 400})
        await robot.send(type="reset")
        assert (await robot.until("ask.ended"))["reason"] == "reset"
        assert (await robot.until("session.reset"))["epoch"] == 2


def wrong_frames() -> Mapping[str, tuple[str, Shot]]:
    return {
        "images/base_0_rgb: this is no JPEG": (LEFT, Shot(Encoding.JPEG, 0, 0, b"nonsense")),
        "12 bytes are no raw picture of 9 × 9": (LEFT, Shot(Encoding.RGB, 9, 9, bytes(12))),
    }


async def test_mistakes_are_named_and_the_session_goes_on(robots: Serving) -> None:
    async with connected(robots, model="pi05") as robot:
        await robot.socket.send_bytes(b"short")
        assert "header of 20 bytes" in (await robot.next())["message"]
        await robot.send(type="dance")
        assert (await robot.next())["param"] == "type"
        await robot.frame("nose", raw(PICTURE))
        assert "no camera 'nose'" in (await robot.next())["message"]
        await robot.send(type="ask")
        assert (await robot.next())["param"] == "session.rate"
        await robot.send(type="session.update", session={"rate": 10})
        await robot.until("session.updated")
        await robot.send(type="state", t=robot.now, values=[0.0] * 8)
        for text, (name, shot) in wrong_frames().items():
            await robot.frame(name, shot)
            await robot.send(type="ask")
            assert text in (await robot.next())["message"]
            assert (await robot.next())["reason"] == "failed"
        await robot.frame(LEFT, raw(PICTURE))
        await robot.send(type="ask")
        assert (await robot.next())["param"] == "prompt"
        await robot.until("ask.ended")
        await robot.send(type="session.update", session={"prompt": "wipe"})
        await robot.frame(LEFT, raw(PICTURE))
        assert np.shape((await robot.chunk())["actions"]) == (10, 32)


async def test_a_camera_does_not_change_its_size(robots: Serving) -> None:
    async with connected(robots, model="vjepa2") as robot:
        await robot.send(type="state", t=robot.now, values=[0.0] * 7)
        await robot.frame("", raw(PICTURE), kind=Kind.GOAL)
        await robot.frame("camera", raw(PICTURE))
        await robot.chunk(settings=FEW)
        await robot.until("ask.ended")
        await robot.frame("camera", raw(PICTURE[:40]))
        await robot.send(type="ask", settings=FEW)
        assert (await robot.next())["code"] == "wrong_shape"


async def test_who_leaves_politely_leaves_nothing(robots: Serving) -> None:
    async with connected(robots, model="vjepa2"):
        pass
    before = await quiet(robots)
    for _ in range(3):
        async with connected(robots, model="vjepa2") as robot:
            await robot.send(type="state", t=robot.now, values=[0.0] * 7)
            await robot.frame("", raw(PICTURE), kind=Kind.GOAL)
            await robot.frame("camera", raw(PICTURE))
            await robot.send(type="ask", settings={"iterations": 100, "samples": 400})
    assert await quiet(robots, before) == pytest.approx(before)
