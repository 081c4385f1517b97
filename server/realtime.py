"""OpenAI Realtime over WebSocket: one reader, one writer, and a session core between them."""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import dataclass

from aiohttp import WSMessage, WSMsgType, web

from models.registry import Conversation as Offer
from mstar.client import Session as Runtime
from mstar.client import Traced
from mstar.errors import Rejected
from server.audio import Incoming, Outgoing
from server.events.client import AnyClientEvent, InputAudioBufferAppend, InputAudioBufferCommit
from server.events.decode import BadEvent, decode
from server.events.server import Error, OutputAudioDelta, ServerEvent, Trace, TurnMarks, encode, own_fault
from server.events.session import SessionPatch
from server.limits import APPEND_BYTES, Account, ErrorBudget
from server.outbound import Close, Frame, Outbound
from server.pump import Pump
from server.session.commands import PlayAudio
from server.session.options import Options
from server.watch import Watch

LONG_FRAME = 256 * 1024
"""Frames from this length on are decoded beside the event loop."""
STEP_SECONDS = 1
"""Sound taken in one step of the core; other sessions run between two."""


def new_id(kind: str) -> str:
    """A unique id of a kind: "item" → "item_…"."""
    return f"{kind}_{secrets.token_hex(10)}"


async def decoded(frame: str | bytes) -> AnyClientEvent:
    """One client event; a long frame is decoded beside the event loop. Raises BadEvent."""
    return await asyncio.to_thread(decode, frame) if len(frame) > LONG_FRAME else decode(frame)


@dataclass(frozen=True, slots=True)
class Asked:
    """What the client asked for when it connected."""

    model: str
    extended: bool = False  # wants extension events
    transcribing: bool = False
    session: SessionPatch | None = None


class _Over(Exception):
    """The connection has ended; everything of the session ends with it."""


