"""Writes recordings: one thread behind a bounded queue, so that no disk ever holds the event loop."""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import BinaryIO

from server.record.entries import Closed, Entry, Weights, first_line, packed

log = logging.getLogger("mstar.record")

MOST_WAITING = 64 * 1024 * 1024
"""Bytes that may wait for the disk; a session that would make them more is no longer recorded."""


class Tape:
    """One session's file. After `broken` nothing of the session is written any more; the session goes on."""

    def __init__(self, recorder: Recorder, path: Path, family: str) -> None:
        self.path = path
        self.family = family
        self.broken = False
        self._recorder = recorder

    def keep(self, entry: Entry) -> None:
        """Never waits, never raises."""
        if not self.broken and not self._recorder.offer(self, packed(entry), last=isinstance(entry, Closed)):
            self.fail("the disk is too slow")
            self._recorder.shut(self)

    def fail(self, why: str) -> None:
        """Give the recording up, with one line."""
        if not self.broken:
            self.broken = True
            log.warning("recording %s ends here: %s", self.path, why)


class Recorder:
    """`weights` gives the sums of a family's files; it is called in the thread, once for each family.

    Raises OSError if the folder can not be made or written to.
    """

    def __init__(
        self,
        folder: Path,
        weights: Callable[[str], Mapping[str, str]],
        most: int = MOST_WAITING,
        opened: Callable[[Path], BinaryIO] | None = None,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        probe = folder / f".writable-{time.time_ns()}"
        probe.touch(mode=0o600)
        probe.unlink()
        self.folder = folder
        self.waiting = 0
        """Bytes that wait for the disk."""
        self._most = most
        self._open = opened or _private
        self._weights = weights
        self._sums: dict[str, bytes] = {}  # by family
        self._lock = threading.Lock()
        self._queue: queue.SimpleQueue[tuple[Tape, bytes, bool] | None] = queue.SimpleQueue()
        self._files: dict[Tape, BinaryIO] = {}
        self._thread = threading.Thread(target=self._run, name="recorder", daemon=True)
        self._thread.start()

    def tape(self, name: str, family: str) -> Tape:
        """A file for the session of that name; it is made when the first entry is written."""
        stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
        return Tape(self, self.folder / f"{stamp}-{name}.mrec", family)

    def offer(self, tape: Tape, frame: bytes, *, last: bool) -> bool:
        """Take a frame, unless too much waits already."""
        with self._lock:
            if self.waiting + len(frame) > self._most:
                return False
            self.waiting += len(frame)
        self._queue.put((tape, frame, last))
        return True

    def shut(self, tape: Tape) -> None:
        """Nothing more comes."""
        self._queue.put((tape, b"", True))

    def close(self) -> None:
        """Write what waits and end the thread."""
        self._queue.put(None)
        self._thread.join()

    # ------------------------------------------------------------------------------------------- the thread

    def _run(self) -> None:
        while (work := self._queue.get()) is not None:
            tape, frame, last = work
            if not tape.broken:
                self._write(tape, frame)
            if last or tape.broken:
                self._shut(tape)
            with self._lock:
                self.waiting -= len(frame)
        for tape in list(self._files):
            self._shut(tape)

    def _write(self, tape: Tape, frame: bytes) -> None:
        try:
            file = self._files.get(tape)
            if file is None:
                file = self._files[tape] = self._open(tape.path)
                file.write(first_line() + frame + self._known(tape.family))
            else:
                file.write(frame)
            if self._queue.empty():
                file.flush()
        except OSError as why:
            tape.fail(str(why))

    def _known(self, family: str) -> bytes:
        if family not in self._sums:
            self._sums[family] = packed(Weights(self._weights(family)))
        return self._sums[family]

    def _shut(self, tape: Tape) -> None:
        file = self._files.pop(tape, None)
        if file is not None:
            with contextlib.suppress(
                OSError
            ):  # what could not be flushed was told already, or is the end of a full disk
                file.close()


def _private(path: Path) -> BinaryIO:
    """A new file that only its owner reads: people's voices are in it."""
    path.touch(mode=0o600, exist_ok=False)
    return path.open("wb")
