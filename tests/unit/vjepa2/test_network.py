"""Rotary positions and pictures: the details that weights depend on."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from models.vjepa2.config import Clip
from models.vjepa2.model import FAMILY
from models.vjepa2.network import places, rotation
from models.vjepa2.pictures import MEAN, STD, normalised, pictures
from models.vjepa2.world import Folding
from mstar.errors import Rejected
from mstar.graph.check import check


@pytest.mark.parametrize(("head_dim", "part"), [(24, 8), (64, 20), (80, 26), (20, 6)])
def test_the_angles_of_a_third_are_two_copies_while_pairs_are_adjacent(head_dim: int, part: int) -> None:
    turn = rotation(head_dim, torch.tensor([[3, 5, 7]]))
    x = torch.randn(1, 1, head_dim, generator=torch.Generator().manual_seed(1))
    y = turn(x)[0, 0]
    x = x[0, 0]
    for third, position in enumerate((3, 5, 7)):
        for i in range(part):
            angle = position * 10_000 ** -((i % (part // 2)) / (part // 2))
            here, partner = third * part + i, third * part + (i + 1 if i % 2 == 0 else i - 1)
            sign = -1 if i % 2 == 0 else 1
            wanted = x[here] * math.cos(angle) + sign * x[partner] * math.sin(angle)
            assert abs(float(y[here] - wanted)) < 1e-5
    assert torch.equal(y[3 * part :], x[3 * part :])


def test_a_token_without_a_place_turns_with_time_only() -> None:
    turn = rotation(24, torch.tensor([[4, 0, 0]]))
    x = torch.randn(1, 1, 24, generator=torch.Generator().manual_seed(1))
    y = turn(x)
    assert not torch.allclose(y[..., :8], x[..., :8])
    assert torch.equal(y[..., 8:], x[..., 8:])


def test_places_count_frames_then_rows_then_columns() -> None:
    assert places(Clip(32, 16, 2, 8), 2, first=5).tolist() == [
        [f, r, c] for f in (5, 6) for r in (0, 1) for c in (0, 1)
    ]


@pytest.mark.parametrize("fold", [1, 2, 3, 8])
def test_folding_candidates_and_back_changes_nothing(fold: int) -> None:
    folding = Folding(fold, ((5, 4), (1, 6), (8, 2)))
    x = torch.randn(5 * 4 + 6 + 8 * 2, 2, 3)
    joined = folding.join(x)
    assert joined.shape == (sum(folding.sequences(c) * n for c, n in folding.shares), 2 * fold, 3)
    assert torch.equal(folding.split(joined), x)


def test_the_square_in_the_middle_is_what_a_world_sees() -> None:
    frames = np.zeros((1, 64, 100, 3), np.uint8)
    frames[:, :, 18:82] = 255
    found = normalised(pictures("x", frames), 64, "square")
    torch.testing.assert_close(found, ((1 - MEAN) / STD).expand(3, 64, 64)[None])
    half = normalised(pictures("x", frames), 32, "square")
    torch.testing.assert_close(half, found[..., ::2, ::2])


@pytest.mark.parametrize(
    "wrong",
    [
        np.zeros((4, 4, 3), np.float32),
        np.zeros((4, 4), np.uint8),
        np.zeros((1, 4, 4, 4), np.uint8),
        np.zeros((0, 4, 4, 3), np.uint8),
        "picture",
        None,
    ],
)
def test_what_is_no_picture_is_refused_by_name(wrong: np.ndarray | str | None) -> None:
    with pytest.raises(Rejected, match="observation") as refused:
        pictures("observation", wrong)
    assert refused.value.param == "observation"


@pytest.mark.parametrize(
    ("settings", "tasks"),
    [
        ({"video": "x"}, {"encode", "predict"}),
        ({"classifier": "x"}, {"classify"}),
        ({"world": "x"}, {"embed", "rollout", "rollout_streaming", "plan", "plan_image"}),
        (
            {"world": "x", "video": "x"},
            {"encode", "predict", "embed", "rollout", "rollout_streaming", "plan", "plan_image"},
        ),
        ({"tiny": "0", "video": "x"}, {"encode", "predict"}),
    ],
)
def test_the_graph_has_the_tasks_of_the_checkpoints_that_are_given(settings: dict[str, str], tasks: set[str]) -> None:
    graph = FAMILY.graph(settings)
    check(graph)
    assert {task.name for task in graph.tasks} == tasks


def test_without_any_setting_the_graph_is_whole() -> None:
    for settings, tasks in (({}, 8), ({"tiny": "1"}, 9)):  # random weights are those of a world that can be shown
        graph = FAMILY.graph(settings)
        check(graph)
        assert len(graph.tasks) == tasks
