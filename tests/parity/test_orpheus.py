"""Orpheus against what the published code gives: prompt → tokens → codes → the samples of its stream decoder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from models.llama.checkpoint import HubFolder
from models.llama.config import read_config
from models.llama.network import Llama
from models.llama.weights import read_weights
from models.orpheus.nodes.sounding import WindowSubmodule
from models.orpheus.nodes.speaking import SpeechLMSubmodule
from models.orpheus.tokens import SpeechTokens, levels
from models.snac.codec import Snac
from mstar.engine.api import Completed, Firing
from mstar.engine.kv_engine import KVCacheEngine, KVSettings
from mstar.submodule import STATE, Call, Many, Span, Step
from mstar.tensors import Value
from tests.parity.dense_attention import DenseCache

DATA = Path(__file__).parent.parent / "data" / "orpheus"
INPUTS = load_file(DATA / "inputs.safetensors")
OUTPUTS = load_file(DATA / "outputs.safetensors")
TOKENS = SpeechTokens(256, 4, 9, 256)
PUBLISHED = SpeechTokens(128_256, 128_000, 128_009)
PENALTY = {"greedy": 1.0, "greedy_rp13": 1.3}


@pytest.fixture(scope="module")
def network() -> Llama:
    folder = HubFolder(DATA)
    config = replace(read_config(folder), eos=(TOKENS.end_of_speech,))
    return Llama(config, read_weights(folder, config), "float32")


def test_the_prompt() -> None:
    for name in ("prompt_0", "prompt_1"):
        wanted = INPUTS[name].tolist()
        assert TOKENS.prompt(wanted[2:-4]) == wanted
    assert PUBLISHED.prompt([7]) == [128259, 128000, 7, 128009, 128260, 128261, 128257]
    assert PUBLISHED.end_of_speech == 128258


@pytest.mark.parametrize("i", [0, 1])
def test_logits_behind_the_prompt(network: Llama, i: int) -> None:
    ids = INPUTS[f"prompt_{i}"]
    attention = DenseCache().prompt("a", len(ids))
    logits = network.logits(network.forward(ids, attention.positions, attention))[-1]
    torch.testing.assert_close(logits, OUTPUTS[f"logits_{i}"], atol=2e-4, rtol=1e-4)


def speak(network: Llama, i: int, **settings: Value) -> tuple[list[int], list[Value], list[Many]]:
    """Tokens, codes, and what was put on the stream, of one sentence."""
    engine = KVCacheEngine({"LM": SpeechLMSubmodule(network, TOKENS)}, settings={"LM": KVSettings(pages=64)})
    tokens: list[int] = []
    streamed: list[Many] = []
    given: Mapping[str, Value] = {"tokens": INPUTS[f"prompt_{i}"].numpy()}
    while True:
        firing = Firing("s", "r", "LM", "speak", given, settings=settings, prompt="tokens" in given)
        [outcome] = engine.step([firing])
        assert isinstance(outcome, Completed)
        token = outcome.outputs["token"]
        assert isinstance(token, int)
        tokens.append(token)
        code = outcome.outputs["code"]
        if isinstance(code, Many):
            streamed.append(code)
        if outcome.stop:
            return tokens, [item for each in streamed for item in each.items], streamed
        given = {"token": token}


@pytest.mark.parametrize("name", ["greedy", "greedy_rp13"])
@pytest.mark.parametrize("i", [0, 1])
def test_tokens_and_codes_by_level(network: Llama, name: str, i: int) -> None:
    wanted = OUTPUTS[f"{name}_{i}"].tolist()
    settings = {"temperature": 0, "repetition_penalty": PENALTY[name], "max_tokens": len(wanted)}
    tokens, codes, streamed = speak(network, i, **settings)
    assert tokens == wanted
    for level, got in enumerate(levels(np.array([codes]))):
        assert got.tolist() == OUTPUTS[f"{name}_{i}_codes_{level}"].tolist()
    assert [each.cut for each in streamed] == [False] * (len(streamed) - 1) + [True]


def windows_of(ids: list[int], tokens: SpeechTokens, snac: Snac) -> np.ndarray:
    """What the windowed mode gives out, [windows, 2048]."""
    codes: list[int] = []
    for token in ids:
        code = tokens.published_code(token, len(codes))
        codes += [] if code is None else [code]
    node = WindowSubmodule(snac, 4)
    state: Value = None
    sounds: list[np.ndarray] = []
    for stop in range(28, len(codes) + 1, 7):
        span = Span("window_code", stop - 28, 0 if stop == 28 else 21, 28 if stop == 28 else 7)
        inputs: Mapping[str, Value] = {"window_code": np.array(codes[stop - 28 : stop])}
        call = Call("r", "sound", inputs, {"noise": 0}, {"window_code": span}, state)
        outputs = node.forward(node.collate([call]), Step([call]))
        state, audio = outputs[STATE][0], outputs["audio"][0]  # type: ignore[assignment]
        assert isinstance(audio, Mapping)
        assert audio["start"] == 2048 * len(sounds)
        sounds.append(np.asarray(audio["pcm"]))
    return np.stack(sounds)


@pytest.mark.parametrize("name", ["greedy_0", "greedy_1", "greedy_rp13_0", "greedy_rp13_1"])
def test_the_published_stream(name: str) -> None:
    got = windows_of(OUTPUTS[name].tolist(), TOKENS, Snac.load(DATA / "snac"))
    wanted = OUTPUTS[f"{name}_stream_pcm16"].numpy()
    assert got.shape == wanted.shape
    assert np.abs((got * 32767).astype(np.int16).astype(int) - wanted).max() <= 8


@pytest.mark.parametrize(("ids", "wanted"), [("real_ids", "real_stream"), ("real_ids_junk", "real_stream_junk")])
def test_the_published_stream_leaves_out_what_is_no_code_of_it(ids: str, wanted: str) -> None:
    got = windows_of(INPUTS[ids].tolist(), PUBLISHED, Snac.load(DATA / "snac4096"))
    assert np.abs((got * 32767).astype(np.int16).astype(int) - OUTPUTS[f"{wanted}_pcm16"].numpy()).max() <= 8
