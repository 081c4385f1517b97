"""JSON of clients: text that is cut anywhere, numbers that are none, names that are no text; and the way back."""

from __future__ import annotations

import json
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from mstar.errors import Rejected
from server.events.decode import MOST_LEVELS
from server.speech.wire import Seed, json_text, message_of, query_of, tree_of


class Given(Struct):
    text: str = ""
    kind: Literal["a", "b"] = "a"
    speed: float = 1.0
    seed: Seed | None = None
    raw: bytes = b""


@given(st.text(st.characters(), max_size=20))
def test_text_with_halves_of_characters_comes_and_goes(text: str) -> None:
    frame = json.dumps({"text": text})
    assert message_of(tree_of(frame), Given).text == text
    assert json.loads(json_text(Given(text, raw=b"\x00"))) == {
        **json.loads(json_text(Given(raw=b"\x00"))),
        "text": text,
    }


@pytest.mark.parametrize("body", [rb'{"text": "a\ud83d"}', b'{"text": "a\xed\xa0\xbd"}'])
def test_text_that_does_not_go_on_has_no_halves(body: bytes) -> None:
    assert tree_of(body, cut=False) == {"text": "a\ufffd"}
    assert tree_of(rb'{"text": "\ud83d\ude42 \ud83d"}', cut=False) == {"text": "🙂 \ufffd"}


@pytest.mark.parametrize(
    "frame",
    ['{"speed": NaN}', '{"speed": Infinity}', '{"speed": 1e999}', '{"a": [-1e999]}', '{"seed": 1' + "0" * 5000 + "}"],
)
def test_what_is_no_number_is_no_json(frame: str) -> None:
    with pytest.raises(Rejected) as refused:
        tree_of(frame)
    assert refused.value.code == "invalid_json"


@pytest.mark.parametrize("cut", [True, False])
@pytest.mark.parametrize("name", ["a", r"\ud800"])
@pytest.mark.parametrize("levels", [MOST_LEVELS, 300, 500, 700, 990, 100_000])
def test_what_is_nested_too_deeply_is_refused_whatever_else_it_holds(levels: int, name: str, cut: bool) -> None:
    frame = f'{{"{name}": 1, "kind": {"[" * levels}{"]" * levels}}}'
    with pytest.raises(Rejected) as refused:
        message_of(tree_of(frame, cut=cut), Given)
    assert refused.value.code in {"invalid_json", "invalid_value"}
    fits = f'{{"{name}": 1, "text": "b", "x": {"[" * (MOST_LEVELS - 2)}{"]" * (MOST_LEVELS - 2)}}}'
    assert message_of(tree_of(fits, cut=cut), Given).text == "b"


@pytest.mark.parametrize(
    ("tree", "param"),
    [({"kind": "\ud83d"}, "kind"), ({"seed": 2**63}, "seed"), ({"seed": 10**400}, "seed"), ({"text": 7}, "text")],
)
def test_a_field_that_can_not_be_is_named(tree: Any, param: str) -> None:
    with pytest.raises(Rejected) as refused:
        message_of(tree, Given)
    assert refused.value.param == param


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ({"speed": "nan"}, "speed"),
        ({"speed": "-inf"}, "speed"),
        ({"seed": str(2**64)}, "seed"),
        ({"kind": "c"}, "kind"),
    ],
)
def test_a_field_of_an_address_that_can_not_be_is_named(query: dict[str, str], param: str) -> None:
    with pytest.raises(Rejected) as refused:
        query_of(query, Given)
    assert refused.value.param == param
