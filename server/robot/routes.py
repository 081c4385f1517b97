"""Robots' addresses."""

from __future__ import annotations

import logging

from aiohttp import web

from server.door import SERVER, Handler, Server, authorised
from server.limits import FRAME_BYTES
from server.robot.offers import offer_of
from server.robot.openpi import Episode, OpenpiSocket
from server.security import PROTOCOL, Refusal
from server.sessions import GOODBYE_SECONDS, HEARTBEAT_SECONDS, admitted, opened

log = logging.getLogger("mstar.server")

OPENPI = ("/openpi/policy", "/v1/realtime/robot/openpi")


def upgrading(request: web.Request) -> bool:
    """Whether the client wants a WebSocket."""
    return request.headers.get("Upgrade", "").lower() == "websocket"


def socket_for_robots() -> web.WebSocketResponse:
    """A WebSocket that takes raw pictures."""
    return web.WebSocketResponse(
        protocols=(PROTOCOL,),
        timeout=GOODBYE_SECONDS,
        heartbeat=HEARTBEAT_SECONDS,
        max_msg_size=FRAME_BYTES,
        compress=False,
    )


async def openpi(request: web.Request) -> web.StreamResponse:
    """openpi's protocol: refused as HTTP before the upgrade, or a policy until the connection ends."""
    server = request.app[SERVER]
    grant = authorised(request)
    model, offer = offer_of(server.cards, request.query.get("model") or grant.model)
    with admitted(server):
        if not upgrading(request):
            raise Refusal(426, "upgrade_required", "This address speaks openpi's protocol over WebSocket.")
        episode = Episode(await opened(server, model, trace=False), lambda: opened(server, model, trace=False))
        try:
            connection = socket_for_robots()
            await connection.prepare(request)
            robot = OpenpiSocket(connection, model, offer, episode, server.metrics)
            await _serve(server, connection, robot)
        finally:
            await episode.close()
    return connection


async def _serve(server: Server, connection: web.WebSocketResponse, robot: OpenpiSocket) -> None:
    gauge = server.metrics.sessions.labels("openpi")
    gauge.inc()
    server.live.add(robot)
    try:
        await robot.run()
    except* Exception:  # one session's failure is not another's
        log.exception("a robot's session failed")
        server.metrics.failed.inc()
        await connection.close(code=1011, message=b"internal error")
    finally:
        server.live.discard(robot)
        gauge.dec()


def add_robots(app: web.Application, page: Handler) -> None:
    """`page` answers at `/` whoever does not want a WebSocket there."""

    async def entry(request: web.Request) -> web.StreamResponse:
        return await openpi(request) if upgrading(request) else await page(request)

    app.router.add_get("/", entry)
    for path in OPENPI:
        app.router.add_get(path, openpi)
