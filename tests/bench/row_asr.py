"""Recognition through the graph beside faster-whisper, and how well what the voice says is understood."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import numpy as np

from media.g711 import RATE as PHONE_RATE
from media.g711 import mulaw_decode, mulaw_encode
from media.resample import resample
from models.voice.model import CONVERSATION
from mstar.client import Client, Slice
from tests.bench.peers import HEARING_RATE, Recogniser
from tests.bench.questions import QUESTIONS, spoken
from tests.bench.report import Gate, Metric, Row, Sample
from tests.bench.row_tts import say
from tests.bench.runtime import followed, running
from tests.bench.sound import RATE, Pcm, as_float
from tests.wer import word_error_rate

SENTENCES = Path(__file__).parents[1] / "data" / "sentences.txt"
ITEM = CONVERSATION.mic_item


def run(*, quick: bool) -> Row:
    """Twenty questions and thirty sentences; four of each if quick."""
    sentences = SENTENCES.read_text().splitlines()
    return asyncio.run(_measured(QUESTIONS[:4] if quick else QUESTIONS, sentences[:4] if quick else sentences))


async def _measured(questions: tuple[str, ...], sentences: list[str]) -> Row:
    peer = Recogniser()
    sounds = [resample(sound, RATE, HEARING_RATE) for sound in spoken(questions)]
    async with running("voice", "speech") as client:
        samples = await _beside(client, peer, questions, sounds)
        said = await _spoken_back(client, sentences)
    pairs = [(str(each["said"]), str(each["clean"])) for each in said]
    phoned = [(str(each["said"]), str(each["g711"])) for each in said]
    metrics = [
        Metric(who, "ms", tuple(float(sample["ms"]) for sample in samples if sample["who"] == who))
        for who in ("graph", "faster-whisper")
    ]
    for who in ("graph", "faster-whisper"):
        heard = [(str(each["said"]), str(each["heard"])) for each in samples if each["who"] == who]
        metrics.append(Metric(f"questions.{who}", "WER", (word_error_rate(heard),)))
    metrics += [
        Metric("answers", "WER", (word_error_rate(pairs),), Gate("mean", 0.04)),
        Metric("answers_g711", "WER", (word_error_rate(phoned),), Gate("mean", 0.07)),
    ]
    return Row("asr", tuple(metrics), (*samples, *said))


async def _beside(client: Client, peer: Recogniser, questions: tuple[str, ...], sounds: list[Pcm]) -> list[Sample]:
    await transcribed(client, sounds[0])  # both warm
    peer.transcribe(sounds[0])
    samples: list[Sample] = []
    for text, sound in zip(questions, sounds, strict=True):
        length: Sample = {"said": text, "seconds": len(sound) / HEARING_RATE}
        heard, seconds = await transcribed(client, sound)
        samples.append({"who": "graph", **length, "heard": heard, "ms": seconds * 1000})
        began = time.perf_counter()
        heard = peer.transcribe(sound)
        samples.append({"who": "faster-whisper", **length, "heard": heard, "ms": (time.perf_counter() - began) * 1000})
    return samples


async def _spoken_back(client: Client, sentences: list[str]) -> list[Sample]:
    """Each sentence spoken by the graph and recognised by it, as it is and through a telephone's codec."""
    samples: list[Sample] = []
    for sentence in sentences:
        _, sound = await say(client, sentence)
        pcm = np.concatenate([arrival.value["pcm"] for arrival in sound])
        clean, _ = await transcribed(client, resample(pcm, CONVERSATION.speech_rate, HEARING_RATE))
        narrow = resample(pcm, CONVERSATION.speech_rate, PHONE_RATE)
        codes = mulaw_encode((np.clip(narrow, -1, 1) * 32767).astype(np.int16))
        wide = resample(as_float(mulaw_decode(codes)), PHONE_RATE, HEARING_RATE)
        phone, _ = await transcribed(client, wide)
        samples.append({"said": sentence, "clean": clean, "g711": phone})
    return samples


async def transcribed(client: Client, sound: Pcm) -> tuple[str, float]:
    """Sound [n] at 16 kHz → its words, and seconds from asking to having them."""
    session = await client.open("voice")
    items = np.pad(sound, (0, -len(sound) % ITEM)).astype(np.float32).reshape(-1, ITEM)
    session.feed("mic", 0, items, rows=True)
    began = time.perf_counter()
    arrivals = await followed(session.start("transcribe", {"audio": Slice("mic", 0, len(items))}))
    await session.close()
    [transcript] = [arrival for arrival in arrivals if arrival.output == "transcript"]
    return str(transcript.value["text"]), transcript.at - began
