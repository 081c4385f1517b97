"""Opening sessions over HTTP: the WebSocket, and secrets with which browsers may open one."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any, Literal

import msgspec
from aiohttp import web
from msgspec import Meta, Struct

from models.registry import Conversation as Offer
from mstar.client import Session as Runtime
from mstar.errors import Rejected
from server.door import SERVER, Server, account_of, authorised
from server.events.decode import settings_in
from server.events.session import MOST_WRITTEN, Session, SessionPatch, shown, updated
from server.http.reading import body_of
from server.limits import FRAME_BYTES, Account, Full, Limited, Seat
from server.realtime import Asked, RealtimeSocket, new_id
from server.record.calls import TapedCalls
from server.record.entries import Opened
from server.security import PROTOCOL, RETRY_SECONDS, Grant, Refusal
from server.session.options import Options
from server.session.prompts import check_choice
from server.watch import watching

log = logging.getLogger("mstar.server")

HEARTBEAT_SECONDS = 20.0
GOODBYE_SECONDS = 2.0
SEND_BYTES = 64 * 1024


def admitted(server: Server, account: Account) -> Seat:
    """A place for one more session of an account. Raises Refusal: 429; 503, also while the models are being loaded."""
    if not server.ready:
        raise Refusal(503, "loading", "The models are being loaded.", retry_after=RETRY_SECONDS)
    try:
        account.begin()
    except Limited as why:
        raise Refusal(429, why.code, why.message, retry_after=why.retry_after) from None
    try:
        return server.admission.enter(account)
    except Full:
        account.end()
        what = "The server is shutting down." if server.admission.draining else "All sessions are taken."
        raise Refusal(503, "session_limit_reached", what, retry_after=RETRY_SECONDS) from None


async def opened(server: Server, family: str, *, trace: bool, protocol: str = "") -> Runtime:
    """A session of the runtime with a family by its served name. Raises Refusal where the runtime refuses.

    `protocol` names a session that has no conversation: what it asks of the runtime is recorded, if anything is.
    """
    seed = server.settings.seed
    given = {} if seed is None else {"seed": seed}
    clock = asyncio.get_running_loop().time
    now = clock()
    try:
        runtime = await server.client.open(family, settings=given, trace=trace)
    except Rejected as why:
        raise Refusal(503, why.code, why.message, why.param, retry_after=RETRY_SECONDS) from None
    server.traces.begin(runtime, now)
    if server.recorder is not None and protocol:
        known = server.family_settings.get(family, {})
        tape = server.recorder.tape(runtime.id, family)
        server.taped[runtime.id] = TapedCalls(
            runtime, Opened(runtime.id, protocol, family, known, given, now), tape.keep, clock
        )
    return runtime


@asynccontextmanager
async def using(request: web.Request, family: str, protocol: str) -> AsyncIterator[Runtime]:
    """A session of the runtime for one HTTP request, with a seat of its own. Raises Refusal(429, 503)."""
    server = request.app[SERVER]
    gauge = server.metrics.sessions.labels(protocol)
    with admitted(server, account_of(request)):
        runtime = await opened(server, family, trace=False, protocol=protocol)
        gauge.inc()
        try:
            yield runtime
        finally:
            gauge.dec()
            await runtime.close()


def options_of(server: Server, *, counted: bool, transcribing: bool) -> Options:
    """The settings as a session core takes them."""
    return Options(
        counted=counted,
        transcribing=transcribing,
        strict_truncate=server.settings.strict_truncate,
        seconds=server.settings.session_seconds,
    )


def asked_of(request: web.Request, grant: Grant, default: str) -> Asked:
    """What a client wants of its session, from its query and its key."""
    patch = grant.session
    transcribing = request.query.get("intent") == "transcription" or (
        patch is not None and patch.type == "transcription"
    )
    return Asked(
        model=request.query.get("model") or grant.model or default,
        extended=request.query.get("events") == "ext",
        transcribing=transcribing,
        session=patch,
    )


async def realtime(request: web.Request) -> web.StreamResponse:
    """`GET /v1/realtime`: refused as HTTP before the upgrade, or a session until the connection ends."""
    server = request.app[SERVER]
    grant = authorised(request)
    asked = asked_of(request, grant, next(iter(server.cards)))
    card = server.card(asked.model)
    offer = card.conversation
    assert offer is not None
    with admitted(server, account_of(request)):
        if request.headers.get("Upgrade", "").lower() != "websocket":  # last: a browser asks here why it was refused
            raise Refusal(426, "upgrade_required", "This address speaks WebSocket.")
        runtime = await opened(server, asked.model, trace=asked.extended)
        try:
            return await _serve(request, server, runtime, offer, asked)
        finally:
            await runtime.close()


async def _serve(
    request: web.Request, server: Server, runtime: Runtime, offer: Offer, asked: Asked
) -> web.StreamResponse:
    connection = web.WebSocketResponse(
        protocols=(PROTOCOL,),
        timeout=GOODBYE_SECONDS,
        heartbeat=HEARTBEAT_SECONDS,
        max_msg_size=FRAME_BYTES,
        compress=False,
    )
    await connection.prepare(request)
    bound_sending(request)
    options = options_of(server, counted=False, transcribing=asked.transcribing)
    watch = watching(server, runtime, "websocket")
    idle = server.settings.idle_seconds
    session = RealtimeSocket(connection, runtime, offer, options, asked, watch, account_of(request), idle)
    gauge = server.metrics.sessions.labels("websocket")
    gauge.inc()
    server.live.add(session)
    try:
        await session.run()
    except* Exception:  # one session's failure is not another's
        log.exception("a session failed")
        server.metrics.failed.inc()
        await connection.close(code=1011, message=b"internal error")
    finally:
        server.live.discard(session)
        gauge.dec()
        watch.end(asyncio.get_running_loop().time())
    return connection


def bound_sending(request: web.Request) -> None:
    """Keep what the kernel holds for a client that does not read to some seconds of sound."""
    if request.transport is not None:
        connection: socket.socket | None = request.transport.get_extra_info("socket")
        if connection is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BYTES)


async def drain(server: Server) -> None:
    """Take nobody in any more, give those inside some time, then end them with 1001."""
    server.admission.draining = True
    if await server.admission.empty(server.settings.drain_seconds):
        return
    for session in list(server.live):
        session.end(1001, "server is shutting down")
    await server.admission.empty(GOODBYE_SECONDS)


# ---------------------------------------------------------------------------------------------------- secrets


class _Expiry(Struct, forbid_unknown_fields=True):
    anchor: Literal["created_at"] = "created_at"
    seconds: Annotated[int, Meta(ge=10, le=7200)] = 600


class _SecretRequest(Struct, forbid_unknown_fields=True):
    expires_after: _Expiry = msgspec.field(default_factory=_Expiry)
    session: SessionPatch | None = None


async def client_secrets(request: web.Request) -> web.Response:
    """`POST /v1/realtime/client_secrets`: a key for a browser, with the session that it will open."""
    server = request.app[SERVER]
    account = authorised(request, master=True).account
    wanted = settings_in(await body_of(request, MOST_WRITTEN) or b"{}", _SecretRequest)
    model = (wanted.session.model if wanted.session is not None else None) or next(iter(server.cards))
    offer = server.card(model).conversation
    now = int(time.time())
    seconds = wanted.expires_after.seconds
    effective = _effective(model, offer, wanted.session, now + seconds)
    secret = server.keys.mint(Grant(model, wanted.session, account), now, seconds)
    body: dict[str, Any] = {"value": secret.value, "expires_at": secret.expires_at, "session": effective}
    return web.json_response(body)


def _effective(model: str, offer: Offer | None, patch: SessionPatch | None, expires_at: int) -> Any:
    """The session that the secret will open, as JSON types. Raises Rejected for settings that can not be."""
    session = Session("realtime", "realtime.session", new_id("sess"), model, expires_at)
    if patch is not None:
        session = updated(session, patch)
    if offer is not None:
        check_choice(session.tool_choice, offer, "session.tool_choice")
    return msgspec.to_builtins(shown(session, transcribing=patch is not None and patch.type == "transcription"))
