"""Subtitles out of words with times: SubRip and WebVTT (pure)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

LONGEST_SECONDS = 6.0
MOST_CHARS = 84
"""Of a cue: two lines of 42."""
PAUSE = 0.7
"""Silence (s) that ends a cue."""


class Timed(Protocol):
    """A word."""

    @property
    def text(self) -> str: ...

    @property
    def start(self) -> float: ...

    @property
    def end(self) -> float: ...


@dataclass(frozen=True, slots=True)
class Cue:
    """Text shown from `start` to `end` (s)."""

    start: float
    end: float
    text: str


def cues(words: Sequence[Timed]) -> list[Cue]:
    """Cues of whole words: a sentence, a pause, length or width ends one."""
    found: list[Cue] = []
    open_: list[Timed] = []
    for word in words:
        if open_ and _ends(open_, word):
            found.append(_cue(open_))
            open_ = []
        open_.append(word)
    return [*found, _cue(open_)] if open_ else found


def _ends(so_far: Sequence[Timed], word: Timed) -> bool:
    text = " ".join(each.text for each in so_far)
    return (
        text.endswith((".", "?", "!", "…"))
        or word.start - so_far[-1].end > PAUSE
        or word.end - so_far[0].start > LONGEST_SECONDS
        or len(text) + 1 + len(word.text) > MOST_CHARS
    )


def _cue(words: Sequence[Timed]) -> Cue:
    return Cue(words[0].start, max(words[-1].end, words[0].start + 0.001), " ".join(word.text for word in words))


def srt(found: Sequence[Cue]) -> str:
    """SubRip."""
    blocks = [
        f"{number}\n{_clock(cue.start, ',')} --> {_clock(cue.end, ',')}\n{cue.text}\n"
        for number, cue in enumerate(found, 1)
    ]
    return "\n".join(blocks)


def vtt(found: Sequence[Cue]) -> str:
    """WebVTT (W3C). An arrow and `&`, `<` in the text are escaped."""
    blocks = [f"{_clock(cue.start, '.')} --> {_clock(cue.end, '.')}\n{_escaped(cue.text)}\n" for cue in found]
    return "\n".join(["WEBVTT\n", *blocks])


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _clock(seconds: float, point: str) -> str:
    ms = round(seconds * 1000)
    return f"{ms // 3_600_000:02}:{ms // 60_000 % 60:02}:{ms // 1000 % 60:02}{point}{ms % 1000:03}"
