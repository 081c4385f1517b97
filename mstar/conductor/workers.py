"""Which workers there are, whether they move, and when one is taken for lost (pure; time is an argument)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from mstar.bus.patience import Patience
from mstar.messages import Progress, WorkerExited, WorkerReady

TICK_SECONDS = 1.0
"""How often `tick` wants to be called."""
_LONGEST_TICK = 3.0
"""What a longer time between two ticks counts as: whoever was stopped himself knows nothing of others' silence."""


@dataclass(frozen=True, slots=True)
class Lost:
    """A worker that has to be replaced."""

    worker: str
    cause: str


@dataclass(slots=True)
class _Worker:
    hosted: frozenset[str]  # families
    ready: set[str] = field(default_factory=set)  # families
    life: int = 1
    pid: int = 0
    steps: int = 0
    busy: bool = False
    seen: float = 0.0
    moved: float = 0.0  # when `steps` last changed, or nothing was being computed
    silent: float = 0.0  # seconds without a word, or of loading
    stuck: float = 0.0  # seconds of the step in progress
    calm: float = 0.0  # seconds since it became ready
    lost_at: float | None = None
    deaths: int = 0  # in a row, in vain
    recovery: float = 0.0  # seconds from the last loss to being ready

    def is_up(self) -> bool:
        return self.hosted <= self.ready


class Workers:
    """`hosted`: worker → families that it runs."""

    def __init__(self, hosted: Mapping[str, frozenset[str]], patience: Patience) -> None:
        self._workers = {name: _Worker(families) for name, families in hosted.items()}
        self._patience = patience
        self._ticked: float | None = None

    def __iter__(self) -> Iterator[str]:
        return iter(self._workers)

    def up(self, name: str) -> bool:
        """Whether a worker has loaded, and is not lost."""
        return self._workers[name].is_up()

    def loading(self, name: str) -> bool:
        """Whether a worker has not been ready yet since the start of everything."""
        worker = self._workers[name]
        return not worker.is_up() and worker.lost_at is None

    def life(self, name: str) -> int:
        """How many processes have been this worker, the present one included."""
        return self._workers[name].life

    # ------------------------------------------------------------------------------------------ news

    def ready(self, message: WorkerReady, now: float) -> float | None:
        """One family has loaded → seconds since the loss, if the worker thereby is up again."""
        worker = self._current(message.worker, message.life)
        if worker is None or worker.is_up():
            return None
        worker.ready.add(message.family)
        worker.pid, worker.seen, worker.moved = message.pid, now, now
        worker.silent = worker.stuck = worker.calm = 0.0
        if not worker.is_up() or worker.lost_at is None:
            return None
        worker.recovery = now - worker.lost_at
        return worker.recovery

    def progress(self, message: Progress, now: float) -> None:
        """A worker says how far it is."""
        worker = self._current(message.worker, message.life)
        if worker is None:
            return
        worker.seen, worker.silent = now, 0.0
        if message.steps != worker.steps or not message.busy:
            worker.moved, worker.stuck = now, 0.0
        worker.steps, worker.busy = message.steps, message.busy

    def exited(self, message: WorkerExited) -> Lost | None:
        """A process has ended; None if that is known, or was wanted."""
        worker = self._current(message.worker, message.life)
        return None if worker is None else Lost(message.worker, message.cause)

    def tick(self, now: float) -> list[Lost]:
        """Time has passed → workers that have stood still for too long."""
        passed = 0.0 if self._ticked is None else min(now - self._ticked, _LONGEST_TICK)
        self._ticked = now
        lost = []
        for name, worker in self._workers.items():
            cause = self._standing(worker, passed)
            if cause:
                lost.append(Lost(name, cause))
        return lost

    def _standing(self, worker: _Worker, passed: float) -> str:
        """Why a worker is lost, "" if it is not."""
        worker.silent += passed
        if not worker.is_up():
            late = worker.lost_at is not None and worker.silent >= self._patience.loading
            return f"was not ready after {worker.silent:.0f} s" if late else ""
        worker.calm += passed
        if worker.busy:
            worker.stuck += passed
        if worker.silent >= self._patience.silent:
            return f"has said nothing for {worker.silent:.0f} s"
        if worker.stuck >= self._patience.step:
            return f"has computed one step for {worker.stuck:.0f} s"
        return ""

    # ------------------------------------------------------------------------------------------ replacing

    def replace(self, name: str, now: float) -> int | None:
        """A worker is lost → the life that takes its place; None if too many ended in vain."""
        worker = self._workers[name]
        in_vain = not worker.steps and worker.calm < self._patience.calm
        worker.deaths = worker.deaths + 1 if in_vain else 0
        if worker.is_up() or worker.lost_at is None:
            worker.lost_at = now
        worker.life += 1
        worker.ready.clear()
        worker.steps, worker.pid, worker.busy = 0, 0, False
        worker.silent = worker.stuck = worker.calm = 0.0
        return None if worker.deaths >= self._patience.deaths else worker.life

    def _current(self, name: str, life: int) -> _Worker | None:
        worker = self._workers.get(name)
        return worker if worker is not None and worker.life == life else None

    # ------------------------------------------------------------------------------------------ seeing

    def describe(self, now: float) -> list[dict[str, Any]]:
        """All workers in order of their names; times in seconds."""
        return [
            {
                "worker": name,
                "ready": worker.is_up(),
                "pid": worker.pid,
                "steps": worker.steps,
                "busy": worker.busy,
                "seen": now - worker.seen,
                "moved": now - worker.moved,
                "restarts": worker.life - 1,
                "recovery_seconds": worker.recovery,
            }
            for name, worker in sorted(self._workers.items())
        ]

    def restarts(self) -> dict[str, int]:
        return {name: worker.life - 1 for name, worker in sorted(self._workers.items())}

    def recovery(self) -> dict[str, float]:
        """Seconds from a worker's last loss until it was ready again; 0 = it was never lost."""
        return {name: round(worker.recovery, 3) for name, worker in sorted(self._workers.items())}
