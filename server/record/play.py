"""`mstar replay`: a recording against processes of its own, compared step by step."""

from __future__ import annotations

import asyncio
import sys
import wave
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from media.frames import to_bytes
from models.registry import Card, card_of, module_of
from mstar.client.launch import launch
from mstar.errors import Rejected
from mstar.placement import Placement
from server.record.entries import Began, Opened, Recording
from server.record.following import Outcome
from server.record.repeat import Repeat
from server.record.replay import Replay
from server.record.weights import weights_of


def play(recording: Recording, placement: Placement, sound: Path | None = None) -> int:
    """Print what is said and whether the runs are equal → 0 if they are, else 1. `sound`: a folder for the answers."""
    began = recording.began
    settings = {name: str(value) for name, value in began.family_settings.items()}
    for name in _changed(recording.weights, weights_of(began.family, settings)):
        sys.stderr.write(f"mstar: the weights are not those of the recording: {name}\n")
    card = card_of(began.family, settings)
    if isinstance(began, Began) and card.conversation is None:
        raise Rejected(f"family {began.family} does not converse")
    outcome = asyncio.run(_run(recording, placement))
    rate = _rate(card, began)
    for response in dict.fromkeys((*outcome.tokens, *outcome.sound)):
        samples = outcome.samples(response)
        tokens = f"{outcome.tokens[response]} tokens, " if response in outcome.tokens else ""
        sys.stdout.write(f"{response}: {tokens}{samples} samples, {samples / rate:.2f} s\n")
    if sound is not None:
        _write(outcome, sound, rate)
    if outcome.difference:
        sys.stderr.write(f"mstar: not equal at {outcome.difference}\n")
        return 1
    sys.stdout.write(f"equal: {outcome.steps} steps, {outcome.emissions} outputs of the model\n")
    return 0


async def _run(recording: Recording, placement: Placement) -> Outcome:
    began = recording.began
    settings = {name: str(value) for name, value in began.family_settings.items()}
    card = card_of(began.family, settings)
    launched = launch({began.family: {"module": module_of(began.family), "settings": settings}}, placement)
    try:
        await launched.ready()
        if isinstance(began, Opened):
            return await Repeat(recording, launched.client, tell=_tell).run()
        assert card.conversation is not None
        return await Replay(recording, card.conversation, launched.client, tell=_tell).run()
    finally:
        await launched.stop()


def _rate(card: Card, began: Began | Opened) -> int:
    """Samples a second of the sounds of a session."""
    if isinstance(began, Began) and card.conversation is not None:
        return card.conversation.speech_rate
    return card.speech.rate if card.speech is not None else 1


def _tell(who: str, words: str) -> None:
    sys.stdout.write(f"{who}: {words}\n")


def _changed(then: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    return sorted(name for name in {*then, *now} if then.get(name) != now.get(name))


def _write(outcome: Outcome, folder: Path, rate: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for response, pieces in outcome.sound.items():
        with wave.open(str(folder / f"{response}.wav"), "wb") as file:
            file.setnchannels(1)
            file.setsampwidth(2)
            file.setframerate(rate)
            file.writeframes(to_bytes(np.concatenate(pieces)))
