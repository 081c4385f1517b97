"""A robot's live session over WebRTC: cameras as video tracks in, chunks out, what is imagined as a video."""

from __future__ import annotations

import asyncio
import itertools
import json
import signal
import sys
import time
from asyncio.subprocess import PIPE

import aiohttp
import numpy as np
import pytest
from aiortc import RTCConfiguration, RTCPeerConnection, RTCRtpSender

from server.robot.frames import Encoding, Kind, Shot, Sound, pack_sound
from tests.clients.conftest import PLANNER, POLICY, ROOT, Serving
from tests.clients.robot_rtc import AHEAD, SDP, CameraTrack, RtcRobot, plain, posted, robot
from tests.clients.rtc import RATE, Microphone, words
from tests.clients.rtc_peer import PATIENCE
from tests.clients.test_leaving import quiet
from tests.clients.test_robot_session import connected, metric
from tests.clients.test_webrtc import moment
from tests.painter.model import STEP
from tests.painter.watcher import CAMERAS

RED, GREEN, BLUE, GREY = (200, 30, 30), (30, 200, 30), (30, 30, 200), (120, 120, 120)
UPGRADE = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "eA=="}
CODEC_LOSS = 12
"""Levels that VP8 and its halved colour planes may change a plain picture by."""


def raw(picture: np.ndarray) -> Shot:
    height, width, _ = picture.shape
    return Shot(Encoding.RGB, width, height, picture.tobytes())


async def test_four_cameras_are_seen_each_under_its_name(painters: Serving) -> None:
    colours = (RED, GREEN, BLUE, GREY)
    cameras = [CameraTrack(lambda _, colour=colour: plain(colour)) for colour in colours]  # type: ignore[misc]
    async with robot(painters, cameras, model=POLICY) as client:
        assert client.session["offer"]["cameras"] == list(CAMERAS)
        client.state(0.0, 0.0)
        client.send("session.update", session={"cameras": CAMERAS, "prompt": "look", "sync_ms": 1000, "wait_ms": 50000})
        first = client.now
        chunk = await client.chunk(id="a")
        assert chunk["missing"] == []
        assert chunk["spread_ms"] <= 1000
        assert np.abs(np.array(chunk["actions"]) - colours).max() < CODEC_LOSS
        # On the robot's clock, which is far from the server's and from its own wall clock.
        assert all(first - 60 < at < client.now for at in chunk["t_capture"].values())


def bars(shift: int = 0) -> np.ndarray:
    """Four upright bars; 64 × 64."""
    picture = np.concatenate([plain(colour, 64, 16) for colour in (RED, GREEN, BLUE, GREY)], axis=1)
    return np.roll(picture, shift, axis=1)


def middles(picture: np.ndarray) -> np.ndarray:
    """Colours in the middle of the bars [4, 3]; codecs smear their edges."""
    found: np.ndarray = picture[24:40, 6::16][:, :4].mean(axis=0)
    return found


async def test_what_is_imagined_comes_as_a_video(painters: Serving) -> None:
    async with robot(painters, [CameraTrack(lambda _: bars())], watching=True, model=PLANNER) as client:
        client.state(1.0, 2.0)
        client.goal("home", raw(bars()))
        chunk = await client.chunk()
        np.testing.assert_allclose(chunk["actions"], [[1.0, 2.0]] * 4)
        assert chunk["plan"]["energy"] == pytest.approx(bars().mean(), abs=CODEC_LOSS)
        await client.pictures(6)  # the last one is repeated; on a machine that stands still, others may be, too
        assert {picture.shape for picture in client.shown} == {(64, 64, 3)}
        numbers = [number_of(picture) for picture in client.shown]
        assert [number for number, _ in itertools.groupby(numbers)] == [1, 2, 3, 4]


def number_of(picture: np.ndarray) -> int:
    """Which of the imagined pictures it is, within codec loss."""
    apart = [np.abs(middles(picture) - middles(bars(number * STEP))).max() for number in range(1, 5)]
    assert min(apart) < 2 * CODEC_LOSS
    return 1 + int(np.argmin(apart))


@pytest.mark.parametrize("wall", [True, False])
async def test_the_frame_that_was_used_is_dated_on_the_robots_clock(painters: Serving, wall: bool) -> None:
    made: list[float] = []

    def picture(number: int) -> np.ndarray:
        made.append(time.monotonic() + AHEAD)
        return plain(GREY)

    camera = CameraTrack(picture)
    async with robot(painters, [camera], wall=wall, model=PLANNER) as client:
        client.state(0.0, 0.0)
        client.goal("home", raw(bars()))
        for _ in range(3):
            chunk = await client.chunk()
        number, at = chunk["obs_seq"]["camera"], chunk["t_capture"]["camera"]
        assert 1 <= number <= camera.frames
        assert made[0] - 60 < at < client.now
        assert chunk["age_ms"] < (client.now - made[0]) * 1000


