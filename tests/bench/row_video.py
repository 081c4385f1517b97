"""Four cameras at 30 pictures a second: raw and JPEG over WebSocket, VP8 over WebRTC, to a policy that hardly computes.

What is looked at is that nothing queues: pictures that were not used are dropped, and those that are used do not get
older. The videos are encoded beforehand; the age of their pictures counts from when they were sent.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import aiohttp
import av
import numpy as np
from aiortc import MediaStreamTrack

from media.pace import Pacer
from server.robot.frames import Encoding, Frame, Kind, Shot, pack_frame
from tests.bench.report import Gate, Metric, Row, Sample
from tests.bench.serving import Served
from tests.clients.conftest import POLICY, Serving, serving
from tests.clients.robot_rtc import CLOCK, robot
from tests.painter.watcher import CAMERAS

RATE = 30.0
HEIGHT, WIDTH = 480, 640
SECONDS, QUICK_SECONDS = 20.0, 4.0
QUEUEING = 2.0
"""Age in the last third of a run over that in the first: above, something has queued."""
SESSION = {"rate": 30, "prompt": "look", "cameras": list(CAMERAS), "stale_ms": 5000, "wait_ms": 20000}


@dataclass
class _Chunks:
    """What came, and how the server counted meanwhile."""

    ages: list[float] = field(default_factory=list)
    spreads: list[float] = field(default_factory=list)

    def take(self, event: dict[str, Any]) -> None:
        self.ages.append(event["age_ms"])
        self.spreads.append(event["spread_ms"])


def run(*, quick: bool) -> Row:
    """20 seconds of each, 4 if quick."""
    seconds = QUICK_SECONDS if quick else SECONDS
    metrics: list[Metric] = []
    samples: list[Sample] = []
    with contextmanager(serving)(POLICY) as server:
        ways: dict[str, Callable[[Serving, float, _Chunks], Coroutine[Any, Any, None]]] = {
            "raw": _raw, "jpeg": _jpeg, "vp8": _vp8
        }  # fmt: skip
        for name, way in ways.items():
            chunks, served = _Chunks(), Served(server.url, server.process)
            before, began, cpu = _counts(server), time.monotonic(), served.cpu_seconds()
            asyncio.run(way(server, seconds, chunks))
            cores = (served.cpu_seconds() - cpu) / (time.monotonic() - began)
            after = _counts(server)
            fates = {fate: after.get(fate, 0.0) - before.get(fate, 0.0) for fate in after}
            third = max(1, len(chunks.ages) // 3)
            growth = float(np.median(chunks.ages[-third:]) / max(1.0, np.median(chunks.ages[:third])))
            metrics += [
                Metric(f"{name}_age", "ms", tuple(chunks.ages)),
                Metric(f"{name}_spread", "ms", tuple(chunks.spreads)),
                Metric(f"{name}_growth", "×", (growth,), Gate("p50", QUEUEING)),
                Metric(f"{name}_cores", "cores", (cores,)),
                *(Metric(f"{name}_{fate}", "frames", (count,)) for fate, count in sorted(fates.items())),
            ]
            samples += [{"way": name, "age": age} for age in chunks.ages]
    notes = (f"{len(CAMERAS)} cameras of {WIDTH} × {HEIGHT} at {RATE:.0f} a second, client and server on one machine",)
    return Row("video", tuple(metrics), tuple(samples), notes=notes)


def _counts(server: Serving) -> dict[str, float]:
    """Frames by fate so far."""
    found = re.findall(r'^mstar_frames_total\{fate="(\w+)"\} (\S+)$', server.get("/metrics")[1], re.MULTILINE)
    return {fate: float(value) for fate, value in found}


def picture(number: int) -> np.ndarray:
    """A smooth picture that moves."""
    at = np.add.outer(np.arange(HEIGHT), np.arange(WIDTH) + 4 * number)
    level = np.asarray(127 + 100 * np.sin(at / 40), np.uint8)
    return np.stack((level, np.roll(level, 40, 1), np.roll(level, 80, 0)), axis=2)


def _as_jpeg(shown: np.ndarray) -> bytes:
    codec = av.CodecContext.create("mjpeg", "w")
    assert isinstance(codec, av.VideoCodecContext)
    codec.width, codec.height, codec.pix_fmt = WIDTH, HEIGHT, "yuvj420p"
    frame = av.VideoFrame.from_ndarray(shown, format="rgb24")
    return b"".join(bytes(each) for each in codec.encode(frame.reformat(format="yuvj420p")))


async def _raw(server: Serving, seconds: float, chunks: _Chunks) -> None:
    shots = [Shot(Encoding.RGB, WIDTH, HEIGHT, picture(n).tobytes()) for n in range(30)]
    await _sent(server, seconds, chunks, shots)


async def _jpeg(server: Serving, seconds: float, chunks: _Chunks) -> None:
    shots = [Shot(Encoding.JPEG, 0, 0, _as_jpeg(picture(n))) for n in range(30)]
    await _sent(server, seconds, chunks, shots)


@asynccontextmanager
async def _socket(server: Serving, chunks: _Chunks) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
    async def read() -> None:
        async for message in socket:
            event = json.loads(message.data)
            if event["type"] == "clock.ping":
                await socket.send_str(json.dumps({"type": "clock.pong", "id": event["id"], "t": time.monotonic()}))
            elif event["type"] == "chunk":
                chunks.take(event)
            elif event["type"] == "error":
                raise RuntimeError(event["message"])

    url = f"{server.url}/v1/robot/session?model={POLICY}"
    async with aiohttp.ClientSession() as http, http.ws_connect(url, max_msg_size=0) as socket:
        reading = asyncio.create_task(read())
        yield socket
        reading.cancel()
        await asyncio.wait({reading})
        if not reading.cancelled():
            reading.result()


async def _sent(server: Serving, seconds: float, chunks: _Chunks, shots: list[Shot]) -> None:
    async with _socket(server, chunks) as socket:
        await socket.send_str(json.dumps({"type": "session.update", "session": SESSION}))
        await socket.send_str(json.dumps({"type": "state", "t": time.monotonic(), "values": [0.0, 0.0]}))
        await socket.send_str(json.dumps({"type": "ask", "repeat": True}))
        began = time.monotonic()
        for number in range(round(seconds * RATE)):
            await asyncio.sleep(began + number / RATE - time.monotonic())
            for name in CAMERAS:
                frame = Frame(Kind.CAMERA, name, number, time.monotonic(), shots[number % len(shots)])
                await socket.send_bytes(pack_frame(frame))


class _Encoded(MediaStreamTrack):
    """A video that was encoded before, over and over: what is measured is not what its sender can do."""

    kind = "video"

    def __init__(self, encoded: list[bytes]) -> None:
        super().__init__()
        self._encoded = encoded
        self._pacer = Pacer(CLOCK, round(CLOCK / RATE))
        self._first: float | None = None

    async def recv(self) -> av.Packet[Any]:
        now, number = asyncio.get_running_loop().time, self._pacer.index
        await asyncio.sleep(max(0.0, self._pacer.next(now()) - now()))
        self._first = now() if self._first is None else self._first
        packet = av.Packet(self._encoded[number % len(self._encoded)])
        packet.pts, packet.time_base = round((now() - self._first) * CLOCK), Fraction(1, CLOCK)
        return packet


def _as_vp8(shown: list[np.ndarray]) -> list[bytes]:
    """The first frame is a key frame."""
    codec = av.CodecContext.create("libvpx", "w")
    assert isinstance(codec, av.VideoCodecContext)
    codec.width, codec.height, codec.pix_fmt, codec.bit_rate = WIDTH, HEIGHT, "yuv420p", 1_000_000
    codec.framerate = Fraction(round(RATE))
    codec.options = {"deadline": "realtime", "cpu-used": "-6", "lag-in-frames": "0"}
    encoded = []
    for number, each in enumerate(shown):
        frame = av.VideoFrame.from_ndarray(each, format="rgb24").reformat(format="yuv420p")
        frame.pts = number
        encoded.append(b"".join(bytes(packet) for packet in codec.encode(frame)))
    return encoded


async def _vp8(server: Serving, seconds: float, chunks: _Chunks) -> None:
    encoded = _as_vp8([picture(n) for n in range(30)])
    tracks = [_Encoded(encoded) for _ in CAMERAS]
    async with robot(server, tracks, model=POLICY) as client:
        client.send("session.update", session=SESSION)
        client.state(0.0, 0.0)
        client.send("ask", repeat=True)
        await client.event("chunk")
        await asyncio.sleep(seconds)
        for event in client.events:
            if event["type"] == "chunk":
                chunks.take(event)
