"""Token ids of Whisper → text and times. Decoding only; the words come from the checkpoint's own files."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from models.whisper.config import STAMP_SECONDS
from mstar.errors import WeightsError


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of a transcript, in seconds from the start of its piece."""

    start: float
    end: float
    text: str


@cache
def _bytes_of() -> dict[str, int]:
    """Printable stand-in → byte, of byte-level BPE: printable Latin-1 stands for itself, the rest from U+0100 up."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in set(printable)]
    return {chr(byte): byte for byte in printable} | {chr(0x100 + n): byte for n, byte in enumerate(others)}


def read_words(folder: Path) -> tuple[str, ...]:
    """Words in order of their ids, from the first of the files that the folder has.

    `vocabulary.txt`, `vocabulary.json` (CTranslate2), `tokenizer.json`, `vocab.json` with `added_tokens.json` (hub).
    An empty tuple when there is none of them. Raises WeightsError when a file can not be read.
    """
    for name, read in _READERS.items():
        path = folder / name
        if path.exists():
            try:
                return tuple(read(path))
            except (OSError, ValueError, KeyError, TypeError) as error:
                raise WeightsError(f"{path}: not a readable vocabulary ({error})") from error
    return ()


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").removesuffix("\n").split("\n")


def _list(path: Path) -> list[str]:
    return [str(word) for word in json.loads(path.read_text(encoding="utf-8"))]


def _ordered(ids: dict[str, int]) -> list[str]:
    words = [""] * (max(ids.values()) + 1)
    for word, number in ids.items():
        words[number] = word
    return words


def _tokenizer(path: Path) -> list[str]:
    found = json.loads(path.read_text(encoding="utf-8"))
    return _ordered({**found["model"]["vocab"], **{added["content"]: added["id"] for added in found["added_tokens"]}})


def _vocab(path: Path) -> list[str]:
    added = path.with_name("added_tokens.json")
    more = json.loads(added.read_text(encoding="utf-8")) if added.exists() else {}
    return _ordered({**json.loads(path.read_text(encoding="utf-8")), **more})


_READERS = {"vocabulary.txt": _lines, "vocabulary.json": _list, "tokenizer.json": _tokenizer, "vocab.json": _vocab}


@dataclass(frozen=True, slots=True)
class Tokenizer:
    """Words by id; ids from `first_stamp` on are times."""

    words: tuple[str, ...]
    first_stamp: int

    def seconds(self, token: int) -> float | None:
        """The time that a token stands for, None for a token of text."""
        return (token - self.first_stamp) * STAMP_SECONDS if token >= self.first_stamp else None

    def raw(self, ids: Sequence[int]) -> bytes:
        """UTF-8 of the tokens of text among `ids`; special tokens and times are left out."""
        table = _bytes_of()
        spoken = [self.words[token] for token in ids if token < len(self.words) and token < self.first_stamp]
        return bytes(table[char] for word in spoken if not word.startswith("<|") for char in word)

    def text(self, ids: Sequence[int]) -> str:
        """The text of `ids`, broken characters replaced; it starts with a blank when its first word does."""
        return self.raw(ids).decode("utf-8", errors="replace")

    def segments(self, ids: Sequence[int], *, end: float) -> tuple[Segment, ...]:
        """The stretches of text between times, all within `end` seconds; the last may lack its closing time."""
        found: list[Segment] = []
        start, words = 0.0, list[int]()
        for token in ids:
            at = self.seconds(token)
            if at is None:
                words.append(token)
                continue
            at = min(at, end)
            if text := self.text(words):
                found.append(Segment(start, max(at, start), text))
            start, words = at, []
        if text := self.text(words):
            found.append(Segment(start, max(end, start), text))
        return tuple(found)
