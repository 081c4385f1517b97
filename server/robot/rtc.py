"""The live session over WebRTC: a video track for each camera, what is imagined on one back, events beside them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

from aiortc import MediaStreamTrack, RTCDataChannel, RTCRtpTransceiver

from mstar.errors import Rejected
from server.metrics import Metrics
from server.realtime import new_id
from server.robot.ears import Ears, attend
from server.robot.events import decode
from server.robot.frames import read_frame
from server.robot.live import TAKEN_OVER, Live, Over, Robot
from server.webrtc import patches
from server.webrtc.addresses import Offered
from server.webrtc.camera import Camera, WallClock
from server.webrtc.channel import Channel
from server.webrtc.hearing import Hearing
from server.webrtc.listening import listen
from server.webrtc.peer import CONNECT_SECONDS, Peer

LABEL = "robot"
"""Name of the data channel."""


class RobotCall:
    """One connection. `answer`, then `run` until it is over → whether the session is, too; `free` in any case.

    `cameras`: names of the video sections on which the peer sends, in their order.
    """

    def __init__(
        self,
        robot: Robot,
        cameras: Sequence[str],
        metrics: Metrics,
        offers: Sequence[Offered],
        ice_servers: Sequence[str],
        ears: Ears | None = None,
    ) -> None:
        self.id = new_id("rtc")
        self._robot = robot
        self._cameras = cameras
        self._metrics = metrics
        self._group = asyncio.TaskGroup()
        self._live = robot.live = Live(robot, self._group, metrics)
        self._channel = Channel(self._live.outbound, self._lost, self._flooded)
        self._shown: list[MediaStreamTrack] = []  # at most one: what is imagined
        self._gone = asyncio.Event()
        self._over = False
        self._wall = WallClock(robot.core.wall)
        self._viewed: list[Camera] = []
        self._ears = ears
        self._microphone: MediaStreamTrack | None = None
        self.peer = Peer(self._arrange, self._shown, offers, ice_servers, self._lost, LABEL, self._begin)

    async def answer(self, sdp: str) -> str:
        """SDP offer → SDP answer. Raises Rejected."""
        return await self.peer.answer(sdp)

    def refuse(self, why: Rejected) -> None:
        """Tell the robot of something that is wrong."""
        self._live.refuse(why)

    def end(self, code: int, reason: str) -> None:
        """Close the connection once everything has been said."""
        if self._channel.opened:
            self._live.end(code, reason)
        else:
            self.hang_up()

    def hang_up(self) -> None:
        """End the connection now, and the session with it."""
        self._over = True
        self._gone.set()

    async def free(self) -> None:
        """Close the peer; safe to call twice."""
        self._gone.set()
        await self.peer.close()

    async def run(self) -> bool:
        try:
            async with self._group:
                self._group.create_task(self._live.dropped())
                writing = self._group.create_task(self._channel.write())
                self._group.create_task(self._read())
                if self._ears is not None and self._microphone is not None:
                    self._group.create_task(self._listen(self._ears, self._microphone))
                ends = {
                    writing,
                    self._group.create_task(self._gone.wait()),
                    self._group.create_task(self.peer.vanished()),
                    self._group.create_task(self._channel.missing(2 * CONNECT_SECONDS)),
                }
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
                close = writing.result() if writing.done() else None
                if close is not None and close.code != TAKEN_OVER:
                    self._over = True
                raise Over
        except* (Over, ConnectionError):
            pass
        finally:
            self._live.stop()
        return self._over

    # ------------------------------------------------------------------------------------------- sections

    def _arrange(self, transceivers: Sequence[RTCRtpTransceiver]) -> None:
        if not self.peer.talks:
            raise Rejected(f"The offer has no data channel {LABEL!r}.", code="invalid_offer", param="sdp")
        for transceiver in transceivers:
            sends, receives = patches.ways(transceiver)
            taken = sends and (self._view(transceiver) if transceiver.kind == "video" else self._hears(transceiver))
            shown = receives and transceiver.kind == "video" and not self._shown
            if shown:
                self._shown.append(self._robot.screen.track())
                transceiver.sender.replaceTrack(self._shown[0])
            transceiver.direction = _DIRECTIONS[taken, shown]

    def _hears(self, transceiver: RTCRtpTransceiver) -> bool:
        """The first section with sound is listened to, where a family is served that can."""
        if self._ears is None or self._microphone is not None:
            return False
        patches.pass_through(transceiver.receiver)
        self._microphone = transceiver.receiver.track
        return True

    def _view(self, transceiver: RTCRtpTransceiver) -> bool:
        number = len(self._viewed)
        if number >= len(self._cameras):
            text = f"The offer sends more videos than there are cameras: {', '.join(self._cameras)}."
            raise Rejected(text, code="unknown_camera", param="sdp")
        take = partial(self._live.seen, self._cameras[number])
        self._viewed.append(Camera(transceiver.receiver, self._wall, take, self._undecoded))
        return True

    def _undecoded(self, frames: int) -> None:
        self._metrics.frames.labels("undecoded").inc(frames)

    async def _listen(self, ears: Ears, track: MediaStreamTrack) -> None:
        """What is said near the robot, into the core."""
        self._group.create_task(attend(ears, self._live))
        await self.peer.connected.wait()
        await listen(track, Hearing(ears.rate), ears.hear)

    # ------------------------------------------------------------------------------------------- events

    def _begin(self, channel: RTCDataChannel) -> None:
        self._channel.open(channel)
        self._live.start()

    def _lost(self) -> None:
        self._gone.set()

    def _flooded(self) -> None:
        self.end(1008, "too many events")

    async def _read(self) -> None:
        while True:
            message = await self._channel.read()
            try:
                if isinstance(message, bytes):
                    self._live.frame(read_frame(message))
                else:
                    self._live.client(decode(message))
            except Rejected as why:
                self._live.refuse(why)


_DIRECTIONS = {
    (True, True): "sendrecv",
    (True, False): "recvonly",
    (False, True): "sendonly",
    (False, False): "inactive",
}
"""Of a section, by whether the peer sends and is sent to."""
