"""Acoustic and decoder node: seeds, clauses as segments, word times, streams equal to one piece."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from models.piper.nodes import AcousticSubmodule, DecoderSubmodule, FlowSubmodule, word_samples
from models.piper.voice import Voice
from mstar.errors import Rejected
from mstar.submodule import STATE, Call, Rows, Span, Step
from tests.carried import Both

VOICE = Path(__file__).parents[2] / "data" / "piper" / "voice.onnx"


@pytest.fixture(scope="module")
def voice() -> Voice:
    return Voice.load(VOICE)


def phonemes(seed: int, count: int = 20) -> dict[str, Any]:
    """A clause of five words over random ids."""
    ids = np.random.default_rng(seed).integers(1, 40, count)
    words = [(4 * k, 4 * k + 3, count * k // 5, count * (k + 1) // 5) for k in range(5)]
    return {"ids": ids, "words": np.array(words), "start": 0, "end": 19}


def call(record: Any, state: Any = None, seed: int = 0, **settings: Any) -> Call:
    return Call("r", "speak", {"phonemes": record}, settings=settings, state=state, seed=seed)


def fire(node: Any, *calls: Call) -> list[Mapping[str, Any]]:
    outputs = node.forward(node.collate(calls), Step(calls))
    return [{name: values[i] for name, values in outputs.items()} for i in range(len(calls))]


def test_the_seed_decides_and_batch_mates_do_not(voice: Voice) -> None:
    node = AcousticSubmodule(voice)
    [alone] = fire(node, call(phonemes(1), seed=7))
    together = fire(node, call(phonemes(2), seed=1), call(phonemes(1), seed=7), call(phonemes(1), seed=8))
    np.testing.assert_array_equal(together[1]["latents"].array, alone["latents"].array)
    other = together[2]["latents"].array
    assert other.shape != alone["latents"].array.shape or np.abs(other - alone["latents"].array).max() > 0.1
    [asked] = fire(node, Call("r", "speak", {"phonemes": phonemes(1)}, settings={"seed": 7}, seed=99))
    np.testing.assert_array_equal(asked["latents"].array, alone["latents"].array)


def test_a_second_clause_draws_anew_and_follows_the_first_in_time(voice: Voice) -> None:
    node = AcousticSubmodule(voice)
    [first] = fire(node, call(phonemes(1)))
    [second] = fire(node, call(phonemes(1), state=first[STATE]))
    assert second["alignment"]["first"] == first["alignment"]["last"] == len(first["latents"].array) * voice.hop
    assert (first["alignment"]["index"], second["alignment"]["index"]) == (0, 1)
    same = first["latents"].array.shape == second["latents"].array.shape
    assert not same or np.abs(first["latents"].array - second["latents"].array).max() > 0.1


def test_word_times_cover_the_clause_in_order(voice: Voice) -> None:
    [done] = fire(AcousticSubmodule(voice), call(phonemes(5)))
    words = done["alignment"]["words"]
    assert words[0, 2] == 0
    assert words[-1, 3] == done["alignment"]["last"] == len(done["latents"].array) * voice.hop
    np.testing.assert_array_equal(words[1:, 2], words[:-1, 3])
    assert (words[:, 3] > words[:, 2]).all()


def test_word_times_are_the_sums_of_durations_and_merged_words_share_theirs() -> None:
    words = np.array([(0, 3, 1, 3), (4, 6, 3, 5), (7, 10, 3, 5), (11, 15, 5, 6)])
    timed = word_samples(words, np.array([1, 2, 3, 4, 5, 6, 7]), 10, 1000, 1280)
    assert timed[:, 2:].tolist() == [[1000, 1060], [1060, 1150], [1060, 1150], [1150, 1280]]


def test_speed_shortens_and_is_checked(voice: Voice) -> None:
    node = AcousticSubmodule(voice)
    slow, fast = fire(node, call(phonemes(3, 40), speed=0.5, noise_w=0), call(phonemes(3, 40), speed=2, noise_w=0))
    assert len(slow["latents"].array) > len(fast["latents"].array)
    for wrong in (0.1, 5, "fast", float("nan"), True):
        with pytest.raises(Rejected) as found:
            fire(node, call(phonemes(3), speed=wrong))
        assert found.value.param == "speed"


def decode(voice: Voice, clauses: list[Rows], size: int) -> tuple[np.ndarray, list[Any]]:
    """Fire flow and decoder over the clauses' latents in chunks of `size`, context rows and all, as a stream would."""
    flow, node = FlowSubmodule(voice), DecoderSubmodule(voice)
    flowing: Any = None
    state: Any = None
    records: list[Any] = []
    at = made = 0
    for segment, clause in enumerate(clauses):
        rows = np.asarray(clause.array)
        for first in range(0, len(rows), size):
            new = len(rows[first : first + size])
            context = min(first, 3)
            last = first + new == len(rows)
            final = last and segment == len(clauses) - 1
            span = Span("latents", at, context, new, segment, last, final)
            at += new
            chunk = rows[first - context : first + new]
            [done] = fire(flow, Call("r", "speak", {"latents": chunk}, spans={"latents": span}, state=flowing))
            flowing = done[STATE]
            if done["frames"] is None:
                continue
            assert done["frames"].cut == last
            frames = np.asarray(done["frames"].array)
            span = Span("frames", made, 0, len(frames), segment, last, final)
            made += len(frames)
            [done] = fire(node, Call("r", "speak", {"frames": frames}, spans={"frames": span}, state=state))
            state = done[STATE]
            if done["audio"] is not None:
                records.append(done["audio"])
    return np.concatenate([r["pcm"] for r in records]), records


