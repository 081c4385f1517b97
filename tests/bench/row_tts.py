"""Speech through the graph beside piper-tts: first sound, and time for a second of sound."""

from __future__ import annotations

import asyncio
import time

from mstar.client import Client
from tests.bench.peers import Speaker
from tests.bench.report import Metric, Row, Sample
from tests.bench.runtime import Arrival, followed, running
from tests.bench.sound import first_loud

CLAUSE = "The capital of France is Paris."
LONG = (
    "Rain begins when the sun warms the sea and water rises into the air. High above the ground the air is cold, so "
    "the water gathers in small drops. The drops form clouds, and the wind carries them over the land. When the drops "
    "become too heavy, they fall down as rain, and the rivers take the water back to the sea."
)
TEXTS = {"clause": CLAUSE, "long": LONG}


def run(*, quick: bool) -> Row:
    """Fifteen times each text, two if quick, ours and the peer's in turn."""
    samples = asyncio.run(_both(2 if quick else 15))
    metrics = []
    for name in TEXTS:
        for what, unit in (("first_ms", "ms"), ("rtf", "s/s")):
            for who in ("graph", "piper-tts"):
                mine = [sample for sample in samples if sample["who"] == who and sample["text"] == name]
                metrics.append(Metric(f"{name}.{what}.{who}", unit, tuple(float(sample[what]) for sample in mine)))
    return Row("tts", tuple(metrics), tuple(samples))


async def _both(count: int) -> list[Sample]:
    speaker = Speaker()
    samples: list[Sample] = []
    async with running("speech") as client:
        for turn in range(count + 1):
            for name, text in TEXTS.items():
                pair = ({"who": "graph", **await _graph(client, text)}, {"who": "piper-tts", **_peer(speaker, text)})
                if turn:  # the first is for warming up
                    samples += [{"text": name, **sample} for sample in pair]
    return samples


async def say(client: Client, text: str) -> tuple[float, list[Arrival]]:
    """Speak a text in a session of its own → when it was asked for, and its sound as it arrived."""
    session = await client.open("speech")
    began = time.perf_counter()
    request = session.start("speak")
    request.credit("audio", 10**9)
    request.feed("written", 0, text, cut=True)
    request.commit("written", 1)
    arrivals = await followed(request)
    await session.close()
    return began, [arrival for arrival in arrivals if arrival.output == "audio"]


async def _graph(client: Client, text: str) -> Sample:
    began, sound = await say(client, text)
    rate = 22_050
    first = sound[0]
    seconds = sum(len(arrival.value["pcm"]) for arrival in sound) / rate
    quiet = (first_loud(first.value["pcm"]) or 0) / rate
    return {"first_ms": (first.at - began + quiet) * 1000, "rtf": (sound[-1].at - began) / seconds, "sound_s": seconds}


def _peer(speaker: Speaker, text: str) -> Sample:
    began = time.perf_counter()
    first = quiet = seconds = 0.0
    for pcm in speaker.sentences(text):
        if not first:
            first, quiet = time.perf_counter(), (first_loud(pcm) or 0) / speaker.rate
        seconds += len(pcm) / speaker.rate
    ended = time.perf_counter()
    return {"first_ms": (first - began + quiet) * 1000, "rtf": (ended - began) / seconds, "sound_s": seconds}
