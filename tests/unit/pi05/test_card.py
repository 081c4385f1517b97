from __future__ import annotations

import pytest

from models.registry import card_of
from mstar.errors import WeightsError


def test_a_card_says_what_the_robot_of_the_settings_sends_and_gets() -> None:
    policy = card_of("pi05", {"tiny": "true", "robot": "aloha"}).policy
    assert policy is not None
    assert (policy.horizon, policy.action_dim, policy.rate) == (10, 14, 50.0)
    assert policy.cameras == (("images", "cam_high"), ("images", "cam_left_wrist"), ("images", "cam_right_wrist"))
    assert policy.state == {("state",): 14}
    own = card_of("pi05", {"tiny": "true"}).policy
    assert own is not None
    assert (own.action_dim, own.rate, own.state) == (32, 0.0, {("state",): 0})


def test_a_policy_without_checkpoint_is_refused_before_any_process_starts() -> None:
    with pytest.raises(WeightsError, match="checkpoint"):
        card_of("pi05", {})


def test_a_world_model_makes_a_planner() -> None:
    assert card_of("vjepa2", {"video": "/nowhere"}).planner is None
    planner = card_of("vjepa2", {"tiny": "1"}).planner
    assert planner is not None
    assert (planner.horizon, planner.action_dim, planner.state_dim, planner.side) == (2, 7, 7, 64)


def test_a_family_without_settings_has_its_own_card() -> None:
    assert card_of("toy", {}).conversation is not None