@pytest.fixture(scope="module")
def clauses(voice: Voice) -> list[Rows]:
    node = AcousticSubmodule(voice)
    state: Any = None
    found = []
    short = {"ids": np.arange(1, 4), "words": np.array([(0, 3, 0, 3)]), "start": 0, "end": 3}
    for clause in (phonemes(1, 30), short, phonemes(3, 45)):
        [done] = fire(node, call(clause, state=state))
        state = done[STATE]
        found.append(done["latents"])
    return found


@pytest.mark.parametrize("size", [1, 2, 5, 8, 11, 16, 24, 1000])
def test_the_stream_is_the_clauses_in_one_piece(voice: Voice, clauses: list[Rows], size: int) -> None:
    both = Both(voice)
    whole = np.concatenate([both.decode(np.asarray(c.array), both.fresh(), last=True)[0] for c in clauses])
    found, records = decode(voice, clauses, size)
    trimmed = records[-1]["trimmed"]
    assert trimmed + len(found) == len(whole)
    ramp = round(0.005 * voice.config.sample_rate)
    assert np.abs(found[ramp:] - whole[trimmed + ramp :]).max() <= 1e-5
    at = 0
    for record in records:
        assert record["start"] == at
        at += len(record["pcm"])


def test_an_end_with_nothing_new_flushes_what_is_open(voice: Voice, clauses: list[Rows]) -> None:
    node = DecoderSubmodule(voice)
    rows = np.asarray(clauses[2].array)
    assert len(rows) > voice.decoder.graph.first
    span = Span("frames", 0, 0, len(rows))
    [done] = fire(node, Call("r", "speak", {"frames": rows}, spans={"frames": span}))
    end = Span("frames", len(rows), 0, 0, 0, segment_final=True, final=True)
    [last] = fire(node, Call("r", "speak", {"frames": None}, spans={"frames": end}, state=done[STATE]))
    assert len(last["audio"]["pcm"]) == voice.hop + voice.decoder.graph.lag
    [again] = fire(node, Call("r", "speak", {"frames": None}, spans={"frames": end}, state=last[STATE]))
    assert again["audio"] is None
