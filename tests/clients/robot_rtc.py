"""A robot of the server over WebRTC: an aiortc peer with cameras, that notes all that comes."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from fractions import Fraction
from typing import Any

import aiohttp
import numpy as np
from aiortc import MediaStreamTrack, RTCPeerConnection, RTCSessionDescription
from aiortc.mediastreams import MediaStreamError
from av import VideoFrame

from media.pace import Pacer
from server.robot.frames import Frame, Kind, Shot, pack_frame
from tests.clients.conftest import Serving
from tests.clients.rtc_peer import RtcPeer

CLOCK = 90_000
AHEAD = 5000.0
"""The robot's clock is this far ahead."""
SDP = "application/sdp"


def plain(colour: tuple[int, int, int], height: int = 48, width: int = 64) -> np.ndarray:
    return np.full((height, width, 3), colour, np.uint8)


class CameraTrack(MediaStreamTrack):
    """What `picture(n)` gives for the n-th frame, `rate` times a second, stamped with when it is taken."""

    kind = "video"

    def __init__(self, picture: Callable[[int], np.ndarray], rate: int = 30) -> None:
        super().__init__()
        self._picture = picture
        self._pacer = Pacer(CLOCK, CLOCK // rate)
        self._first: float | None = None
        self.frames = 0
        self.begun = asyncio.Event()
        self.runs = asyncio.Event()
        """Nothing comes while it is not set."""
        self.runs.set()

    async def recv(self) -> VideoFrame:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(max(0.0, self._pacer.next(loop.time()) - loop.time()))
        await self.runs.wait()
        now = loop.time()
        self._first = now if self._first is None else self._first
        frame = VideoFrame.from_ndarray(self._picture(self.frames), format="rgb24")
        frame.pts, frame.time_base = round((now - self._first) * CLOCK), Fraction(1, CLOCK)
        self.frames += 1
        self.begun.set()
        return frame


async def posted(url: str, peer: RTCPeerConnection, **headers: str) -> tuple[int, str, Any]:
    """Offer, and take the answer → status, body, headers."""
    await peer.setLocalDescription(await peer.createOffer())
    async with (
        aiohttp.ClientSession() as http,
        http.post(url, data=peer.localDescription.sdp, headers={"Content-Type": SDP, **headers}) as answer,
    ):
        body = await answer.text()
        if answer.status == 201:
            assert answer.content_type == SDP
            await peer.setRemoteDescription(RTCSessionDescription(body, "answer"))
        return answer.status, body, answer.headers


class RtcRobot(RtcPeer):
    """`shown`: the frames of what the server imagines as [height, width, 3]."""

    def __init__(
        self, server: Serving, cameras: Sequence[MediaStreamTrack] = (), *, watching: bool = False, wall: bool = True
    ) -> None:
        super().__init__("robot")
        self.server = server
        self.shown: list[np.ndarray] = []
        self._wall = wall
        for camera in cameras:
            self.peer.addTransceiver(camera, direction="sendonly")
        if watching:
            self.peer.addTransceiver("video", direction="recvonly")
        self.peer.add_listener("track", lambda track: self._task(self._look(track)))

    @property
    def now(self) -> float:
        return time.monotonic() + AHEAD

    @property
    def session(self) -> dict[str, Any]:
        """As it was told last."""
        found: dict[str, Any] = [event["session"] for event in self.events if "session" in event][-1]
        return found

    async def connect(self, **query: str) -> None:
        asked = "&".join(f"{name}={value}" for name, value in query.items())
        status, body, headers = await posted(f"{self.server.url}/v1/robot/calls?{asked}", self.peer)
        assert status == 201, body
        self.location = headers["Location"]
        await self.event("session.resumed" if "resume" in query else "session.created")
        self.send("session.update", session={"stale_ms": 60000})  # a busy machine may stand still
        await self.event("session.updated")

    def goal(self, name: str, shot: Shot) -> None:
        self.channel.send(pack_frame(Frame(Kind.GOAL, name, 0, 0.0, shot)))

    def state(self, *values: float) -> None:
        self.send("state", t=self.now, values=values)

    async def pictures(self, count: int) -> None:
        """Wait until so many pictures have come."""
        await self._until(lambda: len(self.shown) >= count)

    async def chunk(self, **ask: Any) -> dict[str, Any]:
        """Ask, and wait for the chunk."""
        before = sum(event["type"] == "chunk" for event in self.events)
        self.send("ask", **ask)
        return await self.event("chunk", before + 1)

    async def _note(self, message: str) -> None:
        event = json.loads(message)
        if event["type"] == "clock.ping":
            wall = {"wall": time.time()} if self._wall else {}
            if self.channel.readyState == "open":
                self.send("clock.pong", id=event["id"], t=self.now, **wall)
            return
        await super()._note(message)

    async def _look(self, track: MediaStreamTrack) -> None:
        try:
            while True:
                frame = await track.recv()
                assert isinstance(frame, VideoFrame)
                async with self._arrived:
                    self.shown.append(frame.to_ndarray(format="rgb24"))
                    self._arrived.notify_all()
        except MediaStreamError:
            return


@asynccontextmanager
async def robot(
    server: Serving,
    tracks: Sequence[MediaStreamTrack] = (),
    *,
    watching: bool = False,
    wall: bool = True,
    **query: str,
) -> AsyncIterator[RtcRobot]:
    """A robot in a session."""
    client = RtcRobot(server, tracks, watching=watching, wall=wall)
    try:
        await client.connect(**query)
        yield client
    finally:
        await client.close()


async def main(url: str, model: str) -> None:
    """A process in a session, to be frozen or killed: says the session's token on stdout and goes on."""
    async with robot(Serving(url, 0), [CameraTrack(lambda _: plain((120, 120, 120)))], model=model) as client:
        print(client.session["resume"], flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
