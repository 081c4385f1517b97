"""A real server whose processes are killed: what its clients are told, and that it serves again, or is gone."""

from __future__ import annotations

import asyncio
import base64
import os
import select
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.clients.conftest import Serving, serving
from tests.clients.raw import Raw, connected

MAIN = "worker.main"
PATIENCE = 120.0


@pytest.fixture(scope="module")
def server() -> Iterator[Serving]:
    """A server that is no other module's. The last test kills it."""
    running = serving("toy", "--waiting-seconds", "300")
    server = next(running)
    yield server
    if gone(server.process):
        with pytest.raises(AssertionError):  # it did not end well
            next(running)
    else:
        next(running, None)


def number(server: Serving, name: str) -> float:
    """What `/metrics` tells by this name, with its labels."""
    [line] = [line for line in server.get("/metrics")[1].splitlines() if line.startswith(f"{name} ")]
    return float(line.rpartition(" ")[2])


def run_folder(process: int) -> Path:
    """Where the sockets of a process of the runtime are."""
    words = Path(f"/proc/{process}/cmdline").read_text().split("\0")
    return Path(words[words.index("mstar.node") + 1]).parent


def gone(process: int) -> bool:
    """Whether a process has ended, reaped or not."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def ended(process: int) -> bool:
    """Wait until a process has ended; False if it does not."""
    try:
        watch = os.pidfd_open(process)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([watch], [], [], PATIENCE)[0])
    finally:
        os.close(watch)


async def ready(server: Serving) -> None:
    async with asyncio.timeout(PATIENCE):
        while (await asyncio.to_thread(server.get, "/readyz"))[0] != 200:
            pass


async def write(raw: Raw, text: str) -> None:
    content = [{"type": "input_text", "text": text}]
    await raw.send(
        {"type": "conversation.item.create", "item": {"type": "message", "role": "user", "content": content}}
    )


async def answer(raw: Raw, text: str) -> dict[str, Any]:
    """Ask in writing → the finished response."""
    await write(raw, text)
    await raw.send({"type": "response.create"})
    return dict((await raw.until("response.done"))["response"])


def said(response: dict[str, Any]) -> str:
    return str(response["output"][0]["content"][0]["transcript"])


async def test_a_killed_worker_costs_one_answer_and_the_conversation_is_remembered(server: Serving) -> None:
    async with connected(server) as raw, connected(server) as other:
        first = await answer(raw, "name")
        assert said(first) == "you said name"
        await write(raw, "count")
        await raw.send({"type": "response.create"})
        heard = [(await raw.until("response.output_audio.delta"))["delta"]]
        os.kill(server.parties[MAIN], signal.SIGKILL)
        while (event := await raw.next())["type"] != "response.done":
            if event["type"] == "response.output_audio.delta":
                heard.append(event["delta"])
        response = event["response"]
        assert (response["status"], response["output"][0]["status"]) == ("failed", "incomplete")
        assert response["status_details"]["error"]["code"] == "worker_lost"
        assert MAIN in response["status_details"]["error"]["message"]
        # Asked at once: the turns wait for the new process. What was said before is in their prompts.
        assert said(await answer(other, "hello")) == "you said hello"
        assert said(await answer(raw, "again")) == f"again {said(response)}"
        whole = b"".join([base64.b64decode(part) for part in await sound_alone(server, "count")])
        part = b"".join(base64.b64decode(each) for each in heard)
        assert 0 < len(part) < len(whole)
        assert whole.startswith(part)
    await ready(server)
    process = f'{{process="{MAIN}"}}'
    assert await asyncio.to_thread(number, server, f"mstar_worker_restarts_total{process}") == 1
    assert await asyncio.to_thread(number, server, "mstar_lost_requests_total") >= 1
    seconds = await asyncio.to_thread(number, server, f"mstar_worker_recovery_seconds{process}")
    assert seconds > 0
    print(f"ready again after {seconds:.1f} s")


async def sound_alone(server: Serving, text: str) -> list[str]:
    """The sound of an answer to which nothing happens, as it came."""
    async with connected(server) as raw:
        await write(raw, "name")
        await raw.send({"type": "response.create"})
        await raw.until("response.done")
        await write(raw, text)
        await raw.send({"type": "response.create"})
        parts = []
        while (event := await raw.next())["type"] != "response.done":
            if event["type"] == "response.output_audio.delta":
                parts.append(event["delta"])
        return parts


async def test_a_dead_conductor_ends_every_connection_with_a_word_and_everything_starts_anew(server: Serving) -> None:
    before = server.parties
    folder = run_folder(before["conductor"])
    async with connected(server) as raw, connected(server, "/v1/speak?encoding=linear16") as speaking:
        await write(raw, "long")
        await raw.send({"type": "response.create"})
        await raw.until("response.output_audio.delta")
        os.kill(before["conductor"], signal.SIGKILL)
        response = (await raw.until("response.done"))["response"]
        assert response["status_details"]["error"]["code"] == "runtime_lost"
        assert (await raw.until("error"))["error"]["code"] == "runtime_lost"
        assert await raw.closed() == 1012
        assert await speaking.closed() == 1012
    body = {"model": "toy", "voice": "default", "input": "hello"}
    async with aiohttp.ClientSession() as http, http.post(f"{server.url}/v1/audio/speech", json=body) as refused:
        assert refused.status == 503
        assert int(refused.headers["Retry-After"]) > 0
        assert (await refused.json())["error"]["code"] == "loading"
    await ready(server)
    assert all(gone(process) for process in before.values())
    assert not folder.exists()
    after = server.parties
    assert after.keys() == before.keys()
    async with connected(server) as raw:
        assert said(await answer(raw, "hello")) == "you said hello"
    async with aiohttp.ClientSession() as http, http.post(f"{server.url}/v1/audio/speech", json=body) as spoken:
        assert spoken.status == 200
        assert len(await spoken.read()) > 0


def test_with_a_dead_server_everything_is_gone(server: Serving) -> None:
    parties = server.parties
    folder = run_folder(parties["conductor"])
    os.kill(parties[MAIN], signal.SIGSTOP)  # it could not even be told
    os.kill(server.process, signal.SIGKILL)
    for name, process in parties.items():
        assert ended(process), name
    assert not folder.exists()


@pytest.mark.slow
async def test_a_conductor_that_stands_still_is_as_good_as_dead() -> None:
    running = serving("toy", "--silent-seconds", "5")
    server = next(running)
    before = server.parties
    async with connected(server) as raw:
        await raw.next()
        os.kill(before["conductor"], signal.SIGSTOP)
        assert await raw.closed() == 1012
    await ready(server)
    assert all(gone(process) for process in before.values())
    async with connected(server) as raw:
        assert said(await answer(raw, "hello")) == "you said hello"
    next(running, None)


@pytest.mark.slow
async def test_a_worker_whose_processes_all_end_at_once_ends_the_server_with_a_word() -> None:
    running = serving("toy")
    server = next(running)
    parties = server.parties
    async with connected(server) as raw:
        await raw.next()
        closed = asyncio.ensure_future(raw.closed())
        known = 0
        while not closed.done():
            process = _parties(server).get(MAIN, known)
            if process != known:
                os.kill(process, signal.SIGKILL)
                known = process
            await asyncio.sleep(0.01)
        assert closed.result() == 1012
    with pytest.raises(AssertionError):
        next(running)
    assert all(gone(process) for process in parties.values())


def _parties(server: Serving) -> dict[str, int]:
    try:
        return server.parties
    except (FileNotFoundError, ProcessLookupError):
        return {}
