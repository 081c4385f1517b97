"""The trace of a session: while it is open and after its end, for those with a key."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from typing import Any
from urllib.error import HTTPError

import pytest

from tests.clients.conftest import Serving, serving
from tests.clients.raw import Raw, connected

KEY = {"Authorization": "Bearer sk-traced"}


@pytest.fixture(scope="module")
def guarded() -> Iterator[Serving]:
    yield from serving("toy", "--api-key", "sk-traced")


def get(server: Serving, path: str, **headers: str) -> tuple[int, Any]:
    request = urllib.request.Request(server.url + path, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, json.loads(answer.read())
    except HTTPError as refusal:
        return refusal.code, json.loads(refusal.read())


async def answered(raw: Raw) -> str:
    """One answer → the session's id."""
    session = (await raw.next())["session"]["id"]
    item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hello"}]}
    await raw.send({"type": "conversation.item.create", "item": item})
    await raw.send({"type": "response.create"})
    await raw.until("response.done")
    return str(session)


async def test_a_session_has_a_trace_as_long_as_it_lasts_and_after(guarded: Serving) -> None:
    async with connected(guarded, headers=KEY) as raw:
        session = await answered(raw)
        status, during = get(guarded, f"/v1/sessions/{session}/trace", **KEY)
        assert status == 200
        listed = get(guarded, "/v1/sessions", **KEY)[1]["data"]
        assert [(row["id"], row["model"], row["open"]) for row in listed] == [(session, "toy", True)]
    status, after = get(guarded, f"/v1/sessions/{session}/trace", **KEY)
    assert status == 200
    for tree in (during, after):
        names = {event["name"] for event in tree["traceEvents"] if event["ph"] == "X"}
        assert {"prompt", "LM", "words", "tone", "vocoder", "turn"} <= names
        assert {"first_token", "first_sample", "heard"} <= {e["name"] for e in tree["traceEvents"] if e["ph"] == "i"}
        assert [event for event in tree["traceEvents"] if event["ph"] == "s"]
    [runtime] = [name for name in listed[0]["names"] if name != session]
    assert get(guarded, f"/v1/sessions/{runtime}/trace", **KEY)[1]["otherData"]["family"] == "toy"


def test_refusals(guarded: Serving) -> None:
    assert get(guarded, "/v1/sessions/sess_none/trace")[0] == 401
    assert get(guarded, "/v1/sessions")[0] == 401
    assert get(guarded, "/v1/sessions/x/trace", **KEY, Origin="https://evil.example")[0] == 403
    status, body = get(guarded, "/v1/sessions/sess_none/trace", **KEY)
    assert (status, body["error"]["code"], body["error"]["param"]) == (404, "session_not_found", "session")
