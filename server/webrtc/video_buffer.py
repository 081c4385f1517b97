"""Packets of video put together to frames, each handed on when its last packet is there."""

from __future__ import annotations

from collections.abc import Callable

from aiortc.jitterbuffer import JitterBuffer, JitterFrame
from aiortc.rtp import RtpPacket

PACKETS = 512


class PromptVideoBuffer(JitterBuffer):
    """In the place of the stock buffer of aiortc's receiver, which hands a frame on when the next one begins: always a
    frame late, and never the last one of a camera that stands still.

    A packet that closes a hole frees several frames; the earlier ones go to `extra`, in order, before `add` returns the
    last one.
    """

    def __init__(self, extra: Callable[[JitterFrame, RtpPacket], None]) -> None:
        super().__init__(capacity=PACKETS, is_video=True)
        self._extra = extra

    def add(self, packet: RtpPacket) -> tuple[bool, JitterFrame | None]:
        """→ (send a PLI, the newest whole frame)."""
        lost, frame = super().add(packet)
        while (following := self._whole()) is not None:
            if frame is not None:
                self._extra(frame, packet)
            frame = following
        return lost, frame

    def _whole(self) -> JitterFrame | None:
        """The first frame that waits, if it is there up to its marker (RFC 3550, 5.1)."""
        origin = self._origin
        if origin is None:
            return None
        found: list[RtpPacket] = []
        for number in range(self.capacity):
            packet = self._packets[(origin + number) % self.capacity]
            if packet is None or (found and packet.timestamp != found[0].timestamp):
                return None
            found.append(packet)
            if packet.marker:
                self.remove(len(found))
                data = b"".join(each._data for each in found)  # type: ignore[attr-defined]  # noqa: SLF001  set by the receiver
                return JitterFrame(data, found[0].timestamp)
        return None
