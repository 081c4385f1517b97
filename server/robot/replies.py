"""From a model's result to what the robot is told (pure)."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median

import numpy as np

from mstar.tensors import Value
from server.robot.clock import Acting, place
from server.robot.commands import Goal
from server.robot.events import Ask, Chunk, ChunkLate
from server.robot.frames import Frame
from server.robot.sync import spread

_PLAN = ("iteration", "energy", "elapsed_ms")


class Latency:
    """How old frames are when their chunks leave; the first of an episode is left out: it may have warmed things up."""

    def __init__(self) -> None:
        self._ages: deque[float] = deque(maxlen=8)
        self._warm = False

    def took(self, age: float) -> None:
        if self._warm:
            self._ages.append(age)
        self._warm = True

    def rows(self, dt: float) -> int:
        """Rows that will be over when the next chunk leaves."""
        return math.ceil(median(self._ages) / dt) if self._ages else 0


@dataclass(frozen=True, slots=True)
class Source:
    """What a chunk is made from."""

    number: int
    epoch: int
    frames: Mapping[str, Frame]
    t_state: float
    absent: tuple[str, ...]  # cameras without a fresh frame
    goal: Goal | None
    dt: float
    begun: float  # the server's time


@dataclass(frozen=True, slots=True)
class Answer:
    """`acting`: what the robot acts from now on."""

    event: Chunk | ChunkLate
    outcome: str  # done | late
    age: float  # seconds, of the oldest frame
    acting: Acting | None


def reply(
    ask: Ask, source: Source, value: Mapping[str, Value], acting: Acting | None, robot: float, now: float
) -> Answer:
    """`robot`: the robot's time at the server's time `now`."""
    rows = np.asarray(value["actions"], np.float32)
    captured = {name: frame.t_capture for name, frame in source.frames.items()}
    numbers = {name: frame.seq for name, frame in source.frames.items()}
    age = max(0.0, robot - min(captured.values()))
    at = place(acting, max(captured.values()), robot, source.dt, standing=ask.standing)
    if at.first >= len(rows):
        late = (robot - at.start - len(rows) * source.dt) * 1000
        event = ChunkLate(ask.id, source.number, source.epoch, numbers, age * 1000, late)
        return Answer(event, "late", age, acting)
    took = (now - source.begun) * 1000
    over = ask.deadline_ms is not None and took > ask.deadline_ms
    plan = {name: value[name] for name in _PLAN} if "energy" in value else None
    frozen = value.get("frozen", 0)
    chunk = Chunk(
        ask=ask.id,
        number=source.number,
        epoch=source.epoch,
        obs_seq=numbers,
        t_capture=captured,
        t_state=source.t_state,
        age_ms=age * 1000,
        spread_ms=spread(source.frames) * 1000,
        t_valid_from=at.start,
        dt=source.dt,
        first=at.first,
        deadline_hit=bool(value.get("deadline_hit")) or over,
        missing=list(source.absent),
        frozen=frozen if isinstance(frozen, int) else 0,
        infer_ms=took,
        plan=plan,
        actions=rows.tolist(),
    )
    return Answer(chunk, "done", age, Acting(at.start, source.dt, rows))
