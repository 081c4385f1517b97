"""The track that carries answers: a frame every 20 ms, by absolute deadlines."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from fractions import Fraction

from aiortc import MediaStreamTrack
from av import AudioFrame

from media.pace import Pacer
from server.webrtc.speaker import FRAME, RATE, Heard, Speaker

_TIME_BASE = Fraction(1, RATE)


class AnswerTrack(MediaStreamTrack):
    """`heard` is told with every frame that holds sound of a response; it must not raise.

    aiortc sends a frame the moment `recv` returns, so returning on time is the pacing; an exception would end the
    track without a word.
    """

    kind = "audio"

    def __init__(self, speaker: Speaker, heard: Callable[[Sequence[Heard]], None]) -> None:
        super().__init__()
        self.pacer = Pacer(RATE, FRAME)
        self._speaker = speaker
        self._heard = heard

    async def recv(self) -> AudioFrame:
        """The next frame, at its time."""
        loop = asyncio.get_running_loop()
        position = self.pacer.position
        delay = self.pacer.next(loop.time()) - loop.time()
        if delay > 0:
            await asyncio.sleep(delay)
        pcm, heard = self._speaker.take(FRAME)
        if heard:
            self._heard(heard)
        frame = AudioFrame(format="s16", layout="mono", samples=FRAME)
        frame.planes[0].update(pcm.tobytes())
        frame.sample_rate = RATE
        frame.pts = position
        frame.time_base = _TIME_BASE
        return frame
