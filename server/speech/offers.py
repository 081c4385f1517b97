"""Which family and which of its voices a client means, by the names that its protocol knows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from models.registry import Card, Speech
from mstar.errors import Rejected

OPENAI_VOICES = (
    "alloy", "ash", "ballad", "cedar", "coral", "echo", "fable", "marin", "nova", "onyx", "sage", "shimmer", "verse",
)  # fmt: skip
"""Names that clients of the OpenAI API send; they stand for the family's voices, in turn."""
FOREIGN_MODELS = ("tts-1", "gpt-4o-mini-tts", "eleven_", "sonic", "aura", "octave")
"""Models of the vendors whose protocols are spoken: they mean the first family that speaks."""


@dataclass(frozen=True, slots=True)
class Said:
    """A family that speaks, by its served name."""

    family: str
    offer: Speech


def speaking(cards: Mapping[str, Card], model: str | None, param: str = "model") -> Said:
    """The family of a model's name. Raises Rejected(model_not_found)."""
    able = {name: card.speech for name, card in cards.items() if card.speech is not None}
    if not model or (model not in cards and model.startswith(FOREIGN_MODELS)):
        for name, offer in able.items():
            return Said(name, offer)
    found = able.get(model or "")
    if found is None:
        known = ", ".join(able) or "none"
        text = f"The model '{model or '':.80}' does not exist or does not speak; there is: {known}."
        raise Rejected(text, code="model_not_found", param=param)
    return Said(model or "", found)


def voice_of(offer: Speech, name: str | None, param: str = "voice") -> str:
    """A family's voice by its own name or an alias. Raises Rejected(voice_not_found)."""
    if not name:
        return offer.voices[0]
    if name in offer.voices:
        return name
    if name in OPENAI_VOICES:
        return offer.voices[OPENAI_VOICES.index(name) % len(offer.voices)]
    text = f"The voice '{name:.80}' does not exist; there is: {', '.join(offer.voices)}."
    raise Rejected(text, code="voice_not_found", param=param)


def speed_of(offer: Speech, speed: float | None, param: str = "speed") -> float:
    """A speed that the family can speak at. Raises Rejected."""
    least, most = offer.speeds
    if speed is None:
        return 1.0 if least <= 1.0 <= most else least
    if not least <= speed <= most:
        raise Rejected(f"'{param}' must be from {least} to {most}, not {speed}.", param=param)
    return speed


def asked_aligned(offer: Speech, param: str) -> None:
    """The client wants to know when words are said. Raises Rejected where the family can not tell."""
    if not offer.aligned:
        raise Rejected("This model does not know when its words are said.", code="unsupported_value", param=param)


def settings_of(
    offer: Speech,
    *,
    voice: str | None = None,
    speed: float | None = None,
    seed: int | None = None,
    voice_param: str = "voice",
    speed_param: str = "speed",
) -> dict[str, Any]:
    """Settings of the family's `say` task. Raises Rejected naming the field."""
    settings: dict[str, Any] = {
        "voice": voice_of(offer, voice, voice_param),
        "speed": speed_of(offer, speed, speed_param),
    }
    return settings if seed is None else {**settings, "seed": seed}
