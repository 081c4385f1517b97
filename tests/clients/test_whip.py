"""Cameras pushed into a robot's session (WHIP), and what it imagines looked at (WHEP), by aiortc and GStreamer."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import subprocess
from asyncio.subprocess import PIPE, STDOUT
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from unittest.mock import ANY

import aiohttp
import numpy as np
import pytest
from aiortc import MediaStreamTrack, RTCConfiguration, RTCPeerConnection, RTCSessionDescription
from av import VideoFrame

from server.robot.frames import Kind
from tests.absent import absent
from tests.clients.conftest import PLANNER, POLICY, Serving
from tests.clients.robot_rtc import SDP, CameraTrack, plain, posted
from tests.clients.rtc import Microphone
from tests.clients.rtc_peer import PATIENCE
from tests.clients.test_leaving import quiet
from tests.clients.test_robot_rtc import BLUE, CODEC_LOSS, GREEN, RED, bars, middles, raw
from tests.clients.test_robot_session import connected
from tests.painter.model import STEP

FRAGMENT = "application/trickle-ice-sdpfrag"


@asynccontextmanager
async def peer_of() -> AsyncIterator[RTCPeerConnection]:
    peer = RTCPeerConnection(RTCConfiguration(iceServers=[]))
    try:
        yield peer
    finally:
        await peer.close()


@asynccontextmanager
async def publishing(server: Serving, session: str, *tracks: MediaStreamTrack, camera: str) -> AsyncIterator[str]:
    """A camera in a session → the address of what it sends."""
    async with peer_of() as peer:
        for track in tracks:
            peer.addTransceiver(track, direction="sendonly")
        status, answer, headers = await posted(f"{server.url}/whip/{session}?camera={camera}", peer)
        assert status == 201, answer
        assert "a=recvonly" in answer
        assert "a=sendrecv" not in answer
        yield headers["Location"]


Answer = tuple[int, Mapping[str, str], str]


async def asked(server: Serving, method: str, path: str, body: str = "", **headers: str) -> Answer:
    """Status, headers, body."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    url = server.url + path
    async with aiohttp.ClientSession() as http, http.request(method, url, data=body or None, headers=named) as answer:
        return answer.status, answer.headers, await answer.text()


async def gone(server: Serving, address: str) -> None:
    """Returns when nothing is at the address any more."""
    async with asyncio.timeout(PATIENCE):
        while (await asked(server, "GET", address))[0] != 404:
            pass


async def test_cameras_on_their_own_feed_a_session(painters: Serving) -> None:
    async with connected(painters, model=POLICY) as robot:
        session = robot.session["id"]
        await robot.send(type="session.update", session={"cameras": ["left", "wrist"], "prompt": "x", "wait_ms": 30000})
        await robot.send(type="state", t=robot.now, values=[0.0, 0.0])
        left, wrist = (CameraTrack(lambda _, colour=colour: plain(colour)) for colour in (RED, BLUE))  # type: ignore[misc]
        async with (
            publishing(painters, session, left, Microphone(), camera="left"),
            publishing(painters, session, wrist, camera="wrist"),
        ):
            chunk = await robot.chunk(id="a")
            assert chunk["missing"] == []
            assert np.abs(np.array(chunk["actions"])[:2] - [RED, BLUE]).max() < CODEC_LOSS
            assert all(robot.now - 60 < at <= robot.now for at in chunk["t_capture"].values())


async def test_a_camera_that_comes_again_takes_its_own_place(painters: Serving) -> None:
    async with connected(painters, model=POLICY) as robot:
        session = robot.session["id"]
        async with (
            publishing(painters, session, CameraTrack(lambda _: plain(RED)), camera="left") as before,
            publishing(painters, session, CameraTrack(lambda _: plain(GREEN)), camera="left") as after,
        ):
            await gone(painters, before)
            assert (await asked(painters, "GET", after))[0] == 200


