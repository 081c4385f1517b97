"""What looks on at one session: the server's numbers, its trace, and its recording."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from typing import Any

import msgspec

from models.registry import Conversation as Offer
from mstar.client import Session as Runtime
from server.door import Server
from server.events.server import ServerEvent
from server.metrics import Metrics
from server.record.core import TapedCore, seeded
from server.record.entries import Began
from server.record.recorder import Tape
from server.session.core import SessionCore
from server.session.options import Options
from server.traces import Track


class Watch:
    """One conversation's. `core` makes its session core, once; `end` when the session is over."""

    def __init__(
        self,
        metrics: Metrics,
        track: Track,
        tape: Tape | None = None,
        protocol: str = "",
        family_settings: Mapping[str, Any] | None = None,
        session_settings: Mapping[str, Any] | None = None,
    ) -> None:
        self.metrics = metrics
        self._track = track
        self._tape = tape
        self._protocol = protocol
        self._family_settings = family_settings or {}
        self._session_settings = session_settings or {}
        self._core: SessionCore | None = None

    def core(self, offer: Offer, model: str, options: Options, now: float) -> SessionCore:
        """A session core; one that keeps what goes into it, where the session is recorded."""
        ids, unix = secrets.token_hex(16), int(time.time())
        if self._tape is None:
            self._core = SessionCore(offer, model, options, seeded(ids), now, unix)
        else:
            began = Began(
                self._track.runtime,
                self._protocol,
                self._track.family,
                self._family_settings,
                self._session_settings,
                model,
                msgspec.to_builtins(options),
                None,
                ids,
                now,
                unix,
                0,
            )
            self._core = TapedCore(offer, options, began, self._tape.keep)
        self._track.call(self._core.session.id)
        return self._core

    def event(self, event: ServerEvent) -> None:
        """An event for the client."""
        self.metrics.event(event)
        self._track.event(event)

    def end(self, now: float) -> None:
        if isinstance(self._core, TapedCore):
            self._core.close(now)


def watching(server: Server, runtime: Runtime, protocol: str) -> Watch:
    """A watch for a session that has just been opened."""
    track = server.traces.of(runtime)
    recorder = server.recorder
    tape = None if recorder is None else recorder.tape(runtime.id, runtime.family)
    settings = server.settings
    seed = {} if settings.seed is None else {"seed": settings.seed}
    return Watch(server.metrics, track, tape, protocol, server.family_settings.get(runtime.family, {}), seed)
