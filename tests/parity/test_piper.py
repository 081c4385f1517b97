"""Piper voices against what piper-tts and onnxruntime give: durations equal, waves within the cases' tolerance."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from models.piper.voice import Floats, Latents, Voice
from models.speech.phonemes import phonemize
from tests.carried import Both

DATA = Path(__file__).parents[1] / "data"
SILENT = {"noise_scale": 0.0, "noise_w": 0.0}


@pytest.fixture(scope="module")
def tiny() -> Voice:
    return Voice.load(DATA / "piper" / "voice.onnx")


@pytest.fixture(scope="module")
def joe(piper_joe: Path) -> Voice:
    return Voice.load(piper_joe / "en_US-joe-medium.onnx")


def wave(voice: Voice, latents: Latents, size: int) -> Floats:
    both = Both(voice)
    tails, parts, at = both.fresh(), [], 0
    frames = latents.frames
    while at < len(frames):
        stop = min(len(frames), at + (max(size, both.first) if at == 0 else size))
        part, tails = both.decode(frames[at:stop], tails, stop == len(frames))
        parts.append(part)
        at = stop
    return np.concatenate(parts)


def check(voice: Voice, case: str, name: str, length_scale: float, tolerance: float, suffix: str = "") -> None:
    inputs = load_file(DATA / case / "inputs.safetensors")
    expected = load_file(DATA / case / "outputs.safetensors")
    rng = np.random.default_rng(0)
    latents = voice.latents(inputs[f"ids_{name}"], rng, length_scale=length_scale, **SILENT)
    if not suffix:
        np.testing.assert_array_equal(latents.durations, expected[f"w_ceil_{name}"])
    golden = expected[f"wave_{name}{suffix}"]
    for size in (1, 8, 24, len(latents.frames)):
        found = wave(voice, latents, size)
        assert found.shape == golden.shape
        assert np.abs(found - golden).max() <= tolerance


@pytest.mark.parametrize("name", ["0", "1", "2"])
def test_tiny_voice(tiny: Voice, name: str) -> None:
    check(tiny, "piper", name, 1.0, 2e-4)


def test_tiny_voice_stretched(tiny: Voice) -> None:
    check(tiny, "piper", "0", 1.37, 2e-4, "_len1.37")


@pytest.mark.parametrize("name", ["0", "1"])
def test_real_voice(joe: Voice, name: str) -> None:
    check(joe, "piper_joe", name, 1.0, 1e-3)


@pytest.mark.parametrize(
    ("name", "text"), [("0", "Hello world."), ("1", "The quick brown fox jumps over the lazy dog, doesn't it?")]
)
def test_ids_of_a_real_voice_equal_pipers(joe: Voice, name: str, text: str) -> None:
    ids, _ = joe.config.ids(phonemize(text, joe.config.language).text)
    np.testing.assert_array_equal(ids, load_file(DATA / "piper_joe" / "inputs.safetensors")[f"ids_{name}"])
