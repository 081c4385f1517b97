"""A caller of the voice family over its WebSocket: speaks with the voice's own sound, keeps every event."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import cache
from typing import Any

import aiohttp
import numpy as np
import numpy.typing as npt

from media.frames import from_bytes, to_bytes, to_float
from media.resample import resample
from models.piper.nodes import AcousticSubmodule
from models.piper.voice import Voice
from models.pull import part_dir
from models.speech.nodes import PhonemeSubmodule
from mstar.submodule import Call, Rows, Step
from tests.carried import Both
from tests.clients.conftest import Serving

RATE = 24_000
PATIENCE = 120.0
"""Seconds after which an event that does not come is taken for one that never will."""

Event = dict[str, Any]
Pcm = npt.NDArray[np.float32]


@cache
def _voice() -> Voice:
    [path] = part_dir("piper-joe").glob("*.onnx")
    return Voice.load(path)


@cache
def speech(text: str) -> Pcm:
    """A text as the family's voice says it, without noise in its pace: float32 [n] at 24 kHz."""
    voice = _voice()
    phonemes = PhonemeSubmodule(voice.config.ids, voice.config.language)
    settings = {"noise_scale": 0, "noise_w": 0}
    clause = Call("said", "speak", {"clause": text}, settings)
    ids = phonemes.forward(phonemes.collate([clause]), Step([clause]))["phonemes"][0]
    said = Call("said", "speak", {"phonemes": ids}, settings)  # type: ignore[dict-item]
    acoustic = AcousticSubmodule(voice)
    latents = acoustic.forward(acoustic.collate([said]), Step([said]))["latents"][0]
    assert isinstance(latents, Rows)
    both = Both(voice)
    pcm, _ = both.decode(np.asarray(latents.array, np.float32), both.fresh(), True)
    return resample(pcm, voice.config.sample_rate, RATE)


def silence(seconds: float) -> Pcm:
    return np.zeros(round(seconds * RATE), np.float32)


class Caller:
    """One connection. `events` are all that came, in order."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.socket = socket
        self.events: list[Event] = []

    async def send(self, kind: str, **fields: Any) -> None:
        await self.socket.send_str(json.dumps({"type": kind, **fields}))

    async def update(self, **session: Any) -> None:
        await self.send("session.update", session={"type": "realtime", **session})
        await self.until("session.updated")

    async def hear(self, *sounds: Pcm) -> None:
        """Put sound on the microphone, all at once."""
        audio = base64.b64encode(to_bytes(np.concatenate(sounds))).decode()
        await self.send("input_audio_buffer.append", audio=audio)

    async def write(self, text: str, role: str = "user") -> None:
        """A message of the conversation in text."""
        kind = "input_text" if role != "assistant" else "output_text"
        await self.send(
            "conversation.item.create",
            item={"type": "message", "role": role, "content": [{"type": kind, "text": text}]},
        )

    async def next(self) -> Event:
        message = await asyncio.wait_for(self.socket.receive(), PATIENCE)
        assert message.type is aiohttp.WSMsgType.TEXT, message
        event = json.loads(message.data)
        assert event["type"] != "error", event
        self.events.append(event)
        return dict(event)

    async def until(self, kind: str) -> Event:
        while (event := await self.next())["type"] != kind:
            pass
        return event

    async def respond(self, **params: Any) -> Event:
        """Ask for a response → the finished one."""
        await self.send("response.create", response=params)
        response: Event = (await self.until("response.done"))["response"]
        return response

    def of(self, kind: str) -> list[Event]:
        return [event for event in self.events if event["type"] == kind]

    def sound(self, response: str = "") -> bytes:
        """Sound of one response, or of all."""
        deltas = [e for e in self.of("response.output_audio.delta") if response in ("", e["response_id"])]
        return b"".join(base64.b64decode(each["delta"]) for each in deltas)

    def records(self) -> list[list[Any]]:
        """Trace rows: [ms, worker, request, component, walk, batch, duration ms, iteration, new items, first item]."""
        return [row for event in self.of("mstar.trace") for row in event["records"]]

    def transcript(self) -> str:
        """What the recogniser made of the last thing said."""
        return str(self.of("conversation.item.input_audio_transcription.completed")[-1]["transcript"])


@asynccontextmanager
async def calling(server: Serving, query: str = "", **session: Any) -> AsyncIterator[Caller]:
    """A connection; `session` goes out as its first update."""
    async with (
        aiohttp.ClientSession() as http,
        http.ws_connect(f"{server.url}/v1/realtime{query}", max_msg_size=0) as ws,
    ):
        caller = Caller(ws)
        await caller.until("session.created")
        if session:
            await caller.update(**session)
        yield caller


def said(response: Mapping[str, Any]) -> str:
    """Text of a response's one message."""
    [item] = response["output"]
    [part] = item["content"]
    return str(part.get("transcript", part.get("text")))


def pcm16(sound: bytes) -> Pcm:
    """Wire sound as float32 [n]."""
    return to_float(from_bytes(sound))


def numbers(server: Serving, name: str, process: str = "worker.main") -> float:
    """A counter of the runtime, as `/metrics` tells it."""
    status, text = server.get("/metrics")
    assert status == 200
    start = f'mstar_runtime{{name="{name}",process="{process}"}} '
    [line] = [line for line in text.splitlines() if line.startswith(start)]
    return float(line.removeprefix(start))
