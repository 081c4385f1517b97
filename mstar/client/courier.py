"""One session's way to its workers: to one that is being replaced things wait, and live streams are fed to it again."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from mstar.client.recent import Recent
from mstar.messages import Commit, Credit, Feed, Message, ReopenSession, SessionOpened

MOST_WAITING = 4096
"""Messages that may wait for one worker."""

Direct = Feed | Commit | Credit


class Courier:
    """`send` takes (receiver, message)."""

    def __init__(self, session: str, send: Callable[[str, Message], None]) -> None:
        self._session = session
        self._send = send
        self._recent: dict[str, Recent] = {}
        self._takers: Mapping[str, tuple[str, ...]] = {}
        self._commits: dict[str, Commit] = {}  # live stream → its end
        self._away: dict[str, list[Direct]] = {}  # worker → what waits for it

    def opened(self, message: SessionOpened) -> None:
        """The session has been opened for the first time."""
        self._takers = message.live
        self._recent = {stream: Recent(items) for stream, items in message.history.items()}

    def feed(self, message: Feed | Commit) -> bool:
        """To all workers that take the stream. False: too much waits for one of them, and this is lost."""
        kept = not message.request and message.stream in self._recent
        if kept:
            match message:
                case Feed():
                    self._recent[message.stream].add(message)
                case Commit():
                    self._commits[message.stream] = message
        sent = True
        for worker in self._takers[message.stream]:
            if not (kept and worker in self._away):
                sent = self.send(worker, message) and sent
        return sent

    def send(self, worker: str, message: Direct) -> bool:
        """Now, or when the worker knows the session again. False: too much waits."""
        waiting = self._away.get(worker)
        if waiting is None:
            self._send(worker, message)
        elif len(waiting) >= MOST_WAITING:
            return False
        else:
            waiting.append(message)
        return True

    # ------------------------------------------------------------------------------------------ lost workers

    def lose(self, worker: str) -> None:
        """The worker is gone, and with it all it knew of the session."""
        self._away.setdefault(worker, [])
        self._unpin()

    def reopening(self, worker: str, life: int) -> ReopenSession:
        """The worker is there again → what it has to know before it is fed."""
        for recent in self._of(worker).values():
            recent.pinned = True
        first = {stream: recent.first for stream, recent in self._of(worker).items()}
        return ReopenSession(self._session, worker, life, first)

    def reopened(self, worker: str, wanted: Callable[[str], bool]) -> None:
        """The worker knows the session again. `wanted`: whether a request still runs."""
        waiting = self._away.pop(worker, None)
        if waiting is None:
            return
        for stream, recent in self._of(worker).items():
            for message in recent:
                self._send(worker, message)
            if stream in self._commits:
                self._send(worker, self._commits[stream])
        self._unpin()
        for each in waiting:
            if wanted(each.request):
                self._send(worker, each)

    def _unpin(self) -> None:
        for recent in self._recent.values():
            recent.pinned = False

    def _of(self, worker: str) -> dict[str, Recent]:
        return {stream: recent for stream, recent in self._recent.items() if worker in self._takers[stream]}
