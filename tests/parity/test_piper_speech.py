"""Text to sound with a real voice through all five nodes, as tokens of text come in and chunks of sound go out."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from models.piper.nodes import AcousticSubmodule, DecoderSubmodule, FlowSubmodule
from models.piper.voice import Floats, Voice
from models.speech.nodes import ClauseSubmodule, PhonemeSubmodule
from models.speech.opening import KEPT, THRESHOLD
from mstar.submodule import STATE, Call, Many, Span, Step
from tests.carried import Both, in_one_pass

TEXT = "Sure, I can help you with that, and one of the others. It costs **42** dollars at example.com, Dr. Who!"


@pytest.fixture(scope="module")
def voice(piper_joe: Path) -> Voice:
    return Voice.load(piper_joe / "en_US-joe-medium.onnx")


@dataclass(frozen=True, slots=True)
class Said:
    pcm: Floats
    records: list[Any]
    alignments: list[Any]
    borders: list[int]  # samples between chunks, in the audio


class Node:
    def __init__(self, submodule: Any, stream: str) -> None:
        self.submodule, self.stream = submodule, stream
        self.state: Any = None
        self.at = 0

    def __call__(self, value: Any, n: int = 1, *, last: bool = False, **settings: Any) -> dict[str, Any]:
        span = Span(self.stream, self.at, 0, n, segment_final=last)
        self.at += n
        call = Call("r", "speak", {self.stream: value}, settings, {self.stream: span}, self.state)
        outputs = self.submodule.forward(self.submodule.collate([call]), Step([call]))
        self.state = outputs.get(STATE, [None])[0]
        return {name: values[0] for name, values in outputs.items()}


def say(voice: Voice, text: str, step: int, size: int, **settings: Any) -> Said:
    """`text` in pieces of `step` characters, sound in chunks of `size` frames."""
    clause = Node(ClauseSubmodule(), "text")
    phoneme = Node(PhonemeSubmodule(voice.config.ids, voice.config.language), "clause")
    acoustic, flow = Node(AcousticSubmodule(voice), "phonemes"), Node(FlowSubmodule(voice), "latents")
    decoder = Node(DecoderSubmodule(voice), "frames")
    records, alignments = [], []
    for at in range(0, len(text), step):
        found = clause(text[at : at + step], last=at + step >= len(text))["clause"]
        for item in found.items if isinstance(found, Many) else ():
            done = acoustic(phoneme(item)["phonemes"], **settings)
            alignments.append(done["alignment"])
            rows = done["latents"].array
            for first in range(0, len(rows), size):
                chunk = rows[first : first + size]
                frames = flow(chunk, len(chunk), last=first + size >= len(rows))["frames"]
                audio = None if frames is None else decoder(frames.array, len(frames.array), last=frames.cut)["audio"]
                records += [] if audio is None else [audio]
    pcm = np.concatenate([r["pcm"] for r in records])
    return Said(pcm, records, alignments, [r["start"] for r in records[1:]])


@pytest.fixture(scope="module")
def whole(voice: Voice) -> Said:
    return say(voice, TEXT, len(TEXT), 10**6, seed=5)


@pytest.mark.parametrize(("step", "size"), [(1, 24), (4, 8), (7, 52)])
def test_pieces_of_text_and_chunks_of_sound_change_nothing(voice: Voice, whole: Said, step: int, size: int) -> None:
    said = say(voice, TEXT, step, size, seed=5)
    assert said.pcm.shape == whole.pcm.shape
    assert np.abs(said.pcm - whole.pcm).max() <= 1e-4
    for a, b in zip(said.alignments, whole.alignments, strict=True):
        np.testing.assert_array_equal(a["words"], b["words"])


def test_the_carried_decoder_gives_the_voices_own_wave(voice: Voice) -> None:
    """Flow and vocoder, chunk by chunk, against the exported graph in one pass."""
    ids, _ = voice.config.ids("ɡˈʊd ˈiːvnɪŋ, ˈɛvɹɪbˌɑːdi.")
    latents = voice.latents(ids, np.random.default_rng(1), noise_scale=0.667, noise_w=0.8, length_scale=1.0)
    wave, both = in_one_pass(voice, latents.frames), Both(voice)
    for size in (48, 52, 64):
        tails, parts = both.fresh(), []
        for at in range(0, len(latents.frames), size):
            chunk = latents.frames[at : at + size]
            part, tails = both.decode(chunk, tails, at + size >= len(latents.frames))
            parts.append(part)
        assert np.abs(np.concatenate(parts) - wave).max() <= 1e-4


def test_seams_are_as_smooth_as_the_rest(voice: Voice) -> None:
    said = say(voice, TEXT, len(TEXT), 8, seed=5)
    bend = np.abs(np.diff(said.pcm, 2))
    seams = np.concatenate([bend[at - 2 : at + 1] for at in said.borders])
    assert len(said.borders) > 30
    assert seams.max() <= np.quantile(bend, 0.9999)
    assert np.sqrt(np.mean(seams**2)) <= 1.3 * np.sqrt(np.mean(bend**2))


def test_equal_seeds_give_equal_sound(voice: Voice, whole: Said) -> None:
    np.testing.assert_array_equal(say(voice, TEXT, len(TEXT), 10**6, seed=5).pcm, whole.pcm)
    other = say(voice, TEXT, len(TEXT), 10**6, seed=6).pcm
    assert other.shape != whole.pcm.shape or np.abs(other - whole.pcm).max() > 0.01


def test_the_response_begins_within_what_is_kept_of_the_silence(voice: Voice, whole: Said) -> None:
    rate = voice.config.sample_rate
    first = int(np.flatnonzero(np.abs(whole.pcm) >= THRESHOLD)[0])
    assert first <= round((KEPT + 0.005) * rate)  # the ramp may hush the first sound
    assert whole.records[-1]["trimmed"] + len(whole.pcm) == whole.alignments[-1]["last"]


def test_words_are_timed_in_order_over_the_whole_audio(whole: Said) -> None:
    rows = np.concatenate([a["words"] for a in whole.alignments])
    assert [TEXT[a:b] for a, b, *_ in rows] == [
        *("Sure,", "I", "can", "help", "you", "with", "that,", "and", "one", "of", "the", "others."),
        *("It", "costs", "42", "dollars", "at", "example.com,", "Dr.", "Who!"),
    ]
    assert rows[0, 2] == 0
    assert rows[-1, 3] == whole.alignments[-1]["last"]
    spans = [tuple(r) for r in rows[:, 2:]]
    for before, after in pairwise(spans):
        assert after == before or after[0] == before[1]
    assert spans[9] == spans[10]  # "of the" is spoken as one word


def test_words_are_heard_when_their_times_say(voice: Voice) -> None:
    """The pause between two sentences lies where the times of their words meet."""
    said = say(voice, "Hello! Goodbye!", 15, 24, seed=1, noise_scale=0, noise_w=0)
    (first,), (second,) = (a["words"] for a in said.alignments)
    border = first[3] - said.records[-1]["trimmed"]
    near = round(0.03 * voice.config.sample_rate)
    assert second[2] == first[3]
    assert np.abs(said.pcm[border - near : border + near]).max() < 0.05
    assert np.abs(said.pcm[:border]).max() > 0.2
    assert np.abs(said.pcm[border:]).max() > 0.2


def test_speed(voice: Voice, whole: Said) -> None:
    fast = say(voice, TEXT, len(TEXT), 24, seed=5, speed=1.5)
    assert 0.55 < len(fast.pcm) / len(whole.pcm) < 0.8
