"""Reading checkpoints: both layouts, and one line for whatever is wrong with them."""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from models.whisper.tokenizer import Tokenizer, read_words
from models.whisper.weights import load
from mstar.errors import WeightsError

SMALL = Path(__file__).parents[2] / "data" / "whisper"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("config.json", "generation_config.json", "model.safetensors"):
        shutil.copy(SMALL / name, tmp_path / name)
    return tmp_path


def edit_config(change: Callable[[dict[str, object]], object]) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        path = folder / "config.json"
        config = json.loads(path.read_text())
        change(config)
        path.write_text(json.dumps(config))

    return edit


def edit_tensors(change: Callable[[dict[str, torch.Tensor]], object]) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        tensors = load_file(folder / "model.safetensors")
        change(tensors)
        save_file(tensors, folder / "model.safetensors")

    return edit


@pytest.mark.parametrize(
    ("damage", "cause"),
    [
        (lambda folder: (folder / "config.json").unlink(), "config.json: .*No such file"),
        (lambda folder: (folder / "config.json").write_text("{"), "config.json: Expecting"),
        (lambda folder: (folder / "config.json").write_text("[]"), "config.json: expected a JSON object"),
        (edit_config(lambda c: c.update(model_type="llama")), "model_type is 'llama'"),
        (edit_config(lambda c: c.pop("d_model")), "d_model should be an integer, found None"),
        (edit_config(lambda c: c.update(activation_function="relu")), "activation_function"),
        (edit_config(lambda c: c.update(d_model=64)), r"encoder.conv1.weight is \(48, 80, 3\), expected \(64, 80, 3\)"),
        (lambda folder: (folder / "model.safetensors").unlink(), "model.safetensors: "),
        (lambda folder: (folder / "model.safetensors").write_bytes(b"torn"), "model.safetensors: "),
        (edit_tensors(lambda t: t.pop("model.encoder.conv1.bias")), "tensor encoder.conv1.bias is missing"),
        (edit_tensors(lambda t: t.update(more=torch.zeros(1))), "unknown tensor more"),
        (lambda folder: (folder / "model.bin").write_bytes(b"torn"), "model.bin: not a readable CTranslate2"),
        (
            lambda folder: (folder / "model.bin").write_bytes(struct.pack("<IH", 5, 1) + b"\0"),
            "model.bin: .*version 5",
        ),
        (lambda folder: (folder / "vocabulary.json").write_text("{"), "vocabulary.json: not a readable vocabulary"),
    ],
)
def test_what_is_wrong_is_one_line(folder: Path, damage: Callable[[Path], object], cause: str) -> None:
    damage(folder)
    if (folder / "model.bin").exists():
        (folder / "vocabulary.json").write_text(
            json.dumps(["<|startoftranscript|>", "<|endoftext|>", "<|notimestamps|>", "<|0.00|>"])
        )
    with pytest.raises(WeightsError, match=cause) as wrong:
        load(folder)
    assert "\n" not in str(wrong.value)
    assert str(folder) in str(wrong.value)


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match="no such folder"):
        load(tmp_path / "nowhere")


def test_shards_are_read_through_their_index(folder: Path) -> None:
    whole = load(folder).tensors
    tensors = load_file(folder / "model.safetensors")
    names = sorted(tensors)
    shards = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
    for shard, own in shards.items():
        save_file({name: tensors[name] for name in own}, folder / shard)
    (folder / "model.safetensors").unlink()
    index = {"weight_map": {name: shard for shard, own in shards.items() for name in own}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    split = load(folder).tensors
    assert split.keys() == whole.keys()
    assert all(torch.equal(split[name], whole[name]) for name in whole)


def test_a_ct2_file_cut_short_is_named(whisper_tiny_en: Path, tmp_path: Path) -> None:
    for name in ("config.json", "vocabulary.txt"):
        shutil.copy(whisper_tiny_en / name, tmp_path / name)
    (tmp_path / "model.bin").write_bytes((whisper_tiny_en / "model.bin").read_bytes()[:1_000_000])
    with pytest.raises(WeightsError, match=r"model\.bin: .*is cut short"):
        load(tmp_path)


def test_the_same_words_from_each_file(whisper_tiny_en: Path, tmp_path: Path) -> None:
    words = read_words(whisper_tiny_en)
    assert len(words) == 51_864
    shutil.copy(whisper_tiny_en / "tokenizer.json", tmp_path)
    found = read_words(tmp_path)
    assert found[:50_257] == words[:50_257]
    (tmp_path / "tokenizer.json").unlink()
    (tmp_path / "vocab.json").write_text(json.dumps({word: number for number, word in enumerate(words)}))
    assert read_words(tmp_path) == words


def test_text_and_times(whisper_tiny_en: Path) -> None:
    words = read_words(whisper_tiny_en)
    tokenizer = Tokenizer(words, words.index("<|0.00|>"))
    hello, end = [18435, 995, 13], 50256
    first = tokenizer.first_stamp
    ids = [first, *hello, first + 50, first + 60, *hello, end]
    assert tokenizer.text(ids) == " Hello world. Hello world."
    parts = tokenizer.segments(ids, end=2.5)
    assert [(part.start, part.end, part.text) for part in parts] == [
        (0.0, 1.0, " Hello world."),
        (1.2, 2.5, " Hello world."),
    ]
    assert tokenizer.segments([first, first + 3, end], end=1.0) == ()


def test_characters_of_several_tokens_are_put_together() -> None:
    tokenizer = Tokenizer(("Ġ", "Ã", "©", "<|x|>", "<|0.00|>"), 4)
    assert tokenizer.text([0, 1, 2, 3, 4]) == " é"
    assert tokenizer.text([1]) == "\N{REPLACEMENT CHARACTER}"
