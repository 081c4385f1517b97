from __future__ import annotations

import asyncio
from itertools import pairwise

import numpy as np
from av import VideoFrame

from media.video import CLOCK
from server.webrtc.screen import PictureTrack, Screen
from tests.unit.webrtc.jumping import run


def picture(value: int) -> np.ndarray:
    return np.full((4, 6, 3), value, np.uint8)


def value_of(frame: VideoFrame) -> int:
    return int(frame.to_ndarray(format="rgb24")[0, 0, 0])


def test_a_frame_leaves_when_its_picture_is_shown_and_the_last_one_again_while_nothing_is() -> None:
    async def main() -> list[tuple[float, int, int | None]]:
        screen, loop = Screen(), asyncio.get_running_loop()
        track = screen.track()
        left: list[tuple[float, int, int | None]] = []

        async def send() -> None:
            while True:
                frame = await track.recv()
                left.append((loop.time(), value_of(frame), frame.pts))

        sending = asyncio.ensure_future(send())
        await asyncio.sleep(2.0)
        screen.show(picture(1))
        await asyncio.sleep(0.25)
        screen.show(picture(2))
        await asyncio.sleep(2.1)
        sending.cancel()
        return left

    left = run(main())
    assert [(at, value) for at, value, _ in left] == [(2.0, 1), (2.25, 2), (3.25, 2), (4.25, 2)]
    assert [pts for _, _, pts in left] == [0, CLOCK // 4, 5 * CLOCK // 4, 9 * CLOCK // 4]


def test_pictures_made_at_once_leave_thirty_a_second() -> None:
    async def main() -> list[float]:
        track, loop = PictureTrack(), asyncio.get_running_loop()
        for value in range(10):
            track.show(picture(value), loop.time())
        times = []
        for _ in range(10):
            await track.recv()
            times.append(loop.time())
        return times

    times = run(main())
    assert times[0] == 0
    assert all(abs(after - before - 1 / 30) < 1e-6 for before, after in pairwise(times))


def test_who_comes_later_begins_with_the_last_picture() -> None:
    async def main() -> tuple[int, bool, bool]:
        screen = Screen()
        assert not screen.watched
        screen.show(picture(5))
        track = screen.track()
        frame = await track.recv()
        watched = screen.watched
        track.stop()
        return value_of(frame), watched, screen.watched

    assert run(main()) == (5, True, False)
