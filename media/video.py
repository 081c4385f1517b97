"""Pictures of a video: decoded frames as arrays, arrays as frames, and when pictures leave."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from av import VideoFrame
from av.video.reformatter import VideoReformatter

from media.pictures import Picture

CLOCK = 90_000
"""Ticks a second of video's timestamps (RFC 3551, 5)."""
_TIME_BASE = Fraction(1, CLOCK)


@dataclass(frozen=True, slots=True)
class VideoShot:
    """A decoded frame; made an array of its size only if it is looked at."""

    frame: VideoFrame
    width: int
    height: int

    @property
    def size(self) -> int:
        """Bytes of memory: a whole one of light, and half a one of colours, a pixel."""
        return self.frame.width * self.frame.height * 3 // 2

    def decoded(self, name: str) -> Picture:  # noqa: ARG002  as of every picture that may turn out to be none
        """[height, width, 3] uint8. Several threads may ask at once: they share no converter, as a frame's own is."""
        scaled = VideoReformatter().reformat(self.frame, self.width, self.height, "rgb24", threads=1)
        return np.asarray(scaled.to_ndarray(), np.uint8)


def video_frame(picture: Picture, ticks: int) -> VideoFrame:
    """[height, width, 3] → a frame at `ticks`; sides are made even, as codecs need them, by repeating the last row."""
    height, width, _ = picture.shape
    even = np.pad(picture, ((0, height % 2), (0, width % 2), (0, 0)), mode="edge")
    frame = VideoFrame.from_ndarray(np.ascontiguousarray(even), format="rgb24")
    frame.pts, frame.time_base = ticks, _TIME_BASE
    return frame


class PicturePacer:
    """When pictures leave: at once, and by absolute deadlines if they are made faster than `rate` a second.

    The last one is repeated every `idle` seconds, for who comes later, or asks for a key frame. More than `room`
    pictures do not wait: the oldest is dropped. Times are seconds of any monotonic clock.
    """

    def __init__(self, rate: float = 30.0, *, idle: float = 1.0, room: int = 64, stall: float = 0.12) -> None:
        self.dropped = 0
        self._step = 1 / rate
        self._idle = idle
        self._room = room
        self._stall = stall
        self._waiting: deque[tuple[float, Picture]] = deque()  # with the time it was made at
        self._last: Picture | None = None
        self._left = -math.inf  # deadline of the last picture
        self._ticks = -1
        self._begun: float | None = None

    def put(self, picture: Picture, now: float) -> None:
        if len(self._waiting) >= self._room:
            self._waiting.popleft()
            self.dropped += 1
        self._waiting.append((now, picture))

    def due(self) -> float:
        """When the next picture is to leave; never, before one was made."""
        if self._waiting:
            return max(self._waiting[0][0], self._left + self._step)
        return math.inf if self._last is None else self._left + self._idle

    def take(self, now: float) -> tuple[Picture, int]:
        """The picture that is due, and its timestamp in ticks. Raises LookupError if none ever came."""
        due = self.due()
        if self._waiting:
            self._last = self._waiting.popleft()[1]
        if self._last is None:
            raise LookupError("no picture was made yet")
        self._left = due if now - due <= self._stall else now  # after a stall nothing is made up for
        if self._begun is None:
            self._begun = self._left
        self._ticks = max(self._ticks + 1, round((self._left - self._begun) * CLOCK))
        return self._last, self._ticks
