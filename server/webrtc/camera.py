"""A peer's video track: its decoded frames, each with the time of our clock at which it was captured."""

from __future__ import annotations

from collections.abc import Callable

from aiortc import RTCRtpReceiver
from av import VideoFrame

from media.rtp_time import Offset, RtpClock
from media.video import CLOCK, VideoShot
from server.webrtc import patches

Take = Callable[[VideoShot, float], None]


class WallClock:
    """A peer's wall clock on ours: as it has told itself, else no later than what is stamped with it has come."""

    def __init__(self, told: Callable[[float], float | None] = lambda _: None) -> None:
        self._told = told
        self._quickest = Offset()

    def arrived(self, stamp: float, now: float) -> None:
        self._quickest.arrived(stamp, now)

    def ours(self, stamp: float) -> float | None:
        told = self._told(stamp)
        return self._quickest.ours(stamp) if told is None else told


class Camera:
    """`take` is given every frame, and when it was captured: the sender's reports say so (RFC 3550, 6.4.1).

    Before the first report it is captured no later than the quickest of the last ones came. All frames are of the first
    one's size: what a sender scales down when its line is slow is scaled up again.
    """

    def __init__(self, receiver: RTCRtpReceiver, wall: WallClock, take: Take, dropped: Callable[[int], None]) -> None:
        self._rtp = RtpClock(CLOCK)
        self._wall = wall
        self._quickest = Offset()
        self._take = take
        self._size: tuple[int, int] | None = None
        self.decoder = patches.view(receiver, patches.Viewed(self._frame, self._report, dropped))

    def _frame(self, frame: VideoFrame, rtp: int, arrived: float) -> None:
        if self._size is None:
            self._size = frame.width, frame.height
        assert frame.pts is not None
        own = frame.pts / CLOCK
        self._quickest.arrived(own, arrived)
        stamp = self._rtp.wall(rtp)
        taken = self._quickest.ours(own)
        if stamp is not None:
            self._wall.arrived(stamp, arrived)
            taken = self._wall.ours(stamp)
        self._take(VideoShot(frame, *self._size), arrived if taken is None else min(taken, arrived))

    def _report(self, ntp: int, rtp: int) -> None:
        self._rtp.reported(ntp, rtp)
