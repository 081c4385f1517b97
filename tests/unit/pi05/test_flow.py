from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from models.pi05.flow import Guide, advance, overlap_weights, times

HORIZON, DIM = 12, 3


def flow(noise: torch.Tensor, wanted: torch.Tensor, steps: int, guide: Guide | None = None) -> torch.Tensor:
    """The flow of a policy that wants `wanted` whatever it sees: straight lines from the noise."""
    actions = noise
    for step in range(steps):
        now = 1 - step / steps
        actions = advance(actions, (actions - wanted) / now, step, steps, guide)
    return actions


def drawn(seed: int) -> torch.Tensor:
    return torch.randn(HORIZON, DIM, generator=torch.Generator().manual_seed(seed))


def test_times_fall_from_one_to_nothing() -> None:
    found = times(10)
    assert found[0] == 1
    assert found.dtype == torch.float32
    assert abs(found[-1]) < 1e-6
    assert torch.allclose(found, torch.linspace(1, 0, 11), atol=1e-6)


@given(st.integers(0, HORIZON), st.integers(0, HORIZON), st.integers(1, 10), st.integers(0, 99))
def test_frozen_rows_are_the_old_ones_and_free_rows_do_not_care(frozen: int, rows: int, steps: int, seed: int) -> None:
    frozen = min(frozen, rows)
    noise, wanted, old = drawn(seed), drawn(seed + 1), drawn(seed + 2)
    guide = Guide(old, overlap_weights(HORIZON, frozen, rows), frozen)
    got = flow(noise, wanted, steps, guide)
    free = flow(noise, wanted, steps)
    assert torch.equal(got[:frozen], old[:frozen])
    assert torch.equal(got[rows:], free[rows:])
    between = slice(frozen, rows)
    low, high = torch.minimum(old, free) - 1e-5, torch.maximum(old, free) + 1e-5
    assert (got[between] >= low[between]).all()
    assert (got[between] <= high[between]).all()


def test_the_overlap_goes_over_from_the_old_chunk_to_the_new_one() -> None:
    old, wanted = torch.ones(HORIZON, DIM), torch.zeros(HORIZON, DIM)
    got = flow(drawn(0), wanted, 10, Guide(old, overlap_weights(HORIZON, 3, 9), 3))[:, 0]
    assert (got[:3] == 1).all()
    assert (got[2:9].diff() < 0).all()
    assert got[9:].abs().max() < 1e-6


def test_frozen_rows_stay_on_the_line_from_their_noise_to_the_old_chunk() -> None:
    noise, old = drawn(0), drawn(1)
    guide = Guide(old, overlap_weights(HORIZON, 4, 4), 4)
    actions = noise
    for step in range(10):
        now = 1 - step / 10
        assert torch.allclose(actions[:4], (now * noise + (1 - now) * old)[:4], atol=1e-5)
        actions = advance(actions, drawn(step + 5), step, 10, guide)


def test_weights_are_the_papers() -> None:
    found = overlap_weights(8, 2, 5)
    assert found[:2].tolist() == [1, 1]
    share = torch.tensor([3 / 4, 2 / 4, 1 / 4])
    assert torch.allclose(found[2:5], share * (share.exp() - 1) / (torch.e - 1))
    assert found[5:].tolist() == [0, 0, 0]


@pytest.mark.parametrize("steps", [1, 10])
def test_a_guide_without_weights_changes_nothing(steps: int) -> None:
    noise, wanted = drawn(0), drawn(1)
    assert torch.equal(flow(noise, wanted, steps, Guide(drawn(2), torch.zeros(HORIZON))), flow(noise, wanted, steps))
