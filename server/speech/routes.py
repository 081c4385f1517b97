"""The addresses of all protocols that speak."""

from __future__ import annotations

from aiohttp import web

from server.speech import openai
from server.speech.vllm import vllm


def add_speech(app: web.Application) -> None:
    """Add them to the application."""
    app.router.add_post("/v1/audio/speech", openai.speech)
    app.router.add_get("/v1/audio/voices", openai.voices)
    app.router.add_get("/v1/audio/speech/stream", vllm)
