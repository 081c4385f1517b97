"""A WebRTC client of the server: an aiortc peer that speaks the toy family's words and notes all that comes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from fractions import Fraction

import aiohttp
import numpy as np
from aiortc import MediaStreamTrack, RTCSessionDescription
from aiortc.mediastreams import MediaStreamError
from av import AudioFrame

from media.pace import Pacer
from models.toy.language import tone_of
from tests.clients.conftest import Serving
from tests.clients.rtc_peer import RtcPeer

RATE = 48_000
FRAME = 960


def words(text: str, each: float = 0.3) -> np.ndarray:
    """Words of the toy family as int16 at 48 kHz."""
    at = np.arange(round(each * RATE)) / RATE
    parts = [0.3 * np.sin(2 * np.pi * tone_of(word) * at) for word in text.split()]
    spoken: np.ndarray = np.rint(np.concatenate(parts) * 32767).astype(np.int16)
    return spoken


class Microphone(MediaStreamTrack):
    """Silence, until something is said."""

    kind = "audio"

    def __init__(self) -> None:
        super().__init__()
        self._pacer = Pacer(RATE, FRAME)
        self._words = np.zeros(0, dtype=np.int16)

    def say(self, text: str) -> None:
        self.hear(words(text))

    def hear(self, sound: np.ndarray) -> None:
        """int16 at 48 kHz, behind what it hears already."""
        self._words = np.concatenate((self._words, sound))

    async def recv(self) -> AudioFrame:
        loop = asyncio.get_running_loop()
        pts = self._pacer.position
        await asyncio.sleep(max(0.0, self._pacer.next(loop.time()) - loop.time()))
        sound, self._words = self._words[:FRAME], self._words[FRAME:]
        frame = AudioFrame(format="s16", layout="mono", samples=FRAME)
        frame.planes[0].update(np.pad(sound, (0, FRAME - sound.size)).tobytes())
        frame.sample_rate, frame.pts, frame.time_base = RATE, pts, Fraction(1, RATE)
        return frame


class RtcClient(RtcPeer):
    """`heard`: the frames of the answer track as (pts, int16 [n])."""

    def __init__(self, serving: Serving) -> None:
        super().__init__("oai-events")
        self.serving = serving
        self.microphone = Microphone()
        self.heard: list[tuple[int, np.ndarray]] = []
        self.status = 0
        self.peer.addTrack(self.microphone)
        self.peer.add_listener("track", lambda track: self._task(self._listen(track)))

    async def connect(self, query: str = "") -> None:
        await self.peer.setLocalDescription(await self.peer.createOffer())
        async with (
            aiohttp.ClientSession() as http,
            http.post(
                f"{self.serving.url}/v1/realtime/calls{query}",
                data=self.peer.localDescription.sdp,
                headers={"Content-Type": "application/sdp"},
            ) as answer,
        ):
            self.status = answer.status
            body = await answer.text()
            assert answer.status == 201, body
            assert answer.content_type == "application/sdp"
            assert "Location" in answer.headers["Access-Control-Expose-Headers"]
            self.location = answer.headers["Location"]
        await self.peer.setRemoteDescription(RTCSessionDescription(body, "answer"))
        await self.event("session.created")

    async def frames(self, count: int) -> None:
        """Wait until so many frames of the answer track have come."""
        await self._until(lambda: len(self.heard) >= count)

    def place(self, kind: str) -> int:
        """Where the first event of a type stands."""
        return [event["type"] for event in self.events].index(kind)

    def sound(self) -> np.ndarray:
        """All of the answer track."""
        return np.concatenate([pcm for _, pcm in self.heard])

    async def _listen(self, track: MediaStreamTrack) -> None:
        try:
            while True:
                frame = await track.recv()
                assert isinstance(frame, AudioFrame)
                assert frame.pts is not None
                stereo = np.frombuffer(bytes(frame.planes[0]), dtype=np.int16)[: 2 * frame.samples]
                async with self._arrived:
                    self.heard.append((frame.pts, stereo.reshape(-1, 2)[:, 0].copy()))
                    self._arrived.notify_all()
        except MediaStreamError:
            return


@asynccontextmanager
async def calling(serving: Serving, query: str = "") -> AsyncIterator[RtcClient]:
    """A client in a call."""
    client = RtcClient(serving)
    try:
        await client.connect(query)
        yield client
    finally:
        await client.close()
