"""The trace of a session: while it is open and after its end."""

from __future__ import annotations

import json
from typing import Any

from tests.clients.conftest import Serving
from tests.clients.raw import Raw, connected


def get(server: Serving, path: str) -> Any:
    status, body = server.get(path)
    assert status == 200
    return json.loads(body)


async def answered(raw: Raw) -> str:
    """One answer → the session's id."""
    session = (await raw.next())["session"]["id"]
    item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hello"}]}
    await raw.send({"type": "conversation.item.create", "item": item})
    await raw.send({"type": "response.create"})
    await raw.until("response.done")
    return str(session)


async def test_a_session_has_a_trace_as_long_as_it_lasts_and_after(toy_server: Serving) -> None:
    async with connected(toy_server) as raw:
        session = await answered(raw)
        during = get(toy_server, f"/v1/sessions/{session}/trace")
        [row] = [row for row in get(toy_server, "/v1/sessions")["data"] if row["id"] == session]
        assert (row["model"], row["open"]) == ("toy", True)
    after = get(toy_server, f"/v1/sessions/{session}/trace")
    for tree in (during, after):
        names = {event["name"] for event in tree["traceEvents"] if event["ph"] == "X"}
        assert {"prompt", "LM", "words", "tone", "vocoder", "turn"} <= names
        assert {"first_token", "first_sample", "heard"} <= {e["name"] for e in tree["traceEvents"] if e["ph"] == "i"}
        assert [event for event in tree["traceEvents"] if event["ph"] == "s"]
    [runtime] = [name for name in row["names"] if name != session]
    assert get(toy_server, f"/v1/sessions/{runtime}/trace")["otherData"]["family"] == "toy"


def test_a_session_that_is_not_known_is_not_found(toy_server: Serving) -> None:
    status, body = toy_server.get("/v1/sessions/sess_none/trace")
    error = json.loads(body)["error"]
    assert (status, error["code"], error["param"]) == (404, "session_not_found", "session")
