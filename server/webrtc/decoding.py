"""Encoded video on its way to the decoder's thread: bounded, and dropped up to a key frame when it is too much."""

from __future__ import annotations

import queue
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

MOST = 15
"""Frames that may wait for the decoder: half a second."""
ASK_AGAIN = 30
"""Frames that are dropped before a key frame is asked for once more."""
_IDR, _SPS = 5, 7


def is_key(codec: str, data: bytes) -> bool:
    """Whether a frame can be decoded without those before it: VP8 (RFC 6386, 9.1), H.264 with start codes."""
    if codec == "VP8":
        return bool(data) and not data[0] & 1
    kinds = {data[at + 3] & 0x1F for at in _starts(data)}
    return bool(kinds & {_IDR, _SPS})


def _starts(data: bytes) -> list[int]:
    found, at = [], data.find(b"\0\0\1")
    while 0 <= at < len(data) - 3:
        found.append(at)
        at = data.find(b"\0\0\1", at + 3)
    return found


class DecoderQueue(queue.Queue[Any]):
    """In the place of the queue of aiortc's receiver: items are (codec, frame), and None at the end.

    `now` is noted for every frame under its timestamp; `ask` is called when a key frame is wanted, `count` with the
    frames that were dropped undecoded.
    """

    def __init__(self, now: Callable[[], float], ask: Callable[[], None], count: Callable[[int], None]) -> None:
        super().__init__()
        self._now = now
        self._ask = ask
        self._count = count
        self._arrivals: OrderedDict[int, float] = OrderedDict()
        self._skipped = 0  # frames since a key frame is waited for
        self.deepest = 0
        """Most frames that have waited."""

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        if item is not None:
            codec, frame = item
            if self._drops(codec.name, frame.data):
                return
            self._arrivals[frame.timestamp] = self._now()
            if len(self._arrivals) > 4 * MOST:
                self._arrivals.popitem(last=False)
        super().put(item, block, timeout)
        self.deepest = max(self.deepest, self.qsize())

    def arrived(self, timestamp: int) -> float | None:
        """When the frame of that timestamp came."""
        return self._arrivals.pop(timestamp, None)

    def _drops(self, codec: str, data: bytes) -> bool:
        key = is_key(codec, data)
        if self._skipped and key:
            self._skipped = 0
        elif self._skipped:
            self._skip(1)
            return True
        elif self.qsize() >= MOST and not key:
            self._skip(self._emptied() + 1)
            return True
        return False

    def _skip(self, frames: int) -> None:
        if self._skipped // ASK_AGAIN != (self._skipped + frames) // ASK_AGAIN or not self._skipped:
            self._ask()
        self._skipped += frames
        self._count(frames)

    def _emptied(self) -> int:
        """Drop all that waits → how many."""
        dropped = 0
        try:
            while True:
                self.get_nowait()
                dropped += 1
        except queue.Empty:
            return dropped
