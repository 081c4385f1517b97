"""A WebSocket on which a client writes and is spoken to: one reader, one writer, a dialect between them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
from aiohttp import WSMessage, WSMsgType, web

from media.frames import PcmF
from mstar.client import Session as Runtime
from mstar.errors import Rejected
from server.door import SERVER, Server, account_of
from server.limits import Account, ErrorBudget
from server.outbound import Close, Frame, Outbound
from server.security import Refusal
from server.sessions import GOODBYE_SECONDS, HEARTBEAT_SECONDS, bound_sending
from server.speech.context import Event
from server.speech.driver import Speaker
from server.speech.entry import session, upgrade_wanted
from server.speech.offers import Said
from server.speech.sound import Outlet
from server.speech.wire import json_text

log = logging.getLogger("mstar.server")

NOTHING = np.zeros(0, np.float32)
FRAME_BYTES = 4 * 1024 * 1024
"""Longest message of a client; longer ones close the connection with 1009."""


Message: TypeAlias = Any
"""A struct, sent as JSON text; bytes, sent as they are; None, not sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Later(Frame):
    """A message that is made when it leaves; `waits` bytes until then. `pcm`: the sound that it takes to `outlet`.

    So an encoder never knows of sound that was cut off.
    """

    make: Callable[[], Message]
    pcm: PcmF
    waits: int = 0
    outlet: Outlet | None = None

    @property
    def size(self) -> int:
        return self.waits


class Dialect(Protocol):
    """What a protocol makes of a client's messages. Its methods raise Rejected for what can not be."""

    idle_seconds: float
    """How long a client may say nothing while nothing is said to it."""

    async def take(self, frame: str) -> None:
        """A text message."""
        ...

    def refuse(self, why: Rejected) -> None:
        """Tell the client what is wrong, in the protocol's own form."""
        ...

    @property
    def busy(self) -> bool:
        """Whether something is being said."""
        ...

    def idle(self) -> None:
        """The client has been idle for too long."""
        ...

    def gone(self) -> None:
        """The connection ends: cancel what is being said."""
        ...


class _Over(Exception):
    """The connection has ended; everything of it ends too."""


