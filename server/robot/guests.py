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
OVER = "session_not_found"
"""Code of an offer to a session that ended while it was answered."""
ACCEPT_SECONDS = 30.0
"""How long an offer of ours waits for its answer."""


class Guest:
    """`answer` an offer, or `offer` and `accept` the answer; `run` until it is over; `free` in any case.

    It ends with the session.
    """

    def __init__(self, robot: Robot, peer: Peer, gone: asyncio.Event, *, camera: str = "") -> None:
        self.id = secrets.token_urlsafe(12)
        self.etag = f'"{secrets.token_urlsafe(9)}"'
        self.camera = camera
        """What it sends; "" if it looks."""
        self._robot = robot
        self._peer = peer
        self._gone = gone
        self._accepted = asyncio.Event()
        self._accepting = False

    async def answer(self, sdp: str) -> str:
        """SDP offer → SDP answer. Raises Rejected, with the code `UNSUPPORTED` for sections that are not for this."""
        answer = await self._peer.answer(sdp)
        self._accepted.set()
        self._join()
        return answer

    async def offer(self) -> str:
        """An SDP offer of what this would get; it waits `ACCEPT_SECONDS` for its answer. Raises Rejected."""
        offer = await self._peer.offer()
        self._join()
        return offer

    def _join(self) -> None:
        """Raises Rejected if the session is over."""
        if self._robot.over:
            raise Rejected("There is no such session.", code=OVER, param="session")
        self._robot.guests.add(self)

    async def accept(self, sdp: str) -> bool:
        """The SDP answer to `offer` → False if none is waited for (any more). Raises Rejected."""
        if self._accepting or self._accepted.is_set():
            return False
        self._accepting = True
        try:
            await self._peer.accept(sdp)
        finally:
            self._accepting = False
        self._accepted.set()
        return True

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

    def end(self, code: int, reason: str) -> None:  # noqa: ARG002  there is nobody to tell
        """End it now."""
        self._gone.set()

    def refuse(self, why: Rejected) -> None:
        """There is nobody to tell."""

    async def run(self) -> None:
        ends = {asyncio.ensure_future(self._gone.wait()), asyncio.ensure_future(self._vanished())}
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for end in ends:
                end.cancel()

    async def _vanished(self) -> None:
        """Returns when the peer does not take the offer, does not come, or has gone without a word."""
        try:
            async with asyncio.timeout(ACCEPT_SECONDS):
                await self._accepted.wait()
        except TimeoutError:
            return
        await self._peer.vanished()

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
