"""Headless Chromium with a microphone that plays a file, and toy servers for it to call."""

from __future__ import annotations

import itertools
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import soundfile
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Playwright, sync_playwright

from models.toy.language import tone_of
from tests.absent import absent
from tests.clients.conftest import Serving, serving

RATE = 48_000
PATIENCE_MS = 20_000
WIDE = {"width": 1280, "height": 800}
NARROW = {"width": 360, "height": 740}


@pytest.fixture(scope="session")
def chromium_path() -> str:
    """A Chromium to drive."""
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    found = next((path for name in names if (path := shutil.which(name))), None)
    if found is None:
        absent("there is no Chromium")
    return found


@pytest.fixture(scope="module")
def playwright() -> Iterator[Playwright]:
    """While it is there an event loop runs in this thread, so it must be gone before tests with loops of their own."""
    with sync_playwright() as driver:
        yield driver


@pytest.fixture(scope="session")
def server() -> Iterator[Serving]:
    """A toy server for all browser tests."""
    yield from serving("toy")


@pytest.fixture(scope="session")
def axe() -> str:
    """The text of axe-core, which comes with the checks of the pages."""
    path = Path(__file__).parents[2] / "node_modules/axe-core/axe.min.js"
    if not path.is_file():
        absent("axe-core is not installed (npm ci)")
    return path.read_text()


def speech(*parts: str | float) -> np.ndarray:
    """Toy words, and seconds of silence between them: float32 at 48 kHz."""
    out = []
    for part in parts:
        if isinstance(part, str):
            at = np.arange(round(0.3 * RATE)) / RATE
            out += [0.3 * np.sin(2 * np.pi * tone_of(word) * at) for word in part.split()]
        else:
            out.append(np.zeros(round(part * RATE)))
    return np.concatenate(out).astype(np.float32)


Launch = Callable[..., Browser]


@pytest.fixture
def launch(playwright: Playwright, chromium_path: str, tmp_path: Path) -> Iterator[Launch]:
    """Start a Chromium whose microphone plays a sound once; `allowed=False`: the user refuses the microphone."""
    browsers: list[Browser] = []
    numbers = itertools.count()

    def start(sound: np.ndarray | None = None, *, allowed: bool = True) -> Browser:
        path = tmp_path / f"microphone-{next(numbers)}.wav"
        sound = speech(1.0) if sound is None else sound
        soundfile.write(path, np.concatenate((sound, speech(60.0))), RATE, subtype="PCM_16")
        flags = [
            "--no-sandbox",
            "--autoplay-policy=no-user-gesture-required",
            "--use-fake-device-for-media-stream",
            f"--use-file-for-fake-audio-capture={path}%noloop",
        ]
        if allowed:
            flags.append("--use-fake-ui-for-media-stream")
        browsers.append(playwright.chromium.launch(executable_path=chromium_path, args=flags))
        return browsers[-1]

    yield start
    for browser in browsers:
        browser.close()


class VoicePage:
    """The page as a user sees it. `complaints`: what the browser wrote on its console as errors."""

    def __init__(self, page: Page, url: str) -> None:
        self.page = page
        self.complaints: list[str] = []
        page.set_default_timeout(PATIENCE_MS)
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.goto(url)

    def _console(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.complaints.append(message.text)

    def choose(self, transport: str) -> None:
        self.page.click("#settings summary")
        self.page.check(f"input[value={transport}]")
        self.page.click("#settings summary")

    def enter(self, key: str) -> None:
        """Give the page an API key."""
        self.page.click("#settings summary")
        self.page.fill("#key", key)
        self.page.click("#settings summary")

    def start(self) -> None:
        self.page.click("#start")
        self.status("Listening")

    def status(self, words: str) -> None:
        """Wait until the page says so."""
        self.page.wait_for_function("words => document.querySelector('#status').textContent === words", arg=words)

    def answers(self, count: int, text: str) -> None:
        """Wait until the `count`-th entry of the assistant reads so."""
        self._entry("assistant", count, text)

    def questions(self, count: int, text: str) -> None:
        self._entry("user", count, text)

    def _entry(self, role: str, count: int, text: str) -> None:
        self.page.wait_for_function(
            """([role, count, text]) =>
              document.querySelectorAll(`.entry[data-role=${role}] .words`)[count - 1]?.textContent === text""",
            arg=[role, count, text],
        )

    def write(self, text: str) -> None:
        self.page.fill("#text", text)
        self.page.press("#text", "Enter")

    def problem(self, text: str) -> None:
        """Wait until the page shows a problem that contains the text."""
        self.page.wait_for_function(
            """text => { const box = document.querySelector("#problem");
                         return !box.hidden && box.textContent.includes(text); }""",
            arg=text,
        )


Open = Callable[..., VoicePage]


@pytest.fixture
def opened(launch: Launch) -> Iterator[Open]:
    """Open the voice page of a server. At the end the browser must have had nothing to complain of."""
    pages: list[VoicePage] = []

    def open_page(
        server: Serving,
        sound: np.ndarray | None = None,
        *,
        allowed: bool = True,
        size: dict[str, int] = WIDE,
        scheme: str = "light",
        path: str = "/",
    ) -> VoicePage:
        context: BrowserContext = launch(sound, allowed=allowed).new_context(
            viewport={"width": size["width"], "height": size["height"]},
            color_scheme="dark" if scheme == "dark" else "light",
        )
        pages.append(VoicePage(context.new_page(), server.url + path))
        return pages[-1]

    yield open_page
    for each in pages:
        assert each.complaints == []


def sessions(server: Serving, protocol: str) -> int:
    """Sessions that the server holds over a protocol."""
    found = re.search(rf'^mstar_sessions\{{protocol="{protocol}"\}} (\S+)$', server.get("/metrics")[1], re.MULTILINE)
    return round(float(found[1])) if found else 0
