"""Tells the other workers of a request how far it is ahead of its listener, who is known where it sounds only."""

from __future__ import annotations

from mstar.bus import Endpoint
from mstar.messages import Pace
from mstar.worker.ready import SOUND_RATE
from mstar.worker.state import RequestState

STEP_SECONDS = 0.1
"""A change smaller than this is not worth a message."""


class Pacing:
    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._moved: dict[str, RequestState] = {}
        self._told: dict[str, tuple[int, bool]] = {}  # request → samples ahead, begun

    def note(self, request: RequestState) -> None:
        """Something was emitted or heard; `tell` looks whether others are to know."""
        if len(request.workers) > 1:
            self._moved[request.name] = request

    def take(self, request: RequestState, message: Pace) -> None:
        """What another worker of the request says."""
        request.sounded = max(request.sounded, message.sounded)
        request.played = max(request.played, message.played)
        request.begun = request.begun or message.begun

    def tell(self) -> None:
        """Send what has changed since it was sent last."""
        if not self._moved:
            return
        moved, self._moved = self._moved, {}
        for name, request in moved.items():
            if not request.alive:
                continue
            ahead, begun = self._told.get(name, (0, False))
            now = request.sounded - request.played
            if begun == request.begun and abs(now - ahead) < STEP_SECONDS * SOUND_RATE:
                continue
            self._told[name] = (now, request.begun)
            pace = Pace(name, request.sounded, request.played, request.begun)
            for worker in request.workers:
                if worker != self._endpoint.name:
                    self._endpoint.send(worker, pace)

    def forget(self, request: RequestState) -> None:
        """The request is over."""
        self._moved.pop(request.name, None)
        self._told.pop(request.name, None)
