"""What is to be said → what the language model reads (torch-free)."""

from __future__ import annotations

import re
from collections.abc import Mapping

from models.llama.tokenizer import Tokenizer
from models.orpheus.tokens import SpeechTokens
from models.speech.normalise import speakable
from models.speech.passages import START, Place, unsaid
from models.speech.traced import Traced
from mstar.errors import Rejected, WeightsError
from mstar.tensors import Value

VOICES = ("tara", "leah", "jess", "leo", "dan", "mia", "zac", "zoe")
EMOTIONS = ("laugh", "chuckle", "sigh", "cough", "sniffle", "groan", "yawn", "gasp")
_EMOTION = re.compile(rf"(<(?:{'|'.join(EMOTIONS)})>)")


def spoken_form(text: str, place: Place = START) -> str:
    """Speakable text with its emotion tags (`<laugh>`); "" if nothing in it can be said. It begins at `place`."""
    spans, _ = unsaid(text, place)
    said = _EMOTION.split(Traced.of(text).without(spans).text)
    parts = [
        part if _EMOTION.fullmatch(part) else speakable(Traced.of(part), line=place.line and not at).text
        for at, part in enumerate(said)
    ]
    if not any(character.isalnum() for part in parts for character in part):
        return ""
    return " ".join(part for part in parts if part)


def voice_of(settings: Mapping[str, Value]) -> str:
    """The voice that a request asks for, the first if it does not. Raises Rejected."""
    voice = settings.get("voice")
    if voice is None:
        return VOICES[0]
    if voice not in VOICES or not isinstance(voice, str):
        raise Rejected(f"voice {voice!r} is unknown; known: {', '.join(VOICES)}", param="voice")
    return voice


def speech_tokens(tokenizer: Tokenizer, codebook: int) -> SpeechTokens:
    """The ids that a checkpoint's vocabulary gives the tokens of a prompt. Raises WeightsError naming a missing one."""
    found = []
    for spelling in ("<custom_token_0>", "<|begin_of_text|>", "<|eot_id|>"):
        token = tokenizer.id_of(spelling)
        if token is None:
            raise WeightsError(f"tokenizer.json: {spelling} is missing: not the vocabulary of a speech model")
        found.append(token)
    first, begin, end = found
    return SpeechTokens(first, begin, end, codebook)


def prompt_ids(tokenizer: Tokenizer, tokens: SpeechTokens, voice: str, spoken: str) -> list[int]:
    """The prompt of one sentence. Nothing that is spelled in the text becomes a control token or a code."""
    text = tokenizer.encode(tokenizer.inert(f"{voice}: {spoken}"))
    return tokens.prompt([token for token in text if token < tokens.first])
