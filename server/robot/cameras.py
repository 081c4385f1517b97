"""The newest frames of every camera: one each, or as many as it takes to find some that were taken together (pure)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping

from server.robot.frames import Frame
from server.robot.sync import newest_set

KEPT = 8
"""Frames of a camera that are kept to find sets; of a camera that is looked at alone, one is."""
MOST_BYTES = 64 * 1024 * 1024
"""Of a camera's frames that are kept, unless its newest is larger."""


class Cameras:
    """`count` is told what becomes of frames: "used", "dropped" (a newer one came first) or "disordered"."""

    def __init__(self, count: Callable[[str], None]) -> None:
        self._count = count
        self._frames: dict[str, deque[Frame]] = {}  # the newest last
        self._used: dict[str, int] = {}  # camera → the last frame that went to the model

    def put(self, frame: Frame, *, kept: int = 1) -> bool:
        """Whether it was taken: one that is not newer than the last is not."""
        frames = self._frames.setdefault(frame.name, deque())
        if frames and frame.seq <= frames[-1].seq:
            self._count("disordered")
            return False
        room = MOST_BYTES - frame.shot.size
        while len(frames) >= kept or (frames and sum(each.shot.size for each in frames) > room):
            self._drop(frames.popleft())
        frames.append(frame)
        return True

    def use(self, frames: Mapping[str, Frame]) -> None:
        """They go to the model; those before them are not wanted any more."""
        for name, frame in frames.items():
            held = self._frames.get(name, deque())
            while held and held[0].seq < frame.seq:
                self._drop(held.popleft())
            if self._used.get(name) != frame.seq:
                self._used[name] = frame.seq
                self._count("used")

    def fresh(self, since: float) -> dict[str, Frame]:
        """The newest frames captured at or after `since`, of the robot's clock."""
        newest = {name: frames[-1] for name, frames in self._frames.items() if frames}
        return {name: frame for name, frame in newest.items() if frame.t_capture >= since}

    def together(self, frames: Mapping[str, Frame], window: float) -> dict[str, Frame] | None:
        """The newest frames of the cameras of `frames` that were taken within `window` seconds, if there are such."""
        return newest_set({name: tuple(self._frames[name]) for name in frames}, window)

    def newer(self) -> bool:
        """Whether a frame is there that did not go to the model."""
        return any(frames and self._used.get(name) != frames[-1].seq for name, frames in self._frames.items())

    @property
    def seen(self) -> tuple[str, ...]:
        """Cameras that have sent a frame."""
        return tuple(self._frames)

    def _drop(self, frame: Frame) -> None:
        if self._used.get(frame.name, -1) < frame.seq:
            self._count("dropped")
