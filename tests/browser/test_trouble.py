"""What the page says and does when something is in the way."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator

import pytest
from playwright.sync_api import Response, WebSocketRoute

from tests.browser.conftest import Launch, Open, VoicePage, speech
from tests.clients.conftest import Serving, serving

pytestmark = pytest.mark.browser
BOTH = pytest.mark.parametrize("transport", ["webrtc", "websocket"])
KEY = "sk-of-the-test"


@pytest.fixture(scope="module")
def guarded() -> Iterator[Serving]:
    """One session at a time, for those who have the key."""
    yield from serving("toy", "--api-key", KEY, "--max-sessions", "1")


def test_a_refused_microphone_is_explained(server: Serving, opened: Open) -> None:
    voice = opened(server, allowed=False)
    voice.page.click("#start")
    voice.problem("The microphone is blocked")
    voice.status("Ready")


@BOTH
def test_a_key_is_asked_for(guarded: Serving, opened: Open, transport: str) -> None:
    voice = opened(guarded, speech(0.2))
    voice.choose(transport)
    voice.page.click("#start")
    voice.problem("API key")
    voice.page.wait_for_function("() => document.activeElement.id === 'key'")
    voice.page.keyboard.type(KEY)
    voice.page.click("#settings summary")
    voice.start()
    voice.write("hello")
    voice.answers(1, "you said hello")
    assert len(voice.complaints) >= 2  # of answers 401, which are what this test is about
    assert all("401" in text or "503" in text or "WebSocket" in text for text in voice.complaints)
    voice.complaints.clear()


@BOTH
def test_a_busy_server_is_named_and_tried_again(guarded: Serving, opened: Open, transport: str) -> None:
    first = opened(guarded, allowed=False)
    first.enter(KEY)
    first.write("hello")
    first.answers(1, "you said hello")
    second = opened(guarded, speech(0.2))
    second.enter(KEY)
    second.choose(transport)
    second.page.click("#start")
    second.problem("The server is busy: All sessions are taken.")
    second.page.wait_for_function("() => document.querySelector('#status').textContent.startsWith('Trying again')")
    first.page.close()
    second.status("Listening")
    for voice in (first, second):
        assert all("401" in text or "503" in text for text in voice.complaints)
        voice.complaints.clear()


def test_a_server_that_is_gone_is_told(launch: Launch, server: Serving) -> None:
    page = launch(speech(0.2)).new_page()
    voice = VoicePage(page, server.url)
    page.route("**/v1/realtime/calls*", lambda route: route.abort())
    page.click("#start")
    voice.problem("The server can not be reached")
    page.click("#start")
    voice.status("Ready")


def test_a_lost_call_is_made_again_and_goes_on(server: Serving, opened: Open) -> None:
    voice = opened(server, speech(0.2))
    places: list[str] = []

    def note(response: Response) -> None:
        if response.url.split("?")[0].endswith("/v1/realtime/calls") and response.status == 201:
            places.append(response.headers["location"])

    voice.page.on("response", note)
    voice.start()
    voice.write("hello")
    voice.answers(1, "you said hello")
    voice.status("Listening")
    urllib.request.urlopen(urllib.request.Request(server.url + places[0], method="DELETE"), timeout=10).close()
    voice.problem("The connection was lost")
    voice.status("Listening")
    assert len(places) == 2
    assert voice.page.is_hidden("#problem")
    voice.write("name")
    voice.answers(2, "you said name")


def test_a_lost_socket_is_opened_again_with_what_was_said(server: Serving, opened: Open) -> None:
    voice = opened(server, speech(0.2))
    sockets: list[WebSocketRoute] = []
    told: list[str] = []

    def pass_on(route: WebSocketRoute) -> None:
        sockets.append(route)
        upstream = route.connect_to_server()

        def send(frame: str | bytes) -> None:
            if len(sockets) > 1 and isinstance(frame, str) and "item.create" in frame:
                told.append(frame)
            upstream.send(frame)

        route.on_message(send)

    voice.page.route_web_socket("**/v1/realtime*", pass_on)
    voice.choose("websocket")
    voice.start()
    voice.write("hello")
    voice.answers(1, "you said hello")
    voice.status("Listening")
    sockets[0].close(code=1011, reason="lost")
    voice.problem("The connection was lost")
    voice.status("Listening")
    voice.page.wait_for_function("() => document.querySelector('#problem').hidden")
    assert ["hello" in frame for frame in told] == [True, True]  # the question and its answer
    voice.write("name")
    voice.answers(2, "you said name")
