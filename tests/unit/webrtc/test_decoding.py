from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from server.webrtc.decoding import MOST, DecoderQueue, is_key


@dataclass
class Codec:
    name: str = "VP8"


@dataclass
class Encoded:
    data: bytes
    timestamp: int


KEY, OTHER = b"\x10\x00", b"\x11\x00"


class Bench:
    def __init__(self) -> None:
        self.asked = 0
        self.dropped = 0
        self.queue = DecoderQueue(lambda: 2.5, self._ask, self._count)

    def _ask(self) -> None:
        self.asked += 1

    def _count(self, frames: int) -> None:
        self.dropped += frames

    def put(self, number: int, data: bytes = OTHER) -> None:
        self.queue.put((Codec(), Encoded(data, number)))

    def waiting(self) -> list[Any]:
        found = []
        while not self.queue.empty():
            item = self.queue.get()
            found.append(item if item is None else item[1].timestamp)
        return found


def test_frames_go_through_in_order_with_the_time_they_came() -> None:
    bench = Bench()
    bench.put(0, KEY)
    bench.put(1)
    bench.queue.put(None)
    assert bench.waiting() == [0, 1, None]
    assert bench.queue.arrived(1) == 2.5
    assert bench.queue.arrived(1) is None
    assert bench.asked == 0


def test_a_decoder_that_can_not_follow_goes_on_at_the_next_key_frame() -> None:
    bench = Bench()
    for number in range(MOST + 5):
        bench.put(number, OTHER if number else KEY)
    assert bench.waiting() == []
    assert (bench.dropped, bench.asked) == (MOST + 5, 1)
    bench.put(100, KEY)
    bench.put(101)
    assert bench.waiting() == [100, 101]
    assert bench.queue.deepest == MOST


def test_a_key_frame_that_does_not_come_is_asked_for_again() -> None:
    bench = Bench()
    for number in range(100):
        bench.put(number)
    assert bench.asked == 4
    assert bench.waiting() == []


@pytest.mark.parametrize(
    ("codec", "data", "key"),
    [
        ("VP8", KEY, True),
        ("VP8", OTHER, False),
        ("VP8", b"", False),
        ("H264", b"\0\0\0\x01\x67\x42\0\0\x01\x68\0\0\x01\x65\x88", True),
        ("H264", b"\0\0\x01\x61\x9a", False),
        ("H264", b"", False),
    ],
)
def test_key_frames_are_told_from_others(codec: str, data: bytes, key: bool) -> None:
    assert is_key(codec, data) == key
