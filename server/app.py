"""The HTTP application: all routes of one server."""

from __future__ import annotations

import asyncio
import json

from aiohttp import web

from server.door import SERVER, Server, authorised, guard
from server.health import ASK_SECONDS, healthz, metrics, readyz, watch_lag
from server.http.routes import add_http
from server.limits import BODY_BYTES
from server.pages import pages
from server.robot.routes import add_robots
from server.security import Refusal
from server.sessions import client_secrets, drain, realtime
from server.speech.routes import add_speech
from server.traces import story, trace_file
from server.webrtc.routes import add_calls
from server.webrtc.sideband import beside_calls


async def graph(request: web.Request) -> web.Response:
    """A family's Walk Graph, for drawing."""
    server = request.app[SERVER]
    authorised(request)
    name = request.match_info["family"]
    if name not in server.cards:
        raise Refusal(404, "model_not_found", f"The model '{name:.80}' does not exist.", "family")
    try:
        async with asyncio.timeout(ASK_SECONDS):
            value = await server.client.ask("graph", family=name)
    except TimeoutError:
        raise Refusal(503, "runtime_silent", "The conductor does not answer.", retry_after=1) from None
    return web.json_response(value, dumps=lambda tree: json.dumps(tree, default=list))


async def sessions(request: web.Request) -> web.Response:
    """Sessions whose trace may be asked for, the oldest first; `id` is the last of the names it goes by."""
    server = request.app[SERVER]
    authorised(request, master=True)
    rows = [
        {
            "id": track.names[-1],
            "names": track.names,
            "object": "mstar.session",
            "model": track.family,
            "open": not track.ended,
        }
        for track in server.traces.known
    ]
    return web.json_response({"object": "list", "data": rows})


async def trace(request: web.Request) -> web.Response:
    """What the components did for a session, as a file for Perfetto."""
    server = request.app[SERVER]
    authorised(request)
    track = server.traces.find(request.match_info["session"])
    if track is None:
        text = "There is no such session, or it has ended too long ago."
        raise Refusal(404, "session_not_found", text, "session")
    try:
        async with asyncio.timeout(ASK_SECONDS):
            return trace_file(await story(track, server.client))
    except TimeoutError:
        raise Refusal(503, "runtime_silent", "A worker does not answer.", retry_after=1) from None


async def _drained(app: web.Application) -> None:
    await drain(app[SERVER])


async def _tapes_closed(app: web.Application) -> None:
    """What was recorded of sessions that the runtime has not freed yet is whole all the same."""
    taped = app[SERVER].taped
    while taped:
        taped.popitem()[1].close()


def application(server: Server) -> web.Application:
    """Everything a server answers to."""
    app = web.Application(middlewares=[guard], client_max_size=BODY_BYTES)
    app[SERVER] = server
    app.cleanup_ctx.append(watch_lag)
    app.on_shutdown.append(_drained)
    app.on_cleanup.append(_tapes_closed)
    app.router.add_get("/healthz", healthz)
    app.router.add_get("/readyz", readyz)
    app.router.add_get("/metrics", metrics)
    add_http(app)
    app.router.add_get("/v1/graph/{family}", graph)
    app.router.add_get("/v1/sessions", sessions)
    app.router.add_get("/v1/sessions/{session}/trace", trace)
    app.router.add_get("/v1/realtime", beside_calls(realtime))
    app.router.add_post("/v1/realtime/client_secrets", client_secrets)
    add_calls(app)
    add_speech(app)
    page = pages(server.settings.web)
    add_robots(app, page)
    app.router.add_get("/{path:.*}", page)
    return app
