"""Conversations over WebSocket while workers are killed at random moments: nothing hangs, nothing wrong is heard.

Every turn is complete or ended by a coded error, and what was said before a loss is in the prompts behind it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from models.llama.checkpoint import open_checkpoint
from models.llama.prompt import ChatTemplate, read_chat_template
from tests.clients.conftest import Serving, serving
from tests.system.voice_client import Caller, calling, silence, speech

SEED = 11
KILLS = 12
MOST_EVENTS = 30
"""Of a turn, after which the worker is killed at the latest."""
TAIL = 128
"""Bytes at the end of a sound that is cut off, resampled without the samples that would have followed."""
TURN = {"input": {"transcription": {"model": "whisper-1"}}}
FACTS = ("My cat is called Tom.", "I live in Paris.", "My sister is a doctor.", "I like apples and pears.")
KEYS = ("cat", "Paris", "doctor", "apples")

History = list[dict[str, str]]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server(smollm2: Path, whisper_tiny_en: Path, piper_joe: Path, ear: Path) -> Iterator[Serving]:
    yield from serving("voice", "--seed", "7", "--waiting-seconds", "300")


@pytest.fixture(scope="module")
def template(smollm2: Path) -> ChatTemplate:
    return read_chat_template(open_checkpoint(smollm2))


@dataclass
class Turn:
    """A spoken turn: what was answered and heard of it, or how it failed."""

    response: dict[str, Any] = field(default_factory=dict)
    sound: bytes = b""


def number_of(server: Serving, name: str, worker: str) -> float:
    """What `/metrics` tells of a worker."""
    start = f'{name}{{process="{worker}"}} '
    [line] = [line for line in server.get("/metrics")[1].splitlines() if line.startswith(start)]
    return float(line.removeprefix(start))


async def is_ready(server: Serving) -> None:
    async with asyncio.timeout(300):
        while (await asyncio.to_thread(server.get, "/readyz"))[0] != 200:
            pass


async def known(caller: Caller) -> History:
    """The conversation as the server has it: role and words of each item, empty ones left out."""
    history = []
    for item in [event["item"]["id"] for event in caller.of("conversation.item.done")]:
        await caller.send("conversation.item.retrieve", item_id=item)
        given = (await caller.until("conversation.item.retrieved"))["item"]
        words = "".join(part.get("transcript") or part.get("text") or "" for part in given["content"])
        if words:
            history.append({"role": given["role"], "content": words})
    return history


@asynccontextmanager
async def conversation(server: Serving, history: History) -> AsyncIterator[Caller]:
    """A connection with something said already, in writing: all of it is read, and nothing is cached from saying it."""
    async with calling(server, audio=TURN, max_output_tokens=32) as caller:
        for message in history:
            await caller.write(message["content"], message["role"])
        yield caller


def before(fact: str) -> History:
    return [{"role": "user", "content": fact}, {"role": "assistant", "content": "I see."}]


def tell(caller: Caller, fact: str) -> Awaitable[None]:
    return caller.hear(silence(0.3), speech(fact), silence(1.2))


async def killed_turn(server: Serving, caller: Caller, fact: str, worker: str, moment: int) -> Turn:
    """Tell a fact; `moment` events later the worker is killed. Returns when the turn is over."""
    turn = Turn()
    await is_ready(server)
    await tell(caller, fact)
    alive, count = True, 0
    while not turn.response:
        if alive and count >= moment:
            with contextlib.suppress(ProcessLookupError):
                os.kill(server.parties[worker], signal.SIGKILL)
            alive = False
        event = await caller.next()
        count += 1
        if event["type"] == "response.done":
            turn.response = event["response"]
    if alive:
        os.kill(server.parties[worker], signal.SIGKILL)
    turn.sound = caller.sound(turn.response["id"])
    return turn


async def asked(caller: Caller) -> dict[str, Any]:
    """A question in writing, answered in writing with little; asked again where the new process is long in coming."""
    await caller.write("What did I tell you?")
    while True:
        response = await caller.respond(output_modalities=["text"], max_output_tokens=12)
        if response["status"] != "failed":
            return response
        assert response["status_details"]["error"]["code"] == "not_ready"


async def alone(server: Serving, history: History, fact: str) -> tuple[str, bytes]:
    """Words and sound of the answer to the same, to which nothing happens."""
    async with conversation(server, history) as fresh:
        await tell(fresh, fact)
        response = (await fresh.until("response.done"))["response"]
        assert response["status"] in ("completed", "incomplete"), response
        return words(response), fresh.sound(response["id"])


def common(left: bytes, right: bytes) -> int:
    """Length of the common prefix."""
    shorter = min(len(left), len(right))
    return next((at for at in range(shorter) if left[at] != right[at]), shorter)


def words(response: dict[str, Any]) -> str:
    return "".join(part.get("transcript", "") for item in response["output"] for part in item["content"])


async def round_of(server: Serving, template: ChatTemplate, number: int, draw: random.Random) -> str:
    """One conversation in which a worker is killed → a line that says what came of it."""
    history = [message for at in range(max(0, number - 3), number) for message in before(FACTS[at % len(FACTS)])]
    fact, key = FACTS[number % len(FACTS)], KEYS[number % len(FACTS)]
    worker = draw.choice(sorted(name for name in server.parties if name.startswith("worker.")))
    moment = draw.randrange(MOST_EVENTS)
    async with conversation(server, history) as caller:
        turn = await killed_turn(server, caller, fact, worker, moment)
        response = await asked(caller)
        log = await known(caller)
    # Nothing is forgotten, and the prompt of the next turn was the whole log.
    assert log[: len(history)] == history
    assert key.lower() in log[len(history)]["content"].lower(), log
    prompt = log[:-1] if log[-1]["role"] == "assistant" else log
    assert response["usage"]["input_tokens"] == len(template.ids(prompt))
    await is_ready(server)
    text, sound = await alone(server, history, fact)
    assert text.startswith(words(turn.response))
    status = turn.response["status"]
    assert common(turn.sound, sound) >= len(turn.sound) - (TAIL if status == "failed" else 0)
    if status == "failed":
        assert turn.response["status_details"]["error"]["code"] == "worker_lost"
    else:
        assert turn.sound == sound
    seconds = await asyncio.to_thread(number_of, server, "mstar_worker_recovery_seconds", worker)
    heard = f"{len(turn.sound) / 48_000:.1f} of {len(sound) / 48_000:.1f} s heard"
    return f"{worker} killed after {moment} events: {status}, {heard}; ready again after {seconds:.1f} s"


async def test_conversations_live_through_the_loss_of_any_worker_at_any_moment(
    server: Serving, template: ChatTemplate
) -> None:
    draw = random.Random(SEED)
    for number in range(KILLS):
        print(await round_of(server, template, number, draw), flush=True)
    workers = [name for name in server.parties if name.startswith("worker.")]
    restarts = [await asyncio.to_thread(number_of, server, "mstar_worker_restarts_total", name) for name in workers]
    assert sum(restarts) == KILLS
