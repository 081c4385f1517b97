"""openpi's protocol over one WebSocket: what is served first, then one answer for each observation.

A reader takes frames all the time, so that pings are answered and a client that leaves is noticed however long a
policy takes; a second task answers, in order.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping

from aiohttp import WSMessage, WSMsgType, web

from mstar.client import Session
from mstar.errors import Rejected
from mstar.tensors import Value
from server.limits import ErrorBudget
from server.metrics import Metrics
from server.robot.arrays import pack, unpack
from server.robot.offers import Offer, announced
from server.robot.questions import Failed, answered, question_of
from server.security import PASSING, Refusal

WAITING = 4
"""Observations that may wait for their answer."""
ENDPOINT, SESSION_ID, RESET = "endpoint", "session_id", "reset"
"""Keys that are not of the observation: two of RoboArena's clients, and one to say that an episode begins."""


class Episode:
    """The runtime's session that a robot has now; `opening` begins another one."""

    def __init__(self, runtime: Session, opening: Callable[[], Awaitable[Session]]) -> None:
        self.runtime = runtime
        self._opening = opening

    async def anew(self) -> None:
        """Nothing of what was is known to what follows. Raises Refusal where the runtime has no room."""
        await self.runtime.close()
        self.runtime = await self._opening()

    async def close(self) -> None:
        await self.runtime.close()


class _Over(Exception):
    """The connection has ended; everything of it ends with it."""


class OpenpiSocket:
    """One robot. `run` returns when it is over, however it ended; `open` begins a session of the runtime."""

    def __init__(
        self,
        socket: web.WebSocketResponse,
        model: str,
        offer: Offer,
        episode: Episode,
        metrics: Metrics,
        idle_seconds: float = math.inf,
    ) -> None:
        self._socket = socket
        self._idle_seconds = idle_seconds
        self._busy = False
        self._model = model
        self._offer = offer
        self._episode = episode
        self._metrics = metrics
        self._waiting: asyncio.Queue[bytes | str] = asyncio.Queue(WAITING)
        self._ending = asyncio.Event()
        self._goodbye = (1000, "")
        self._last_word = ""
        self._mistakes = ErrorBudget()
        self._session_id: str | float | None = None
        self._previous_ms: float | None = None
        self._now = asyncio.get_running_loop().time

    def refuse(self, why: Rejected) -> None:
        """Clients take any text for an error; it is the last thing they are told."""
        self._last_word = f"{why.code}: {why.message}"

    def end(self, code: int, reason: str) -> None:
        """Close the connection soon."""
        if not self._ending.is_set():
            self._goodbye = (code, reason)
            self._ending.set()

    async def run(self) -> bool:
        """True: nothing of the robot is kept."""
        try:
            await self._socket.send_bytes(pack(announced(self._model, self._offer)))
            async with asyncio.TaskGroup() as group:
                reading = group.create_task(self._read())
                serving = group.create_task(self._serve())
                ending = group.create_task(self._ending.wait())
                await asyncio.wait({reading, ending}, return_when=asyncio.FIRST_COMPLETED)
                serving.cancel()
                if ending.done():
                    await self._say_goodbye(reading)
                raise _Over
        except* (_Over, ConnectionError):
            pass
        return True

    async def _say_goodbye(self, reading: asyncio.Task[None]) -> None:
        """Close, once nobody reads: the library waits for the client only then."""
        reading.cancel()
        await asyncio.wait({reading})
        if self._last_word:
            await self._socket.send_str(self._last_word)
        code, reason = self._goodbye
        await self._socket.close(code=code, message=reason.encode())

    async def _next(self) -> WSMessage:
        """The next frame; a robot that is idle for too long is told to go."""
        while True:
            try:
                async with asyncio.timeout(None if math.isinf(self._idle_seconds) else self._idle_seconds):
                    return await self._socket.receive()
            except TimeoutError:
                if not self._busy and self._waiting.empty():
                    self.end(1001, "idle_timeout")

    async def _read(self) -> None:
        while True:
            message = await self._next()
            if message.type not in {WSMsgType.BINARY, WSMsgType.TEXT}:
                return
            try:
                self._waiting.put_nowait(message.data)
            except asyncio.QueueFull:
                self.end(1008, "too many observations wait for their answer")
                return

    async def _serve(self) -> None:
        while True:
            self._busy = False
            frame = await self._waiting.get()
            self._busy = True
            began = self._now()
            try:
                reply = await self._reply(frame, began)
            except Rejected as why:
                await self._refuse(why.message, why.code)
            except Failed as why:
                await self._refuse(why.message, why.code)
                if why.ours and why.code not in PASSING:
                    self.end(1011, "the policy failed")
            except Refusal as why:
                await self._refuse(why.message, why.code)
                self.end(1013, "no session is free")
            else:
                await (self._socket.send_str(reply) if isinstance(reply, str) else self._socket.send_bytes(reply))
                self._previous_ms = (self._now() - began) * 1000

    async def _refuse(self, message: str, code: str) -> None:
        """Clients take any text for an error and show it."""
        self._metrics.errors.labels(code).inc()
        self._metrics.chunks.labels("openpi", "failed").inc()
        await self._socket.send_str(f"{code}: {message}")
        if not self._mistakes.spend(self._now()):
            self.end(1008, "too many errors")

    async def _reply(self, frame: bytes | str, began: float) -> bytes | str:
        """Raises Rejected, Failed."""
        if isinstance(frame, str):
            raise Rejected("observations are msgpack in binary frames, not text", code="invalid_frame")
        observation = unpack(frame)
        if not isinstance(observation, Mapping):
            raise Rejected(f"an observation is a map, not {type(observation).__name__}", code="invalid_frame")
        rest = {key: value for key, value in observation.items() if key not in {ENDPOINT, SESSION_ID, RESET}}
        endpoint, session, reset = (_plain(observation, key) for key in (ENDPOINT, SESSION_ID, RESET))
        if endpoint not in {None, "infer", "reset"}:
            raise Rejected(f"endpoint is {endpoint!r:.80}, known: infer, reset", param=ENDPOINT)
        if endpoint == "reset" or reset:
            await self._episode.anew()
            return "reset successful" if endpoint is not None else pack({"status": "reset"})
        if session is not None and session != self._session_id:
            if self._session_id is not None:
                await self._episode.anew()
            self._session_id = session
        return await self._infer(rest, began)

    async def _infer(self, observation: Mapping[str, Value], began: float) -> bytes:
        asked = self._now()
        result = await answered(self._episode.runtime, question_of(self._offer, observation))
        done = self._now()
        self._metrics.chunks.labels("openpi", "done").inc()
        timing: dict[str, Value] = {"infer_ms": (done - began) * 1000}
        if self._previous_ms is not None:
            timing["prev_total_ms"] = self._previous_ms
        told = {name: value for name, value in result.items() if name != "actions"}
        extra: dict[str, Value] = {"plan": told} if "energy" in told else told
        reply: dict[str, Value] = {
            "actions": result["actions"],
            "policy_timing": {"infer_ms": (done - asked) * 1000},
            "server_timing": timing,
            **extra,
        }
        return pack(reply)


def _plain(observation: Mapping[str, Value], key: str) -> str | float | None:
    """A text, a number or a boolean, if it is there. Raises Rejected naming the key."""
    value = observation.get(key)
    if value is not None and not isinstance(value, (str, int, float)):
        raise Rejected(f"{key} is a text or a number, not {type(value).__name__}", code="wrong_dtype", param=key)
    return value