@pytest.fixture
def whip_client(tmp_path: Path) -> tuple[str, Mapping[str, str]]:
    """GStreamer's client and the environment to start it in.

    Debian 12's wants libsoup 2, its ICE library wants libsoup 3 for routers that open ports, and both in one process
    end it: the part that opens ports is replaced by one that does nothing.
    """
    client, compiler = shutil.which("whip-client"), next(filter(None, map(shutil.which, ("cc", "gcc", "tcc"))), None)
    if client is None:
        absent("there is no whip-client (Debian: simple-whip-client)")
    if compiler is None:
        absent("there is no C compiler (Debian: tcc)")
    names = ("thread_new", "add_port", "get_type", "remove_port_local")
    source = tmp_path / "nothing.c"
    source.write_text("".join(f"void *gupnp_simple_igd_{name}(void) {{ return 0; }}\n" for name in names))
    library = tmp_path / "libgupnp-igd-1.0.so.4"
    subprocess.run([compiler, "-shared", "-nostdlib", "-o", library, source], check=True)
    return client, {**os.environ, "LD_LIBRARY_PATH": str(tmp_path)}


async def test_gstreamers_client_feeds_a_session(painters: Serving, whip_client: tuple[str, Mapping[str, str]]) -> None:
    client, environment = whip_client
    async with connected(painters, model=POLICY) as robot:
        await robot.send(type="session.update", session={"cameras": ["front"], "prompt": "x", "wait_ms": 55000})
        await robot.send(type="state", t=robot.now, values=[0.0, 0.0])
        video = (
            "videotestsrc is-live=true pattern=solid-color foreground-color=0xffc81e1e ! "
            "video/x-raw,width=160,height=120,framerate=15/1 ! videoconvert ! vp8enc deadline=1 ! "
            "rtpvp8pay pt=96 ssrc=2 ! queue ! application/x-rtp,media=video,encoding-name=VP8,payload=96"
        )
        url = f"{painters.url}/whip/{robot.session['id']}?camera=front"
        command = (client, "-u", url, "-t", "any", "-V", video, "-o")
        sending = await asyncio.create_subprocess_exec(*command, env=environment, stdout=PIPE, stderr=STDOUT)
        try:
            chunk = await robot.chunk(id="a")
            assert np.abs(np.array(chunk["actions"])[0] - RED).max() < CODEC_LOSS
            address = next(iter(await addresses(painters, sending)))
            assert (await asked(painters, "GET", address))[0] == 200
            sending.send_signal(signal.SIGINT)
            assert await sending.wait() == 0
            assert (await asked(painters, "GET", address))[0] == 404  # it has said goodbye
        finally:
            if sending.returncode is None:
                sending.kill()


async def addresses(server: Serving, sending: asyncio.subprocess.Process) -> list[str]:
    """Where the client found what it had opened: a part of what it tells."""
    assert sending.stdout is not None
    found: list[str] = []
    async with asyncio.timeout(PATIENCE):
        while not found:
            line = (await sending.stdout.readline()).decode()
            found = re.findall(rf"Resource URL: {server.url}(/[^?\s]*)", line)
    return found


async def test_what_is_imagined_is_looked_at_by_others(painters: Serving) -> None:
    async with connected(painters, model=PLANNER) as robot, peer_of() as peer:
        session = robot.session["id"]
        shown: asyncio.Queue[VideoFrame] = asyncio.Queue()

        @peer.on("track")
        def _(track: MediaStreamTrack) -> None:
            async def look() -> None:
                for _ in range(4):
                    frame = await track.recv()
                    assert isinstance(frame, VideoFrame)
                    shown.put_nowait(frame)

            looking.append(asyncio.ensure_future(look()))

        looking: list[asyncio.Future[None]] = []
        peer.addTransceiver("video", direction="recvonly")
        status, answer, headers = await posted(f"{painters.url}/whep/{session}", peer)
        assert status == 201
        assert "a=sendonly" in answer
        await robot.send(type="state", t=robot.now, values=[1.0, 2.0])
        await robot.frame("home", raw(bars()), kind=Kind.GOAL)
        await robot.frame("camera", raw(bars()))
        await robot.chunk()
        async with asyncio.timeout(PATIENCE):
            pictures = [(await shown.get()).to_ndarray(format="rgb24") for _ in range(4)]
        # Whoever is connected later than the plan is shown its last picture first.
        moved = [np.abs(middles(pictures[0]) - middles(bars(n * STEP))).max() for n in range(1, 5)]
        assert min(moved) < 2 * CODEC_LOSS
        assert np.abs(middles(pictures[-1]) - middles(bars(4 * STEP))).max() < 2 * CODEC_LOSS
        assert (await asked(painters, "DELETE", headers["Location"]))[0] == 200
        assert (await asked(painters, "DELETE", headers["Location"]))[0] == 404
        for task in looking:
            task.cancel()


