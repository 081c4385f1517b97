"""Robots' addresses."""

from __future__ import annotations

import logging

from aiohttp import web

from server.door import SERVER, Handler, Server, account_of, authorised
from server.limits import FRAME_BYTES
from server.robot.ears import ears_of
from server.robot.live import Robot
from server.robot.offers import offer_of
from server.robot.openpi import Episode, OpenpiSocket
from server.robot.parking import PARKING, Parking, robot_for, seated
from server.robot.rtc_routes import add_robot_calls
from server.robot.socket import LiveSocket
from server.security import PROTOCOL, Refusal
from server.sessions import GOODBYE_SECONDS, HEARTBEAT_SECONDS, admitted, bound_sending, opened

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
    with admitted(server, account_of(request)):
        if not upgrading(request):
            raise Refusal(426, "upgrade_required", "This address speaks openpi's protocol over WebSocket.")
        episode = Episode(
            await opened(server, model, trace=False, protocol="openpi"),
            lambda: opened(server, model, trace=False, protocol="openpi"),
        )
        try:
            connection = socket_for_robots()
            await connection.prepare(request)
            robot = OpenpiSocket(connection, model, offer, episode, server.metrics, server.settings.idle_seconds)
            await _serve(server, connection, robot, "openpi")
        finally:
            await episode.close()
    return connection


async def live(request: web.Request) -> web.StreamResponse:
    """`GET /v1/robot/session`: refused as HTTP before the upgrade, or a new session, or with `resume` a known one."""
    server, parking = request.app[SERVER], request.app[PARKING]
    grant = authorised(request)
    token = request.query.get("resume")
    model, offer = offer_of(server.cards, request.query.get("model") or grant.model)
    joins = socket_for_robots().can_prepare(request).ok
    with await seated(server, account_of(request), parking, token if joins else None):
        if not joins:  # last: a browser asks here why it was refused
            if token is not None:
                parking.known(token)
            raise Refusal(426, "upgrade_required", "This address speaks WebSocket.")
        robot = await robot_for(server, parking, model, offer, token)
        return await _connected(request, server, parking, robot)


async def _connected(request: web.Request, server: Server, parking: Parking, robot: Robot) -> web.StreamResponse:
    """One connection of a live session; the session waits for the next one unless it is over."""
    connection = socket_for_robots()
    socket = LiveSocket(connection, robot, server.metrics, ears_of(server, account_of(request)))
    robot.free.clear()
    over = True
    try:
        await connection.prepare(request)
        bound_sending(request)
        over = await _serve(server, connection, socket, "robot")
    finally:
        robot.live = None
        if over or server.admission.draining:
            await parking.close(robot)
        else:
            parking.park(robot)
        robot.free.set()
    return connection


async def _serve(
    server: Server, connection: web.WebSocketResponse, socket: OpenpiSocket | LiveSocket, protocol: str
) -> bool:
    """Returns whether everything of the client is over."""
    over = True
    gauge = server.metrics.sessions.labels(protocol)
    gauge.inc()
    server.live.add(socket)
    try:
        over = await socket.run()
    except* Exception:  # one session's failure is not another's
        log.exception("a robot's session failed")
        server.metrics.failed.inc()
        await connection.close(code=1011, message=b"internal error")
    finally:
        server.live.discard(socket)
        gauge.dec()
    return over


async def _emptied(app: web.Application) -> None:
    await app[PARKING].clear()


def add_robots(app: web.Application, page: Handler) -> None:
    """`page` answers at `/` whoever does not want a WebSocket there."""

    async def entry(request: web.Request) -> web.StreamResponse:
        return await openpi(request) if upgrading(request) else await page(request)

    app[PARKING] = Parking(app[SERVER].admission.most)
    app.on_shutdown.append(_emptied)
    app[SERVER].on_lost.append(app[PARKING].clear)
    app.router.add_get("/", entry)
    app.router.add_get("/v1/robot/session", live)
    add_robot_calls(app)
    for path in OPENPI:
        app.router.add_get(path, openpi)