class RealtimeSocket:
    """One connection. `run` returns when it is over, however it ended."""

    def __init__(
        self,
        socket: web.WebSocketResponse,
        runtime: Runtime,
        offer: Offer,
        options: Options,
        asked: Asked,
        watch: Watch,
        account: Account,
        idle_seconds: float,
    ) -> None:
        now = asyncio.get_running_loop().time()
        self._socket = socket
        self._asked = asked
        self._watch = watch
        self._offer = offer
        self._opened = now
        self._core = watch.core(offer, asked.model, options, now)
        self._outbound = Outbound()
        self._incoming = Incoming(self._core.session.audio.input.format, offer.mic_rate)
        self._outgoing: dict[str, Outgoing] = {}
        self._mistakes = ErrorBudget()
        self._runtime = runtime
        self._account = account
        self._idle_seconds = idle_seconds

    # ------------------------------------------------------------------------------------------- Transport

    def send(self, event: ServerEvent) -> None:
        if isinstance(event, TurnMarks) and not self._asked.extended:
            return
        self._outbound.push(Frame(encode(event)))
        if isinstance(event, Error) and not self._mistakes.spend(asyncio.get_running_loop().time()):
            self.end(1008, "too many errors")

    def play(self, sound: PlayAudio) -> None:
        outgoing = self._outgoing.get(sound.response_id)
        if outgoing is None:
            outgoing = self._outgoing[sound.response_id] = Outgoing(self._offer.speech_rate, sound.format)
        delta = outgoing.feed(sound.pcm, last=sound.last)
        if sound.last:
            del self._outgoing[sound.response_id]
        if delta:
            event = OutputAudioDelta(
                event_id=new_id("event"),
                response_id=sound.response_id,
                item_id=sound.item_id,
                output_index=sound.output_index,
                content_index=sound.content_index,
                delta=delta,
            )
            self._outbound.push(Frame(encode(event), sound.response_id))

    def clear(self, response_id: str) -> None:
        self._outgoing.pop(response_id, None)
        self._outbound.drop(response_id)

    def refuse(self, why: Rejected) -> None:
        self.send(own_fault(why, new_id("event")))

    def end(self, code: int, reason: str) -> None:
        self._outbound.push(Close(code, reason))

    # ------------------------------------------------------------------------------------------- life

    async def run(self) -> None:
        if self._asked.extended:
            self._runtime.on_trace = self._traced
        try:
            async with asyncio.TaskGroup() as group:
                clock = asyncio.get_running_loop().time
                pump = Pump(self._core, self._runtime, self, group, clock, self._watch, self._heard)
                group.create_task(self._ease(pump))
                writing = group.create_task(self._write())
                pump.start(self._core.open(self._asked.session))
                reading = group.create_task(self._read(pump))
                await asyncio.wait({reading, writing}, return_when=asyncio.FIRST_COMPLETED)
                pump.stop()
                if not reading.done():
                    reading.cancel()
                    await asyncio.wait({reading})
                    await self._say_goodbye(writing.result())
                raise _Over
        except* (_Over, ConnectionError):
            pass

    async def _say_goodbye(self, close: Close) -> None:
        """Close, and wait for the client: a socket that is closed with frames unread takes our last ones along.

        The reader has to have stopped: the library does not wait for the client while somebody else reads.
        """
        await self._socket.close(code=close.code, message=close.reason.encode())

    def _heard(self, samples: int) -> None:
        self._account.hear(samples / self._offer.mic_rate)

    async def _next(self, pump: Pump) -> WSMessage:
        """The client's next message; one that says nothing for too long is told to go."""
        while True:
            try:
                async with asyncio.timeout(self._idle_seconds):
                    return await self._socket.receive()
            except TimeoutError:
                if not self._core.answering:
                    text = f"No event came for {self._idle_seconds:g} seconds."
                    pump.refuse(Rejected(text, code="idle_timeout"), None)
                    self.end(1001, "idle_timeout")

    async def _read(self, pump: Pump) -> None:
        while True:
            message = await self._next(pump)
            match message.type:
                case WSMsgType.TEXT:
                    await self._take(pump, message.data)
                case WSMsgType.BINARY:
                    pump.refuse(Rejected("Frames must be JSON text.", code="invalid_frame"), None)
                case _:
                    return
            await self._outbound.eased()

    async def _take(self, pump: Pump, frame: str) -> None:
        try:
            event = await decoded(frame)
        except BadEvent as bad:
            pump.refuse(bad.rejected, bad.event_id)
            return
        if isinstance(event, InputAudioBufferAppend):
            await self._hear(pump, event)
        else:
            self._tell(pump, event)

    def _tell(self, pump: Pump, event: AnyClientEvent) -> None:
        if isinstance(event, InputAudioBufferCommit):
            rest = self._incoming.flush()
            if rest.size:
                pump.hear(rest)
        pump.client(event)

    async def _hear(self, pump: Pump, event: InputAudioBufferAppend) -> None:
        wanted = self._core.session.audio.input.format
        if wanted != self._incoming.format:
            self._incoming = Incoming(wanted, self._offer.mic_rate)
        try:
            if len(event.audio) > APPEND_BYTES:
                raise Rejected("At most 15 MiB of audio may be appended at once.", code="invalid_value", param="audio")
            self._incoming.check(event.audio)
        except Rejected as why:
            pump.refuse(why, event.event_id)
            return
        step = STEP_SECONDS * self._incoming.bytes_per_second
        for start in range(0, len(event.audio), step):
            if start:
                await asyncio.sleep(0)
            await pump.room()
            pump.hear(self._incoming.feed(event.audio[start : start + step]))

    async def _write(self) -> Close:
        """Write frames until the last one, which says how to close."""
        while True:
            frame = await self._outbound.pop()
            if isinstance(frame, Close):
                return frame
            await self._socket.send_frame(frame.body, WSMsgType.TEXT)
            self._outbound.written(frame)

    async def _ease(self, pump: Pump) -> None:
        """Tell the core when the client stops reading; give up one that has for too long."""
        while True:
            await self._outbound.turned()
            if self._outbound.overflowing:
                raise _Over
            pump.congested(self._outbound.congested)

    def _traced(self, traced: Traced) -> None:
        rows = tuple((round((row[0] - self._opened) * 1000, 2), *row[1:]) for row in traced.records)
        event = Trace(event_id=new_id("event"), worker=traced.worker, records=rows)
        if not self._outbound.congested:
            self._outbound.push(Frame(encode(event)))
