"""Clients that have a text spoken over HTTP, and what they hear."""

from __future__ import annotations

import asyncio
import io
import random
import time
import wave
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import aiohttp
import numpy as np

from tests.bench.playout import Delta, heard_at, starved
from tests.bench.report import Sample
from tests.bench.sound import as_float

Speak = Callable[[aiohttp.ClientSession, str], Awaitable["Heard | None"]]
"""A text → what was heard of it; None if it was refused."""


@dataclass(frozen=True, slots=True)
class Heard:
    """Sound of one text as it arrived, at `rate` Hz; `began` is when it was asked for (`time.perf_counter`)."""

    began: float
    deltas: tuple[Delta, ...]
    rate: int

    def sample(self) -> Sample:
        """Times in ms from asking; `rtf`: seconds of waiting for all of it, for a second of sound."""
        seconds = sum(len(each.pcm) for each in self.deltas) / self.rate
        heard = heard_at(self.deltas, self.rate)
        if heard is None:
            raise RuntimeError("nothing was said")
        gaps, _ = starved(self.deltas, rate=self.rate)
        return {
            "first_byte_ms": (self.deltas[0].at - self.began) * 1000,
            "first_audible_ms": (heard - self.began) * 1000,
            "rtf": (self.deltas[-1].at - self.began) / seconds,
            "sound_s": seconds,
            "starved_s": gaps,
            "ended_s": self.deltas[-1].at,
        }


def stream(url: str, model: str, rate: int) -> Speak:
    """The server's OpenAI route, raw samples at the family's own rate."""

    async def speak(http: aiohttp.ClientSession, text: str) -> Heard | None:
        began = time.perf_counter()
        body = {"model": model, "input": text, "response_format": "pcm", "sample_rate": rate}
        deltas: list[Delta] = []
        odd = b""
        async with http.post(f"{url}/v1/audio/speech", json=body) as answer:
            if answer.status != 200:
                return None
            async for piece in answer.content.iter_any():
                whole = odd + piece
                odd = whole[len(whole) // 2 * 2 :]
                pcm = as_float(np.frombuffer(whole[: len(whole) // 2 * 2], "<i2"))
                deltas.append(Delta(time.perf_counter(), pcm))
        return Heard(began, tuple(deltas), rate)

    return speak


def piper(url: str) -> Speak:
    """piper-tts's own HTTP server: a WAV file, whole."""

    async def speak(http: aiohttp.ClientSession, text: str) -> Heard | None:
        began = time.perf_counter()
        async with http.post(f"{url}/synthesize", json={"text": text}) as answer:
            if answer.status != 200:
                return None
            whole = await answer.read()
        at = time.perf_counter()
        with wave.open(io.BytesIO(whole)) as found:
            rate, pcm = found.getframerate(), found.readframes(found.getnframes())
        return Heard(began, (Delta(at, as_float(np.frombuffer(pcm, "<i2"))),), rate)

    return speak


@dataclass(frozen=True, slots=True)
class Load:
    """What clients did together: one sample for each text that was said, texts refused, wall-clock seconds.

    `worked`: seconds that cores worked in the server's processes, 0 if nobody looked.
    """

    samples: tuple[Sample, ...]
    refused: int
    seconds: float
    worked: float = 0.0

    @property
    def spoken(self) -> float:
        """Seconds of sound."""
        return sum(float(each["sound_s"]) for each in self.samples)

    @property
    def work(self) -> float:
        """Seconds of a core for a second of sound."""
        return self.worked / self.spoken

    @property
    def throughput(self) -> float:
        """Seconds of sound a second."""
        return self.spoken / self.seconds


async def closed(speak: Speak, texts: Sequence[str], streams: int, rounds: int) -> Load:
    """So many clients, each of which asks again as soon as it has everything."""

    async def client(http: aiohttp.ClientSession, place: int) -> list[Heard | None]:
        return [await speak(http, texts[(place + turn) % len(texts)]) for turn in range(rounds)]

    began = time.perf_counter()
    async with _sockets() as http, asyncio.TaskGroup() as group:
        clients = [group.create_task(client(http, place)) for place in range(streams)]
    return _load([heard for each in clients for heard in each.result()], time.perf_counter() - began)


async def poisson(speak: Speak, texts: Sequence[str], rate: float, seconds: float, seed: int) -> Load:
    """Clients that come at random moments, `rate` a second, whatever became of those before; equal for equal seeds."""
    draw = random.Random(seed)
    began = time.perf_counter()
    tasks: list[asyncio.Task[Heard | None]] = []
    async with _sockets() as http, asyncio.TaskGroup() as group:
        at = draw.expovariate(rate)
        while at < seconds:
            await asyncio.sleep(max(0.0, began + at - time.perf_counter()))
            tasks.append(group.create_task(_one(speak, http, texts[len(tasks) % len(texts)])))
            at += draw.expovariate(rate)
    return _load([task.result() for task in tasks], time.perf_counter() - began)


async def _one(speak: Speak, http: aiohttp.ClientSession, text: str) -> Heard | None:
    return await speak(http, text)


def _sockets() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, force_close=True), timeout=aiohttp.ClientTimeout(total=120)
    )


def _load(found: Sequence[Heard | None], seconds: float) -> Load:
    heard = [each for each in found if each is not None]
    return Load(tuple(each.sample() for each in heard), len(found) - len(heard), seconds)
