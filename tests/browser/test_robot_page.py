"""The robot's page: what is shown while a robot reaches its goals, and how it is told to."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from models.worlds.recipe import ROOM
from tests.browser.conftest import Open, VoicePage
from tests.browser.test_looks import CUT, violations
from tests.clients.conftest import Serving

pytestmark = pytest.mark.browser

ROOT = Path(__file__).parents[2]
SAID = "the robot's page: "
PAINTED = """canvas => {
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  return new Set([...new Uint32Array(data.buffer)]).size;
}"""
"""How many colours a canvas has."""


@pytest.fixture(scope="module")
def robot() -> Iterator[Serving]:
    """`make robot`, on a free port."""
    command = [sys.executable, "-m", "examples.robot", "--port", "0", "--pause", "0"]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line.startswith(SAID), line
    yield Serving(line.removeprefix(SAID).strip().rstrip("/"), process.pid)
    process.terminate()
    assert process.wait(60) == 0
    process.stdout.close()


def reached(page: VoicePage) -> int:
    return int(page.page.inner_text("#tally").split()[0])


def colours(page: VoicePage, which: str) -> int:
    found: int = page.page.locator(which).evaluate(PAINTED)
    return found


def test_a_robot_is_seen_reaching_goals(robot: Serving, opened: Open) -> None:
    page = opened(robot)
    page.status("Holding")
    page.page.keyboard.press("Space")
    page.status("Acting")
    page.page.wait_for_function("() => parseInt(document.querySelector('#tally').textContent) >= 3")
    page.page.wait_for_function(
        f"() => document.querySelectorAll('#frames li').length === {ROOM.config.planner.horizon}"
    )
    assert colours(page, "#camera") > 100
    assert colours(page, "#goal") > 100
    assert colours(page, "#frames li:last-child canvas") > 100
    points = page.page.locator("#path polyline").get_attribute("points") or ""
    assert len(points.split()) == 1 + ROOM.config.planner.horizon
    assert page.page.locator("#energy rect").count() >= 3
    assert page.page.locator("#trips li").count() >= 3
    page.page.keyboard.press("Space")
    page.status("Holding")
    before = page.page.inner_text("#goal-number")
    page.page.keyboard.press("n")
    page.page.wait_for_function("before => document.querySelector('#goal-number').textContent !== before", arg=before)
    assert page.page.inner_text("#status") == "Holding"


@pytest.mark.parametrize("width", [320, 360, 1280])
def test_nothing_of_it_is_cut_off(robot: Serving, opened: Open, axe: str, width: int) -> None:
    page = opened(robot, size={"width": width, "height": 740}, scheme="dark" if width == 360 else "light")
    page.status("Holding")
    page.page.locator("#camera").wait_for()
    assert page.page.evaluate(CUT) == []
    page.page.evaluate(axe)
    assert violations(page) == []


def test_a_page_without_a_robot_says_so(server: Serving, opened: Open) -> None:
    page = opened(server, path="/robot.html")
    page.problem("There is no robot at this address")
    page.complaints.clear()  # the browser complains of the socket that is not there, and is right
