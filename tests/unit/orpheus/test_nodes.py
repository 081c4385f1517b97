"""Sentences, the language model's ends, the codec's batches and windows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import torch

from models.orpheus import tiny
from models.orpheus.nodes.sounding import CodecSubmodule, WindowSubmodule
from models.orpheus.nodes.speaking import lm
from models.orpheus.nodes.writing import SentenceSubmodule, SpeechPromptSubmodule, prompt
from models.orpheus.tokens import levels
from mstar.engine.api import Completed, Failed, Firing, Partial
from mstar.engine.kv_engine import KVCacheEngine
from mstar.errors import Rejected, WeightsError
from mstar.submodule import STATE, Call, Many, Span, Step
from mstar.tensors import Value

TEXT = "Hello there, Dr. Smith! It is 3.14, <laugh> or so. 👍 And… that is all"


def fire(node: Any, *calls: Call) -> list[Mapping[str, Any]]:
    outputs = node.forward(node.collate(calls), Step(calls))
    return [{name: values[i] for name, values in outputs.items()} for i in range(len(calls))]


def sentences(pieces: Sequence[str]) -> list[Any]:
    node = SentenceSubmodule()
    state: Value = None
    found: list[Any] = []
    for place, piece in enumerate(pieces):
        span = Span("written", place, 0, 1, final=place == len(pieces) - 1)
        [out] = fire(node, Call("r", "read", {"text": piece}, spans={"text": span}, state=state))
        state = out[STATE]
        found += [] if out["sentence"] is None else out["sentence"].items
    return found


def test_sentences_do_not_depend_on_how_the_text_comes() -> None:
    whole = sentences([TEXT])
    assert [each["spoken"] for each in whole] == [
        "Hello there, Dr. Smith!".replace("Dr.", "Doctor"),
        "It is three point one four, <laugh> or so.",
        "And… that is all",
    ]
    assert sentences(list(TEXT)) == whole
    assert sentences([TEXT[:20], TEXT[20:33], TEXT[33:]]) == whole
    for each in whole:
        assert TEXT[each["start"] : each["end"]].strip()


def test_a_flush_is_a_border() -> None:
    node = SentenceSubmodule()
    span = Span("written", 0, 0, 1, segment_final=True)
    [out] = fire(node, Call("r", "read", {"text": "not yet"}, spans={"text": span}))
    assert [each["spoken"] for each in out["sentence"].items] == ["not yet"]


def test_a_speed_is_refused() -> None:
    node = prompt({"tiny": True})
    assert isinstance(node, SpeechPromptSubmodule)
    sentence: Value = {"spoken": "Yes.", "start": 0, "end": 4}
    with pytest.raises(Rejected, match="speed must be 1") as refused:
        fire(node, Call("r", "speak", {"sentence": sentence}, settings={"speed": 1.5}))
    assert refused.value.param == "speed"


class Writer:
    """One request's language model, pass by pass."""

    def __init__(self, engine: KVCacheEngine, request: str = "r", **settings: Value) -> None:
        self.engine, self.request, self.settings = engine, request, settings

    def step(self, **inputs: Value) -> Completed | Failed:
        given = Firing("s", self.request, "LM", "speak", inputs, settings=self.settings, prompt="tokens" in inputs)
        while isinstance(outcome := self.engine.step([given])[0], Partial):
            pass
        assert isinstance(outcome, Completed | Failed)
        return outcome

    def sentence(self, ids: Value) -> tuple[list[int], list[int], list[Any], list[bool]]:
        """Tokens, codes, usages, cuts."""
        tokens: list[Any] = []
        codes: list[Any] = []
        usages: list[Any] = []
        cuts: list[bool] = []
        done = self.step(tokens=ids)
        while True:
            assert isinstance(done, Completed)
            tokens.append(done.outputs["token"])
            if isinstance(code := done.outputs["code"], Many):
                codes += list(code.items)
                cuts.append(code.cut)
            usages += [] if done.outputs["usage"] is None else [done.outputs["usage"]]
            if done.stop:
                return tokens, codes, usages, cuts
            done = self.step(token=tokens[-1])


@pytest.fixture(scope="module")
def engine() -> KVCacheEngine:
    return KVCacheEngine({"LM": lm({"tiny": True})})


