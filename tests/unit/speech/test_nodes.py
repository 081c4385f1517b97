"""The clause and the phoneme node: tokens in, one at a time, ids with their words out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.speech.nodes import ClauseSubmodule, PhonemeSubmodule
from mstar.submodule import STATE, Call, Many, Packed, Span, Step


def bytes_to_text(tokens: Sequence[int]) -> str:
    """A byte-level tokenizer whose tokens are single bytes."""
    return bytes(tokens).decode("utf-8", "replace")


class Driver:
    """Fires a node chunk by chunk and keeps its state, as the engine does."""

    def __init__(self, node: Any) -> None:
        self.node = node
        self.state: Any = None
        self.count = 0

    def __call__(
        self, stream: str, value: Any, n: int, *, last: bool = False, final: bool = False
    ) -> Mapping[str, Any]:
        span = Span(stream, self.count, 0, n, segment_final=last, final=final)
        self.count += n
        call = Call("r", "w", {stream: value}, spans={stream: span}, state=self.state)
        outputs = self.node.forward(self.node.collate([call]), Step([call]))
        if STATE in outputs:
            self.state = outputs[STATE][0]
        return {name: values[0] for name, values in outputs.items()}


def run_tokens(data: bytes, sizes: Sequence[int]) -> tuple[list[Any], list[Any]]:
    driver = Driver(ClauseSubmodule(bytes_to_text))
    clauses: list[Any] = []
    texts: list[Any] = []
    at = 0
    for size in [*sizes, len(data)]:
        piece = data[at : at + size]
        at += len(piece)
        done = driver("token", np.frombuffer(piece, np.uint8) if piece else None, len(piece), final=at == len(data))
        if isinstance(done["clause"], Many):
            clauses += done["clause"].items
        if done["text"] is not None:
            texts.append(done["text"])
        if at == len(data):
            break
    return clauses, texts


@given(st.text(min_size=1, max_size=80), st.lists(st.integers(1, 4), max_size=40))
def test_tokens_split_inside_characters_give_the_text_and_the_same_clauses(text: str, sizes: list[int]) -> None:
    data = text.encode()
    clauses, texts = run_tokens(data, sizes)
    whole, _ = run_tokens(data, [])
    assert "".join(t["text"] for t in texts) == text
    assert texts[-1]["tokens"] == len(data)
    at = 0
    for piece in texts:
        assert piece["start"] == at
        at += len(piece["text"])
    assert [(c["text"], c["start"], c["end"], c["index"]) for c in clauses] == [
        (c["text"], c["start"], c["end"], c["index"]) for c in whole
    ]
    assert all(text[c["start"] : c["end"]] == c["text"] for c in clauses)


NUMBERED = "It was $1,234.56 on Jan. 5, 2024 at 10:30 p.m., 10 - 20 km from St. Louis. Call +1 555 123 4567, Dr. 𝐗 🙂!"


@given(st.lists(st.integers(1, 9), max_size=60))
def test_numbers_are_said_alike_wherever_the_text_is_cut(sizes: list[int]) -> None:
    def said(pieces: Sequence[str]) -> list[Any]:
        driver = Driver(ClauseSubmodule())
        found: list[Any] = []
        for piece in pieces:
            done = driver("text", piece, 1)["clause"]
            found += done.items if isinstance(done, Many) else ()
        done = driver("text", "", 1, final=True)["clause"]
        return found + list(done.items if isinstance(done, Many) else ())

    borders = [0, *accumulate(sizes), len(NUMBERED)]
    pieces = [NUMBERED[a:b] for a, b in pairwise(borders)]
    cut, whole = said(pieces), said([NUMBERED])
    assert [(c["spoken"], list(c["starts"]), list(c["ends"])) for c in cut] == [
        (c["spoken"], list(c["starts"]), list(c["ends"])) for c in whole
    ]
    assert " ".join(c["spoken"] for c in whole) == (
        "It was one thousand two hundred thirty-four dollars and fifty-six cents on January fifth, twenty twenty-four "
        "at ten thirty p.m., ten to twenty kilometers from Saint Louis. Call plus one, five five five, one two three, "
        "four five six seven, Doctor X!"
    )


def test_pieces_of_text_are_taken_as_well_and_a_segment_end_is_a_border() -> None:
    driver = Driver(ClauseSubmodule())
    assert driver("text", "half a sen", 1)["clause"] is None
    done = driver("text", ("tence", " here"), 2, last=True)
    assert [c["text"] for c in done["clause"].items] == ["half a sentence here"]
    done = driver("text", None, 0, final=True)
    assert done["clause"] is None


def test_a_clause_without_anything_to_say_is_left_out() -> None:
    driver = Driver(ClauseSubmodule())
    done = driver("text", "🙂 — ** \n\n", 1, final=True)
    assert done["clause"] is None
    assert driver("text", None, 0, final=True)["clause"] is None


def test_tokens_without_a_detokeniser_are_an_error() -> None:
    with pytest.raises(TypeError, match="detokeniser"):
        Driver(ClauseSubmodule())("token", 5, 1)


def alphabet(phonemes: str) -> tuple[np.ndarray, np.ndarray]:
    return np.array([ord(c) for c in phonemes], np.int64), np.arange(len(phonemes) + 1, dtype=np.int64)


def test_words_of_the_phonemes_stand_for_words_of_the_response() -> None:
    text = "Well. See **all** of the docs at example.com, Dr. Who!"
    driver = Driver(ClauseSubmodule())
    clauses = driver("text", text, 1, final=True)["clause"].items
    speaker = PhonemeSubmodule(alphabet, "en-us")
    calls = [Call("r", "w", {"clause": c}) for c in clauses]
    found: Any = speaker.forward(Packed({}), Step(calls))["phonemes"]
    rows = [row for record in found for row in record["words"]]
    assert [text[a:b] for a, b, *_ in rows] == [
        "Well.", "See", "all", "of", "the", "docs", "at", "example.com,", "Dr.", "Who!",
    ]  # fmt: skip
    second = found[1]
    said = ["".join(map(chr, second["ids"][first:last])).strip() for _, _, first, last in second["words"]]
    assert said[2] == said[3] == "ʌvðə"
    assert said[6] == "ɛɡzˈæmpəl dˈɑːt kˈɑːm,"
    assert (second["start"], second["end"]) == (6, len(text))


def test_a_clause_that_can_not_be_spoken_gives_nothing() -> None:
    speaker = PhonemeSubmodule(alphabet, "en-us")
    calls = [Call("r", "w", {"clause": value}) for value in ("...", None, "ok")]
    found: Any = speaker.forward(speaker.collate(calls), Step(calls))["phonemes"]
    assert found[:2] == [None, None]
    assert len(found[2]["words"]) == 1
