"""Whether everybody can use the page: at any width, in both schemes, with any means."""

from __future__ import annotations

from typing import Any

import pytest

from tests.browser.conftest import NARROW, WIDE, Open, VoicePage, speech
from tests.clients.conftest import Serving

pytestmark = pytest.mark.browser

CUT = """() => {
  const found = [];
  for (const element of document.querySelectorAll("body *")) {
    const box = element.getBoundingClientRect();
    if (!box.width || !box.height || element.closest(".unseen, defs")) continue;
    if (box.left < -0.5 || box.right > innerWidth + 0.5) found.push(["outside", element.outerHTML.slice(0, 80)]);
    const text = [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    if (text && element.scrollWidth > element.clientWidth + 1 && getComputedStyle(element).overflowX !== "visible") {
      found.push(["cut", element.outerHTML.slice(0, 80)]);
    }
  }
  for (const node of document.querySelectorAll("#graph .node")) {
    const rect = node.querySelector("rect").getBoundingClientRect();
    for (const text of node.querySelectorAll("text")) {
      const box = text.getBoundingClientRect();
      if (box.left < rect.left || box.right > rect.right) found.push(["over the edge", text.textContent]);
    }
  }
  if (document.documentElement.scrollWidth > innerWidth) found.push(["wide", document.documentElement.scrollWidth]);
  return found;
}"""


def talked(voice: VoicePage) -> None:
    """A page with everything on it: a transcript of both sides, an interruption, a turn, a running call."""
    voice.start()
    voice.answers(1, "you said hello name")
    voice.status("Listening")
    voice.write("long")
    voice.page.wait_for_function("() => document.querySelectorAll('.entry[data-role=assistant]').length === 2")
    voice.status("Speaking")
    voice.page.keyboard.press("Escape")
    voice.page.locator(".note:text-is('interrupted')").wait_for()
    voice.page.wait_for_function("() => document.querySelectorAll('#waterfall li').length > 0")


@pytest.mark.parametrize("width", [320, 360, 800, 1280])
def test_nothing_is_cut_off(server: Serving, opened: Open, width: int) -> None:
    voice = opened(server, speech(2.0, "hello name"), size={"width": width, "height": 740})
    voice.page.locator("#graph svg").wait_for()
    assert voice.page.evaluate(CUT) == []
    talked(voice)
    assert voice.page.evaluate(CUT) == []
    voice.page.click("#settings summary")
    assert voice.page.evaluate(CUT) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
def test_axe_finds_nothing(server: Serving, opened: Open, axe: str, scheme: str, size: dict[str, int]) -> None:
    voice = opened(server, speech(2.0, "hello name"), size=size, scheme=scheme)
    voice.page.locator("#graph svg").wait_for()
    voice.page.evaluate(axe)
    assert violations(voice) == []
    talked(voice)
    voice.page.click("#settings summary")
    voice.page.evaluate("document.querySelector('#problem').hidden = false")
    voice.page.evaluate("document.querySelector('#problem').textContent = 'Something is in the way.'")
    assert violations(voice) == []


def violations(voice: VoicePage) -> list[Any]:
    found: list[Any] = voice.page.evaluate(
        "async () => (await axe.run()).violations.map(({ id, nodes }) => [id, nodes.map((node) => node.html)])"
    )
    return found


def test_the_page_needs_nobody_else(server: Serving, opened: Open) -> None:
    voice = opened(server)
    hosts = voice.page.evaluate(
        "[...new Set(performance.getEntriesByType('resource').map((entry) => new URL(entry.name).origin))]"
    )
    assert hosts == [server.url]


def test_what_was_said_is_announced(server: Serving, opened: Open) -> None:
    voice = opened(server, allowed=False)
    log = voice.page.get_by_role("log")
    assert log.get_attribute("aria-live") == "polite"
    voice.write("hello")
    voice.answers(1, "you said hello")
    assert "you said hello" in log.inner_text()
    assert voice.page.get_by_role("status").inner_text() != ""
