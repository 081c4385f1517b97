"""What the networks read: prompt, state, pictures, ids."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file
from tokenizers import Tokenizer
from tokenizers.models import BPE

from models.pi05.pictures import seen, square
from models.pi05.pieces import PieceModel
from models.pi05.prompt import render, state_bins
from models.pi05.tokenizer import read_tokenizer, tiny_tokenizer
from mstar.errors import WeightsError

DATA = Path(__file__).parents[2] / "data" / "pi05"


@pytest.fixture(scope="module")
def golden() -> dict[str, np.ndarray]:
    return load_file(DATA / "preprocess.safetensors")


def test_pictures_of_eight_bits_are_squared_as_upstream_does(golden: dict[str, np.ndarray]) -> None:
    assert np.array_equal(square(golden["image"], 56), golden["resize_uint8"])


def test_pictures_of_floats_are_squared_as_upstream_does(golden: dict[str, np.ndarray]) -> None:
    image = golden["image"].astype(np.float32) / 255 * 2 - 1
    assert np.abs(square(image, 56) - golden["resize_float"]).max() < 1e-6


def test_eyes_see_from_minus_one_to_one_with_channels_first() -> None:
    picture = np.zeros((8, 8, 3), np.uint8)
    picture[:, :, 1] = 255
    got = seen(picture, 8)
    assert got.shape == (3, 8, 8)
    assert got.amin(dim=(1, 2)).tolist() == got.amax(dim=(1, 2)).tolist() == [-1, 1, -1]
    assert seen(np.zeros((1, 900, 3), np.uint8), 8).shape == (3, 8, 8)


def test_state_bins(golden: dict[str, np.ndarray]) -> None:
    assert np.array_equal(state_bins(golden["state"]), golden["state_bins"])
    assert state_bins(np.array([-1.01, -1, 0, 0.999, 5])).tolist() == [-1, 0, 128, 255, 255]


def test_the_prompt_keeps_its_case_and_its_last_space() -> None:
    assert render("  Pick_up\nthe Cup ", np.array([-1.0, 0, 2])) == "Task: Pick up the Cup, State: 0 128 255;\nAction: "


def test_ids_are_those_of_sentencepiece() -> None:
    encode = read_tokenizer(DATA / "tokenizer")
    assert encode is not None
    cases = json.loads((DATA / "tokenizer" / "encoded.json").read_text())
    assert len(cases) > 30
    for case in cases:
        assert encode(case["text"]) == case["ids"], case["text"]


def test_a_tokenizer_json_is_read(tmp_path: Path) -> None:
    assert read_tokenizer(tmp_path) is None
    Tokenizer(BPE({"<bos>": 0, "a": 1, "b": 2, "ab": 3}, [("a", "b")])).save(str(tmp_path / "tokenizer.json"))
    encode = read_tokenizer(tmp_path)
    assert encode is not None
    assert encode("aba") == [0, 3, 1]


@pytest.mark.parametrize("cut", [0, 1, 100, 3000, 7000])
def test_a_damaged_tokenizer_is_refused_in_a_line(tmp_path: Path, cut: int) -> None:
    raw = (DATA / "tokenizer" / "tokenizer.model").read_bytes()
    file = tmp_path / "tokenizer.model"
    file.write_bytes(raw[:cut])
    with pytest.raises(WeightsError) as wrong:
        PieceModel.read(file)
    assert str(file) in str(wrong.value)
    assert "\n" not in str(wrong.value)


def test_a_damaged_tokenizer_json_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(WeightsError, match=r"tokenizer\.json"):
        read_tokenizer(tmp_path)


def test_the_tiny_policy_reads_bytes() -> None:
    assert tiny_tokenizer("aé") == [2, 64 + 97, 64 + 0xC3, 64 + 0xA9]
