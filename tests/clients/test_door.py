"""Who gets in, who is refused and how, and how sessions end."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import signal
import socket
import urllib.request
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import aiohttp
import pytest

from models.toy.language import NUMBERS
from server.events.session import MOST_WRITTEN
from tests.clients.conftest import Serving, serving
from tests.clients.raw import connected

KEY = "sk-of-the-test"


@pytest.fixture(scope="module")
def guarded_server() -> Iterator[Serving]:
    yield from serving("toy", "--api-key", KEY, "--max-sessions", "2", "--allow-origin", "https://friend.example")


def get(server: Serving, path: str, **headers: str) -> tuple[int, dict[str, Any], dict[str, str]]:
    request = urllib.request.Request(server.url + path, headers={k.replace("_", "-"): v for k, v in headers.items()})
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, json.loads(answer.read()), dict(answer.headers)
    except HTTPError as refusal:
        return refusal.code, json.loads(refusal.read()), dict(refusal.headers)


def mint(server: Serving, body: dict[str, Any], key: str = KEY) -> tuple[int, dict[str, Any]]:
    request = urllib.request.Request(
        f"{server.url}/v1/realtime/client_secrets",
        data=json.dumps(body).encode(),
        headers={"Authorization": f"Bearer {key}", "Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, json.loads(answer.read())
    except HTTPError as refusal:
        return refusal.code, json.loads(refusal.read())


@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        ({}, 401, "invalid_api_key"),
        ({"Authorization": "Bearer wrong"}, 401, "invalid_api_key"),
        ({"Authorization": "Bearer ek_wrong"}, 401, "invalid_api_key"),
        ({"Authorization": f"Bearer {KEY}", "Host": "evil.example"}, 403, "invalid_host"),
        ({"Authorization": f"Bearer {KEY}", "Origin": "https://evil.example"}, 403, "invalid_origin"),
        ({"Authorization": f"Bearer {KEY}", "Origin": "null"}, 403, "invalid_origin"),
    ],
)
async def test_refusals_come_before_the_upgrade_and_for_plain_requests_alike(
    guarded_server: Serving, headers: dict[str, str], status: int, code: str
) -> None:
    answered, body, _ = get(guarded_server, "/v1/models", **headers)
    assert (answered, body["error"]["code"]) == (status, code)
    with pytest.raises(aiohttp.WSServerHandshakeError) as refusal:
        async with connected(guarded_server, headers=headers):
            pass
    assert refusal.value.status == status


def test_traces_are_for_those_with_a_key(guarded_server: Serving) -> None:
    good = {"Authorization": f"Bearer {KEY}"}
    assert get(guarded_server, "/v1/sessions/sess_none/trace")[0] == 401
    assert get(guarded_server, "/v1/sessions/sess_none/trace", **good)[0] == 404
    assert get(guarded_server, "/v1/sessions/sess_none/trace", **good, Origin="https://evil.example")[0] == 403
    secret = mint(guarded_server, {})[1]["value"]
    assert get(guarded_server, "/v1/sessions", Authorization=f"Bearer {secret}")[0] == 401
    assert get(guarded_server, "/v1/sessions", **good)[0] == 200


def test_a_secret_may_be_for_a_session_as_long_as_any(guarded_server: Serving) -> None:
    said = "a" * (MOST_WRITTEN - 4096)
    status, secret = mint(guarded_server, {"session": {"type": "realtime", "instructions": said}})
    assert (status, secret["session"]["instructions"]) == (200, said)
    status, refused = mint(guarded_server, {"session": {"type": "realtime", "instructions": said + "a" * 4096}})
    assert (status, refused["error"]["code"]) == (413, "body_too_large")


def test_allowed_origins_are_told_so(guarded_server: Serving) -> None:
    friend = "https://friend.example"
    _, _, headers = get(guarded_server, "/v1/models", Authorization=f"Bearer {KEY}", Origin=friend)
    assert headers["Access-Control-Allow-Origin"] == friend
    asking = urllib.request.Request(
        f"{guarded_server.url}/v1/realtime/client_secrets",
        method="OPTIONS",
        headers={"Origin": friend, "Access-Control-Request-Method": "POST"},
    )
    with urllib.request.urlopen(asking, timeout=10) as answer:
        assert answer.status == 204
        assert "Authorization" in answer.headers["Access-Control-Allow-Headers"]
        assert "Location" in answer.headers["Access-Control-Expose-Headers"]


async def test_keys_come_as_bearer_subprotocol_or_client_secret(guarded_server: Serving) -> None:
    good = {"Authorization": f"Bearer {KEY}", "Origin": "https://friend.example"}
    async with connected(guarded_server, headers=good) as raw:
        assert (await raw.next())["type"] == "session.created"
    protocols = ("realtime", f"openai-insecure-api-key.{KEY}")
    async with connected(guarded_server, protocols=protocols) as raw:
        assert raw.socket.protocol == "realtime"
        assert (await raw.next())["type"] == "session.created"
    wanted = {"type": "realtime", "instructions": "Be brief.", "audio": {"output": {"voice": "x"}}}
    status, secret = mint(guarded_server, {"expires_after": {"anchor": "created_at", "seconds": 60}, "session": wanted})
    assert status == 200
    assert secret["value"].startswith("ek_")
    assert secret["session"]["instructions"] == "Be brief."
    for _ in range(2):
        async with connected(
            guarded_server, protocols=("realtime", f"openai-insecure-api-key.{secret['value']}")
        ) as raw:
            assert (await raw.next())["session"]["instructions"] == "Be brief."
    assert mint(guarded_server, {}, secret["value"])[0] == 401
    status, wrong = mint(guarded_server, {"session": {"type": "realtime", "audio": {"output": {"speed": 7}}}})
    assert (status, wrong["error"]["param"]) == (400, "session.audio.output.speed")


async def test_too_many_sessions_are_refused_loudly(guarded_server: Serving) -> None:
    headers = {"Authorization": f"Bearer {KEY}"}
    async with AsyncExitStack() as stack:
        for _ in range(2):
            raw = await stack.enter_async_context(connected(guarded_server, headers=headers))
            await raw.next()
        with pytest.raises(aiohttp.WSServerHandshakeError) as refusal:
            await stack.enter_async_context(connected(guarded_server, headers=headers))
        assert refusal.value.status == 503
        assert refusal.value.headers is not None
        assert int(refusal.value.headers["Retry-After"]) > 0
    async with connected(guarded_server, headers=headers) as raw:
        assert (await raw.next())["type"] == "session.created"


def test_no_torch_in_the_server(toy_server: Serving) -> None:
    maps = Path(f"/proc/{toy_server.process}/maps").read_text()
    assert "numpy" in maps
    assert "libtorch" not in maps


def test_health_models_metrics_pages_and_graph(toy_server: Serving) -> None:
    assert toy_server.get("/healthz") == (200, "OK")
    assert toy_server.get("/readyz")[0] == 200
    assert json.loads(toy_server.get("/v1/models")[1])["data"][0]["id"] == "toy"
    status, text = toy_server.get("/metrics")
    assert status == 200
    assert 'mstar_runtime{name="firings",process="worker.main"}' in text
    status, graph = toy_server.get("/v1/graph/toy")
    assert status == 200
    assert {"components", "partitions"} <= set(json.loads(graph))
    assert toy_server.get("/v1/graph/other")[0] == 404
    for path in ("/../pyproject.toml", "/%2e%2e/pyproject.toml", "/.git/config", "/package.json/../../README.md"):
        assert toy_server.get(path)[0] in (403, 404)


async def test_an_unknown_model_is_not_found(toy_server: Serving) -> None:
    with pytest.raises(aiohttp.WSServerHandshakeError) as refusal:
        async with connected(toy_server, "/v1/realtime?model=gpt-none"):
            pass
    assert refusal.value.status == 404


async def test_fifteen_mebibytes_in_one_append_are_taken_and_longer_frames_close(toy_server: Serving) -> None:
    async with connected(toy_server) as raw:
        await raw.next()
        manual = {"type": "realtime", "audio": {"input": {"turn_detection": None}}}
        await raw.send({"type": "session.update", "session": manual})
        await raw.until("session.updated")
        sound = base64.b64encode(bytes(15 * 1024 * 1024)).decode()
        await raw.send({"type": "input_audio_buffer.append", "audio": sound})
        await raw.send({"type": "input_audio_buffer.commit"})
        assert (await raw.next())["type"] == "input_audio_buffer.committed"
        more = base64.b64encode(bytes(15 * 1024 * 1024 + 2)).decode()
        await raw.send({"type": "input_audio_buffer.append", "audio": more, "event_id": "long"})
        assert (await raw.until("error"))["error"]["event_id"] == "long"
        head = b"\x81\xff" + (33 * 1024 * 1024).to_bytes(8, "big") + bytes(4)  # what follows need not be sent
        raw.socket._writer.transport.write(head)
        assert await raw.closed() == 1009


async def test_a_client_that_only_errs_is_closed(toy_server: Serving) -> None:
    async with connected(toy_server) as raw:
        for _ in range(200):
            await raw.send("nonsense")
        assert await raw.closed() == 1008


async def test_binary_frames_are_an_error(toy_server: Serving) -> None:
    async with connected(toy_server) as raw:
        await raw.next()
        await raw.socket.send_bytes(b"\x00\x01")
        assert (await raw.next())["error"]["code"] == "invalid_frame"


async def test_extension_events_are_for_those_who_ask(toy_server: Serving) -> None:
    kinds: list[set[str]] = []
    for query in ("", "?events=ext"):
        async with connected(toy_server, f"/v1/realtime{query}") as raw:
            content = [{"type": "input_text", "text": "hello"}]
            item = {"type": "message", "role": "user", "content": content}
            await raw.send({"type": "conversation.item.create", "item": item})
            await raw.send({"type": "response.create"})
            seen: set[str] = set()
            while "response.done" not in seen or (query and "mstar.trace" not in seen):
                event = await raw.next()
                seen.add(event["type"])
                if event["type"] == "mstar.turn":
                    assert {"first_token", "first_sample", "heard"} <= set(event["marks"])
                if event["type"] == "mstar.trace":
                    assert all(isinstance(row[0], float) for row in event["records"])
            kinds.append({kind for kind in seen if kind.startswith("mstar.")})
    assert kinds == [set(), {"mstar.turn", "mstar.trace"}]


def memory(server: Serving) -> int:
    """Bytes of memory that the server and the runtime's processes hold."""
    held = [Path(f"/proc/{process}/statm").read_text() for process in (server.process, *server.parties.values())]
    return sum(int(each.split()[1]) for each in held) * os.sysconf("SC_PAGE_SIZE")


