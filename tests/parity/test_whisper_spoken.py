"""tiny.en through the nodes and the engine, as it is served: short contexts, times, 8-bit decoder, batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors.numpy import load_file

from models.blocks.values import text
from models.whisper.network import Whisper
from models.whisper.nodes import DecoderSubmodule, EncoderSubmodule, TranscriptSubmodule
from models.whisper.weights import Checkpoint, load
from mstar.engine.api import Completed, Firing, Outcome
from mstar.engine.kv_engine import KVCacheEngine, KVSettings
from mstar.submodule import Call, Step
from mstar.tensors import Value

SPOKEN = Path(__file__).parents[1] / "data" / "whisper_ct2" / "inputs.safetensors"
SENTENCES = ("Hello world.", "The quick brown fox jumps over the lazy dog, doesn't it?")
Floats = NDArray[np.float32]


@pytest.fixture(scope="module")
def checkpoint(whisper_tiny_en: Path) -> Checkpoint:
    return load(whisper_tiny_en)


@pytest.fixture(scope="module")
def network(checkpoint: Checkpoint) -> Whisper:
    return Whisper(checkpoint.config, checkpoint.tensors, kernel="int8")


@pytest.fixture(scope="module")
def decoder(checkpoint: Checkpoint, network: Whisper) -> DecoderSubmodule:
    return DecoderSubmodule(network, checkpoint.ids)


@pytest.fixture(scope="module")
def spoken() -> list[Floats]:
    pcm = load_file(SPOKEN)
    return [(pcm[f"pcm16_{sample}"] / 32768).astype(np.float32) for sample in range(2)]


def silence(seconds: float) -> Floats:
    """Quiet noise."""
    noise = np.random.default_rng(0).standard_normal(round(seconds * 16_000)) * 3e-4
    return noise.astype(np.float32)


def tokens_of(network: Whisper, decoder: DecoderSubmodule, audio: Sequence[Floats]) -> list[list[int]]:
    """Ids of each audio, decoded in one batch; it must end by the network's own word, not by the limit."""
    encoder = EncoderSubmodule(network)
    engine = KVCacheEngine({"asr": decoder}, settings={"asr": KVSettings(pages=64)})
    taken: list[list[int]] = [[] for _ in audio]

    def firing(number: int, inputs: dict[str, Value]) -> Firing:
        prompt = "states" in inputs
        return Firing("s", str(number), "asr", "prefill" if prompt else "decode", inputs, prompt=prompt)

    waiting = []
    for number, wave in enumerate(audio):
        call = [Call(request="r", walk="w", inputs={"audio": wave})]
        outputs = encoder.forward(encoder.collate(call), Step(call))
        [states], [seconds] = outputs["states"], outputs["seconds"]
        assert isinstance(states, torch.Tensor)
        assert isinstance(seconds, float)
        waiting.append(firing(number, {"states": states, "seconds": seconds}))
    while waiting:
        outcomes: Sequence[Outcome] = engine.step(waiting)
        fired, waiting = waiting, []
        for one, outcome in zip(fired, outcomes, strict=True):
            assert isinstance(outcome, Completed), outcome
            number, token = int(one.request), outcome.outputs["token"]
            assert isinstance(token, int)
            taken[number].append(token)
            if not outcome.stop:
                waiting.append(firing(number, {"token": token}))
    for ids, wave in zip(taken, audio, strict=True):
        assert len(ids) < 12 + len(wave) / 16_000 * 12
    return taken


def transcript(checkpoint: Checkpoint, ids: list[int], seconds: float) -> tuple[str, Value]:
    node = TranscriptSubmodule(checkpoint.tokenizer, checkpoint.ids.end)
    call = [Call(request="r", walk="w", inputs={"first": ids[0], "tokens": ids[1:], "seconds": seconds})]
    [found] = node.forward(node.collate(call), Step(call))["transcript"]
    assert isinstance(found, Mapping)
    return text(found["text"]), found["segments"]


@pytest.mark.parametrize("before", [0.0, 0.3])
@pytest.mark.parametrize("behind", [0.0, 0.2, 0.5, 4.0])
def test_sentences_are_heard_in_the_silence_around_them(
    checkpoint: Checkpoint,
    network: Whisper,
    decoder: DecoderSubmodule,
    spoken: list[Floats],
    before: float,
    behind: float,
) -> None:
    audio = [np.concatenate((silence(before), wave, silence(behind))) for wave in spoken]
    for ids, wave, sentence in zip(tokens_of(network, decoder, audio), audio, SENTENCES, strict=True):
        found, segments = transcript(checkpoint, ids, len(wave) / 16_000)
        assert found == sentence
        assert isinstance(segments, tuple)
        assert len(segments) == 1


def test_a_transcript_is_the_same_alone_and_among_others(
    network: Whisper, decoder: DecoderSubmodule, spoken: list[Floats]
) -> None:
    audio = [spoken[1], spoken[0], spoken[1][:30_000], np.concatenate((spoken[0], silence(0.6), spoken[1]))]
    alone = [tokens_of(network, decoder, [wave])[0] for wave in audio]
    assert tokens_of(network, decoder, audio) == alone


def test_sentences_with_pauses_between_them_in_every_context(
    checkpoint: Checkpoint, network: Whisper, decoder: DecoderSubmodule, spoken: list[Floats]
) -> None:
    """5 … 28 s: nothing is lost behind a closing time, nothing is said twice."""
    for repeats in (1, 2, 3, 5):
        audio = np.concatenate(
            [part for _ in range(repeats) for part in (spoken[1], silence(0.7), spoken[0], silence(0.7))]
        )
        [ids] = tokens_of(network, decoder, [audio])
        found, _ = transcript(checkpoint, ids, len(audio) / 16_000)
        assert found.lower().count("hello world") == repeats
        assert found.lower().count("the quick brown fox jumps over the lazy dog") == repeats


def test_silence_and_noise_are_no_speech(
    checkpoint: Checkpoint, network: Whisper, decoder: DecoderSubmodule, spoken: list[Floats]
) -> None:
    nothing = [np.zeros(0, np.float32), np.zeros(64_000, np.float32)]
    quiet = [nothing[0], nothing[1], silence(0.5), silence(9.0), silence(3.0) * 30, silence(3.0) * 300]
    heard = tokens_of(network, decoder, [*quiet, spoken[0]])[:-1]
    assert [set(tokens) for tokens in heard] == [{checkpoint.ids.end}] * len(quiet)
