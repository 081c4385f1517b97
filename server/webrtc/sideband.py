"""A second connection to a call: a WebSocket that sees the call's events and controls it; sound stays with the call."""

from __future__ import annotations

import asyncio

from aiohttp import WSMsgType, web

from mstar.errors import Rejected
from server.door import SERVER, Handler, authorised
from server.events.client import InputAudioBufferAppend
from server.events.decode import BadEvent
from server.limits import FRAME_BYTES
from server.outbound import Close, Outbound
from server.realtime import decoded
from server.security import PROTOCOL, Refusal
from server.sessions import GOODBYE_SECONDS, HEARTBEAT_SECONDS, bound_sending
from server.webrtc.call import Call
from server.webrtc.routes import CALLS

MOST = 4
"""Connections beside one call."""


class _Over(Exception):
    """The connection, or the call, has ended."""


class Sideband:
    """One connection. `run` returns when it is over; the call goes on."""

    def __init__(self, socket: web.WebSocketResponse, call: Call) -> None:
        self._socket = socket
        self._call = call
        self._outbound = Outbound()

    async def run(self) -> None:
        self._call.join(self._outbound)
        try:
            async with asyncio.TaskGroup() as group:
                writing = group.create_task(self._write())
                reading = group.create_task(self._read())
                watching = group.create_task(self._watch())
                await asyncio.wait({writing, reading, watching}, return_when=asyncio.FIRST_COMPLETED)
                if not reading.done() and writing.done():
                    reading.cancel()
                    await asyncio.wait({reading})
                    close = writing.result()
                    await self._socket.close(code=close.code, message=close.reason.encode())
                raise _Over
        except* (_Over, ConnectionError):
            pass
        finally:
            self._call.part(self._outbound)

    async def _read(self) -> None:
        async for message in self._socket:
            match message.type:
                case WSMsgType.TEXT:
                    await self._take(message.data)
                case WSMsgType.BINARY:
                    self._call.refuse_event(Rejected("Frames must be JSON text.", code="invalid_frame"), None)
                case _:
                    return
            await self._outbound.eased()

    async def _take(self, frame: str) -> None:
        try:
            event = await decoded(frame)
        except BadEvent as bad:
            self._call.refuse_event(bad.rejected, bad.event_id)
            return
        if isinstance(event, InputAudioBufferAppend):
            text = "Sound comes over the audio track of the call."
            self._call.refuse_event(Rejected(text, code="invalid_value", param="type"), event.event_id)
        else:
            self._call.client(event)

    async def _write(self) -> Close:
        while True:
            frame = await self._outbound.pop()
            if isinstance(frame, Close):
                return frame
            await self._socket.send_frame(frame.body, WSMsgType.TEXT)
            self._outbound.written(frame)

    async def _watch(self) -> None:
        """Returns when the client has not read for too long."""
        while not self._outbound.overflowing:
            await self._outbound.turned()


def beside_calls(otherwise: Handler) -> Handler:
    """`GET /v1/realtime?call_id=…`: refused as HTTP before the upgrade, or beside that call until either ends."""

    async def entry(request: web.Request) -> web.StreamResponse:
        return await _join(request) if "call_id" in request.query else await otherwise(request)

    return entry


async def _join(request: web.Request) -> web.StreamResponse:
    server = request.app[SERVER]
    authorised(request)
    call = request.app[CALLS].find(request.query["call_id"])
    if not isinstance(call, Call):
        raise Refusal(404, "call_not_found", "There is no such call.", "call_id")
    if request.headers.get("Upgrade", "").lower() != "websocket":
        raise Refusal(426, "upgrade_required", "This address speaks WebSocket.")
    if call.beside >= MOST:
        raise Refusal(503, "sideband_limit_reached", f"{MOST} are beside this call already.", retry_after=5)
    connection = web.WebSocketResponse(
        protocols=(PROTOCOL,),
        timeout=GOODBYE_SECONDS,
        heartbeat=HEARTBEAT_SECONDS,
        max_msg_size=FRAME_BYTES,
        compress=False,
    )
    await connection.prepare(request)
    bound_sending(request)
    gauge = server.metrics.sessions.labels("sideband")
    gauge.inc()
    try:
        await Sideband(connection, call).run()
    finally:
        gauge.dec()
    return connection