def firings(server: Serving) -> float:
    text = server.get("/metrics")[1]
    line = next(line for line in text.splitlines() if line.startswith('mstar_runtime{name="firings"'))
    return float(line.rpartition(" ")[2])


async def test_a_client_that_does_not_read_stops_the_producer_and_loses_nothing(toy_server: Serving) -> None:
    n_responses, n_bytes = 8, 150
    words = len(" ".join(NUMBERS * 20)[:n_bytes].split())
    narrow = socket.socket()
    narrow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
    narrow.connect(("127.0.0.1", int(toy_server.url.rpartition(":")[2])))
    reader, writer = await asyncio.open_connection(sock=narrow, limit=4096)
    key = base64.b64encode(b"0123456789abcdef").decode()
    head = (
        "GET /v1/realtime HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n"
    )
    content = [{"type": "input_text", "text": "long"}]
    given = [{"type": "message", "role": "user", "content": content}]
    params = {"conversation": "none", "input": given, "max_output_tokens": n_bytes}
    ask = json.dumps({"type": "response.create", "response": params}).encode()
    writer.write(head.encode())
    assert b" 101 " in await reader.readuntil(b"\r\n\r\n")
    async with connected(toy_server) as raw:  # what is loaded at first use is there now
        for _ in range(n_responses):
            await raw.send({"type": "response.create", "response": {**params, "max_output_tokens": 40}})
        for _ in range(n_responses):
            await raw.until("response.done")
    before = memory(toy_server)
    for _ in range(n_responses):
        writer.write(b"\x81\xfe" + len(ask).to_bytes(2, "big") + bytes(4) + ask)
    made, still = -1.0, 0
    while still < 5:  # looks in a row that found no firing more
        now = firings(toy_server)
        made, still = now, still + 1 if now == made else 0
        await asyncio.sleep(1.0)
    assert memory(toy_server) - before < 5 * 1024 * 1024
    received = bytearray()
    while received.count(b'"type":"response.done"') < n_responses:
        part = await asyncio.wait_for(reader.read(1 << 16), 20)
        assert part, "the server closed the connection"
        received += part
    writer.close()
    assert firings(toy_server) > made  # more was to be made
    sound = [piece[: piece.index(b'"')] for piece in bytes(received).split(b'"delta":"')[1:]]
    samples = sum(len(base64.b64decode(text)) // 2 for text in sound if len(text) > 500)
    assert samples == n_responses * words * 6000


async def test_sigterm_lets_sessions_end_with_1001() -> None:
    runs = serving("toy")
    server = next(runs)
    async with connected(server) as raw:
        await raw.next()
        os.kill(server.process, signal.SIGTERM)
        assert await raw.closed() == 1001
    with pytest.raises(StopIteration):
        next(runs)
