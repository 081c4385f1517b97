"""Peers that only send a camera to a session (RFC 9725), or only look at what it shows."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence
from functools import partial

from aiortc import RTCRtpTransceiver

from media.video import VideoShot
from mstar.errors import Rejected
from server.metrics import Metrics
from server.robot.fragment import Fragment
from server.robot.live import Robot
from server.webrtc import patches
from server.webrtc.addresses import Offered
from server.webrtc.camera import Camera, WallClock
from server.webrtc.peer import Peer
from server.webrtc.screen import PictureTrack

UNSUPPORTED = "unsupported_tracks"
"""Code of an offer that is valid, but is not for this."""


class Guest:
    """`answer`, then `run` until it is over; `free` in any case. It ends with the session."""

    def __init__(self, robot: Robot, peer: Peer, gone: asyncio.Event, *, camera: str = "") -> None:
        self.id = secrets.token_urlsafe(12)
        self.etag = f'"{secrets.token_urlsafe(9)}"'
        self.camera = camera
        """What it sends; "" if it looks."""
        self._robot = robot
        self._peer = peer
        self._gone = gone

    async def answer(self, sdp: str) -> str:
        """SDP offer → SDP answer. Raises Rejected, with the code `UNSUPPORTED` for sections that are not for this."""
        answer = await self._peer.answer(sdp)
        self._robot.guests.add(self)
        return answer

    async def trickle(self, fragment: Fragment) -> bool:
        """More addresses of the peer → False for an ICE restart, which can not be done."""
        if fragment.user not in {"", self._peer.user}:
            return False
        for mid, candidate in fragment.candidates:
            await self._peer.candidate(candidate, mid)
        return True

    def hang_up(self) -> None:
        """End it now."""
        self._gone.set()

    async def run(self) -> None:
        ends = {asyncio.ensure_future(self._gone.wait()), asyncio.ensure_future(self._peer.vanished())}
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for end in ends:
                end.cancel()

    async def free(self) -> None:
        """Close the peer; safe to call twice."""
        self._robot.guests.discard(self)
        self._gone.set()
        await self._peer.close()


def publisher(
    robot: Robot, camera: str, metrics: Metrics, offers: Sequence[Offered], ice_servers: Sequence[str]
) -> Guest:
    """Who sends the pictures of `camera`. Sound beside them is taken, and not listened to."""
    wall = WallClock()

    def take(shot: VideoShot, taken: float) -> None:
        if robot.live is not None:
            robot.live.seen(camera, shot, taken)
        else:
            metrics.frames.labels("dropped").inc()

    def arrange(transceivers: Sequence[RTCRtpTransceiver]) -> None:
        for transceiver in _one_each(transceivers, sending=True):
            transceiver.direction = "recvonly"
            if transceiver.kind == "video":
                Camera(transceiver.receiver, wall, take, metrics.frames.labels("undecoded").inc)
            else:
                patches.ignore(transceiver.receiver)

    gone = asyncio.Event()
    return Guest(robot, Peer(arrange, (), offers, ice_servers, gone.set), gone, camera=camera)


def viewer(robot: Robot, offers: Sequence[Offered], ice_servers: Sequence[str]) -> Guest:
    """Who looks at what the session shows."""
    gone = asyncio.Event()
    track = robot.screen.track()
    arrange = partial(_show, track)
    return Guest(robot, Peer(arrange, (track,), offers, ice_servers, gone.set), gone)


def _show(track: PictureTrack, transceivers: Sequence[RTCRtpTransceiver]) -> None:
    for transceiver in _one_each(transceivers, sending=False):
        if transceiver.kind == "video":
            transceiver.sender.replaceTrack(track)
            transceiver.direction = "sendonly"
        else:
            transceiver.direction = "inactive"  # a session shows, and does not sound


def _one_each(transceivers: Sequence[RTCRtpTransceiver], *, sending: bool) -> Sequence[RTCRtpTransceiver]:
    """Raises Rejected unless there is one video section that goes the right way, and at most one with sound."""
    kinds = [transceiver.kind for transceiver in transceivers]
    ways = [patches.ways(transceiver)[0 if sending else 1] for transceiver in transceivers]
    if kinds.count("video") != 1 or kinds.count("audio") > 1:
        text = "An offer has one video section, and at most one with sound."
    elif not all(ways):
        text = f"All sections of the offer must be {'sendonly or sendrecv' if sending else 'recvonly or sendrecv'}."
    else:
        return transceivers
    raise Rejected(text, code=UNSUPPORTED, param="sdp")
