"""Pictures of videos: numbered as they come, and dated when the robot's clock is known (pure)."""

from __future__ import annotations

from collections.abc import Callable

from server.robot.clock import RobotClock
from server.robot.frames import Frame, Kind, Undeveloped


class Videos:
    """Of one episode. `dropped` is called for every picture that a newer one took the place of."""

    def __init__(self, dropped: Callable[[], None]) -> None:
        self._dropped = dropped
        self._seen: dict[str, int] = {}  # camera → its pictures so far
        self._undated: dict[str, tuple[float, Undeveloped]] = {}  # camera → its newest, while no clock is known

    def seen(self, camera: str, taken: float, shot: Undeveloped, clock: RobotClock) -> Frame | None:
        """A picture captured at the server's time `taken`; None: it waits for the answer to a first ping."""
        at = clock.robot(taken)
        if at is None:
            if camera in self._undated:
                self._dropped()
            self._undated[camera] = (taken, shot)
            return None
        number = self._seen[camera] = self._seen.get(camera, 0) + 1
        return Frame(Kind.CAMERA, camera, number, at, shot)

    def dated(self, clock: RobotClock) -> list[Frame]:
        """Those that waited, now that the clock is known."""
        undated, self._undated = self._undated, {}
        found = [self.seen(camera, taken, shot, clock) for camera, (taken, shot) in undated.items()]
        return [frame for frame in found if frame is not None]

    @property
    def waiting(self) -> bool:
        """Whether a picture has no time yet."""
        return bool(self._undated)
