"""Who may speak here: keys in each protocol's own place, a seat, a session of the runtime."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from aiohttp import web

from mstar.client import Session as Runtime
from mstar.errors import Rejected
from server.door import SERVER, Server, allowed
from server.http import reading
from server.limits import BODY_BYTES, Account
from server.security import Refusal, key_of
from server.sessions import admitted, opened
from server.speech.offers import Said, speaking
from server.speech.wire import tree_of

__all__ = ["allowed", "body_of", "family_for", "key_for", "session", "upgrade_wanted", "with_tasks"]

T = TypeVar("T")

TOKEN_PROTOCOL = "token"  # noqa: S105 - the name of a subprotocol


def family_for(request: web.Request, model: str | None, param: str = "model") -> Said:
    """The family of a model's name. Raises Refusal(404)."""
    try:
        return speaking(request.app[SERVER].cards, model, param)
    except Rejected as why:
        raise Refusal(404, why.code, why.message, why.param) from None


def key_for(request: web.Request, *, header: str = "", query: tuple[str, ...] = ()) -> str | None:
    """The key of a request: in a vendor's header or query field, as `Token`, or as the API's own."""
    given = request.headers.get(header) if header else None
    for name in query:
        given = given or request.query.get(name)
    if given:
        return given
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() == "token" and token.strip():
        return token.strip()
    named = [each.strip() for each in request.headers.get("Sec-WebSocket-Protocol", "").split(",")]
    if len(named) == 2 and named[0] in (TOKEN_PROTOCOL, "bearer"):
        return named[1]
    return key_of(request.headers)


def upgrade_wanted(request: web.Request) -> None:
    """Raises Refusal(426) for a plain request where a WebSocket is spoken."""
    if request.headers.get("Upgrade", "").lower() != "websocket":
        raise Refusal(426, "upgrade_required", "This address speaks WebSocket.")


@asynccontextmanager
async def session(server: Server, said: Said, protocol: str, account: Account) -> AsyncIterator[Runtime]:
    """A session of the runtime with a seat of its own. Raises Refusal(429, 503)."""
    gauge = server.metrics.sessions.labels(protocol)
    with admitted(server, account):
        runtime = await opened(server, said.family, trace=False, protocol=protocol)
        gauge.inc()
        try:
            yield runtime
        finally:
            gauge.dec()
            await runtime.close()


async def with_tasks(work: Callable[[asyncio.TaskGroup], Awaitable[T]]) -> T:
    """Work that owns tasks; they have ended when it returns. What was refused is raised as itself, not in a group."""
    why: Rejected | ConnectionError
    async with asyncio.TaskGroup() as group:
        try:
            return await work(group)
        except (Rejected, ConnectionError) as held:
            why = held
    raise why


async def body_of(request: web.Request) -> dict[str, Any]:
    """The JSON object of a request. Raises Refusal(408, 413) or Rejected."""
    return tree_of(await reading.body_of(request, BODY_BYTES), cut=False)
