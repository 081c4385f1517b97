"""One slot for each camera: the newest frame wins (pure)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from server.robot.frames import Frame


class Cameras:
    """`count` is told what becomes of frames: "used", "dropped" (a newer one came first) or "disordered"."""

    def __init__(self, count: Callable[[str], None]) -> None:
        self._count = count
        self._newest: dict[str, Frame] = {}
        self._used: dict[str, int] = {}  # camera → the last frame that went to the model

    def put(self, frame: Frame) -> bool:
        """Whether it was taken: one that is not newer than the last is not."""
        last = self._newest.get(frame.name)
        if last is not None and frame.seq <= last.seq:
            self._count("disordered")
            return False
        if last is not None and self._used.get(frame.name) != last.seq:
            self._count("dropped")
        self._newest[frame.name] = frame
        return True

    def use(self, frames: Mapping[str, Frame]) -> None:
        """They go to the model."""
        for name, frame in frames.items():
            if self._used.get(name) != frame.seq:
                self._used[name] = frame.seq
                self._count("used")

    def fresh(self, since: float) -> dict[str, Frame]:
        """The newest frames captured at or after `since`, of the robot's clock."""
        return {name: frame for name, frame in self._newest.items() if frame.t_capture >= since}

    def newer(self) -> bool:
        """Whether a frame is there that did not go to the model."""
        return any(self._used.get(name) != frame.seq for name, frame in self._newest.items())

    @property
    def seen(self) -> tuple[str, ...]:
        """Cameras that have sent a frame."""
        return tuple(self._newest)
