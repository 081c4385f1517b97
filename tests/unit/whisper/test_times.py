"""Times out of attention: the path through it, and the reading that gives it."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from models.whisper.config import Ids
from models.whisper.network import Whisper
from models.whisper.telling import CaptionSubmodule, stretches
from models.whisper.times import alignment_heads, frames_of, median, read, warp
from models.whisper.tokenizer import Tokenizer
from models.whisper.weights import load
from mstar.errors import WeightsError
from mstar.submodule import Call, Step
from mstar.tensors import Value

SMALL = Path(__file__).parents[2] / "data" / "whisper"
IDS = Ids(start=100, end=99, no_stamps=101, first_stamp=102, no_speech=98)


def cheapest(cost: np.ndarray) -> float:
    """By the recurrence as it is written down."""
    best = np.full((cost.shape[0] + 1, cost.shape[1] + 1), np.inf)
    best[0, 0] = 0.0
    for row, column in itertools.product(range(cost.shape[0]), range(cost.shape[1])):
        before = min(best[row, column], best[row, column + 1], best[row + 1, column])
        best[row + 1, column + 1] = cost[row, column] + before
    return float(best[-1, -1])


def price(cost: np.ndarray, first: np.ndarray) -> float:
    """Of the path in which each row reaches from its first column to the next row's first, or the one before it."""
    total = 0.0
    for row in range(len(cost)):
        following = first[row + 1] if row + 1 < len(cost) else cost.shape[1]
        shared = row + 1 < len(cost) and following == first[row]
        stops = [first[row] + 1] if shared else [following, following + 1]
        total += min(cost[row, first[row] : stop].sum() for stop in stops if stop <= cost.shape[1])
    return total


@settings(deadline=None)
@given(arrays.arrays(np.float64, st.tuples(st.integers(1, 6), st.integers(1, 9)), elements=st.integers(-9, 9)))
def test_the_path_is_the_cheapest_and_never_goes_back(cost: np.ndarray) -> None:
    first = warp(cost)
    assert first[0] == 0
    assert first[-1] == cost.shape[1]
    assert (np.diff(first) >= 0).all()
    assert price(cost, first) <= cheapest(cost) + 1e-9


def test_tokens_are_found_where_they_are_looked_at() -> None:
    looked = torch.full((2, 3, 30), 0.001)
    for token, frames in enumerate((slice(0, 6), slice(6, 20), slice(20, 30))):
        looked[:, token, frames] = 0.1
    assert frames_of(looked, 30).tolist() == [0, 6, 20, 30]


def test_the_median_is_that_of_the_mirrored_row() -> None:
    row = torch.tensor([[5.0, 1.0, 4.0, 9.0, 2.0, 6.0]])
    padded = np.pad(row.numpy(), ((0, 0), (1, 1)), mode="reflect")
    expected = np.median(np.lib.stride_tricks.sliding_window_view(padded, 3, axis=1), axis=-1)
    assert median(row, 3).numpy().tolist() == expected.tolist()
    assert median(row[:, :2], 7).tolist() == row[:, :2].tolist()


def test_a_text_is_read_as_it_would_be_token_by_token() -> None:
    checkpoint = load(SMALL)
    network = Whisper(checkpoint.config, checkpoint.tensors)
    heads = alignment_heads(SMALL, checkpoint.config)
    assert heads
    states = torch.randn(40, checkpoint.config.d_model, generator=torch.Generator().manual_seed(0))
    ids = [checkpoint.ids.start, 5, 6, 7, 8]
    whole = read(network, states, ids, heads)
    assert whole.looked.shape == (len(heads), 5, 40)
    torch.testing.assert_close(whole.looked.sum(-1), torch.ones(len(heads), 5))
    for length in range(1, 5):
        torch.testing.assert_close(read(network, states, ids[:length], heads).hidden, whole.hidden[:length])


def test_heads_that_are_not_there_are_told(tmp_path: Path) -> None:
    config = load(SMALL).config
    (tmp_path / "config.json").write_text('{"alignment_heads": [[99, 0]]}')
    with pytest.raises(WeightsError, match="alignment_heads"):
        alignment_heads(tmp_path, config)
    (tmp_path / "config.json").write_text("{}")
    upper = config.decoder_layers - config.decoder_layers // 2
    assert len(alignment_heads(tmp_path, config)) == upper * config.decoder_attention_heads


def test_stretches_lie_between_times() -> None:
    taken = [102, 1, 2, 112, 112, 3, 152, 4, 99]
    found = [(each.start, each.end, each.places) for each in stretches(taken, IDS, 0.9)]
    assert found == [(0.0, pytest.approx(0.2), (1, 2)), (pytest.approx(0.2), 0.9, (5,)), (0.9, 0.9, (7,))]
    assert stretches([99], IDS, 1.0) == []


def test_captions_wait_for_whole_characters() -> None:
    words = ["Ġhe", "llo", "Ã", "©"]  # the two bytes of é, as byte-level words
    node = CaptionSubmodule(Tokenizer(tuple(words), IDS.first_stamp), IDS)
    state: Value = None
    said = []
    for tokens in ([0], [1], [2], [3, 105], [2, 105], [99]):
        call = Call("r", "caption", {"tokens": tokens}, state=state)
        outputs = node.forward(node.collate([call]), Step([call]))
        state = outputs["__state__"][0]  # type: ignore[assignment]
        heard = outputs["heard"][0]
        said.append(None if heard is None else heard["text"])  # type: ignore[call-overload, index]
    assert said == ["he", "llo", None, "é", "\ufffd", None]
