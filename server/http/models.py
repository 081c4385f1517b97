"""`GET /v1/models` and `/v1/models/{id}`."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from models.registry import Card
from server.door import SERVER, authorised
from server.security import Refusal


def row(name: str, card: Card) -> dict[str, Any]:
    """A family as the API lists models; `abilities` is an addition."""
    able = {
        "chat": card.conversation,
        "completion": card.conversation is not None and card.conversation.complete,
        "realtime": card.conversation,
        "speech": card.speech,
        "transcription": card.recognition,
        "policy": card.policy,
        "planner": card.planner,
    }
    abilities = [what for what, offer in able.items() if offer]
    return {"id": name, "object": "model", "created": card.created, "owned_by": "mstar", "abilities": abilities}


async def models(request: web.Request) -> web.Response:
    """The families."""
    authorised(request)
    rows = [row(name, card) for name, card in request.app[SERVER].cards.items()]
    return web.json_response({"object": "list", "data": rows})


async def model(request: web.Request) -> web.Response:
    """One family."""
    authorised(request)
    name = request.match_info["model"]
    card = request.app[SERVER].cards.get(name)
    if card is None:
        raise Refusal(404, "model_not_found", f"The model '{name:.80}' does not exist.", "model")
    return web.json_response(row(name, card))
