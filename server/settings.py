"""Everything a server is told when it starts; read once."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from mstar.client import Patience
from server.limits import Allowance


@dataclass(frozen=True, slots=True)
class Settings:
    """`families`: the first is served where a client names none."""

    families: tuple[str, ...]
    host: str = "127.0.0.1"
    port: int = 8000
    api_keys: tuple[str, ...] = field(default=(), repr=False)
    """Empty = everybody may come."""
    hosts: tuple[str, ...] = ()
    """Names this server is reached by, besides localhost and plain addresses."""
    origins: tuple[str, ...] = ()
    """Web origins allowed besides the server's own."""
    max_sessions: int = 32
    allowance: Allowance = field(default_factory=Allowance)
    """What each key may use."""
    idle_seconds: float = 900.0
    """How long a client of a socket without an idle limit of its own may say nothing while nothing is said to it."""
    session_seconds: float = 3600.0
    drain_seconds: float = 10.0
    strict_truncate: bool = False
    seed: int | None = None
    """What all answers are drawn with; None = each its own."""
    progress_seconds: float = 10.0
    """A worker that has said nothing for so long is not ready."""
    patience: Patience = field(default_factory=Patience)
    """When a worker is taken for lost, and how long others wait for the one that takes its place."""
    spare: bool = False
    """Keep a process loaded, without weights, that takes a lost worker's place sooner."""
    certificate: Path | None = None
    private_key: Path | None = None
    web: Path | None = None
    """Folder of the pages; None = the one beside the package."""
    candidates: tuple[str, ...] = ()
    """WebRTC: addresses offered to peers; empty = all of the host's."""
    ice_servers: tuple[str, ...] = ()
    record: Path | None = None
    """Folder in which sessions are recorded."""