@pytest.fixture(scope="module")
def ids() -> Value:
    sentence: Value = {"spoken": "Good morning.", "start": 0, "end": 13}
    [out] = fire(prompt({"tiny": True}), Call("r", "speak", {"sentence": sentence}))
    tokens: Value = out["tokens"]
    return tokens


def test_a_sentence_ends_with_its_end_of_speech(engine: KVCacheEngine, ids: Value) -> None:
    tokens, codes, [usage], cuts = Writer(engine, "end").sentence(ids)
    assert tokens[-1] == 256 + 2 + 2  # the tiny vocabulary: bytes, two control tokens, then the custom ones
    assert usage["reason"] == "stop"
    assert usage["generated"] == len(tokens)
    assert len(codes) == len(tokens) - 1
    assert cuts == [False] * (len(cuts) - 1) + [True]


@pytest.mark.parametrize("limit", [1, 2, 9])
def test_max_tokens_ends_a_sentence_and_says_so(engine: KVCacheEngine, ids: Value, limit: int) -> None:
    tokens, codes, [usage], cuts = Writer(engine, f"limit{limit}", max_tokens=limit, temperature=0).sentence(ids)
    assert (usage["reason"], usage["generated"]) == ("length", limit)
    assert len(codes) == limit
    assert len(tokens) == max(2, limit)
    assert cuts[-1]


def test_a_second_sentence_of_a_request_begins_anew(engine: KVCacheEngine, ids: Value) -> None:
    settings: dict[str, Value] = {"temperature": 0, "max_tokens": 20}
    both = Writer(engine, "twice", **settings)
    first, second = both.sentence(ids), both.sentence(ids)
    assert second[:2] == first[:2]
    assert second[2][0]["reused"] == second[2][0]["prompt"] - 1


def test_a_sentence_goes_on_when_its_memory_was_taken_for_a_while(engine: KVCacheEngine, ids: Value) -> None:
    expected, *_ = Writer(engine, "undisturbed").sentence(ids)
    writer = Writer(engine)
    tokens: list[Any] = []
    done = writer.step(tokens=ids)
    while isinstance(done, Completed):
        tokens.append(done.outputs["token"])
        if done.stop:
            break
        if len(tokens) % 9 == 5:
            assert engine.preempt("r", "LM") > 0
        done = writer.step(token=tokens[-1])
    assert tokens == expected
    assert engine.counters()["recomputed_tokens"] > len(tokens)


@pytest.mark.parametrize(
    ("name", "value"), [("max_tokens", 0), ("max_tokens", 5000), ("max_tokens", "9"), ("top_p", 2), ("temperature", -1)]
)
def test_settings_that_are_none_name_their_field(engine: KVCacheEngine, ids: Value, name: str, value: Value) -> None:
    done = Writer(engine, f"bad {name} {value!r}", **{name: value}).step(tokens=ids)
    assert isinstance(done, Failed)
    assert done.code == "invalid_value"
    assert done.cause.startswith(name)


def test_missing_checkpoints_are_named() -> None:
    with pytest.raises(WeightsError, match=r"set llm to a folder with canopylabs/orpheus-3b-0.1-ft, or set tiny"):
        lm({})


CODES = np.random.default_rng(3).integers(0, tiny.CODEBOOK, (4, 70))


def sounded(node: CodecSubmodule, codes: np.ndarray, sizes: Sequence[int], **settings: Value) -> np.ndarray:
    """All samples of one sentence in chunks of these sizes, the last one final."""
    state, at, parts = None, 0, [np.zeros(0, np.float32)]
    for place, size in enumerate(sizes):
        span = Span("code", at, 0, size, segment_final=place == len(sizes) - 1)
        inputs: dict[str, Value] = {"code": tuple(codes[at : at + size].tolist()) if size else None}
        [out] = fire(node, Call("r", "sound", inputs, settings, {"code": span}, state, seed=5))
        state, at = out[STATE], at + size
        if out["audio"] is not None:
            assert out["audio"]["start"] == sum(map(len, parts))
            parts.append(out["audio"]["pcm"])
    return np.concatenate(parts)


