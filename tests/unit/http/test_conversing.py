"""What a chat request asks for that a family can not give is refused by name."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from models.card import Card, Conversation
from mstar.errors import Rejected
from server.http.answering import Asked, Called, _Answer
from server.http.chat_wire import ChatRequest
from server.http.conversing import checked

TOOLS = [{"type": "function", "function": {"name": "f"}}]
NAMED = {"type": "function", "function": {"name": "f"}}


def request(**fields: Any) -> ChatRequest:
    return msgspec.convert({"messages": [{"role": "user", "content": "a"}], **fields}, ChatRequest)


@pytest.mark.parametrize("choice", ["required", NAMED])
def test_a_call_is_forced_only_where_the_family_can_be(choice: Any) -> None:
    checked(request(tools=TOOLS, tool_choice=choice), Card("a", Conversation(forces_calls=True)))
    with pytest.raises(Rejected) as refused:
        checked(request(tools=TOOLS, tool_choice=choice), Card("a", Conversation()))
    assert (refused.value.code, refused.value.param) == ("unsupported_value", "tool_choice")
    for free in ("auto", "none", None):
        checked(request(tools=TOOLS, tool_choice=free), Card("a", Conversation()))


@pytest.mark.parametrize(("one_call", "told"), [(True, 1), (False, 2)])
def test_of_calls_beside_each_other_the_first_is_told_if_one_is_wanted(one_call: bool, told: int) -> None:
    answer = _Answer(Asked("answer_text", {}, {}, one_call=one_call))
    said = [each for _ in range(2) for each in answer.take("call", {"name": "f", "arguments": "{}"})]
    assert sum(isinstance(each, Called) for each in said) == told
    assert answer.finished().reason == "tool_calls"
