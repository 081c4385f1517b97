"""Text of a clause → phonemes with punctuation, and which word of the text each of them speaks."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher

from models.speech.espeak import ipa, ipa_of_word

_MARKS = "\"'“”„‘’«»‹›()[]{}<>*_~`|\\/—–-…"
_STOPS = {"。": ".", "．": ".", "！": "!", "？": "?", "，": ",", "、": ",", "；": ";", "：": ":", "…": "."}
_EDGE = re.compile(rf"^[{re.escape(_MARKS)}.,;:!?¿¡]+|[{re.escape(_MARKS + ''.join(_STOPS))}.,;:!?]+$")
_INITIALS = re.compile(r"(?:[^\W\d_]\.){2,}$")
_NEGATIVE = re.compile(r"[-–−]\d")
_STRESS = str.maketrans("", "", "ˈˌː ")


@dataclass(frozen=True, slots=True)
class Word:
    """A word of the text and the phonemes that speak it; words that are spoken as one have the same phonemes."""

    start: int  # characters of the text [start, end)
    end: int
    first: int  # phonemes [first, last), punctuation and space behind the word included
    last: int


@dataclass(frozen=True, slots=True)
class Phonemes:
    text: str  # one phoneme a character (NFD), with spaces and . , ; : ! ?
    words: tuple[Word, ...]  # in order; empty if nothing in the text can be spoken


@dataclass(frozen=True, slots=True)
class _Token:
    start: int
    end: int
    core: str
    stop: str  # punctuation that ends a group, or ""


def phonemize(text: str, language: str) -> Phonemes:
    """Phonemes of `text`, grouped at its punctuation (espeak sees one group at a time, so that its own idea of where a
    sentence ends plays no part)."""
    spoken: list[str] = []
    words: list[Word] = []
    at = 0
    for group in _groups(_tokens(text)):
        tokens = [t for t in group if t.core]
        sounds = ipa(" ".join(t.core for t in tokens), language).split()
        sounds = [unicodedata.normalize("NFD", s) for s in sounds]
        if not sounds:
            continue
        begin = at + (1 if spoken else 0)
        words = [replace(w, last=begin) if w.last == at else w for w in words]  # the space belongs to the word before
        line = " ".join(sounds)
        stop = group[-1].stop
        starts, position = [], begin
        for sound in sounds:
            starts.append(position)
            position += len(sound) + 1
        end = begin + len(line) + len(stop)
        for (w0, w1), (p0, p1) in align(tokens, sounds, language):
            last = starts[p1] if p1 < len(sounds) else end
            words += [Word(t.start, t.end, starts[p0], last) for t in tokens[w0:w1]]
        spoken.append(line + stop)
        at = end
    return Phonemes(" ".join(spoken), tuple(words))


def align(
    tokens: Sequence[_Token], sounds: Sequence[str], language: str
) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Pairs (words [a, b), phoneme words [c, d)), in order, covering both: merged and split words found by likeness.

    Each word is phonemized alone; the longest common runs with the group's phonemes say which belongs where.
    """
    alone = [unicodedata.normalize("NFD", ipa_of_word(t.core, language)) for t in tokens]
    if len(alone) == len(sounds) and all(" " not in a and a for a in alone):
        same = sum(a.translate(_STRESS)[:1] == s.translate(_STRESS)[:1] for a, s in zip(alone, sounds, strict=True))
        if same * 2 >= len(sounds):
            return [((i, i + 1), (i, i + 1)) for i in range(len(sounds))]
    left, left_of = _flat(alone)
    right, right_of = _flat(sounds)
    shared: dict[tuple[int, int], int] = {}
    for block in SequenceMatcher(None, left, right, autojunk=False).get_matching_blocks():
        for k in range(block.size):
            pair = (left_of[block.a + k], right_of[block.b + k])
            shared[pair] = shared.get(pair, 0) + 1
    links = set()
    for word in range(len(alone)):
        links.add(max((p for p in shared if p[0] == word), key=lambda p: shared[p], default=None))
    for sound in range(len(sounds)):
        links.add(max((p for p in shared if p[1] == sound), key=lambda p: shared[p], default=None))
    return _components(sorted(p for p in links if p is not None), len(alone), len(sounds))


def _components(links: list[tuple[int, int]], words: int, sounds: int) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Links (word, sound), monotone → runs that share neither a word nor a sound, stretched to cover everything."""
    runs: list[list[int]] = []  # first word, last word, first sound, last sound
    for word, sound in links:
        if runs and (word <= runs[-1][1] or sound <= runs[-1][3]):
            runs[-1][1], runs[-1][3] = max(runs[-1][1], word), max(runs[-1][3], sound)
        else:
            runs.append([word, word, sound, sound])
    if not runs:
        return [((0, words), (0, sounds))]
    word_starts = [0, *(r[0] for r in runs[1:]), words]
    sound_starts = [0, *(r[2] for r in runs[1:]), sounds]
    pairs = []
    for i in range(len(runs)):
        (w0, w1), (s0, s1) = word_starts[i : i + 2], sound_starts[i : i + 2]
        if w1 - w0 == s1 - s0:  # as many words as sounds, only unlike: one each
            pairs += [((w0 + k, w0 + k + 1), (s0 + k, s0 + k + 1)) for k in range(w1 - w0)]
        else:
            pairs.append(((w0, w1), (s0, s1)))
    return pairs


def _flat(parts: Sequence[str]) -> tuple[str, list[int]]:
    """Phonemes without stress, length and spaces, and the index of the part each comes from."""
    plain = [p.translate(_STRESS) for p in parts]
    return "".join(plain), [i for i, p in enumerate(plain) for _ in p]


def _tokens(text: str) -> list[_Token]:
    found = []
    for match in re.finditer(r"\S+", text):
        raw = match[0]
        core = _EDGE.sub("", raw)
        if _INITIALS.fullmatch(raw.strip(_MARKS + ",;:!?")):
            core = raw.strip(_MARKS + ",;:!?")
        elif _NEGATIVE.match(raw) and core:
            core = "-" + core
        if not any(c.isalnum() or unicodedata.category(c) in ("Sc", "Sm", "So") or c in "%&@#" for c in core):
            core = ""
        tail = raw[raw.rfind(core) + len(core) :] if core else raw
        found.append(_Token(match.start(), match.end(), core, _stop(tail, core)))
    if found and found[-1].core.endswith("."):  # initials: their last dot ends the text, too
        found[-1] = replace(found[-1], stop=".")
    return found


def _stop(tail: str, core: str) -> str:
    """The one mark of a tail like `."` or `?!` that is spoken; a free-standing dash is a comma."""
    marks = [_STOPS.get(c, c) for c in tail]
    for mark in "?!.;:,":
        if mark in marks:
            return mark
    return "," if not core and tail.strip("—–-") == "" else ""


def _groups(tokens: Sequence[_Token]) -> list[list[_Token]]:
    groups: list[list[_Token]] = [[]]
    for token in tokens:
        groups[-1].append(token)
        if token.stop:
            groups.append([])
    return [g for g in groups if any(t.core for t in g)]
