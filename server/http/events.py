"""Server-sent events of one answer."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from mstar.errors import Rejected
from server.security import Refusal
from server.sessions import bound_sending
from server.speech.wire import json_text

HEADERS = {"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-cache", "X-Accel-Buffering": "no"}


class Events:
    """A stream of JSON messages. `open` sends the head; a refusal has to come before."""

    def __init__(self, request: web.Request) -> None:
        self._request = request
        self.answer = web.StreamResponse(headers=HEADERS)

    async def open(self) -> None:
        await self.answer.prepare(self._request)
        bound_sending(self._request)

    async def send(self, message: Any) -> None:
        """Raises ConnectionError when the client has hung up. Waits while it does not read."""
        await self.answer.write(b"data: " + json_text(message) + b"\n\n")

    async def fail(self, why: Rejected | Refusal) -> None:
        """What went wrong behind the first text, in the form that it would have had before."""
        kind = "server_error" if isinstance(why, Refusal) and why.status >= 500 else "invalid_request_error"
        await self.send({"error": {"message": why.message, "type": kind, "code": why.code, "param": why.param}})

    async def close(self, last: bytes = b"") -> web.StreamResponse:
        """`last`: data of an end that is not JSON."""
        if last:
            await self.answer.write(b"data: " + last + b"\n\n")
        await self.answer.write_eof()
        return self.answer
