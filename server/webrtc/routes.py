"""`/v1/realtime/calls`: offers in, answers out, and the calls that they opened."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import Protocol

from aiohttp import web

from mstar.client import Session as Runtime
from server.door import SERVER, Server, account_of, authorised
from server.events.decode import settings_in
from server.events.session import MOST_WRITTEN, SessionPatch
from server.http.reading import form_of
from server.limits import Seat
from server.realtime import Asked
from server.security import Refusal
from server.sessions import admitted, asked_of, opened, options_of
from server.watch import Watch, watching
from server.webrtc import patches
from server.webrtc.addresses import Offered, offered
from server.webrtc.call import Call
from server.webrtc.http import OFFER_BYTES, SDP, answered, cross_origin, offer_of, preflight

log = logging.getLogger("mstar.webrtc")


class Held(Protocol):
    """A call of any kind."""

    @property
    def id(self) -> str: ...

    def hang_up(self) -> None: ...


class Calls:
    """The calls of one server, each with the task that runs it."""

    def __init__(self, offers: tuple[Offered, ...]) -> None:
        self.offers = offers
        self._calls: dict[str, tuple[Held, asyncio.Task[None]]] = {}

    def add(self, call: Held, task: asyncio.Task[None]) -> None:
        self._calls[call.id] = (call, task)
        task.add_done_callback(lambda _: self._calls.pop(call.id, None))

    def find(self, name: str) -> Held | None:
        """A call by its id."""
        found = self._calls.get(name)
        return None if found is None else found[0]

    async def hang_up(self, name: str) -> bool:
        """End a call and wait until it is freed → whether there was one."""
        found = self._calls.get(name)
        if found is None:
            return False
        call, task = found
        call.hang_up()
        await asyncio.wait({task})
        return True

    async def end(self) -> None:
        """End all of them."""
        await asyncio.gather(*(self.hang_up(name) for name in list(self._calls)))

    def census(self) -> dict[str, int]:
        """What is held."""
        return {"calls": len(self._calls)}


CALLS: web.AppKey[Calls] = web.AppKey("calls", Calls)


def add_calls(app: web.Application) -> None:
    """Add the routes. Raises RuntimeError if the installed aiortc does not fit, Rejected for wrong candidates."""
    patches.check()
    logging.getLogger("aioice").setLevel(logging.WARNING)  # it tells every step of every check
    logging.getLogger("aiortc.rtcrtpreceiver").setLevel(logging.ERROR)  # it tells of every packet of nonsense
    calls = app[CALLS] = Calls(offered(app[SERVER].settings.candidates))

    async def ended(_: web.Application) -> None:
        await calls.end()

    app.on_shutdown.append(ended)
    app.router.add_post("/v1/realtime/calls", create)
    app.router.add_route("OPTIONS", "/v1/realtime/calls", preflight)
    app.router.add_post("/v1/realtime/calls/{call}/hangup", hang_up)
    app.router.add_delete("/v1/realtime/calls/{call}", hang_up)
    app.router.add_route("OPTIONS", "/v1/realtime/calls/{call}", preflight)


async def create(request: web.Request) -> web.Response:
    """An offer, alone or in a form with session settings → 201 with the answer and the call's address."""
    server = request.app[SERVER]
    grant = authorised(request)
    sdp, patch = await _offer(request)
    asked = asked_of(request, grant, next(iter(server.cards)))
    if patch is not None:
        model = request.query.get("model") or patch.model or asked.model
        asked = replace(asked, session=patch, model=str(model), transcribing=patch.type == "transcription")
    call, answer = await _call(request, server, asked, sdp)
    return answered(request, answer, f"/v1/realtime/calls/{call.id}")


async def _offer(request: web.Request) -> tuple[str, SessionPatch | None]:
    """The SDP and the session settings of a request. Raises Refusal, Rejected."""
    if request.content_type == SDP:
        return await offer_of(request), None
    if request.content_type != "multipart/form-data":
        raise Refusal(415, "unsupported_media_type", f"Expected {SDP} or multipart/form-data.")
    parts = dict((await form_of(request, {"sdp": OFFER_BYTES, "session": MOST_WRITTEN})).fields)
    if "sdp" not in parts:
        raise Refusal(400, "missing_required_parameter", "Missing required parameter: 'sdp'.", "sdp")
    session = parts.get("session")
    return parts["sdp"], None if session is None else settings_in(session, SessionPatch, "session")


async def _call(request: web.Request, server: Server, asked: Asked, sdp: str) -> tuple[Call, str]:
    """Take a seat, open a session, answer the offer, and let the call run. Whatever fails gives all of it back."""
    card = server.card(asked.model)
    offer = card.conversation
    assert offer is not None
    calls = request.app[CALLS]
    seat = admitted(server, account_of(request))
    try:
        runtime = await opened(server, card.name, trace=asked.extended)
    except BaseException:
        seat.leave()
        raise
    call: Call | None = None
    try:
        options = options_of(server, counted=True, transcribing=asked.transcribing)
        settings = server.settings
        watch = watching(server, runtime, "webrtc")
        account, rate = account_of(request), offer.mic_rate
        call = Call(
            runtime,
            offer,
            options,
            asked,
            watch,
            calls.offers,
            settings.ice_servers,
            lambda samples: account.hear(samples / rate),
        )
        server.traces.of(runtime).call(call.id)
        answer = await call.answer(sdp)
    except BaseException as why:
        if call is not None:
            await call.free()
            watch.end(asyncio.get_running_loop().time())
        await runtime.close()
        seat.leave()
        if isinstance(why, OSError):
            raise Refusal(503, "webrtc_unavailable", f"No socket for the call: {why}", retry_after=1) from why
        raise
    calls.add(call, asyncio.create_task(_run(server, call, seat, runtime, watch)))
    return call, answer


async def _run(server: Server, call: Call, seat: Seat, runtime: Runtime, watch: Watch) -> None:
    """One call from its answer to its end; everything it held is given back."""
    gauge = server.metrics.sessions.labels("webrtc")
    gauge.inc()
    server.live.add(call)
    try:
        await call.run()
    except* Exception:  # one call's failure is not another's
        log.exception("a call failed")
        server.metrics.failed.inc()
    finally:
        server.live.discard(call)
        gauge.dec()
        watch.end(asyncio.get_running_loop().time())
        try:
            await call.free()
        finally:
            await runtime.close()
            seat.leave()


async def hang_up(request: web.Request) -> web.Response:
    """End a call; 404 if there is none of that name (any more)."""
    authorised(request)
    if not await request.app[CALLS].hang_up(request.match_info["call"]):
        raise Refusal(404, "call_not_found", "There is no such call.", "call_id")
    return web.Response(status=200, headers=cross_origin(request))
