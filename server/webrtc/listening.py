"""A peer's sound track, frame by frame, into whoever listens."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import numpy as np
from aiortc import MediaStreamTrack
from aiortc.mediastreams import MediaStreamError
from av import AudioFrame

from media.frames import Pcm16
from server.webrtc.hearing import Hearing, PcmF

SILENCE_SECONDS = 0.2
"""Nothing heard for so long counts as silence."""


async def listen(track: MediaStreamTrack, hearing: Hearing, take: Callable[[PcmF], None]) -> None:
    """Give `take` all that comes, float32 at the hearing's rate, silence where nothing comes, until the track ends."""
    frame: asyncio.Future[object] | None = None
    try:
        while True:
            frame = frame or asyncio.ensure_future(track.recv())
            done, _ = await asyncio.wait({frame}, timeout=SILENCE_SECONDS)
            if not done:
                sound = hearing.nothing(SILENCE_SECONDS)
            else:
                given, frame = frame.result(), None
                assert isinstance(given, AudioFrame)
                sound = hearing.feed(*_unpacked(given))
            if sound.size:
                take(sound)
    except MediaStreamError:
        return  # the track has ended: the connection's state says whether the call has
    finally:
        if frame is not None:
            frame.cancel()


def _unpacked(frame: AudioFrame) -> tuple[int, int, Pcm16]:
    """(position in samples, rate, int16 [n]) of a decoded frame; channels are averaged."""
    raw = np.frombuffer(bytes(frame.planes[0]), dtype=np.int16)[: frame.samples * len(frame.layout.channels)]
    pcm = raw if len(frame.layout.channels) == 1 else raw.reshape(frame.samples, -1).mean(axis=1).astype(np.int16)
    assert frame.pts is not None
    assert frame.time_base is not None
    base = frame.time_base
    return frame.pts * base.numerator * frame.sample_rate // base.denominator, frame.sample_rate, pcm
