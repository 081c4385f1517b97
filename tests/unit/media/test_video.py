from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from media.video import CLOCK, PicturePacer, VideoShot, video_frame


def picture(value: int = 0, height: int = 4, width: int = 6) -> np.ndarray:
    return np.full((height, width, 3), value, np.uint8)


def left(pacer: PicturePacer, now: float) -> tuple[int, int]:
    """(value, ticks) of the picture that leaves."""
    shown, ticks = pacer.take(now)
    return int(shown[0, 0, 0]), ticks


def test_a_picture_leaves_when_it_is_made() -> None:
    pacer = PicturePacer()
    assert pacer.due() == math.inf
    for number, at in enumerate((5.0, 5.2, 9.0)):
        pacer.put(picture(number), at)
        assert pacer.due() == at
        assert left(pacer, at) == (number, round((at - 5.0) * CLOCK))


def test_pictures_made_faster_leave_by_absolute_deadlines() -> None:
    pacer = PicturePacer(rate=10)
    for number in range(4):
        pacer.put(picture(number), 1.0)
    late = 0.03
    for number in range(4):
        assert pacer.due() == pytest.approx(1.0 + number * 0.1)
        assert left(pacer, pacer.due() + late) == (number, number * CLOCK // 10)


def test_after_a_stall_nothing_is_made_up_for() -> None:
    pacer = PicturePacer(rate=10)
    for number in range(3):
        pacer.put(picture(number), 0.0)
    left(pacer, 0.0)
    assert left(pacer, 2.0) == (1, 2 * CLOCK)
    assert pacer.due() == pytest.approx(2.1)


def test_the_last_picture_is_repeated_while_nothing_is_made() -> None:
    pacer = PicturePacer(idle=1.0)
    pacer.put(picture(7), 3.0)
    left(pacer, 3.0)
    assert pacer.due() == 4.0
    assert left(pacer, 4.0) == (7, CLOCK)
    pacer.put(picture(8), 4.5)
    assert pacer.due() == 4.5


def test_timestamps_grow_whatever_the_clock_does() -> None:
    pacer = PicturePacer()
    pacer.put(picture(), 1.0)
    first = left(pacer, 1.0)[1]
    pacer.put(picture(), 0.5)
    assert left(pacer, 0.5)[1] > first


def test_too_many_pictures_do_not_wait() -> None:
    pacer = PicturePacer(room=2)
    for number in range(5):
        pacer.put(picture(number), 0.0)
    assert pacer.dropped == 3
    assert left(pacer, 0.0)[0] == 3


@pytest.mark.parametrize(("height", "width"), [(48, 64), (47, 63), (1, 1)])
def test_pictures_become_frames_and_frames_pictures(height: int, width: int) -> None:
    frame = video_frame(picture(90, height, width), 123)
    assert (frame.pts, frame.width % 2, frame.height % 2) == (123, 0, 0)
    shot = VideoShot(frame.reformat(format="yuv420p"), 32, 16).decoded("any")
    assert shot.shape == (16, 32, 3)
    assert np.abs(shot.astype(int) - 90).max() <= 2


def test_a_frame_is_looked_at_by_several_threads_at_once() -> None:
    shot = VideoShot(video_frame(picture(200, 480, 640), 0).reformat(format="yuv420p"), 320, 240)
    with ThreadPoolExecutor(4) as threads:
        for made in threads.map(shot.decoded, ["camera"] * 400):
            assert made.shape == (240, 320, 3)
            assert np.all(abs(made.astype(int) - 200) < 3)
