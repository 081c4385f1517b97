"""Where steps run: one compute thread, or (for tests and tools) the caller's own.

Everything that touches an engine is a job here, so engines see one caller and one order.
"""

from __future__ import annotations

import contextlib
import os
import queue
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

Job: TypeAlias = Callable[[], Any]
Done: TypeAlias = Callable[[Any], None]


class Executor(Protocol):
    def submit(self, job: Job, done: Done | None = None) -> None:
        """Run `job` after all earlier ones; `done(result)` runs in the owner's `collect`."""
        ...

    def collect(self) -> None:
        """Run the `done` callbacks of finished jobs."""
        ...

    @property
    def busy(self) -> bool:
        """Whether a job has not ended yet."""
        ...

    def close(self) -> None: ...


class InlineExecutor:
    """Runs each job at once; its callback waits for `collect`."""

    def __init__(self) -> None:
        self._finished: deque[tuple[Done, Any]] = deque()

    def submit(self, job: Job, done: Done | None = None) -> None:
        result = job()
        if done is not None:
            self._finished.append((done, result))

    def collect(self) -> None:
        while self._finished:
            done, result = self._finished.popleft()
            done(result)

    @property
    def waiting(self) -> int:
        return len(self._finished)

    @property
    def busy(self) -> bool:
        return bool(self._finished)

    def close(self) -> None:
        self._finished.clear()


class ComputeThread:
    """One thread; `descriptor` becomes readable when there is something to collect.

    A job that raises ends the process's loop: its error is raised by `collect`.

    A hand-over between threads costs as much as a small step. So the owner may let the thread itself go on when a job
    has ended (`relieve_with`), as long as no two threads do that at a time.
    """

    def __init__(self, name: str) -> None:
        self.descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._submitted = 0
        self._ended = 0
        self._go_on: Callable[[], bool] = lambda: False
        self._jobs: queue.SimpleQueue[tuple[Job, Done | None] | None] = queue.SimpleQueue()
        self._finished: deque[tuple[Done | None, Any, BaseException | None]] = deque()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, job: Job, done: Done | None = None) -> None:
        self._submitted += 1
        self._jobs.put((job, done))

    def relieve_with(self, go_on: Callable[[], bool]) -> None:
        """`go_on` is called on the thread when there is something to collect; True = nobody else has to be woken.

        What it raises is raised by the owner's next `collect`.
        """
        self._go_on = go_on

    def hush(self) -> None:
        """`descriptor` was seen to be readable: from now on it is not, until there is something new."""
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self.descriptor)

    def collect(self) -> None:
        while self._finished:
            done, result, error = self._finished.popleft()
            if error is not None:
                raise error
            if done is not None:
                done(result)

    @property
    def busy(self) -> bool:
        return self._ended < self._submitted

    def close(self) -> None:
        self._jobs.put(None)
        self._thread.join(timeout=30)
        os.close(self.descriptor)

    def _run(self) -> None:
        while (work := self._jobs.get()) is not None:
            job, done = work
            try:
                result, error = job(), None
            except BaseException as caught:  # noqa: BLE001 - handed to the loop, which ends the process
                result, error = None, caught
            self._ended += 1
            if done is not None or error is not None:
                self._finished.append((done, result, error))
                if not self._went_on():
                    os.eventfd_write(self.descriptor, 1)

    def _went_on(self) -> bool:
        try:
            return self._go_on()
        except BaseException as caught:  # noqa: BLE001 - as above
            self._finished.append((None, None, caught))
            return False
