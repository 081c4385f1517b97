"""`/v1/robot/calls`: live sessions of robots over WebRTC."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from aiohttp import web

from server.door import SERVER, Server, account_of, authorised
from server.limits import Seat
from server.robot.ears import ears_of
from server.robot.live import Robot
from server.robot.offers import Offer, cameras_of, offer_of
from server.robot.parking import PARKING, Parking, robot_for, seated
from server.robot.rtc import RobotCall
from server.robot.whip import add_guests
from server.security import Refusal
from server.webrtc import http
from server.webrtc.peer import check_offer
from server.webrtc.routes import CALLS

log = logging.getLogger("mstar.server")


async def create(request: web.Request) -> web.Response:
    """An offer → 201 with the answer; `?resume` goes on with a known session, `?cameras` names the offer's videos."""
    server, parking, calls = request.app[SERVER], request.app[PARKING], request.app[CALLS]
    grant = authorised(request)
    sdp = await http.offer_of(request)
    model, offer = offer_of(server.cards, request.query.get("model") or grant.model)
    token = request.query.get("resume")
    if token is not None:  # whoever holds the session would make room for nothing
        check_offer(sdp)
    cameras = _cameras(request, offer if token is None else parking.known(token).core.offer)
    seat = await seated(server, account_of(request), parking, token)
    try:
        robot = await robot_for(server, parking, model, offer, token)
    except BaseException:
        seat.leave()
        raise
    call: RobotCall | None = None
    try:
        robot.free.clear()
        ears = ears_of(server, account_of(request))
        call = RobotCall(robot, cameras, server.metrics, calls.offers, server.settings.ice_servers, ears)
        answer = await call.answer(sdp)
    except BaseException as why:
        await _left(server, parking, robot, call, seat, over=token is None)
        if isinstance(why, OSError):
            raise Refusal(503, "webrtc_unavailable", f"No socket for the call: {why}", retry_after=1) from why
        raise
    calls.add(call, asyncio.create_task(_run(server, parking, robot, call, seat)))
    return http.answered(request, answer, f"/v1/robot/calls/{call.id}")


def _cameras(request: web.Request, offer: Offer) -> Sequence[str]:
    """Names of the offer's videos in their order. Raises Refusal."""
    known = cameras_of(offer)
    cameras = [name for name in request.query.get("cameras", "").split(",") if name] or known
    unknown = [name for name in cameras if name not in known]
    if unknown:
        text = f"There is no camera {unknown[0]!r:.80}; known: {', '.join(known)}."
        raise Refusal(400, "unknown_camera", text, "cameras")
    if len(set(cameras)) < len(cameras):
        raise Refusal(400, "invalid_value", "A camera is named twice.", "cameras")
    return cameras


async def _run(server: Server, parking: Parking, robot: Robot, call: RobotCall, seat: Seat) -> None:
    """One connection from its answer to its end; the session waits for the next one unless it is over."""
    gauge = server.metrics.sessions.labels("robot")
    gauge.inc()
    server.live.add(call)
    over = True
    try:
        over = await call.run()
    except* Exception:  # one session's failure is not another's
        log.exception("a robot's session failed")
        server.metrics.failed.inc()
    finally:
        server.live.discard(call)
        gauge.dec()
        await _left(server, parking, robot, call, seat, over=over)


async def _left(
    server: Server, parking: Parking, robot: Robot, call: RobotCall | None, seat: Seat, *, over: bool
) -> None:
    """Give back what the connection held."""
    try:
        if call is not None:
            await call.free()
    finally:
        robot.live = None
        if over or server.admission.draining:
            await parking.close(robot)
        else:
            parking.park(robot)
        robot.free.set()
        seat.leave()


async def hang_up(request: web.Request) -> web.Response:
    """End the connection and the session; 404 if there is none of that name (any more)."""
    authorised(request)
    if not await request.app[CALLS].hang_up(request.match_info["call"]):
        raise Refusal(404, "call_not_found", "There is no such call.", "call_id")
    return web.Response(status=200, headers=http.cross_origin(request))


def add_robot_calls(app: web.Application) -> None:
    """Add the routes, and those of who only sends a camera or looks."""
    add_guests(app)
    app.router.add_post("/v1/robot/calls", create)
    app.router.add_route("OPTIONS", "/v1/robot/calls", http.preflight)
    app.router.add_delete("/v1/robot/calls/{call}", hang_up)
    app.router.add_route("OPTIONS", "/v1/robot/calls/{call}", http.preflight)