async def test_a_spoken_word_stops_the_plan_and_ends_its_epoch(painters: Serving) -> None:
    microphone = Microphone()
    async with robot(painters, [CameraTrack(lambda _: bars()), microphone], model=PLANNER) as client:
        client.send("session.update", session={"stop": ["stop", "halt"], "wait_ms": 20000})
        client.state(0.0, 0.0)
        client.goal("home", raw(bars()))
        client.send("ask", id="on", repeat=True)
        await client.event("chunk")
        microphone.say("hello name")
        assert "hello" in (await client.event("heard"))["text"]
        assert not [event for event in client.events if event["type"] == "ask.ended"]
        microphone.say("yes stop")
        stopped = await client.event("session.stopped")
        assert (stopped["said"], stopped["epoch"]) == ("stop", 2)
        ended = await client.event("ask.ended")
        assert (ended["ask"], ended["reason"]) == ("on", "stopped")
        last = [event["type"] for event in client.events]
        assert "chunk" not in last[last.index("session.stopped") :]


async def test_a_spoken_word_stops_over_websocket_as_well(painters: Serving) -> None:
    async with connected(painters, model=PLANNER) as client:
        await client.send(type="state", t=client.now, values=[0.0, 0.0])
        await client.frame("home", raw(bars()), kind=Kind.GOAL)
        await client.send(type="session.update", session={"stop": ["stop"], "wait_ms": 20000})
        await client.until("session.updated")
        await client.send(type="ask", id="on")  # there is no picture yet
        quiet_before, quiet_behind = np.zeros(RATE // 2, np.int16), np.zeros(RATE, np.int16)
        said = np.concatenate((quiet_before, words("yes stop"), quiet_behind))
        for piece in np.array_split(said, 20):
            await client.socket.send_bytes(pack_sound(Sound(RATE, piece)))
        assert (await client.until("heard"))["text"] == "yes stop"
        assert (await client.until("ask.ended"))["reason"] == "stopped"
        assert (await client.until("session.stopped"))["epoch"] == 2
        await client.socket.send_bytes(pack_sound(Sound(1000, said[:10])))
        assert (await client.next())["param"] == "width"


async def test_a_lost_connection_is_resumed_with_a_new_epoch(painters: Serving) -> None:
    async with robot(painters, [CameraTrack(lambda _: bars())], model=PLANNER) as client:
        token, name = client.session["resume"], client.session["id"]
        client.state(0.0, 0.0)
        client.goal("home", raw(bars()))
        await client.chunk()
    async with robot(painters, [CameraTrack(lambda _: bars())], resume=token) as client:
        assert (client.session["id"], client.session["epoch"], client.session["goal"]) == (name, 2, "home")
        client.state(0.0, 0.0)
        assert (await client.chunk())["epoch"] == 2
        async with connected(painters, resume=token) as other:  # the other transport takes it over
            assert (other.session["id"], other.session["epoch"]) == (name, 3)
            assert client.channel.readyState in {"open", "closing", "closed"}


async def test_a_camera_that_freezes_is_told_and_done_without(painters: Serving) -> None:
    left, right = CameraTrack(lambda _: plain(RED)), CameraTrack(lambda _: plain(BLUE))
    async with robot(painters, [left, right], model=POLICY, cameras="left,right") as client:
        client.state(0.0, 0.0)
        client.send("session.update", session={"cameras": ["left", "right"], "prompt": "x", "wait_ms": 20000})
        assert (await client.chunk())["missing"] == []
        left.runs.clear()
        client.send("session.update", session={"frozen_ms": 1500, "stale_ms": 1000, "wait_ms": 1000})
        assert (await client.event("camera.frozen"))["camera"] == "left"
        assert (await client.chunk())["missing"] == ["left"]
        left.runs.set()
        assert (await client.event("camera.back"))["camera"] == "left"


async def test_h264_is_seen_as_well(painters: Serving) -> None:
    client = RtcRobot(painters, [CameraTrack(lambda _: plain(GREEN))])
    (camera,) = client.peer.getTransceivers()
    codecs = [codec for codec in RTCRtpSender.getCapabilities("video").codecs if codec.mimeType == "video/H264"]
    camera.setCodecPreferences(codecs)
    try:
        await client.connect(model=POLICY, cameras="wrist")
        client.state(0.0, 0.0)
        client.send("session.update", session={"cameras": ["wrist"], "prompt": "look", "wait_ms": 20000})
        chunk = await client.chunk()
        assert list(chunk["obs_seq"]) == ["wrist"]
        assert np.abs(np.array(chunk["actions"])[0] - GREEN).max() < CODEC_LOSS
    finally:
        await client.close()


async def test_robots_that_hang_up_leave_nothing(painters: Serving) -> None:
    async def visit() -> None:
        cameras = [CameraTrack(lambda _: bars()), Microphone()]
        async with robot(painters, cameras, watching=True, model=PLANNER) as client:
            client.state(0.0, 0.0)
            client.goal("home", raw(bars()))
            await client.chunk()
            client.send("ask", repeat=True)
            async with aiohttp.ClientSession() as http, http.delete(painters.url + client.location) as answer:
                assert answer.status == 200

    await visit()
    before = await quiet(painters)
    await asyncio.gather(visit(), visit())
    assert await quiet(painters, before) == pytest.approx(before)


async def test_hanging_up_ends_the_session(painters: Serving) -> None:
    async with robot(painters, model=PLANNER) as client:
        token = client.session["resume"]
        async with aiohttp.ClientSession() as http:
            for status in (200, 404):
                async with http.delete(painters.url + client.location) as answer:
                    assert answer.status == status
            async with http.get(f"{painters.url}/v1/robot/session?resume={token}", headers=UPGRADE) as answer:
                assert answer.status == 404


async def test_offers_that_are_not_for_this_are_refused_and_leave_nothing(painters: Serving) -> None:
    async with robot(painters, model=PLANNER):
        pass
    before = await quiet(painters)
    url = f"{painters.url}/v1/robot/calls?model={PLANNER}"
    for cameras, query, param in (
        (0, "", "sdp"),
        (2, "", "sdp"),
        (1, "&cameras=nose", "cameras"),
        (1, "&cameras=camera,camera", "cameras"),
    ):
        peer = RTCPeerConnection(RTCConfiguration(iceServers=[]))
        if cameras:
            peer.createDataChannel("robot")
        for _ in range(max(1, cameras)):
            peer.addTransceiver("video", direction="sendonly")
        status, body, _ = await posted(url + query, peer)
        assert (status, json.loads(body)["error"]["param"]) == (400, param)
        await peer.close()
    async with aiohttp.ClientSession() as http, http.post(url, data="x") as answer:
        assert answer.status == 415
    assert await quiet(painters, before) == pytest.approx(before)


async def test_an_offer_that_is_none_ends_nobodys_connection(painters: Serving) -> None:
    sdp = "v=0\r\no=- 0 0 IN IP4 127.0.0.1\r\ns=-\r\nt=0 0\r\n"
    async with robot(painters, model=PLANNER) as client, aiohttp.ClientSession() as http:
        url = f"{painters.url}/v1/robot/calls?resume={client.session['resume']}"
        for offer in ("nonsense", sdp):
            async with http.post(url, data=offer, headers={"Content-Type": SDP}) as answer:
                assert (answer.status, (await answer.json())["error"]["param"]) == (400, "sdp")
        peer = RTCPeerConnection(RTCConfiguration(iceServers=[]))
        peer.createDataChannel("robot")
        peer.addTransceiver("video", direction="sendonly")
        for cameras in ("nose", "camera,camera"):
            status, body, _ = await posted(f"{url}&cameras={cameras}", peer)
            assert (status, json.loads(body)["error"]["param"]) == (400, "cameras")
        await peer.close()
        client.send("session.update", session={"rate": 3})
        assert (await client.event("session.updated", 2))["session"]["epoch"] == 1


@pytest.mark.slow  # what they share with calls is tested there
async def test_robots_that_vanish_are_freed_and_may_come_back(painters: Serving) -> None:
    """Within ten seconds, killed or frozen: what is held is counted, and their sessions are parked."""
    command = [sys.executable, "-m", "tests.clients.robot_rtc", painters.url, PLANNER]
    ways = (signal.SIGKILL, signal.SIGSTOP)
    peers = [await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdout=PIPE) for _ in ways]
    try:
        tokens = []
        async with asyncio.timeout(3 * PATIENCE):
            for peer in peers:
                assert peer.stdout is not None
                tokens.append((await peer.stdout.readline()).decode().strip())
        assert sessions(painters) == len(ways)
        for peer, how in zip(peers, ways, strict=True):
            peer.send_signal(how)
        async with asyncio.timeout(PATIENCE):
            while sessions(painters):
                await moment()
    finally:
        for peer in peers:
            if peer.returncode is None:
                peer.kill()
            await peer.wait()
    for token in tokens:
        async with connected(painters, resume=token) as other:
            assert other.session["epoch"] == 2


def sessions(server: Serving) -> int:
    """Robots' connections that the server holds."""
    return round(metric(server, 'mstar_sessions{protocol="robot"}'))
