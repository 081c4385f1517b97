"""Sessions held at once: n callers in conversation in real time; how long their players have nothing to play."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.bench.call import Caller, calling
from tests.bench.playout import heard_at, starved
from tests.bench.questions import QUESTIONS, spoken
from tests.bench.report import Gate, Metric, Row, Sample
from tests.bench.serving import Served, served
from tests.bench.sound import RATE, Pcm

SIZES = (2, 4, 6, 8, 10)
SECONDS = 25.0
MOST_STARVED = 0.001
"""Share of the playing time without anything to play, from which on sessions are not held."""
SESSION: dict[str, Any] = {
    "max_output_tokens": 64,
    "audio": {"input": {"turn_detection": {"type": "server_vad"}}},
}
STAGGER_SECONDS = 0.7
THINKING_SECONDS = 0.8


def run(*, quick: bool) -> Row:
    """Ever more sessions until a number is not held; 2 and 4 for a shorter time if quick."""
    sounds = spoken(QUESTIONS[:8])
    samples: list[Sample] = []
    held = 0
    with served() as server:
        for size in SIZES[:2] if quick else SIZES:
            found = _attempt(server, sounds, size, 12.0 if quick else SECONDS)
            if found is None:
                break
            samples += found
            gaps, total = (sum(float(sample[name]) for sample in found) for name in ("starved_s", "sound_s"))
            if not all(sample["turns"] for sample in found) or gaps > MOST_STARVED * total:
                break
            held = size
    metrics = [Metric("held", "sessions", (float(held),), None if quick else Gate("least", 4, 8, "more"))]
    for size in dict.fromkeys(int(sample["sessions"]) for sample in samples):
        mine = [sample for sample in samples if sample["sessions"] == size]
        starving = sum(float(s["starved_s"]) for s in mine) / max(sum(float(s["sound_s"]) for s in mine), 1e-9)
        metrics.append(Metric(f"starved_at_{size}", "% of sound", (100 * starving,)))
        voices = tuple(float(s["voice_p50_ms"]) for s in mine if s["turns"])
        metrics.append(Metric(f"voice_at_{size}", "ms, p50 each", voices))
    return Row("sessions", tuple(metrics), tuple(samples))


def _attempt(server: Served, sounds: list[Pcm], size: int, seconds: float) -> list[Sample] | None:
    """A conversation each; None if one of them waited for an answer in vain."""
    try:
        return asyncio.run(_together(server, sounds, size, seconds))
    except* TimeoutError:
        print(f"  {size} sessions: an answer did not come in time")
    return None


async def _together(server: Served, sounds: list[Pcm], size: int, seconds: float) -> list[Sample]:
    async with asyncio.TaskGroup() as group:
        talks = [group.create_task(_talk(server, sounds, place, seconds)) for place in range(size)]
    return [{"sessions": size, **talk.result()} for talk in talks]


async def _talk(server: Served, sounds: list[Pcm], place: int, seconds: float) -> Sample:
    """Ask, listen to the end, think, ask again, for so many seconds."""
    await asyncio.sleep(STAGGER_SECONDS * place)
    gaps = total = 0.0
    voices: list[float] = []
    async with calling(server, session=SESSION) as caller:
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while loop.time() < until:
            heard, (gap, length) = await _turn(caller, sounds[(place + len(voices)) % len(sounds)])
            voices.append(heard)
            gaps += gap
            total += length
    middle = sorted(voices)[len(voices) // 2] * 1000 if voices else 0.0
    return {"place": place, "turns": len(voices), "starved_s": gaps, "sound_s": total, "voice_p50_ms": middle}


async def _turn(caller: Caller, sound: Pcm) -> tuple[float, tuple[float, float]]:
    """Seconds from voice to voice, and what the player starved and played; returns when the answer was heard."""
    before = len(caller.answers)
    end = await caller.say(sound)
    await caller.until(lambda: len(caller.answers) > before and caller.answers[-1].done is not None, 60)
    answer = caller.answers[-1]
    heard = heard_at(answer.deltas)
    if heard is None:
        raise RuntimeError(f"the answer {answer.text!r} had no sound")
    length = sum(len(delta.pcm) for delta in answer.deltas) / RATE
    rest = answer.deltas[0].at + length - asyncio.get_running_loop().time()
    await asyncio.sleep(max(0.0, rest) + THINKING_SECONDS)
    return heard - end, starved(answer.deltas)
