"""`/whip/{session}` takes the pictures of a session's camera (RFC 9725), `/whep/{session}` shows what it imagines."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass

from aiohttp import web
from prometheus_client import Gauge

from mstar.errors import Rejected
from server.door import SERVER, Handler, Server, account_of, authorised
from server.limits import Seat
from server.robot.fragment import read_fragment
from server.robot.guests import OVER, UNSUPPORTED, Guest, publisher, viewer
from server.robot.live import Robot
from server.robot.offers import cameras_of
from server.robot.parking import PARKING
from server.security import Refusal
from server.sessions import admitted
from server.webrtc import http
from server.webrtc.routes import CALLS

FRAGMENT = "application/trickle-ice-sdpfrag"
PATCHED = f"{FRAGMENT}, {http.SDP}"
"""What a guest's address takes: its addresses, and its answer to an offer of ours."""
MOST_VIEWERS = 8
"""Who may look at one session at a time."""
RETRY_SECONDS = 5


@dataclass(frozen=True, slots=True)
class _Kept:
    guest: Guest
    task: asyncio.Task[None]


class Guests:
    """All of one server, by the address that each was given."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._kept: dict[str, _Kept] = {}

    def add(self, guest: Guest, seat: Seat, session: str, path: str) -> str:
        """Let it run → its address."""
        address = f"{path}/{session}/{guest.id}"
        gauge = self._server.metrics.sessions.labels(path.removeprefix("/"))
        self._kept[address] = _Kept(guest, asyncio.create_task(self._run(guest, seat, address, gauge)))
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

    async def _run(self, guest: Guest, seat: Seat, address: str, gauge: Gauge) -> None:
        gauge.inc()
        self._server.live.add(guest)
        try:
            await guest.run()
        finally:
            self._server.live.discard(guest)
            del self._kept[address]
            gauge.dec()
            try:
                await guest.free()
            finally:
                seat.leave()


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
    with ExitStack() as held:
        seat = held.enter_context(_seat(request))
        guest = publisher(robot, camera, server.metrics, calls.offers, server.settings.ice_servers)
        async with _freed(guest):
            answer = await guest.answer(sdp)
        for other in [each for each in robot.guests if isinstance(each, Guest) and each.camera == camera]:
            if other is not guest:
                other.hang_up()
        held.pop_all()
    return _described(request, guest, seat, answer, "/whip")


async def look(request: web.Request) -> web.Response:
    """An offer that receives → 201; of one that does not fit, 406 with an offer of what there is to see."""
    robot = _session(request)
    sdp = await http.offer_of(request)
    if sum(isinstance(each, Guest) and not each.camera for each in robot.guests) >= MOST_VIEWERS:
        text = f"{MOST_VIEWERS} look at this session already."
        raise Refusal(503, "viewer_limit_reached", text, retry_after=RETRY_SECONDS)
    offers, ice_servers = request.app[CALLS].offers, request.app[SERVER].settings.ice_servers
    status = 201
    with ExitStack() as held:
        seat = held.enter_context(_seat(request))
        guest = viewer(robot, offers, ice_servers)
        try:
            async with _freed(guest):
                answer = await guest.answer(sdp)
        except Refusal as why:
            if why.code != UNSUPPORTED:
                raise
            status = 406
            guest = viewer(robot, offers, ice_servers)
            async with _freed(guest):
                answer = await guest.offer()
        held.pop_all()
    return _described(request, guest, seat, answer, "/whep", status=status)


def _session(request: web.Request) -> Robot:
    """The session of the request's address. Raises Refusal(401, 404, 503)."""
    server = request.app[SERVER]
    authorised(request)
    if not server.ready or server.admission.draining:
        raise Refusal(503, "unavailable", "The server takes nobody in now.", retry_after=RETRY_SECONDS)
    return request.app[PARKING].find(request.match_info["session"])


def _seat(request: web.Request) -> Seat:
    """A guest counts as any other connection of its key. Raises Refusal(429, 503)."""
    return admitted(request.app[SERVER], account_of(request))


@asynccontextmanager
async def _freed(guest: Guest) -> AsyncIterator[None]:
    """Nothing is left of a guest that could not be answered. Raises Refusal(404, 422, 503), Rejected."""
    try:
        yield
    except BaseException as why:
        await guest.free()
        match why:
            case Rejected(code=code) if code == UNSUPPORTED:
                raise Refusal(422, why.code, why.message, why.param) from why
            case Rejected(code=code) if code == OVER:
                raise Refusal(404, why.code, why.message, why.param) from why
            case OSError():
                raise Refusal(503, "webrtc_unavailable", f"No socket for it: {why}", retry_after=1) from why
        raise


def _described(
    request: web.Request, guest: Guest, seat: Seat, sdp: str, path: str, *, status: int = 201
) -> web.Response:
    """A guest that runs, with its description, its address and its tag."""
    address = request.app[GUESTS].add(guest, seat, request.match_info["session"], path)
    response = http.answered(request, sdp, address, status=status, ETag=guest.etag)
    for server in request.app[SERVER].settings.ice_servers:
        response.headers.add("Link", f'<{server}>; rel="ice-server"')
    return response


async def patch(request: web.Request) -> web.Response:
    """More addresses of a peer, or its answer to an offer of ours → 204. Restarting ICE can not be done: 422."""
    authorised(request)
    guest = request.app[GUESTS].find(request)
    if request.content_type not in {FRAGMENT, http.SDP}:
        raise Refusal(415, "unsupported_media_type", f"Expected {PATCHED}.")
    wanted = request.headers.get("If-Match")
    if wanted is None and request.content_type == FRAGMENT:
        raise Refusal(428, "precondition_required", "A PATCH says with If-Match which session it is for.", "If-Match")
    if wanted is not None and not {guest.etag, "*"} & {each.strip() for each in wanted.split(",")}:
        raise Refusal(412, "precondition_failed", "This is not the session's entity tag.", "If-Match")
    sdp = await http.text_of(request)
    if request.content_type == http.SDP:
        if not await guest.accept(sdp):
            raise Refusal(409, "no_offer_waits", "No offer waits here for an answer.")
    elif not await guest.trickle(read_fragment(sdp)):
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


async def options(request: web.Request) -> web.Response:
    """What may be done here."""
    response = await http.preflight(request)
    if "guest" in request.match_info:
        del response.headers["Accept-Post"]
        response.headers["Accept-Patch"] = PATCHED
    return response


def add_guests(app: web.Application) -> None:
    """Add the routes."""
    guests = app[GUESTS] = Guests(app[SERVER])

    async def ended(_: web.Application) -> None:
        await guests.end_all()

    app.on_shutdown.append(ended)
    posts: tuple[tuple[str, Handler], ...] = (("/whip", publish), ("/whep", look))
    for path, post in posts:
        for address in (f"{path}/{{session}}", f"{path}/{{session}}/{{guest}}"):
            app.router.add_route("OPTIONS", address, options)
            app.router.add_get(address, empty)
        app.router.add_post(f"{path}/{{session}}", post)
        app.router.add_patch(f"{path}/{{session}}/{{guest}}", patch)
        app.router.add_delete(f"{path}/{{session}}/{{guest}}", leave)
