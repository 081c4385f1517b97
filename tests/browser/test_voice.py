"""Talking with the page: a microphone that plays words, and what is then heard and read."""

from __future__ import annotations

import pytest

from tests.browser.conftest import Open, VoicePage, sessions, speech
from tests.clients.conftest import Serving

pytestmark = pytest.mark.browser
BOTH = pytest.mark.parametrize("transport", ["webrtc", "websocket"])

WATCH_LEVELS = """() => {
  window.loudest = {};
  for (const id of ["input-level", "output-level"]) {
    window.loudest[id] = 0;
    const meter = document.getElementById(id);
    new MutationObserver(() => {
      window.loudest[id] = Math.max(window.loudest[id], Number(meter.getAttribute("aria-valuenow")));
    }).observe(meter, { attributes: true, attributeFilter: ["aria-valuenow"] });
  }
}"""


def numbers(voice: VoicePage) -> dict[str, int]:
    """The moments of the newest turn, ms."""
    row = voice.page.locator("#waterfall li").first
    names, values = row.locator("dt").all_inner_texts(), row.locator("dd").all_inner_texts()
    return dict(zip(names, map(int, values), strict=True))


def fired(voice: VoicePage, node: str) -> int:
    """How often a node of the drawing has fired."""
    label = voice.page.locator(f"#graph .node:has(.name:text-is('{node}')) .count").text_content()
    assert label
    return 0 if label == "idle" else int(label.split("×")[0])


@BOTH
def test_a_spoken_question_is_answered_aloud_and_in_writing(server: Serving, opened: Open, transport: str) -> None:
    voice = opened(server, speech(2.0, "hello name"))
    voice.choose(transport)
    voice.page.evaluate(WATCH_LEVELS)
    voice.start()
    voice.questions(1, "hello name")
    voice.status("Speaking")
    voice.answers(1, "you said hello name")
    voice.status("Listening")
    assert voice.page.evaluate("window.loudest['input-level']") > 50
    assert voice.page.evaluate("window.loudest['output-level']") > 50
    moments = numbers(voice)
    assert {"endpoint", "transcript", "first token", "first sample", "heard"} <= set(moments)
    assert moments["heard"] >= moments["endpoint"] > 300  # half a second of silence ends a turn
    assert list(moments.values()) == sorted(moments.values())
    assert fired(voice, "vad") > 30
    assert fired(voice, "hear") >= 1
    assert fired(voice, "vocoder") >= 1
    assert fired(voice, "decode") == 0
    voice.page.click("#start")
    voice.status("Ready")
    while sessions(server, transport):
        voice.page.wait_for_timeout(100)


@BOTH
def test_talking_over_the_answer_stops_it_and_is_listened_to(server: Serving, opened: Open, transport: str) -> None:
    voice = opened(server, speech(2.0, "long", 3.0, "stop"))
    voice.choose(transport)
    voice.start()
    voice.status("Speaking")
    voice.status("Hearing you")
    cut = voice.page.locator(".entry[data-role=assistant]").first
    cut.locator(".note:text-is('interrupted')").wait_for()
    voice.page.wait_for_function("() => document.querySelector('.unheard')?.textContent.length > 20")
    heard = cut.locator(".words").evaluate("words => words.firstChild.textContent").split()
    assert 4 <= len(heard) <= 60  # of 240; four words a second, for as long as nobody spoke
    question = voice.page.locator(".entry[data-role=user] .words").nth(1)
    voice.page.wait_for_function("() => document.querySelectorAll('.entry[data-role=assistant]').length === 2")
    assert "stop" in question.inner_text()
    voice.answers(2, f"you said {question.inner_text()}")


@BOTH
def test_a_written_message_is_answered_without_a_microphone(server: Serving, opened: Open, transport: str) -> None:
    voice = opened(server, allowed=False)
    voice.choose(transport)
    voice.write("hello")
    voice.answers(1, "you said hello")
    assert voice.page.inner_text("#start") == "Start talking"
    voice.write("name")
    voice.answers(2, "you said name")


@BOTH
def test_escape_interrupts(server: Serving, opened: Open, transport: str) -> None:
    voice = opened(server, allowed=False)
    voice.choose(transport)
    voice.write("long")
    said = "() => document.querySelector('.entry[data-role=assistant] .words')?.firstChild.textContent"
    voice.page.wait_for_function(said + "?.includes('three')")
    voice.page.keyboard.press("Escape")
    voice.page.locator(".entry[data-role=assistant] .note:text-is('interrupted')").wait_for()
    voice.page.wait_for_function("() => document.querySelector('.unheard')?.textContent.length > 20")
    heard = voice.page.locator(".entry[data-role=assistant] .words").first.evaluate("it => it.firstChild.textContent")
    assert heard.startswith("one")  # its text is there before its sound
    voice.write("again")  # the family then says what it believes to have said
    voice.answers(2, f"again {heard}")


@BOTH
def test_nothing_is_heard_while_muted(server: Serving, opened: Open, transport: str) -> None:
    voice = opened(server, speech(1.5, "hello", 3.0, "name"))
    voice.choose(transport)
    voice.start()
    voice.page.click("#mute")
    voice.status("Muted")
    voice.page.wait_for_timeout(2500)  # of the recording, whose first word passes unheard
    voice.page.click("#mute")
    voice.questions(1, "name")
    voice.answers(1, "you said name")


@BOTH
def test_who_is_muted_stays_so_when_a_setting_changes(server: Serving, opened: Open, transport: str) -> None:
    voice = opened(server, speech(0.2))
    voice.choose("webrtc" if transport == "websocket" else "websocket")
    voice.start()
    voice.page.click("#mute")
    voice.status("Muted")
    voice.choose(transport)
    voice.status("Muted")
    assert voice.page.get_attribute("#mute", "aria-pressed") == "true"
    level = "() => document.querySelector('#input-level').getAttribute('aria-valuenow')"
    assert voice.page.evaluate(level) == "0"
    voice.page.click("#mute")
    voice.status("Listening")
    voice.page.click("#start")
    voice.status("Ready")
    voice.start()
    assert voice.page.get_attribute("#mute", "aria-pressed") == "false"


def test_the_keyboard_alone_makes_and_ends_a_call(server: Serving, opened: Open) -> None:
    voice = opened(server, speech(2.0, "hello"))
    focused = "document.activeElement.id"
    for _ in range(12):
        if voice.page.evaluate(focused) == "start":
            break
        voice.page.keyboard.press("Tab")
    assert voice.page.evaluate(focused) == "start"
    outline = "getComputedStyle(document.activeElement).outlineStyle"
    assert voice.page.evaluate(outline) == "solid"
    voice.page.keyboard.press("Enter")
    voice.answers(1, "you said hello")
    voice.status("Listening")
    assert voice.page.evaluate(focused) == "start"
    voice.page.keyboard.press("Enter")
    voice.status("Ready")


def test_the_microphone_can_be_chosen_while_talking(server: Serving, opened: Open) -> None:
    voice = opened(server, speech(0.2))
    voice.choose("websocket")
    voice.start()
    voice.page.click("#settings summary")
    choices = voice.page.locator("#microphone option")
    choices.nth(1).wait_for(state="attached")
    voice.page.select_option("#microphone", index=1)
    voice.write("hello")
    voice.answers(1, "you said hello")
