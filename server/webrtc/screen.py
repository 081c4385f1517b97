"""What a session shows: pictures to every track that carries them."""

from __future__ import annotations

import asyncio
import math
import weakref

from aiortc import MediaStreamTrack
from av import VideoFrame

from media.pictures import Picture
from media.video import PicturePacer, video_frame


class PictureTrack(MediaStreamTrack):
    """A video track; a frame leaves when its picture is shown.

    aiortc sends a frame the moment `recv` returns; an exception there would end the track without a word.
    """

    kind = "video"

    def __init__(self) -> None:
        super().__init__()
        self.pacer = PicturePacer()
        self._news = asyncio.Event()

    def show(self, picture: Picture, now: float) -> None:
        self.pacer.put(picture, now)
        self._news.set()

    async def recv(self) -> VideoFrame:
        """The next frame, at its time."""
        loop = asyncio.get_running_loop()
        while (delay := self.pacer.due() - loop.time()) > 0:
            self._news.clear()
            try:
                async with asyncio.timeout(delay if math.isfinite(delay) else None):
                    await self._news.wait()
            except TimeoutError:
                break
        return video_frame(*self.pacer.take(loop.time()))


class Screen:
    """Pictures go to every track there is; a track that comes later begins with the last one."""

    def __init__(self) -> None:
        self._tracks: weakref.WeakSet[PictureTrack] = weakref.WeakSet()
        self._last: Picture | None = None

    def show(self, picture: Picture) -> None:
        """[height, width, 3] uint8."""
        now = asyncio.get_running_loop().time()
        self._last = picture
        for track in self._tracks:
            track.show(picture, now)

    def track(self) -> PictureTrack:
        """A new one; it is let go when nobody sends it any more."""
        track = PictureTrack()
        if self._last is not None:
            track.show(self._last, asyncio.get_running_loop().time())
        self._tracks.add(track)
        return track

    @property
    def watched(self) -> bool:
        """Whether anybody looks."""
        return any(track.readyState == "live" for track in self._tracks)
