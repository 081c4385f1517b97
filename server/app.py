"""The HTTP application: all routes of one server."""

from __future__ import annotations

import asyncio
import json

from aiohttp import web

from server.door import SERVER, Server, authorised, guard
from server.health import ASK_SECONDS, healthz, metrics, readyz, watch_lag
from server.limits import BODY_BYTES
from server.pages import pages
from server.robot.routes import add_robots
from server.security import Refusal
from server.sessions import client_secrets, drain, realtime
from server.speech.routes import add_speech
from server.webrtc.routes import add_calls


async def models(request: web.Request) -> web.Response:
    """The families, as the API lists models."""
    server = request.app[SERVER]
    authorised(request)
    rows = [
        {"id": name, "object": "model", "created": card.created, "owned_by": "mstar"}
        for name, card in server.cards.items()
    ]
    return web.json_response({"object": "list", "data": rows})


async def graph(request: web.Request) -> web.Response:
    """A family's Walk Graph, for drawing."""
    server = request.app[SERVER]
    authorised(request)
    name = request.match_info["family"]
    if name not in server.cards:
        raise Refusal(404, "model_not_found", f"The model '{name:.80}' does not exist.", "family")
    try:
        value = await asyncio.wait_for(server.client.ask("graph", family=name), ASK_SECONDS)
    except TimeoutError:
        raise Refusal(503, "runtime_silent", "The conductor does not answer.", retry_after=1) from None
    return web.json_response(value, dumps=lambda tree: json.dumps(tree, default=list))


async def _drained(app: web.Application) -> None:
    await drain(app[SERVER])


def application(server: Server) -> web.Application:
    """Everything a server answers to."""
    app = web.Application(middlewares=[guard], client_max_size=BODY_BYTES)
    app[SERVER] = server
    app.cleanup_ctx.append(watch_lag)
    app.on_shutdown.append(_drained)
    app.router.add_get("/healthz", healthz)
    app.router.add_get("/readyz", readyz)
    app.router.add_get("/metrics", metrics)
    app.router.add_get("/v1/models", models)
    app.router.add_get("/v1/graph/{family}", graph)
    app.router.add_get("/v1/realtime", realtime)
    app.router.add_post("/v1/realtime/client_secrets", client_secrets)
    add_calls(app)
    add_speech(app)
    page = pages(server.settings.web)
    add_robots(app, page)
    app.router.add_get("/{path:.*}", page)
    return app
