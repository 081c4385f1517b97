"""Frames leave when they are due, whatever the loop was busy with."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import numpy as np
import pytest

from server.webrtc.speaker import FRAME, RATE, Heard, Speaker
from server.webrtc.track import AnswerTrack
from tests.unit.webrtc.jumping import JumpingLoop, run

PERIOD = FRAME / RATE


def track_of(speaker: Speaker) -> tuple[AnswerTrack, list[Heard]]:
    heard: list[Heard] = []

    def note(told: Sequence[Heard]) -> None:
        heard.extend(told)

    return AnswerTrack(speaker, note), heard


def test_ten_minutes_of_frames_do_not_drift() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        track, _ = track_of(Speaker(24_000))
        start = loop.time()
        for index in range(30_000):
            frame = await track.recv()
            assert frame.pts == index * FRAME
            assert loop.time() == pytest.approx(start + index * PERIOD, abs=1e-6)

    run(main())


def test_a_short_delay_is_made_up_for_and_a_long_one_makes_no_burst() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, JumpingLoop)
        track, _ = track_of(Speaker(24_000))
        times = []
        for index in range(60):
            if index == 20:
                loop.skip(0.05)
            if index == 40:
                loop.skip(0.5)
            await track.recv()
            times.append(loop.time())
        gaps = np.diff(times)
        assert times[30] == pytest.approx(30 * PERIOD)  # back on the old deadlines
        assert gaps[40:].min() == pytest.approx(PERIOD)  # moved, at the old pace
        assert track.pacer.stalls == 1

    run(main())


def test_positions_run_on_through_silence_and_speech() -> None:
    async def main() -> None:
        speaker = Speaker(24_000)
        track, heard = track_of(speaker)
        frames = [await track.recv() for _ in range(3)]
        speaker.play("r", np.full(2400, 0.5, dtype=np.float32), last=True)
        frames += [await track.recv() for _ in range(10)]
        assert [frame.pts for frame in frames] == [index * FRAME for index in range(13)]
        assert {frame.sample_rate for frame in frames} == {RATE}
        loud = [bool(frame.to_ndarray().any()) for frame in frames]
        assert loud[:3] == [False] * 3
        assert loud[3:8] == [True] * 5
        assert not any(loud[9:])
        assert heard[-1] == Heard("r", 2400)

    run(main())
