"""Pictures of several cameras that were taken at one time, and cameras that stand still (pure; seconds)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from server.robot.frames import Frame


def newest_set(frames: Mapping[str, Sequence[Frame]], window: float) -> dict[str, Frame] | None:
    """Of every camera's frames, oldest first, one each: the newest ones whose captures lie within `window`.

    None if no such set is there. (The newest of all can be in no set with those that are more than a window older, and
    these are the newest of their cameras: so it is passed over, until what is left is within.)
    """
    left = {name: list(given) for name, given in frames.items()}
    while left and all(left.values()):
        newest = max(left, key=lambda name: left[name][-1].t_capture)
        oldest = min(given[-1].t_capture for given in left.values())
        if left[newest][-1].t_capture - oldest <= window:
            return {name: given[-1] for name, given in left.items()}
        left[newest].pop()
    return None


def spread(frames: Mapping[str, Frame]) -> float:
    """Between the first capture and the last."""
    times = [frame.t_capture for frame in frames.values()]
    return max(times) - min(times) if times else 0.0


class Watch:
    """Tells once of every camera that has stopped to send, and once when it is back."""

    def __init__(self) -> None:
        self._arrivals: dict[str, float] = {}  # camera → when its newest frame came
        self._frozen: set[str] = set()

    def arrived(self, camera: str, now: float) -> bool:
        """A frame came → whether the camera was told to be frozen."""
        self._arrivals[camera] = now
        if camera in self._frozen:
            self._frozen.remove(camera)
            return True
        return False

    def due(self, after: float) -> float:
        """When a camera will next have been still for `after`."""
        return min((at + after for name, at in self._arrivals.items() if name not in self._frozen), default=math.inf)

    def stopped(self, after: float, now: float) -> list[str]:
        """Cameras that have been still for `after`, and were not told before."""
        still = [name for name, at in self._arrivals.items() if name not in self._frozen and now >= at + after]
        self._frozen.update(still)
        return still