@pytest.mark.parametrize("sizes", [[7] * 10, [1] * 70, [70, 0], [3, 11, 0, 40, 16], [69, 1]])
def test_chunks_of_any_size_sound_as_one(sizes: list[int]) -> None:
    node = CodecSubmodule(tiny.codec())
    whole = sounded(node, CODES[0], [70])
    assert abs(len(whole) - 10 * 2048) < 512  # all of it but a silence before it
    np.testing.assert_array_equal(sounded(node, CODES[0], sizes), whole)


def test_a_frame_that_is_not_whole_is_left_out() -> None:
    node = CodecSubmodule(tiny.codec())
    np.testing.assert_array_equal(sounded(node, CODES[0], [66]), sounded(node, CODES[0][:63], [63]))
    assert not len(sounded(node, CODES[0], [6]))


def test_noise_is_the_requests_own() -> None:
    node = CodecSubmodule(tiny.codec())
    still, loud, louder = (sounded(node, CODES[0], [70], noise=level) for level in (0, 1, 2))
    assert np.abs(loud - sounded(node, CODES[0], [70])).max() == 0
    assert np.abs(loud - still).max() > 1e-3
    assert np.abs(louder - loud).max() > 1e-3
    for wrong in (-1, "loud", True, float("nan")):
        with pytest.raises(Rejected, match="noise must be a number"):
            sounded(node, CODES[0], [70], noise=wrong)


def test_a_batch_of_four_at_different_places_equals_each_alone() -> None:
    node = CodecSubmodule(tiny.codec())
    alone = [sounded(node, codes, [7] * n, noise=n % 2) for n, codes in zip((3, 5, 5, 8), CODES, strict=True)]
    states: list[Value] = [None] * 4
    parts: list[list[np.ndarray]] = [[np.zeros(0, np.float32)] for _ in range(4)]
    for turn in range(8):
        going = [i for i, n in enumerate((3, 5, 5, 8)) if turn < n]
        calls = []
        for i in going:
            n = (3, 5, 5, 8)[i]
            span = Span("code", turn * 7, 0, 7, segment_final=turn == n - 1)
            chunk: dict[str, Value] = {"code": tuple(CODES[i, turn * 7 : turn * 7 + 7].tolist())}
            calls.append(Call(f"r{i}", "sound", chunk, {"noise": n % 2}, {"code": span}, states[i], seed=5))
        for i, out in zip(going, fire(node, *calls), strict=True):
            states[i] = out[STATE]
            parts[i] += [] if out["audio"] is None else [out["audio"]["pcm"]]
    for got, wanted in zip(parts, alone, strict=True):
        np.testing.assert_array_equal(np.concatenate(got), wanted)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_sounds_bits_depend_on_no_thread_and_those_of_others_are_left(threads: int) -> None:
    node = CodecSubmodule(tiny.codec())
    before = torch.get_num_threads()
    wanted = sounded(node, CODES[0], [7] * 10)
    torch.set_num_threads(threads)
    try:
        np.testing.assert_array_equal(sounded(node, CODES[0], [35, 35]), wanted)
        assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)


def test_all_at_once_is_the_same_but_for_rounding() -> None:
    snac = tiny.codec()
    codes = [torch.from_numpy(level) for level in levels(CODES)]
    fresh = [snac.begin() for _ in CODES]
    sound, _ = snac.together(codes, fresh, last=True)
    torch.testing.assert_close(sound, snac.decode(codes), atol=1e-4, rtol=0)


def window(codes: np.ndarray, state: Value = None) -> Call:
    inputs: dict[str, Value] = {"window_code": tuple(codes.tolist())}
    span = Span("window_code", 0, 0, len(codes))
    return Call("r", "sound", inputs, {"noise": 0}, {"window_code": span}, state)


def test_windows_give_their_second_frame_and_void_ones_nothing() -> None:
    node = WindowSubmodule(tiny.codec(), 4)
    void = CODES[1, :28].copy()
    void[4] = tiny.CODEBOOK
    good, nothing, short = fire(node, window(CODES[0, :28]), window(void), window(CODES[2, :20]))
    whole = sounded(CodecSubmodule(tiny.codec()), CODES[0], [28], noise=0)
    np.testing.assert_allclose(good["audio"]["pcm"], whole[-3 * 2048 : -2 * 2048], atol=1e-4)
    assert nothing["audio"] is None
    assert short["audio"] is None
    [after] = fire(node, window(CODES[0, 7:35], good[STATE]))
    assert after["audio"]["start"] == 2048