async def test_codes_and_headers(painters: Serving) -> None:
    async with connected(painters, model=POLICY) as robot, peer_of() as peer:
        session = robot.session["id"]
        whip = f"/whip/{session}"
        status, headers, body = await asked(painters, "OPTIONS", whip)
        assert (status, headers["Accept-Post"], body) == (204, SDP, "")
        asking = {"Origin": painters.url, "Access-Control-Request-Method": "POST"}
        status, headers, body = await asked(painters, "OPTIONS", whip, **asking)
        assert (status, headers["Accept-Post"], headers["Access-Control-Allow-Origin"]) == (204, SDP, painters.url)
        assert {"POST", "PATCH", "DELETE"} <= set(headers["Access-Control-Allow-Methods"].split(", "))
        assert {"Authorization", "Content-Type", "If-Match"} <= set(headers["Access-Control-Allow-Headers"].split(", "))
        for method in ("GET", "HEAD"):
            assert (await asked(painters, method, whip))[::2] == (200, "")
        assert (await asked(painters, "HEAD", f"/whep/{session}"))[1]["Content-Type"] == SDP
        assert (await asked(painters, "POST", whip, "v=0", Content_Type="text/plain"))[0] == 415
        assert (await asked(painters, "POST", whip, "nonsense", Content_Type=SDP))[0] == 400
        assert (await asked(painters, "POST", "/whip/robot_none", "v=0", Content_Type=SDP))[0] == 404
        assert (await asked(painters, "PUT", whip))[0] == 405
        peer.addTransceiver(CameraTrack(lambda _: plain(RED)), direction="sendonly")
        assert (await posted(f"{painters.url}{whip}?camera=nose", peer))[0] == 400
        status, _, headers = await posted(f"{painters.url}{whip}?camera=left", peer)
        assert status == 201
        assert headers["ETag"].startswith('"')
        address = headers["Location"]
        status, told, _ = await asked(painters, "OPTIONS", address)
        assert (status, told["Accept-Patch"], told.get("Accept-Post")) == (204, f"{FRAGMENT}, {SDP}", None)
        for method, at in (("PATCH", whip), ("DELETE", whip), ("POST", address), ("PUT", address)):
            assert (await asked(painters, method, at))[0] == 405
        assert (await asked(painters, "HEAD", address))[0] == 200
        user = next(line for line in peer.localDescription.sdp.splitlines() if line.startswith("a=ice-ufrag"))
        usable, not_usable = "1 1 UDP 1 127.0.0.1 9 typ host", "2 1 TCP 1 x.local 9 typ host"
        more = f"{user}\r\na=mid:0\r\na=candidate:{usable}\r\na=candidate:{not_usable}\r\n"

        async def patch(body: str, kind: str = FRAGMENT, **named: str) -> int:
            return (await asked(painters, "PATCH", address, body, Content_Type=kind, **named))[0]

        assert await patch(more, If_Match=headers["ETag"]) == 204
        assert await patch(more) == 428
        assert await patch(more, If_Match='"other"') == 412
        assert await patch(more, SDP, If_Match=headers["ETag"]) == 409
        assert await patch(more, "text/plain", If_Match=headers["ETag"]) == 415
        assert await patch(more, If_Match=f'"other", {headers["ETag"]}') == 204
        assert await patch(more * 3_000, If_Match=headers["ETag"]) == 413
        assert await patch("what", If_Match=headers["ETag"]) == 400
        assert await patch(more.replace(user, "a=ice-ufrag:new"), If_Match="*") == 422
        assert (await asked(painters, "DELETE", address))[0] == 200
        assert (await asked(painters, "DELETE", address))[0] == 404
        assert await patch(more, If_Match=headers["ETag"]) == 404


