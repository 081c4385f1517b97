"""The nodes on the engine, with a small random checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from models.whisper.network import Whisper
from models.whisper.nodes import DecoderSubmodule, EncoderSubmodule, TranscriptSubmodule, context_for
from models.whisper.tokenizer import Tokenizer
from models.whisper.weights import Checkpoint, load
from mstar.engine.api import Completed, Firing
from mstar.engine.kv_engine import KVCacheEngine, KVSettings
from mstar.engine.stateless import StatelessEngine
from mstar.errors import Rejected
from mstar.submodule import Call, Step
from mstar.tensors import Value

SMALL = Path(__file__).parents[2] / "data" / "whisper"


@pytest.fixture(scope="module")
def checkpoint() -> Checkpoint:
    return load(SMALL)


@pytest.fixture(scope="module")
def network(checkpoint: Checkpoint) -> Whisper:
    return Whisper(checkpoint.config, checkpoint.tensors)


@pytest.fixture(scope="module")
def waves() -> list[np.ndarray]:
    given = load_file(SMALL / "inputs.safetensors")
    return [given[f"wave_{sample}"] for sample in range(3)]


def value(output: object) -> Value:
    assert isinstance(output, torch.Tensor | float)
    return output


def encode(network: Whisper, wave: Value) -> dict[str, Value]:
    encoder = EncoderSubmodule(network)
    calls = [Call(request="r", walk="w", inputs={"audio": wave})]
    outputs = encoder.forward(encoder.collate(calls), Step(calls))
    return {name: value(values[0]) for name, values in outputs.items()}


def firing(request: str, inputs: dict[str, Value], **settings: Value) -> Firing:
    return Firing(
        session=request,
        request=request,
        component="asr",
        walk="prefill" if "states" in inputs else "decode",
        inputs=inputs,
        settings={"language": "de", **settings},
        prompt="states" in inputs,
    )


def transcribe(engine: KVCacheEngine, pieces: dict[str, dict[str, Value]], **settings: Value) -> dict[str, list[int]]:
    """Ids of each request, all in one batch as long as they go on."""
    tokens: dict[str, list[int]] = {request: [] for request in pieces}
    waiting = [firing(request, piece, **settings) for request, piece in pieces.items()]
    while waiting:
        outcomes: Sequence[object] = engine.step(waiting)
        following = []
        for fired, outcome in zip(waiting, outcomes, strict=True):
            assert isinstance(outcome, Completed), outcome
            token = outcome.outputs["token"]
            assert isinstance(token, int)
            tokens[fired.request].append(token)
            if not outcome.stop:
                following.append(firing(fired.request, {"token": token}, **settings))
        waiting = following
    return tokens


def engine_of(checkpoint: Checkpoint, network: Whisper) -> KVCacheEngine:
    decoder = DecoderSubmodule(network, checkpoint.ids)
    return KVCacheEngine({"asr": decoder}, settings={"asr": KVSettings(pages=64, page_size=16)})


def test_the_engine_takes_the_golden_tokens_until_the_transcript_ends(
    checkpoint: Checkpoint, network: Whisper, waves: list[np.ndarray]
) -> None:
    expected = load_file(SMALL / "outputs.safetensors")
    given = load_file(SMALL / "inputs.safetensors")
    codes = {number: code for code, number in checkpoint.ids.languages.items()}
    language = codes[int(given["prompt_timestamps"][1])]
    task = int(given["prompt_timestamps"][2]) == checkpoint.ids.translate
    for sample, wave in enumerate(waves):
        engine = engine_of(checkpoint, network)
        piece = encode(network, wave)
        found = transcribe(engine, {"a": piece}, language=language, translate=task)["a"]
        golden = expected[f"greedy_timestamps_{sample}"].tolist()
        assert found[:20] == golden[: len(found)]
        assert len(found) > 1


def test_a_transcript_does_not_depend_on_its_batch(
    checkpoint: Checkpoint, network: Whisper, waves: list[np.ndarray]
) -> None:
    pieces = {name: encode(network, wave) for name, wave in zip("abc", waves, strict=True)}
    together = transcribe(engine_of(checkpoint, network), pieces)
    assert together == {
        name: transcribe(engine_of(checkpoint, network), {name: piece})[name] for name, piece in pieces.items()
    }


def test_a_second_piece_of_a_request_begins_anew(
    checkpoint: Checkpoint, network: Whisper, waves: list[np.ndarray]
) -> None:
    engine = engine_of(checkpoint, network)
    first, second = (encode(network, wave) for wave in waves[:2])
    expected = [transcribe(engine_of(checkpoint, network), {"a": piece})["a"] for piece in (first, second, first)]
    assert [transcribe(engine, {"a": piece})["a"] for piece in (first, second, first)] == expected
    engine.end_request("a")
    engine.end_session("a")
    assert engine.census() == engine_of(checkpoint, network).census()


def test_after_the_end_comes_the_end(checkpoint: Checkpoint, network: Whisper, waves: list[np.ndarray]) -> None:
    engine = engine_of(checkpoint, network)
    tokens = transcribe(engine, {"a": encode(network, waves[0])})["a"]
    [outcome] = engine.step([firing("a", {"token": tokens[-1]})])
    assert isinstance(outcome, Completed)
    assert outcome.outputs["token"] == checkpoint.ids.end
    assert outcome.stop


def test_batched_encoding_equals_one_by_one(network: Whisper, waves: list[np.ndarray]) -> None:
    encoder = EncoderSubmodule(network)
    calls = [Call(request=str(n), walk="w", inputs={"audio": wave}) for n, wave in enumerate(waves)]
    outputs = encoder.forward(encoder.collate(calls), Step(calls))
    for states, seconds, wave in zip(outputs["states"], outputs["seconds"], waves, strict=True):
        alone = encode(network, wave)["states"]
        assert isinstance(states, torch.Tensor)
        assert isinstance(alone, torch.Tensor)
        torch.testing.assert_close(states, alone, atol=1e-4, rtol=1e-4)
        assert seconds == len(wave) / 16_000


def test_microphone_items_are_taken_in_order(network: Whisper, waves: list[np.ndarray]) -> None:
    rows = waves[0][:7680].reshape(-1, 512)
    forms: tuple[Value, ...] = (rows.reshape(-1), rows, list(rows))
    flat, stacked, listed = (encode(network, audio)["states"] for audio in forms)
    assert isinstance(flat, torch.Tensor)
    assert isinstance(stacked, torch.Tensor)
    assert isinstance(listed, torch.Tensor)
    assert torch.equal(flat, stacked)
    assert torch.equal(flat, listed)


@pytest.mark.parametrize(
    ("seconds", "frames"),
    [
        (0.1, 256),
        (4.6, 256),
        (4.7, 384),
        (9.7, 512),
        (9.8, 750),
        (14.4, 750),
        (15.0, 1000),
        (25.0, 1500),
        (29.9, 1500),
        (30.0, 1500),
    ],
)
def test_context(seconds: float, frames: int) -> None:
    assert context_for(round(seconds * 16_000)) == frames


def test_what_the_nodes_refuse(checkpoint: Checkpoint, network: Whisper) -> None:
    encoder = EncoderSubmodule(network)
    with pytest.raises(Rejected, match="longer than the 1 s"):
        encoder.collate([Call(request="r", walk="w", inputs={"audio": np.zeros(16_001, np.float32)})])
    with pytest.raises(Rejected, match="not finite"):
        encoder.collate([Call(request="r", walk="w", inputs={"audio": np.array([0, np.nan], np.float32)})])
    decoder = DecoderSubmodule(network, checkpoint.ids)
    inputs: dict[str, Value] = {"states": np.zeros((50, 48), np.float32), "seconds": 1.0}
    with pytest.raises(Rejected, match="'xx' is not one of"):
        decoder.keys(Call(request="r", walk="prefill", inputs=inputs, settings={"language": "xx"}))


def test_transcripts_of_one_piece_after_another() -> None:
    node = TranscriptSubmodule(Tokenizer(("<|x|>", "ĠHi", ".", "<|0.00|>"), 3), 3)
    engine = StatelessEngine({"transcript": node})

    def heard(request: str, first: int, tokens: Value, seconds: float) -> object:
        inputs: dict[str, Value] = {"first": first, "tokens": tokens, "seconds": seconds}
        [outcome] = engine.step([Firing("s", request, "transcript", "w", inputs)])
        assert isinstance(outcome, Completed), outcome
        return outcome.outputs["transcript"]

    assert heard("r", 3, [1, 2, 53, 53, 1, 0], 1.5) == {
        "text": "Hi. Hi",
        "segments": (
            {"text": "Hi.", "start": 0.0, "end": 1.0},
            {"text": "Hi", "start": 1.0, "end": 1.5},
        ),
    }
    assert heard("other", 3, np.array([0]), 0.5) == {"text": "", "segments": ()}
    assert heard("r", 3, [1, 2, 53, 0], 1.0) == {
        "text": "Hi. Hi Hi.",
        "segments": (
            {"text": "Hi.", "start": 0.0, "end": 1.0},
            {"text": "Hi", "start": 1.0, "end": 1.5},
            {"text": "Hi.", "start": 1.5, "end": 2.5},
        ),
    }
