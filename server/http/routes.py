"""The addresses of this package."""

from __future__ import annotations

import asyncio

from aiohttp import web

from server.http.chat import SPOKEN, chat
from server.http.completions import completions
from server.http.conversing import Spoken
from server.http.models import model, models
from server.http.transcriptions import DECODER, DECODING, transcriptions, translations


def add_http(app: web.Application) -> None:
    """Add them to the application."""
    app[DECODER] = asyncio.Semaphore(DECODING)
    app[SPOKEN] = Spoken()
    app.router.add_post("/v1/chat/completions", chat)
    app.router.add_post("/v1/completions", completions)
    app.router.add_get("/v1/models", models)
    app.router.add_get("/v1/models/{model}", model)
    app.router.add_post("/v1/audio/transcriptions", transcriptions)
    app.router.add_post("/v1/audio/translations", translations)
