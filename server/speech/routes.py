"""The addresses of all protocols that speak."""

from __future__ import annotations

from aiohttp import web

from server.speech import elevenlabs, elevenlabs_http, openai
from server.speech.cartesia import cartesia
from server.speech.deepgram import speak
from server.speech.hume import hume
from server.speech.vllm import vllm


def add_speech(app: web.Application) -> None:
    """Add them to the application."""
    app.router.add_post("/v1/audio/speech", openai.speech)
    app.router.add_get("/v1/audio/voices", openai.voices)
    app.router.add_get("/v1/audio/speech/stream", vllm)
    voice = "/v1/text-to-speech/{voice}"
    app.router.add_get(f"{voice}/stream-input", elevenlabs.stream_input)
    app.router.add_get(f"{voice}/multi-stream-input", elevenlabs.multi_stream_input)
    for sibling in ("", "/stream", "/with-timestamps", "/stream/with-timestamps"):
        app.router.add_post(voice + sibling, elevenlabs_http.speech)
    app.router.add_get("/tts/websocket", cartesia)
    app.router.add_get("/v1/speak", speak)
    app.router.add_get("/v0/tts/stream/input", hume)
