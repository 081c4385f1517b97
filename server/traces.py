"""Sessions whose trace may be asked for: those that are open, and the last ones that have ended."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import Any

from aiohttp import web

from mstar.client import Client, Record
from mstar.client import Session as Runtime
from server.events.server import ServerEvent, TurnMarks
from server.perfetto import Story, Turn, chrome_trace

ENDED = 256
"""Ended sessions that are remembered."""
TURNS = 1000
"""Turns that are remembered of a session."""


class Track:
    """What the server keeps of one session for its trace. `opened` is on the clock of the runtime's records."""

    def __init__(self, runtime: Runtime, opened: float, tracks: dict[str, Track]) -> None:
        self.runtime = runtime.id
        self.family = runtime.family
        self.workers = runtime.workers
        self.opened = opened
        self.names = [runtime.id]
        self.turns: deque[Turn] = deque(maxlen=TURNS)
        self.ended = False
        self._tracks = tracks

    def call(self, name: str) -> None:
        """The session goes by this name, too."""
        self.names.append(name)
        self._tracks[name] = self

    def event(self, event: ServerEvent) -> None:
        """An event that the client is told, or would be if it wanted to."""
        if isinstance(event, TurnMarks):
            self.turns.append(Turn(event.response_id, event.item_id, dict(event.marks)))


class Traces:
    """Tracks by every name of their session: the protocol's and the runtime's."""

    def __init__(self) -> None:
        self._tracks: dict[str, Track] = {}
        self._ended: deque[Track] = deque()

    def begin(self, runtime: Runtime, opened: float) -> None:
        """A session of the runtime was opened."""
        self._tracks[runtime.id] = Track(runtime, opened, self._tracks)

    def of(self, runtime: Runtime) -> Track:
        return self._tracks[runtime.id]

    def end(self, name: str) -> None:
        """The session is over; its trace stays until others have ended after it. Safe to call twice."""
        track = self._tracks.get(name)
        if track is None or track.ended:
            return
        track.ended = True
        self._ended.append(track)
        while len(self._ended) > ENDED:
            for each in self._ended.popleft().names:
                self._tracks.pop(each, None)

    def find(self, name: str) -> Track | None:
        """The session that goes by a name."""
        return self._tracks.get(name)

    @property
    def open(self) -> list[str]:
        """The runtime's names of the sessions that have not ended."""
        return [track.runtime for track in self.known if not track.ended]

    @property
    def known(self) -> Iterable[Track]:
        """All sessions, the oldest first."""
        return dict.fromkeys(self._tracks.values())


async def story(track: Track, client: Client) -> Story:
    """Ask the session's workers what they know."""
    answers = await asyncio.gather(
        *(client.ask("trace", of=worker, session=track.runtime) for worker in track.workers),
    )
    graph: Any = await client.ask("graph", family=track.family)
    rows = [row for answer in answers if isinstance(answer, (list, tuple)) for row in answer]
    records = sorted((Record(*row) for row in rows), key=lambda record: record.at)
    return Story(track.names[-1], track.family, track.opened, tuple(track.turns), records, graph or {})


def trace_file(told: Story) -> web.Response:
    """The trace as a download."""
    headers = {"Content-Disposition": f'attachment; filename="{told.name}.trace.json"', "Cache-Control": "no-store"}
    return web.Response(body=chrome_trace(told), content_type="application/json", headers=headers)