class Line:
    """One connection. What is sent here leaves in order; nothing waits."""

    def __init__(
        self,
        socket: web.WebSocketResponse,
        server: Server,
        protocol: str,
        stack: AsyncExitStack,
        account: Account,
    ) -> None:
        self.account = account
        """Who pays for what is said; a dialect whose key comes in a message sets it anew before it opens anything."""
        self._socket = socket
        self._server = server
        self._protocol = protocol
        self._stack = stack
        self._outbound = Outbound()
        self._runtimes: dict[str, Runtime] = {}
        self._mistakes = ErrorBudget()
        self._group: asyncio.TaskGroup | None = None
        self._dialect: Dialect | None = None

    # ------------------------------------------------------------------------------------------- for dialects

    def send(self, message: Any, sound_of: str = "") -> None:
        """A message as JSON text; `sound_of` names the context that it belongs to, with which `cut` takes it out."""
        self._outbound.push(Frame(json_text(message), sound_of))

    def send_bytes(self, raw: bytes, sound_of: str) -> None:
        """Sound as it is."""
        self._outbound.push(Frame(raw, sound_of, binary=True))

    def send_later(self, make: Callable[[], Message], sound_of: str) -> None:
        """A message that tells of what has left before it."""
        self._outbound.push(Later(b"", sound_of, make=make, pcm=NOTHING))

    def sound(self, pcm: PcmF, outlet: Outlet, make: Callable[[bytes], Message], sound_of: str) -> None:
        """Sound of a context, coded when it leaves; `make` makes a message of the bytes, if there are any."""
        self._coded(lambda: outlet.feed(pcm), make, sound_of, outlet, pcm)

    def border(self, outlet: Outlet, make: Callable[[bytes], Message], sound_of: str, *, last: bool = False) -> None:
        """What the outlet holds of the sound so far, all of it if `last`."""
        self._coded(outlet.finish if last else outlet.border, make, sound_of, outlet, NOTHING)

    def _coded(
        self, code: Callable[[], bytes], make: Callable[[bytes], Message], sound_of: str, outlet: Outlet, pcm: PcmF
    ) -> None:
        def made() -> Message:
            raw = code()
            return make(raw) if raw else None

        self._outbound.push(Later(b"", sound_of, make=made, pcm=pcm, waits=outlet.size(pcm), outlet=outlet))

    def cut(self, context: str, outlet: Outlet | None = None) -> bytes:
        """Sound of this context that has not left is not wanted any more → what it ends with instead, at `outlet`."""
        for frame in self._outbound.drop(context):
            if isinstance(frame, Later) and frame.outlet is not None:
                return frame.outlet.faded(frame.pcm)
        return b"" if outlet is None else outlet.faded(NOTHING)

    def refuse(self, why: Rejected) -> None:
        """Tell the client of something that is wrong, as its protocol does."""
        if self._dialect is not None:
            self._dialect.refuse(why)

    def end(self, code: int, reason: str) -> None:
        """Close behind what was sent."""
        self._outbound.push(Close(code, reason))

    def later(self, seconds: float, then: Callable[[], None]) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(seconds, then)

    async def speaker(self, said: Said, settings: Mapping[str, Any], tell: Callable[[Event], None]) -> Speaker:
        """A context of a family. Raises Rejected where the server has no place."""
        assert self._group is not None
        runtime = await self.runtime(said)
        return Speaker(runtime, said.offer, settings, self._group, tell, self._outbound.eased, self.account.write)

    async def runtime(self, said: Said) -> Runtime:
        """The connection's session with a family, opened when it is first needed. Raises Rejected."""
        found = self._runtimes.get(said.family)
        if found is None:
            try:
                found = await self._stack.enter_async_context(session(self._server, said, self._protocol, self.account))
            except Refusal as why:
                raise Rejected(why.message, code=why.code, param=why.param) from None
            self._runtimes[said.family] = found
        return found

    def adopt(self, said: Said, runtime: Runtime) -> None:
        """A session that was opened before the upgrade."""
        self._runtimes[said.family] = runtime

    # ------------------------------------------------------------------------------------------- life

    async def run(self, greet: Callable[[Line], Dialect]) -> None:
        """Returns when the connection is over."""
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                dialect = self._dialect = greet(self)
                group.create_task(self._watch())
                writing = group.create_task(self._write())
                reading = group.create_task(self._read(dialect))
                try:
                    await asyncio.wait({reading, writing}, return_when=asyncio.FIRST_COMPLETED)
                finally:  # nothing that it began may begin anything more
                    dialect.gone()
                if not reading.done():
                    reading.cancel()
                    await asyncio.wait({reading})
                    close = writing.result()
                    await self._socket.close(code=close.code, message=_reason(close.reason))
                raise _Over
        except* (_Over, ConnectionError):
            pass

    async def _read(self, dialect: Dialect) -> None:
        while True:
            message = await self._next(dialect)
            if message is None:
                dialect.idle()
                continue
            try:
                match message.type:
                    case WSMsgType.TEXT:
                        await dialect.take(message.data)
                    case WSMsgType.BINARY:
                        raise Rejected("Messages must be JSON text.", code="invalid_frame")
                    case _:
                        return
            except Rejected as why:
                dialect.refuse(why)
                self._server.metrics.errors.labels(why.code).inc()
                if not self._mistakes.spend(asyncio.get_running_loop().time()):
                    self.end(1008, "too many errors")
            await self._outbound.eased()

    async def _next(self, dialect: Dialect) -> WSMessage | None:
        """The next message; None if the client has been idle."""
        while True:
            try:
                async with asyncio.timeout(dialect.idle_seconds):
                    return await self._socket.receive()
            except TimeoutError:
                if not dialect.busy:
                    return None

    async def _write(self) -> Close:
        while True:
            frame = await self._outbound.pop()
            if isinstance(frame, Close):
                return frame
            message: Message = frame.body
            if isinstance(frame, Later):
                message = frame.make()
                kind = WSMsgType.BINARY if isinstance(message, bytes) else WSMsgType.TEXT
                message = message if message is None or isinstance(message, bytes) else json_text(message)
            else:
                kind = WSMsgType.BINARY if frame.binary else WSMsgType.TEXT
            if message is not None:
                await self._socket.send_frame(message, kind)
            self._outbound.written(frame)

    async def _watch(self) -> None:
        """Give up a client that does not read."""
        while True:
            await self._outbound.turned()
            if self._outbound.overflowing:
                raise _Over


def _reason(text: str) -> bytes:
    """As much of a text as a close frame holds."""
    return text.encode(errors="replace")[:120].decode(errors="ignore").encode()


async def converse(
    request: web.Request,
    protocol: str,
    greet: Callable[[Line], Dialect],
    *,
    said: Said | None = None,
    subprotocols: Sequence[str] = (),
) -> web.StreamResponse:
    """Upgrade and talk until the connection is over. `said`: the family, if it is known before the first message.

    Raises Refusal before the upgrade.
    """
    server = request.app[SERVER]
    upgrade_wanted(request)
    account = account_of(request)
    async with AsyncExitStack() as stack:
        opened = None if said is None else await stack.enter_async_context(session(server, said, protocol, account))
        socket = web.WebSocketResponse(
            protocols=subprotocols,
            timeout=GOODBYE_SECONDS,
            heartbeat=HEARTBEAT_SECONDS,
            max_msg_size=FRAME_BYTES,
            compress=False,
        )
        await socket.prepare(request)
        bound_sending(request)
        line = Line(socket, server, protocol, stack, account)
        if said is not None and opened is not None:
            line.adopt(said, opened)
        server.live.add(line)
        try:
            await line.run(greet)
        except* Exception:  # one connection's failure is not another's
            log.exception("a connection of %s failed", protocol)
            server.metrics.failed.inc()
            await socket.close(code=1011, message=b"internal error")
        finally:
            server.live.discard(line)
    return socket
