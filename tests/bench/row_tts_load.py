"""Texts spoken to many clients at once, beside piper-tts's own HTTP server with the same voice and load."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from models.pull import part_dir
from tests.bench.report import Gate, Metric, Row, Sample
from tests.bench.serving import ROOT, Served, free_port, process, served
from tests.bench.speaking import Load, Speak, closed, piper, poisson, stream

PLACEMENT = ROOT / "models" / "voice" / "placement-speech.yaml"
RATE = 22_050
STREAMS = {1: 6, 4: 3, 8: 2}
"""Streams at once → texts that each has spoken, one after the other."""
POISSON_SECONDS = 12.0
POISSON_SHARE = 0.6
"""Of what piper-tts said in a second with 4 streams."""
TEXTS = tuple(
    " ".join(sentences)
    for sentences in (
        (
            "Rain begins when the sun warms the sea and water rises into the air.",
            "High above the ground the air is cold, so the water gathers in small drops.",
            "The drops form clouds, and the wind carries them over the land.",
        ),
        (
            "When you plant a seed, it needs water, light and time.",
            "First a small root grows down into the soil.",
            "Then a stem comes up, and after some days the first leaves open to the sun.",
        ),
        (
            "The old bridge was built of stone by people who lived in the valley.",
            "It has carried carts, horses and soldiers.",
            "Today children play on it in the evening, while their parents sit by the river.",
        ),
        (
            "A good loaf of bread takes patience.",
            "The dough must rest for several hours in a warm place.",
            "After that it is folded, shaped and baked in a hot oven until the crust is brown.",
        ),
    )
)
OURS, PEER = "graph", "piper-tts"
WHO = (OURS, PEER)
WHAT = {"first_byte_ms": "ms", "first_audible_ms": "ms", "rtf": "s/s"}


def run(*, quick: bool) -> Row:
    """1, 4 and 8 streams in turn, ours and the peer's; then clients that come at random."""
    with served("--placement", str(PLACEMENT)) as server, _piper() as peer:
        speakers = {OURS: (server, stream(server.url, "voice", RATE)), PEER: (peer, piper(peer.url))}
        loads = asyncio.run(_loads(speakers, quick=quick))
    samples: list[Sample] = [
        {"load": name, "who": who, **sample} for (name, who), load in loads.items() for sample in load.samples
    ]
    return Row("tts_load", tuple(_metrics(loads)), tuple(samples))


@contextmanager
def _piper() -> Iterator[Served]:
    [voice] = part_dir("piper-joe").glob("*.onnx")
    port = free_port()
    command = ["-m", "piper.http_server", "--host", "127.0.0.1", "--port", str(port), "-m", str(voice)]
    with process(command, port, "/info") as server:
        yield server


async def _loads(speakers: Mapping[str, tuple[Served, Speak]], *, quick: bool) -> dict[tuple[str, str], Load]:
    for _, speak in speakers.values():  # both warm
        await closed(speak, TEXTS, 1, 1)
    loads: dict[tuple[str, str], Load] = {}
    for streams, rounds in STREAMS.items():
        for who, (server, speak) in speakers.items():
            worked = server.cpu_seconds()
            load = await closed(speak, TEXTS, streams, 1 if quick else rounds)
            loads[str(streams), who] = replace(load, worked=server.cpu_seconds() - worked)
    peer = loads["4", PEER]
    length = sum(float(each["sound_s"]) for each in peer.samples) / len(peer.samples)
    rate = POISSON_SHARE * peer.throughput / length
    for who, (_, speak) in speakers.items():
        loads["poisson", who] = await poisson(speak, TEXTS, rate, 3.0 if quick else POISSON_SECONDS, seed=1)
    return loads


def _metrics(loads: Mapping[tuple[str, str], Load]) -> Iterator[Metric]:
    for (name, who), load in loads.items():
        for what, unit in WHAT.items():
            yield Metric(f"{name}.{what}.{who}", unit, tuple(float(each[what]) for each in load.samples))
        yield Metric(f"{name}.throughput.{who}", "s/s", (load.throughput,))
        if load.worked:
            yield Metric(f"{name}.work.{who}", "core s/s", (load.work,))
        heard, gaps = (sum(float(each[what]) for each in load.samples) for what in ("sound_s", "starved_s"))
        yield Metric(f"{name}.starved.{who}", "% of sound", (100 * gaps / heard,))
        yield Metric(f"{name}.refused.{who}", "texts", (float(load.refused),))
    for name, floor in (("1", 0.5), ("8", 0.25)):
        ours, peers = (_median(loads[name, who]) for who in WHO)
        yield Metric(f"{name}.first_audible/{PEER}", "of p50", (ours / peers,), Gate("mean", floor))
    throughput = loads["8", OURS].throughput / loads["8", PEER].throughput
    yield Metric(f"8.throughput/{PEER}", "ratio", (throughput,), Gate("mean", 0.9, 1.1, "more"))


def _median(load: Load) -> float:
    return Metric("", "ms", tuple(float(each["first_audible_ms"]) for each in load.samples)).statistic("p50")
