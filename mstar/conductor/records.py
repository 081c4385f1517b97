"""What the conductor knows of a session and of a request."""

from __future__ import annotations

from dataclasses import dataclass, field

from mstar.graph.declare import Task
from mstar.messages import SessionOpened
from mstar.placement import Seating


@dataclass(slots=True)
class Session:
    family: str
    client: str
    seating: Seating
    opened: SessionOpened
    """What its workers were told."""
    requests: set[str] = field(default_factory=set)
    away: set[str] = field(default_factory=set)
    """Workers that were lost and do not know the session yet."""


@dataclass(slots=True)
class Request:
    session: str
    task: Task
    workers: tuple[str, ...]
    running: dict[str, str]  # partition → walk
    emitted: dict[str, int] = field(default_factory=dict)
