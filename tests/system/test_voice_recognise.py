"""Sound of any length written down by the voice family: words with their times, pieces, what came before."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from media.resample import resample
from models.registry import Recognition
from models.voice.model import CONVERSATION
from mstar.client import Emission, RequestEnded, Session
from mstar.local import LocalSystem
from tests.system.toy import end_of, sound_of, text_of, values
from tests.system.voice_local import voice_session, voice_system
from tests.wer import word_error_rate, words

SENTENCES = (Path(__file__).parents[1] / "data" / "sentences.txt").read_text().splitlines()
RATE = 16_000
Events = list[Emission | RequestEnded]


@pytest.fixture(scope="module")
def system(smollm2: Path, whisper_tiny_en: Path, piper_joe: Path, ear: Path) -> LocalSystem:
    return voice_system(smollm2, whisper_tiny_en, piper_joe, ear)


@pytest.fixture
def session(system: LocalSystem) -> Iterator[Session]:
    with voice_session(system) as opened:
        yield opened


def say(system: LocalSystem, session: Session, text: str) -> tuple[np.ndarray, list[tuple[float, float]]]:
    """Sound at 16 kHz, and when the voice says each word (s)."""
    request = session.start("say", {}, {"seed": 5})
    request.credit("audio", 10**9)
    request.feed("written", 0, text, cut=True)
    request.commit("written", 1)
    system.run()
    events = request.drain()
    trimmed = int(values(events, "audio")[0]["trimmed"])
    rows = np.concatenate([value["words"] for value in values(events, "alignment")])
    rate = CONVERSATION.speech_rate
    times = [(max(0, start - trimmed) / rate, (end - trimmed) / rate) for _, _, start, end in rows]
    return resample(sound_of(events), rate, RATE).astype(np.float32), times


def recognise(
    system: LocalSystem, session: Session, sound: np.ndarray, item: int = 30 * RATE, **settings: Any
) -> Events:
    """As a client does that keeps no more than `ahead` seconds ahead."""
    offer = Recognition()
    request = session.start(offer.recognise, {}, settings)
    parts = [sound[at : at + item] for at in range(0, len(sound), item)]
    done = 0.0
    events: Events = []
    for index, part in enumerate(parts):
        request.feed(offer.sound, index, part, cut=index == len(parts) - 1)
        system.run()
        events += request.drain()
        done = max((float(each["end"]) for each in values(events, "recognised")), default=0.0)
        assert (index + 1) * item / RATE - done <= offer.ahead
    request.commit(offer.sound, len(parts))
    system.run()
    return events + request.drain()


def test_words_are_told_when_they_are_said(system: LocalSystem, session: Session) -> None:
    wrong: list[float] = []
    matched = 0
    for sentence in SENTENCES[:6]:
        sound, truth = say(system, session, sentence)
        events = recognise(system, session, sound)
        assert end_of(events).status == "done"
        [piece] = values(events, "recognised")
        found = piece["words"]
        times = [time for word in found for time in (word["start"], word["end"])]
        assert times == sorted(times)
        assert times[0] >= 0
        assert times[-1] <= piece["end"] == pytest.approx(len(sound) / RATE)
        assert " ".join(word["text"] for word in found) == piece["text"]
        assert "".join(value["text"] for value in values(events, "heard")) == piece["text"]
        assert "".join(token["text"] for token in piece["tokens"]).strip() == piece["text"]
        assert 0 <= piece["no_speech"] < 0.2
        assert all(-3 < segment["logprob"] < 0 for segment in piece["segments"])
        if len(found) == len(truth):
            matched += 1
            wrong += [abs(word["start"] - start) for word, (start, _) in zip(found, truth, strict=True)]
    assert matched >= 5
    print(f"\nbeginnings of {len(wrong)} words: median error {np.median(wrong) * 1000:.0f} ms")
    assert np.median(wrong) < 0.06
    assert np.quantile(wrong, 0.9) < 0.2


def test_a_long_sound_is_cut_at_its_pauses_and_nothing_is_lost(system: LocalSystem, session: Session) -> None:
    pause = np.zeros(RATE // 2, np.float32)
    said = SENTENCES[:4] * 4
    parts = [part for sentence in SENTENCES[:4] for part in (say(system, session, sentence)[0], pause)]
    sound = np.tile(np.concatenate(parts), 4)
    assert 31 * RATE < len(sound) < 60 * RATE
    events = recognise(system, session, sound, item=7 * RATE)
    pieces = values(events, "recognised")
    assert len(pieces) == 2
    assert all(piece["end"] - piece["start"] <= 30 for piece in pieces)
    assert [piece["start"] for piece in pieces] == [0.0, pieces[0]["end"]]
    assert pieces[-1]["end"] == pytest.approx(len(sound) / RATE)
    text = " ".join(piece["text"] for piece in pieces)
    assert word_error_rate([(" ".join(said), text)]) < 0.1
    starts = [word["start"] for piece in pieces for word in piece["words"]]
    assert starts == sorted(starts)
    assert words("".join(value["text"] for value in values(events, "heard"))) == words(text)


def test_silence_is_no_words(system: LocalSystem, session: Session) -> None:
    [piece] = values(recognise(system, session, np.zeros(RATE, np.float32)), "recognised")
    assert (piece["text"], piece["words"], piece["segments"]) == ("", [], [])
    assert piece["no_speech"] > 0.5


def test_what_came_before_helps_to_spell(system: LocalSystem, session: Session) -> None:
    sound, _ = say(system, session, "I spoke to Catherine about it.")
    spelled = {}
    for prompt in ("", "Kathryn and I talked."):
        events = recognise(system, session, sound, transcript_prompt=prompt)
        [piece] = values(events, "recognised")
        spelled[prompt] = piece["text"]
    assert "Kathryn" not in spelled[""]
    assert "Kathryn" in spelled["Kathryn and I talked."]


def test_a_draw_is_repeated_by_its_seed(system: LocalSystem, session: Session) -> None:
    sound, _ = say(system, session, SENTENCES[2])
    drawn = [
        values(recognise(system, session, sound, transcript_temperature=1.0, seed=seed), "recognised")[0]["text"]
        for seed in (1, 1, 2, 3)
    ]
    assert drawn[0] == drawn[1]
    assert len(set(drawn)) > 1


def test_a_text_is_gone_on_with_as_it_stands(system: LocalSystem, session: Session) -> None:
    request = session.start("complete", {"prompt": "One, two, three, four,"}, {"max_tokens": 6})
    system.run()
    events = request.drain()
    assert text_of(events).startswith(" five,")
    [begun] = values(events, "begun")
    [usage] = values(events, "usage")
    assert begun["prompt"] == usage["prompt"] > 5
    assert usage["generated"] == 6
    counts = [value["tokens"] for value in values(events, "text")]
    assert counts == sorted(counts)
    assert counts[-1] == 6


def test_an_empty_text_and_a_too_long_one_are_refused(system: LocalSystem, session: Session) -> None:
    for prompt, code in (("", "empty_prompt"), ("word " * 5000, "context_length_exceeded")):
        request = session.start("complete", {"prompt": prompt})
        system.run()
        assert end_of(request.drain()).code == code
