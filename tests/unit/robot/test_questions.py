"""What may be set for one request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from mstar.errors import Rejected
from mstar.tensors import Value
from server.robot.events import Fault
from server.robot.questions import settings_of
from tests.unit.robot.robots import PLANNER, POLICY, Bench

OFFER = replace(PLANNER, settings=("samples", "axis"))


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ([1], "settings"),
        ({"sample": 3}, "settings.sample"),
        ({"x" * 1000: 3}, "settings.x"),
        ({"seed": True}, "settings.seed"),
        ({"seed": "7"}, "settings.seed"),
        ({"seed": 2.0}, "settings.seed"),
        ({"seed": 2**63}, "settings.seed"),
        ({"samples": 10**400}, "settings.samples"),
        ({"axis": {"0": [1, -(2**63) - 1]}}, "settings.axis"),
    ],
)
def test_settings_that_can_not_be_are_named(settings: Value, named: str) -> None:
    with pytest.raises(Rejected) as wrong:
        settings_of(OFFER, settings)
    assert wrong.value.param is not None
    assert wrong.value.param.startswith(named)
    assert len(wrong.value.param) < 100


@pytest.mark.parametrize("settings", [{}, {"seed": None}, {"seed": -(2**63)}, {"samples": 1.5, "axis": {"0": 1}}])
def test_known_ones_are_the_familys_to_check(settings: Mapping[str, Value]) -> None:
    assert settings_of(OFFER, settings) == settings


def test_an_ask_with_unknown_settings_leaves_the_one_before_in_place() -> None:
    bench = Bench(POLICY)
    bench.ready()
    bench.ask(id="good")
    bench.ask(id="bad", settings={"flow_step": 3})
    assert bench.last(Fault).param == "settings.flow_step"
    assert [begun.settings for begun in bench.begun] == [{}]
    bench.answer()
    assert bench.said[-1].ask == "good"
