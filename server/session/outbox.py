"""Collects the commands of one step of the core, in order, and gives out ids."""

from __future__ import annotations

from collections.abc import Callable

from mstar.errors import Rejected
from server.events.server import Error, ErrorDetails, ServerEvent
from server.session.commands import Command, Send

Ids = Callable[[str], str]
"""A new unique id of a kind: "item" → "item_…"."""


class Outbox:
    def __init__(self, ids: Ids) -> None:
        self.new_id = ids
        self._commands: list[Command] = []

    def send(self, event: ServerEvent) -> None:
        event.event_id = self.new_id("event")
        self._commands.append(Send(event))

    def do(self, command: Command) -> None:
        self._commands.append(command)

    def refuse(self, why: Rejected, event_id: str | None, *, kind: str = "invalid_request_error") -> None:
        self.send(Error(error=ErrorDetails(kind, why.code, why.message, why.param, event_id)))

    def take(self) -> list[Command]:
        taken, self._commands = self._commands, []
        return taken
