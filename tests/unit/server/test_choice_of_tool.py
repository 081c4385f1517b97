"""A call is forced where the family can be made to write one, and refused by the field's name elsewhere."""

from __future__ import annotations

from typing import Any

import pytest

from models.registry import Conversation
from tests.unit.server.driver import Driver

TOOLS = [{"type": "function", "name": "look"}]
FORCED: list[Any] = ["required", {"type": "function", "name": "look"}]


def update(driver: Driver, **session: Any) -> dict[str, Any]:
    """What the driver is told first of an update."""
    before = len(driver.wire)
    driver.client({"type": "session.update", "session": {"type": "realtime", **session}})
    return driver.wire[before]


@pytest.mark.parametrize("choice", FORCED)
def test_what_can_not_be_forced_is_refused_and_nothing_changes(choice: Any) -> None:
    driver = Driver()
    told = update(driver, tools=TOOLS, tool_choice=choice, instructions="Be brief.")
    assert (told["error"]["code"], told["error"]["param"]) == ("unsupported_value", "session.tool_choice")
    assert driver.core.session.instructions != "Be brief."
    driver.client({"type": "response.create", "response": {"tools": TOOLS, "tool_choice": choice}})
    told = driver.last("error")
    assert (told["error"]["code"], told["error"]["param"]) == ("unsupported_value", "response.tool_choice")
    assert not driver.tasks


@pytest.mark.parametrize("choice", ["auto", "none"])
def test_what_need_not_be_forced_is_taken(choice: str) -> None:
    driver = Driver()
    assert update(driver, tools=TOOLS, tool_choice=choice)["session"]["tool_choice"] == choice


@pytest.mark.parametrize("choice", FORCED)
def test_a_family_that_can_be_made_to_call_is_told_so(choice: Any) -> None:
    driver = Driver(offer=Conversation(forces_calls=True))
    assert update(driver, tools=TOOLS, tool_choice=choice)["type"] == "session.updated"
    driver.client({"type": "response.create", "response": {"output_modalities": ["text"]}})
    assert driver.task("answer_text").settings["tool_choice"] in ("required", {"name": "look"})
