"""`/whip/{session}` takes the pictures of a session's camera (RFC 9725), `/whep/{session}` shows what it imagines."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from aiohttp import web
from prometheus_client import Gauge

from mstar.errors import Rejected
from server.door import SERVER, Handler, authorised
from server.metrics import Metrics
from server.robot.fragment import read_fragment
from server.robot.guests import UNSUPPORTED, Guest, publisher, viewer
from server.robot.live import Robot
from server.robot.offers import cameras_of
from server.robot.parking import PARKING
from server.security import Refusal
from server.webrtc import http
from server.webrtc.routes import CALLS

FRAGMENT = "application/trickle-ice-sdpfrag"
MOST_VIEWERS = 8
"""Who may look at one session at a time."""
RETRY_SECONDS = 5


@dataclass(frozen=True, slots=True)
class _Kept:
    guest: Guest
    task: asyncio.Task[None]


class Guests:
    """All of one server, by the address that each was given."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._kept: dict[str, _Kept] = {}

    def add(self, guest: Guest, session: str, path: str) -> str:
        """Let it run → its address."""
        address = f"{path}/{session}/{guest.id}"
        gauge = self._metrics.sessions.labels(path.removeprefix("/"))
        self._kept[address] = _Kept(guest, asyncio.create_task(self._run(guest, address, gauge)))
        return address

    def find(self, request: web.Request) -> Guest:
        """The guest at the request's address. Raises Refusal(404)."""
        kept = self._kept.get(request.path)
        if kept is None:
            raise Refusal(404, "resource_not_found", "There is nothing at this address (any more).")
        return kept.guest

    async def end(self, guest: Guest) -> None:
        """Returns when it is freed."""
        tasks = {kept.task for kept in self._kept.values() if kept.guest is guest}
        guest.hang_up()
        if tasks:
            await asyncio.wait(tasks)

    async def end_all(self) -> None:
        for kept in list(self._kept.values()):
            await self.end(kept.guest)

    async def _run(self, guest: Guest, address: str, gauge: Gauge) -> None:
        gauge.inc()
        try:
            await guest.run()
        finally:
            del self._kept[address]
            gauge.dec()
            await guest.free()


GUESTS: web.AppKey[Guests] = web.AppKey("guests", Guests)


async def publish(request: web.Request) -> web.Response:
    """An offer that sends → 201. `?camera` names the one it is for; it takes the place of who sent that one before."""
    robot = _session(request)
    sdp = await http.offer_of(request)
    known = cameras_of(robot.core.offer)
    camera = request.query.get("camera", known[0])
    if camera not in known:
        text = f"There is no camera {camera!r:.80}; known: {', '.join(known)}."
        raise Refusal(400, "unknown_camera", text, "camera")
    server, calls = request.app[SERVER], request.app[CALLS]
    guest = publisher(robot, camera, server.metrics, calls.offers, server.settings.ice_servers)
    answer = await _answered(guest, sdp)
    for other in [each for each in robot.guests if isinstance(each, Guest) and each.camera == camera]:
        if other is not guest:
            other.hang_up()
    return _created(request, guest, answer, "/whip")


async def look(request: web.Request) -> web.Response:
    """An offer that receives → 201."""
    robot = _session(request)
    sdp = await http.offer_of(request)
    if sum(isinstance(each, Guest) and not each.camera for each in robot.guests) >= MOST_VIEWERS:
        text = f"{MOST_VIEWERS} look at this session already."
        raise Refusal(503, "viewer_limit_reached", text, retry_after=RETRY_SECONDS)
    server, calls = request.app[SERVER], request.app[CALLS]
    guest = viewer(robot, calls.offers, server.settings.ice_servers)
    return _created(request, guest, await _answered(guest, sdp), "/whep")


def _session(request: web.Request) -> Robot:
    """The session of the request's address. Raises Refusal(401, 404, 503)."""
    server = request.app[SERVER]
    authorised(request)
    if not server.ready or server.admission.draining:
        raise Refusal(503, "unavailable", "The server takes nobody in now.", retry_after=RETRY_SECONDS)
    return request.app[PARKING].find(request.match_info["session"])


async def _answered(guest: Guest, sdp: str) -> str:
    """Raises Refusal(422, 503), Rejected; then nothing of the guest is left."""
    try:
        return await guest.answer(sdp)
    except BaseException as why:
        await guest.free()
        match why:
            case Rejected(code=code) if code == UNSUPPORTED:
                raise Refusal(422, why.code, why.message, why.param) from why
            case OSError():
                raise Refusal(503, "webrtc_unavailable", f"No socket for it: {why}", retry_after=1) from why
        raise


def _created(request: web.Request, guest: Guest, answer: str, path: str) -> web.Response:
    address = request.app[GUESTS].add(guest, request.match_info["session"], path)
    response = http.answered(request, answer, address, ETag=guest.etag)
    for server in request.app[SERVER].settings.ice_servers:
        response.headers.add("Link", f'<{server}>; rel="ice-server"')
    return response


async def trickle(request: web.Request) -> web.Response:
    """More addresses of a peer → 204. Restarting ICE can not be done: 422."""
    authorised(request)
    guest = request.app[GUESTS].find(request)
    if request.content_type != FRAGMENT:
        raise Refusal(415, "unsupported_media_type", f"Expected {FRAGMENT}.")
    wanted = request.headers.get("If-Match")
    if wanted is None:
        raise Refusal(428, "precondition_required", "A PATCH says with If-Match which session it is for.", "If-Match")
    if wanted not in {guest.etag, "*"}:
        raise Refusal(412, "precondition_failed", "This is not the session's entity tag.", "If-Match")
    if not await guest.trickle(read_fragment(await request.text())):
        raise Refusal(422, "ice_restart_unsupported", "ICE can not be restarted here: the session goes on as it is.")
    return web.Response(status=204, headers=http.cross_origin(request))


async def leave(request: web.Request) -> web.Response:
    """200 when all of it is freed; then the address is gone."""
    authorised(request)
    await request.app[GUESTS].end(request.app[GUESTS].find(request))
    return web.Response(status=200, headers=http.cross_origin(request))


async def empty(request: web.Request) -> web.Response:
    """GET and HEAD of the addresses say that they are there."""
    authorised(request)
    if "guest" in request.match_info:
        request.app[GUESTS].find(request)
    else:
        _session(request)
    kind = http.SDP if request.path.startswith("/whep/") else None
    return web.Response(status=200, content_type=kind, headers=http.cross_origin(request))


def add_guests(app: web.Application) -> None:
    """Add the routes."""
    guests = app[GUESTS] = Guests(app[SERVER].metrics)

    async def ended(_: web.Application) -> None:
        await guests.end_all()

    app.on_shutdown.append(ended)
    posts: tuple[tuple[str, Handler], ...] = (("/whip", publish), ("/whep", look))
    for path, post in posts:
        for address in (f"{path}/{{session}}", f"{path}/{{session}}/{{guest}}"):
            app.router.add_route("OPTIONS", address, http.preflight)
            app.router.add_get(address, empty)
        app.router.add_post(f"{path}/{{session}}", post)
        app.router.add_patch(f"{path}/{{session}}/{{guest}}", trickle)
        app.router.add_delete(f"{path}/{{session}}/{{guest}}", leave)
