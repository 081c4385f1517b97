"""A caller: feeds a microphone in real time over the WebSocket and notes what comes back, and when."""

from __future__ import annotations

import asyncio
import json
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import numpy as np

from tests.bench.playout import Delta
from tests.bench.serving import Served
from tests.bench.sound import RATE, Pcm, from_wire, to_wire

FRAME = RATE // 50
"""Samples of 20 ms."""
QUIET = to_wire(np.zeros(FRAME, np.float32))
ANSWER_SECONDS = 20.0

Event = dict[str, Any]


@dataclass(slots=True)
class Answer:
    """One response as it arrived: its sound and the moments around it (seconds of the client's clock)."""

    response: str
    created: float
    item: str = ""
    deltas: list[Delta] = field(default_factory=list)
    text: str = ""
    done: float | None = None
    status: str = ""


class Caller:
    """One session. `answers` in order of their beginning; `events` are all (arrival, event) besides sound."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.answers: list[Answer] = []
        self.events: list[tuple[float, Event]] = []
        self._socket = socket
        self._say: deque[Pcm] = deque()
        self._spoken: asyncio.Future[float] | None = None
        self._moved = asyncio.Event()
        self.open = asyncio.Event()
        """Whether the microphone is fed; its samples have no gap where it was closed."""

    async def send(self, **event: object) -> None:
        await self._socket.send_str(json.dumps(event))

    def say(self, pcm: Pcm) -> asyncio.Future[float]:
        """Put speech on the microphone, behind the frame in progress → when its last sample had been recorded."""
        self._spoken = asyncio.get_running_loop().create_future()
        for start in range(0, len(pcm), FRAME):
            self._say.append(pcm[start : start + FRAME])
        return self._spoken

    async def stop(self, heard: float) -> None:
        """End the answer in progress, of which `heard` seconds were heard; returns when the server has ended it."""
        answer = self.answers[-1]
        if answer.done is None:
            await self.send(type="response.cancel")
            await self.until(lambda: answer.done is not None)
        whole = sum(len(delta.pcm) for delta in answer.deltas) / RATE
        heard_ms = round(1000 * min(heard, whole))
        await self.send(type="conversation.item.truncate", item_id=answer.item, content_index=0, audio_end_ms=heard_ms)
        await self.until(lambda: any(event["type"] == "conversation.item.truncated" for _, event in self.events))
        self.events.clear()

    async def until(self, true: Callable[[], bool], seconds: float = ANSWER_SECONDS) -> None:
        """Returns when something that arrived made it true. Raises TimeoutError."""
        async with asyncio.timeout(seconds):
            while not true():
                self._moved.clear()
                await self._moved.wait()

    # ------------------------------------------------------------------------------------------- both directions

    async def feed(self) -> None:
        """A frame every 20 ms by absolute deadlines: speech where there is some, else silence."""
        start, count = time.monotonic(), 0
        while True:
            if not self.open.is_set():
                await self.open.wait()
                start, count = time.monotonic(), 0
            count += 1
            due = start + count * FRAME / RATE  # the moment when the frame's last sample is recorded
            await asyncio.sleep(due - time.monotonic())
            if not self._say:
                await self.send(type="input_audio_buffer.append", audio=QUIET)
                continue
            speech = self._say.popleft()
            frame = np.pad(speech, (0, FRAME - len(speech)))
            await self.send(type="input_audio_buffer.append", audio=to_wire(frame))
            if not self._say and self._spoken is not None:
                self._spoken.set_result(due - (FRAME - len(speech)) / RATE)
                self._spoken = None

    async def read(self) -> None:
        async for message in self._socket:
            now = time.monotonic()
            self._take(now, json.loads(message.data))
            self._moved.set()
        raise ConnectionError("the server closed the connection")

    def _take(self, now: float, event: Event) -> None:
        match event["type"]:
            case "response.output_audio.delta":
                answer = self._of(event)
                answer.item = event["item_id"]
                answer.deltas.append(Delta(now, from_wire(event["delta"])))
                return
            case "response.created":
                self.answers.append(Answer(event["response"]["id"], now))
            case "response.output_audio_transcript.delta":
                self._of(event).text += event["delta"]
            case "response.done":
                answer = next(each for each in self.answers if each.response == event["response"]["id"])
                answer.done, answer.status = now, event["response"]["status"]
            case "error" if event["error"]["code"] != "response_cancel_not_active":
                raise RuntimeError(f"the server refused: {event['error']}")
            case _:
                pass
        self.events.append((now, event))

    def _of(self, event: Event) -> Answer:
        return next(each for each in reversed(self.answers) if each.response == event["response_id"])


@asynccontextmanager
async def calling(
    server: Served, *, session: Mapping[str, Any], extended: bool = False, feeding: bool = True
) -> AsyncIterator[Caller]:
    """A call whose microphone is open (`feeding`); `session` goes out as `session.update`."""
    url = f"{server.url}/v1/realtime" + ("?events=ext" if extended else "")
    async with aiohttp.ClientSession() as http, http.ws_connect(url, max_msg_size=0) as socket:
        caller = Caller(socket)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(caller.read())]
            await caller.send(type="session.update", session={"type": "realtime", **session})
            await caller.until(lambda: any(event["type"] == "session.updated" for _, event in caller.events))
            if feeding:
                caller.open.set()
                tasks.append(group.create_task(caller.feed()))
            try:
                yield caller
            finally:
                for task in tasks:
                    task.cancel()
