"""The voice says what a client writes, as a program writes it; the recogniser of the same graph understands it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from media.frames import to_float, to_int16
from media.g711 import mulaw_decode, mulaw_encode
from media.resample import resample
from models.voice.model import CONVERSATION
from mstar.client import Emission, RequestEnded, Session
from mstar.local import LocalSystem
from tests.system.toy import end_of, sound_of, values
from tests.system.voice_local import voice_session, voice_system
from tests.wer import word_error_rate

SENTENCES = (Path(__file__).parents[1] / "data" / "sentences.txt").read_text().splitlines()
TEXT = "The harbour was quiet before the first ferry came in. Please leave the blue folder on my desk, will you?"

Events = list[Emission | RequestEnded]


@pytest.fixture(scope="module")
def system(smollm2: Path, whisper_tiny_en: Path, piper_joe: Path, ear: Path) -> LocalSystem:
    return voice_system(smollm2, whisper_tiny_en, piper_joe, ear)


@pytest.fixture
def session(system: LocalSystem) -> Iterator[Session]:
    with voice_session(system) as opened:
        yield opened


def say(system: LocalSystem, session: Session, pieces: list[str]) -> Events:
    """What comes of a text that is written in pieces."""
    request = session.start("say", settings={"seed": 5})
    request.credit("audio", 10**9)
    for index, piece in enumerate(pieces):
        request.feed("written", index, piece)
        system.run()
    request.feed("written", len(pieces), "", cut=True)
    request.commit("written", len(pieces) + 1)
    system.run()
    return request.drain()


def test_a_text_sounds_alike_however_it_is_written(system: LocalSystem, session: Session) -> None:
    whole = say(system, session, [TEXT])
    assert end_of(whole).status == "done"
    for size in (1, 7):
        pieces = [TEXT[at : at + size] for at in range(0, len(TEXT), size)]
        said = say(system, session, pieces)
        assert end_of(said).status == "done"
        assert np.abs(sound_of(said) - sound_of(whole)).max() <= 1e-4
    rows = np.concatenate([value["words"] for value in values(whole, "alignment")])
    assert [TEXT[first:last] for first, last, _, _ in rows] == TEXT.split()


def test_a_first_clause_sounds_before_the_rest_is_written(system: LocalSystem, session: Session) -> None:
    request = session.start("say")
    request.credit("audio", 10**9)
    request.feed("written", 0, "Good night and sleep well. And")
    system.run()
    early = request.drain()
    assert len(sound_of(early)) > CONVERSATION.speech_rate
    request.feed("written", 1, " so say we", cut=True)  # a flush: no border in the text, and yet it is said
    system.run()
    flushed = [*early, *request.drain()]
    rows = np.concatenate([value["words"] for value in values(flushed, "alignment")])
    assert rows[-1, 1] == len("Good night and sleep well. And so say we")
    request.interrupt()


def heard(system: LocalSystem, session: Session, sound: np.ndarray) -> str:
    """Transcript of a sound at 16 kHz."""
    request = session.start("transcribe", {"audio": sound})
    system.run()
    [transcript] = values(request.drain(), "transcript")
    return str(transcript["text"])


@pytest.mark.slow
def test_what_is_said_is_understood(system: LocalSystem, session: Session) -> None:
    wide, narrow = [], []
    for sentence in SENTENCES:
        sound = sound_of(say(system, session, [sentence]))
        padded = np.pad(sound, CONVERSATION.speech_rate // 4)
        wide.append((sentence, heard(system, session, resample(padded, CONVERSATION.speech_rate, 16_000))))
        coded = mulaw_encode(to_int16(resample(padded, CONVERSATION.speech_rate, 8000)))
        telephone = to_float(mulaw_decode(coded))
        narrow.append((sentence, heard(system, session, resample(telephone, 8000, 16_000))))
    print(f"WER {word_error_rate(wide):.4f}, through G.711 {word_error_rate(narrow):.4f}")
    assert len(wide) == 30
    assert word_error_rate(wide) <= 0.04
    assert word_error_rate(narrow) <= 0.07
