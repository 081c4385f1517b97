"""Whisper against what the public implementation gives: a small random checkpoint, and tiny.en on spoken sentences."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from media.features import log_mel
from models.whisper.decoding import Progress, Rules
from models.whisper.head import ExactHead, ShortlistHead
from models.whisper.network import Whisper
from models.whisper.weights import Checkpoint, load
from mstar.submodule import Row
from tests.parity.dense_attention import DenseCache

DATA = Path(__file__).parents[1] / "data"
SMALL, SPOKEN = DATA / "whisper", DATA / "whisper_ct2"


def close(found: Tensor, expected: Tensor, tolerance: float = 2e-4) -> None:
    torch.testing.assert_close(found, expected, atol=tolerance, rtol=1e-4)


@pytest.fixture(scope="module")
def small() -> Checkpoint:
    return load(SMALL)


@pytest.fixture(scope="module")
def network(small: Checkpoint) -> Whisper:
    return Whisper(small.config, small.tensors)


@pytest.fixture(scope="module")
def given() -> dict[str, Tensor]:
    return load_file(SMALL / "inputs.safetensors")


@pytest.fixture(scope="module")
def expected() -> dict[str, Tensor]:
    return load_file(SMALL / "outputs.safetensors")


def greedy(
    network: Whisper, states: Tensor, prompt: list[int], tokens: int, rules: Rules | None, *, stamps: bool
) -> list[int]:
    """`tokens` ids after the prompt, not stopped by any of them."""
    cache = DenseCache()
    attention = cache.prompt("a", len(prompt))
    network.write_cross([states], [0], attention)
    hidden = network.decode(torch.tensor(prompt), attention)
    progress, taken = Progress(stamps=stamps), list[int]()
    head = ExactHead(network.embedding)
    while True:
        logits = head(hidden[-1:])
        token = int((logits if rules is None else rules.apply(logits, [progress])).argmax())
        taken.append(token)
        if len(taken) == tokens:
            return taken
        if rules is not None:
            progress = progress.take(token, rules.ids)
        hidden = network.decode(torch.tensor([token]), cache.prompt("a", 1))


@pytest.mark.parametrize("sample", range(3))
def test_log_mel(sample: int, given: dict[str, Tensor]) -> None:
    mel = log_mel(given[f"wave_{sample}"].numpy(), frames=100)
    torch.testing.assert_close(torch.from_numpy(mel), given["input_features"][sample], atol=2e-4, rtol=0)


def test_the_clamp_is_over_the_whole_padded_length(given: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    mel = torch.from_numpy(log_mel(given["wave_0"].numpy(), frames=3000))
    torch.testing.assert_close(mel[:, :108], expected["log_mel_30s_first"], atol=2e-4, rtol=0)
    assert mel.shape == (80, 3000)


def test_encoder(network: Whisper, given: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    close(network.encode(given["input_features"]), expected["encoder_out"])


def test_encoder_hears_a_shorter_context_as_one_that_ends_there(network: Whisper, given: dict[str, Tensor]) -> None:
    states = network.encode(given["input_features"][:, :, :60])
    assert states.shape == (3, 30, 48)
    assert torch.isfinite(states).all()


def test_decoder_logits_of_a_packed_batch(
    network: Whisper, given: dict[str, Tensor], expected: dict[str, Tensor]
) -> None:
    lengths = (11, 4, 7)
    requests = ["a", "b", "c"]
    attention = DenseCache().step(requests, [Row(call=n, tokens=length) for n, length in enumerate(lengths)])
    network.write_cross(list(expected["encoder_out"]), [0, 1, 2], attention)
    ids = torch.cat([given["decoder_input_ids"][n, :length] for n, length in enumerate(lengths)])
    logits = ExactHead(network.embedding)(network.decode(ids, attention)).split(lengths)
    for number, (own, length) in enumerate(zip(logits, lengths, strict=True)):
        close(own, expected["decoder_logits"][number, :length])


def test_language_logits(
    network: Whisper, small: Checkpoint, expected: dict[str, Tensor], given: dict[str, Tensor]
) -> None:
    languages = list(small.ids.languages.values())
    for sample in range(3):
        attention = DenseCache().prompt("a", 1)
        network.write_cross([expected["encoder_out"][sample]], [0], attention)
        logits = ExactHead(network.embedding)(network.decode(torch.tensor([small.ids.start]), attention))
        close(logits[0, languages], expected["lang_logits"][sample])


@pytest.mark.parametrize("sample", range(3))
@pytest.mark.parametrize("mode", ["plain", "suppress", "timestamps"])
def test_greedy(
    network: Whisper, small: Checkpoint, given: dict[str, Tensor], expected: dict[str, Tensor], mode: str, sample: int
) -> None:
    stamps = mode == "timestamps"
    prompt = given["prompt_timestamps" if stamps else "prompt_notimestamps"].tolist()
    rules = None if mode == "plain" else Rules(small.ids, small.config.vocab_size, network.device)
    found = greedy(network, expected["encoder_out"][sample], prompt, 20, rules, stamps=stamps)
    assert found == expected[f"greedy_{mode}_{sample}"].tolist()


def test_ids_of_the_checkpoint(small: Checkpoint, given: dict[str, Tensor]) -> None:
    golden = json.loads((SMALL / "golden.json").read_text())
    ids = small.ids
    named = {"eot": ids.end, "sot": ids.start, "no_timestamps": ids.no_stamps, "timestamp_begin": ids.first_stamp}
    assert named == {name: golden[name] for name in named}
    assert ids.prompt(language="en", stamps=False) == tuple(given["prompt_notimestamps"].tolist())
    assert ids.prompt(language="de", translate=True) == (201, 204, 207)


@pytest.fixture(scope="module")
def tiny(whisper_tiny_en: Path) -> tuple[Checkpoint, Whisper]:
    checkpoint = load(whisper_tiny_en)
    return checkpoint, Whisper(checkpoint.config, checkpoint.tensors)


@pytest.mark.parametrize("sample", range(2))
def test_tiny_en_on_speech(tiny: tuple[Checkpoint, Whisper], sample: int) -> None:
    checkpoint, network = tiny
    expected = load_file(SPOKEN / "outputs.safetensors")
    pcm = load_file(SPOKEN / "inputs.safetensors")[f"pcm16_{sample}"]
    mel = torch.from_numpy(log_mel((pcm / 32768).numpy(), frames=3000))
    states = network.encode(mel[None])[0]
    close(states[:50], expected[f"encoder_out_first50_{sample}"], 2e-3)

    prompt = list(checkpoint.ids.prompt(stamps=False))
    attention = DenseCache().prompt("a", len(prompt))
    network.write_cross([states], [0], attention)
    last = network.decode(torch.tensor(prompt), attention)[-1:]
    exact = ExactHead(network.embedding)(last)
    rules = Rules(checkpoint.ids, checkpoint.config.vocab_size, network.device)
    begun = rules.apply(exact, [Progress(stamps=False)])[0]
    found = expected[f"first_logits_{sample}"]
    allowed = torch.isfinite(begun) & torch.isfinite(found)
    close(exact[0, allowed], found[allowed], 2e-3)

    golden = expected[f"greedy_{sample}"].tolist()
    assert greedy(network, states, prompt, len(golden), rules, stamps=False) == golden


def test_shortlist_chooses_as_the_whole_projection(tiny: tuple[Checkpoint, Whisper]) -> None:
    checkpoint, network = tiny
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(0, 50256, (24,), generator=generator)
    attention = DenseCache().prompt("a", 24)
    network.write_cross([torch.randn(40, 384, generator=generator)], [0], attention)
    hidden = network.decode(ids, attention)
    rules = Rules(checkpoint.ids, checkpoint.config.vocab_size, network.device)
    progress = [replace(Progress(), count=number, last=1, before=1) for number in range(24)]
    short = ShortlistHead(network.embedding, checkpoint.ids.first_stamp)
    expected = rules.apply(ExactHead(network.embedding)(hidden), progress)
    found = rules.apply(short(hidden), progress)
    assert found.argmax(-1).tolist() == expected.argmax(-1).tolist()
    torch.testing.assert_close(found.max(-1).values, expected.max(-1).values, atol=1e-3, rtol=1e-4)
    alone = torch.cat([short(row[None]) for row in hidden])
    assert torch.equal(alone, short(hidden))