@pytest.mark.parametrize(
    ("kinds", "direction", "path"),
    [
        (["audio"], "sendonly", "whip"),
        (["video", "video"], "sendonly", "whip"),
        (["video"], "recvonly", "whip"),
    ],
)
async def test_offers_for_something_else_are_refused_whole(
    painters: Serving, kinds: list[str], direction: str, path: str
) -> None:
    async with connected(painters, model=POLICY) as robot, peer_of() as peer:
        for kind in kinds:
            peer.addTransceiver(kind, direction=direction)
        assert (await posted(f"{painters.url}/{path}/{robot.session['id']}", peer))[0] == 422


@pytest.mark.parametrize(("kinds", "direction"), [(["video"], "sendonly"), (["audio"], "recvonly")])
async def test_who_offers_what_can_not_be_shown_is_offered_what_can(
    painters: Serving, kinds: list[str], direction: str
) -> None:
    async with connected(painters, model=PLANNER) as robot, peer_of() as wrong, peer_of() as peer:
        for kind in kinds:
            wrong.addTransceiver(kind, direction=direction)
        url = f"{painters.url}/whep/{robot.session['id']}"
        status, offer, headers = await posted(url, wrong)
        assert (status, headers["Content-Type"].split(";")[0]) == (406, SDP)
        assert "a=sendonly" in offer
        address, tag = headers["Location"], headers["ETag"]
        shown: asyncio.Future[VideoFrame] = asyncio.get_running_loop().create_future()

        @peer.on("track")
        def _(track: MediaStreamTrack) -> None:
            async def look() -> None:
                frame = await track.recv()
                assert isinstance(frame, VideoFrame)
                shown.set_result(frame)

            looking.append(asyncio.ensure_future(look()))

        looking: list[asyncio.Future[None]] = []
        await peer.setRemoteDescription(RTCSessionDescription(offer, "offer"))
        await peer.setLocalDescription(await peer.createAnswer())
        answer = peer.localDescription.sdp

        async def patch(body: str, **named: str) -> tuple[int, str]:
            status, _, told = await asked(painters, "PATCH", address, body, Content_Type=SDP, **named)
            return status, told

        assert (await patch(answer, If_Match='"other"'))[0] == 412
        assert await patch("nonsense") == (400, ANY)
        assert await patch(answer, If_Match=tag) == (204, "")
        assert (await patch(answer))[0] == 409
        await robot.send(type="state", t=robot.now, values=[1.0, 2.0])
        await robot.frame("home", raw(bars()), kind=Kind.GOAL)
        await robot.frame("camera", raw(bars()))
        await robot.chunk()
        picture = (await asyncio.wait_for(shown, PATIENCE)).to_ndarray(format="rgb24")
        assert min(np.abs(middles(picture) - middles(bars(n * STEP))).max() for n in range(1, 5)) < 2 * CODEC_LOSS
        assert (await asked(painters, "DELETE", address))[0] == 200
        for task in looking:
            task.cancel()


async def test_guests_leave_nothing_and_end_with_their_session(painters: Serving) -> None:
    async def visit() -> None:
        camera = CameraTrack(lambda _: plain(RED))
        async with (
            connected(painters, model=POLICY) as robot,
            publishing(painters, robot.session["id"], camera, camera="left") as address,
        ):
            async with asyncio.timeout(PATIENCE):
                await camera.begun.wait()
            await robot.socket.close()
            await gone(painters, address)

    await visit()
    before = await quiet(painters)
    await visit()
    assert await quiet(painters, before) == pytest.approx(before)
