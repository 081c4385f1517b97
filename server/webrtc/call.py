"""One WebRTC call: a peer, a session core, and what passes between them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from aiortc import MediaStreamTrack, RTCRtpTransceiver

from models.registry import Conversation as Offer
from mstar.client import Session as Runtime
from mstar.client import Traced
from mstar.errors import Rejected
from server.events.client import AnyClientEvent, InputAudioBufferAppend
from server.events.decode import BadEvent
from server.events.server import Error, ServerEvent, SessionCreated, Trace, TurnMarks, encode, own_fault
from server.events.session import shown
from server.limits import ErrorBudget
from server.outbound import Close, Frame, Outbound
from server.pump import Pump, free
from server.realtime import Asked, decoded, new_id
from server.session.commands import Command, PlayAudio
from server.session.options import Options
from server.watch import Watch
from server.webrtc import patches
from server.webrtc.addresses import Offered
from server.webrtc.channel import Channel
from server.webrtc.hearing import Hearing, PcmF
from server.webrtc.listening import listen
from server.webrtc.peer import Peer, first
from server.webrtc.speaker import Heard, Speaker
from server.webrtc.track import AnswerTrack

CHANNEL = "oai-events"
CHANNEL_SECONDS = 15.0
"""A connected peer that offered a data channel has it open within this time, or is let go: nobody would hear it."""


class _Over(Exception):
    """The call has ended; everything of it ends with it."""


class Call:
    """Transport of one session. `answer`, then `run` until it is over; `free` in any case."""

    def __init__(
        self,
        runtime: Runtime,
        offer: Offer,
        options: Options,
        asked: Asked,
        watch: Watch,
        offers: Sequence[Offered],
        ice_servers: Sequence[str],
        hears: Callable[[int], None] = free,
    ) -> None:
        """`hears` as of `Pump`. Raises Rejected for session settings that can not be."""
        self._hears = hears
        self.id = new_id("rtc")
        self._loop = asyncio.get_running_loop()
        self._opened = self._loop.time()
        self._asked = asked
        self._watch = watch
        self._runtime = runtime
        self._core = watch.core(offer, asked.model, options, self._opened)
        self._first: list[Command] = self._core.open(asked.session)
        self._outbound = Outbound()
        self._channel = Channel(self._outbound, self.hang_up, self._flooded)
        self._mistakes = ErrorBudget()
        self._hearing = Hearing(offer.mic_rate)
        self._speaker = Speaker(offer.speech_rate)
        self._heard: dict[str, int] = {}
        self._news = asyncio.Event()
        self._over = asyncio.Event()
        self._track = AnswerTrack(self._speaker, self._note)
        self._microphone: MediaStreamTrack | None = None
        self._beside: list[Outbound] = []
        self._pump: Pump | None = None
        self.peer = Peer(self._arrange, (self._track,), offers, ice_servers, self.hang_up, CHANNEL, self._channel.open)

    # ------------------------------------------------------------------------------------------- Transport

    def send(self, event: ServerEvent) -> None:
        if isinstance(event, TurnMarks) and not self._asked.extended:
            return
        frame = Frame(encode(event))
        for beside in self._beside:
            beside.push(frame)
        if not self.peer.talks:
            return
        self._outbound.push(frame)
        if isinstance(event, Error) and not self._mistakes.spend(self._loop.time()):
            self.end(1008, "too many errors")

    def play(self, sound: PlayAudio) -> None:
        self._speaker.play(sound.response_id, sound.pcm, last=sound.last)

    def clear(self, response_id: str) -> None:
        self._speaker.clear(response_id)
        self._heard.pop(response_id, None)

    def refuse(self, why: Rejected) -> None:
        self.send(own_fault(why, new_id("event")))

    def end(self, code: int, reason: str) -> None:
        if self.peer.talks and self._channel.opened:
            self._outbound.push(Close(code, reason))
        else:
            self.hang_up()

    # ------------------------------------------------------------------------------------------- beside

    @property
    def beside(self) -> int:
        """Connections that see the call's events beside its own."""
        return len(self._beside)

    def join(self, outbound: Outbound) -> None:
        """One more of them, which is told of the session as it is."""
        self._beside.append(outbound)
        session = shown(self._core.session, transcribing=self._asked.transcribing)
        outbound.push(Frame(encode(SessionCreated(event_id=new_id("event"), session=session))))

    def part(self, outbound: Outbound) -> None:
        self._beside.remove(outbound)

    def client(self, event: AnyClientEvent) -> None:
        """An event of one of them; what follows from it is told to all."""
        if self._pump is not None:
            self._pump.client(event)

    def refuse_event(self, why: Rejected, event_id: str | None) -> None:
        """A frame of one of them could not be read."""
        if self._pump is not None:
            self._pump.refuse(why, event_id)

    # ------------------------------------------------------------------------------------------- life

    async def answer(self, sdp: str) -> str:
        """SDP offer → SDP answer. Raises Rejected."""
        return await self.peer.answer(sdp)

    def _arrange(self, transceivers: Sequence[RTCRtpTransceiver]) -> None:
        """One audio section carries both voices; everything else of the offer is declined."""
        chosen = first(transceivers, "audio")
        chosen.sender.replaceTrack(self._track)
        chosen.direction = "sendrecv"
        patches.pass_through(chosen.receiver)
        self._microphone = chosen.receiver.track

    async def run(self) -> None:
        """Returns when the call is over, however it ended."""
        if self._asked.extended:
            self._runtime.on_trace = self._traced
        try:
            async with asyncio.TaskGroup() as group:
                pump = Pump(self._core, self._runtime, self, group, self._loop.time, self._watch, self._hears)
                self._pump = pump
                group.create_task(self._ending())
                group.create_task(self._living())
                group.create_task(self._talking())
                group.create_task(self._write())
                group.create_task(self._read(pump))
                group.create_task(self._report(pump))
                group.create_task(self._ease(pump))
                if self._microphone is not None:
                    group.create_task(self._hear(pump, self._microphone))
                pump.start(self._first)
                try:
                    await self._over.wait()
                finally:
                    pump.stop()
                    self._pump = None
                    for beside in self._beside:
                        beside.push(Close(1000, "the call has ended"))
        except* (_Over, ConnectionError):
            pass

    async def free(self) -> None:
        """Close the peer; safe to call twice."""
        self.hang_up()
        await self.peer.close()

    def hang_up(self) -> None:
        """End the call now."""
        self._over.set()

    async def _ending(self) -> None:
        await self._over.wait()
        raise _Over

    async def _living(self) -> None:
        """End a call whose peer does not come, or vanishes without a word."""
        await self.peer.vanished()
        raise _Over

    async def _talking(self) -> None:
        """End a call whose peer has offered a data channel of events and opens none of that name."""
        await self.peer.connected.wait()
        if self.peer.talks:
            await self._channel.missing(CHANNEL_SECONDS)
            raise _Over

    # ------------------------------------------------------------------------------------------- events

    def _flooded(self) -> None:
        self.end(1008, "too many events")

    async def _read(self, pump: Pump) -> None:
        while True:
            message = await self._channel.read()
            try:
                event = await decoded(message)
            except BadEvent as bad:
                pump.refuse(bad.rejected, bad.event_id)
                continue
            if isinstance(event, InputAudioBufferAppend):
                text = "Sound comes over the audio track of this connection."
                pump.refuse(Rejected(text, code="invalid_value", param="type"), event.event_id)
                continue
            pump.client(event)
            await self._outbound.eased()

    async def _write(self) -> None:
        await self._channel.write()
        raise _Over

    async def _ease(self, pump: Pump) -> None:
        """Tell the core when the client stops reading; give up one that has for too long."""
        while True:
            await self._outbound.turned()
            if self._outbound.overflowing:
                raise _Over
            pump.congested(self._outbound.congested)

    def _traced(self, traced: Traced) -> None:
        rows = tuple((round((row[0] - self._opened) * 1000, 2), *row[1:]) for row in traced.records)
        if self.peer.talks and not self._outbound.congested:
            self._outbound.push(Frame(encode(Trace(event_id=new_id("event"), worker=traced.worker, records=rows))))

    # ------------------------------------------------------------------------------------------- sound

    def _note(self, heard: Sequence[Heard]) -> None:
        """Called by the track; the core is told by a task whose failure is seen."""
        for each in heard:
            self._heard[each.response] = each.samples
        self._news.set()

    async def _report(self, pump: Pump) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            heard, self._heard = self._heard, {}
            for response, samples in heard.items():
                pump.played(response, samples)

    async def _hear(self, pump: Pump, track: MediaStreamTrack) -> None:
        """Every frame of the peer's track into the core; what comes when too much waits to be heard is dropped."""

        def take(sound: PcmF) -> None:
            if not self._core.saturated:
                pump.hear(sound)

        await self.peer.connected.wait()
        await listen(track, self._hearing, take)
