"""SNAC against what the published decoder gives for the same weights: in one piece, and carried from chunk to chunk."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from models.snac.codec import Snac
from models.snac.noise import SeededNoise

DATA = Path(__file__).parent.parent / "data" / "orpheus"
INPUTS = load_file(DATA / "inputs.safetensors")
OUTPUTS = load_file(DATA / "outputs.safetensors")
FRAMES = 7


@pytest.fixture(scope="module")
def snac() -> Snac:
    return Snac.load(DATA / "snac")


def codes(name: str = "greedy_0") -> list[Tensor]:
    return [OUTPUTS[f"{name}_codes_{level}"] for level in range(3)]


def noise(block: int, start: int, stop: int) -> Tensor:
    """The recorded noise."""
    return INPUTS[f"noise_0_{block}"][0, 0, start:stop]


def part(levels: list[Tensor], start: int, stop: int) -> list[Tensor]:
    """Frames [start, stop)."""
    return [level[:, start * n : stop * n] for level, n in zip(levels, (1, 2, 4), strict=True)]


@pytest.mark.parametrize("name", ["greedy_0", "greedy_1"])
def test_latents(snac: Snac, name: str) -> None:
    torch.testing.assert_close(snac.latents(codes(name))[0], OUTPUTS[f"zq_{name[-1]}"], atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", ["greedy_0", "greedy_1", "greedy_rp13_0", "greedy_rp13_1"])
def test_sound_without_noise(snac: Snac, name: str) -> None:
    torch.testing.assert_close(snac.decode(codes(name))[0], OUTPUTS[f"{name}_wave_nonoise"], atol=2e-4, rtol=0)


def test_sound_with_given_noise(snac: Snac) -> None:
    torch.testing.assert_close(snac.decode(codes(), [noise])[0], OUTPUTS["greedy_0_wave_noise"], atol=2e-4, rtol=0)


def test_a_batch_with_the_published_codebook() -> None:
    sound = Snac.load(DATA / "snac4096").decode([INPUTS[f"real_codes_{level}"] for level in range(3)])
    torch.testing.assert_close(sound, OUTPUTS["real_wave_nonoise"], atol=2e-4, rtol=0)


@pytest.mark.parametrize("sizes", [[1] * 7, [2, 3, 2], [3, 0, 4], [7], [7, 0], [0, 6, 1], [1, 6]])
def test_chunks_of_any_size_are_the_sound_in_one_piece(snac: Snac, sizes: list[int]) -> None:
    at, carried, parts = 0, snac.begin(), []
    for place, size in enumerate(sizes):
        last = place == len(sizes) - 1
        chunk = part(codes(), at, at + size)
        sound, [carried] = snac.push(chunk, [carried], last=last, noise=[noise])
        at += size
        parts.append(sound[0])
        given = sum(map(len, parts))
        assert given == (FRAMES * 2048 if last else max(0, at * 2048 - snac.decoder.lag))
    assert torch.equal(torch.cat(parts), snac.decode(codes(), [noise])[0])


def test_two_sounds_at_different_places_are_carried_in_one_batch(snac: Snac) -> None:
    """They are at frames 3 and 5, and have noise of their own."""
    mates = [("greedy_0", 3, SeededNoise(1)), ("greedy_1", 5, SeededNoise(2, segment=4, level=0.5))]
    begun = [
        snac.push(part(codes(name), 0, at), [snac.begin()], last=False, noise=[own])[1][0] for name, at, own in mates
    ]
    chunks = [part(codes(name), at, at + 2) for name, at, _ in mates]
    joined = [torch.cat(levels) for levels in zip(*chunks, strict=True)]
    together, _ = snac.push(joined, begun, last=False, noise=[own for _, _, own in mates])
    for (name, at, own), sound in zip(mates, together, strict=True):
        whole = snac.decode(codes(name), [own])[0]
        start = at * 2048 - snac.decoder.lag
        assert torch.equal(sound, whole[start : start + 2 * 2048])
