"""Tasks of the family that a session has running, and who wants what they emit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from mstar.tensors import Value
from server.session.commands import Input, InterruptTask, StartTask
from server.session.outbox import Outbox


@dataclass(frozen=True, slots=True)
class TaskRequest:
    """A task with all it needs; two equal requests have the same answer."""

    task: str
    inputs: Mapping[str, Input] = field(default_factory=dict)
    settings: Mapping[str, Value] = field(default_factory=dict)
    positions: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Ended:
    """How a task ended: done, cancelled or failed (with a stable code and a sentence)."""

    status: str
    code: str = ""
    cause: str = ""

    @property
    def lost(self) -> bool:
        """The worker was lost; another one takes its place and may be asked the same."""
        return self.code == "worker_lost"


class Owner(Protocol):
    """Takes what a task emits, and its end."""

    def emission(self, output: str, index: int, value: Value, now: float, /) -> None: ...

    def ended(self, end: Ended, now: float, /) -> None: ...


class Tasks:
    """Running tasks by key. After `interrupt` or its end nothing of a task reaches its owner."""

    def __init__(self, out: Outbox) -> None:
        self._out = out
        self._owners: dict[int, Owner] = {}
        self._next = 0

    def start(self, request: TaskRequest, owner: Owner) -> int:
        key = self._next
        self._next += 1
        self._owners[key] = owner
        self._out.do(StartTask(key, request.task, request.inputs, request.settings, request.positions))
        return key

    def interrupt(self, key: int, heard: int | None = None) -> None:
        if self._owners.pop(key, None) is not None:
            self._out.do(InterruptTask(key, heard))

    def emission(self, key: int, output: str, index: int, value: Value, now: float) -> None:
        owner = self._owners.get(key)
        if owner is not None:
            owner.emission(output, index, value, now)

    def ended(self, key: int, end: Ended, now: float) -> None:
        owner = self._owners.pop(key, None)
        if owner is not None:
            owner.ended(end, now)

    @property
    def running(self) -> int:
        return len(self._owners)
