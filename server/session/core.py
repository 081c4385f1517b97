"""The session core: what a client says, what the family emits and the time go in; commands come out.

No sockets, no tasks, no clock: `now` is seconds of any monotonic clock; every entry returns the commands of its step.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import msgspec
import numpy as np
import numpy.typing as npt

from models.registry import Conversation as Offer
from mstar.errors import Rejected
from mstar.tensors import Value
from server.events.client import (
    AnyClientEvent,
    ConversationItemCreate,
    ConversationItemDelete,
    ConversationItemRetrieve,
    ConversationItemTruncate,
    InputAudioBufferAppend,
    InputAudioBufferClear,
    InputAudioBufferCommit,
    OutputAudioBufferClear,
    ResponseCancel,
    ResponseCreate,
    SessionUpdate,
)
from server.events.server import SessionCreated, SessionUpdated
from server.events.session import Session, SessionPatch, TranscriptionSession, shown, updated
from server.session.commands import Command, EndSession
from server.session.conversation import Conversation
from server.session.log import Log, taken
from server.session.marks import Marks
from server.session.microphone import Microphone
from server.session.options import Options
from server.session.outbox import Ids, Outbox
from server.session.prompts import check_choice
from server.session.recordings import LONGEST_SECONDS, MOST_BYTES, Recordings
from server.session.responder import Responder
from server.session.tasks import Ended, Tasks
from server.session.transcripts import Transcripts
from server.session.turns import TurnTaker

MOST_BACKLOG = 1000
"""Microphone items (32 s) that may wait to be heard before the shell should stop reading."""


class SessionCore:
    """`unix` is the wall clock at `now`, for `expires_at` only."""

    def __init__(self, offer: Offer, model: str, options: Options, ids: Ids, now: float, unix: int) -> None:
        self._out = Outbox(ids)
        self._offer = offer
        self._options = options
        self._opened = now
        self._expires = now + options.seconds
        self._ended = False
        self.session = Session(
            type="realtime",
            object="realtime.session",
            id=ids("sess"),
            model=model,
            expires_at=unix + round(options.seconds),
        )
        self.session = updated(self.session, _voice(offer.voices[0]))
        log, tasks = Log(), Tasks(self._out)
        self._log, self._tasks = log, tasks
        self._transcripts = Transcripts(
            self._out, tasks, log, offer.transcribe, self.session, always=options.transcribing
        )
        # Sound does not travel in events over WebRTC.
        recordings = Recordings(0 if options.counted else MOST_BYTES)
        recent = 0 if options.counted else LONGEST_SECONDS
        self._conversation = Conversation(self._out, log, self._transcripts, recordings, offer, options)
        self._responder = Responder(self._out, tasks, log, self._transcripts, recordings, offer, options, self.session)
        self._transcripts.known = self._responder.asking.known
        self._mic = Microphone(self._out, offer.mic_rate, offer.mic_item, offer.mic_history, recent)
        self._turns = TurnTaker(
            self._out,
            tasks,
            self._mic,
            self._conversation,
            self._responder,
            self._transcripts,
            offer,
            options,
            self.session,
            now,
        )

    # ------------------------------------------------------------------------------------------- entries

    def open(self, patch: SessionPatch | None = None) -> list[Command]:
        """The first event. `patch`: settings that a client secret was made with. Raises Rejected for wrong ones."""
        if patch is not None:
            session = updated(self.session, patch)
            check_choice(session.tool_choice, self._offer, "session.tool_choice")
            self._effective(session)
        self._out.send(SessionCreated(session=self._shown()))
        return self._out.take()

    def client(self, event: AnyClientEvent, now: float) -> list[Command]:
        """A client event other than `input_audio_buffer.append`, whose sound goes to `hear`."""

        def step() -> None:
            try:
                self._client(event, now)
            except Rejected as why:
                self._out.refuse(why, event.event_id)

        return self._step(step, now)

    def refuse(self, why: Rejected, event_id: str | None) -> list[Command]:
        """Something that was no event, or sound that was none."""
        self._out.refuse(why, event_id)
        return self._out.take()

    def hear(self, pcm: npt.NDArray[np.float32], now: float) -> list[Command]:
        """Sound of the user, float32 [n] at the family's microphone rate."""

        def step() -> None:
            self._turns.listen()
            self._mic.append(pcm, now)
            self._turns.appended()

        return self._step(step, now)

    def emission(self, key: int, output: str, index: int, value: Value, now: float) -> list[Command]:
        """Task `key` emitted the `index`-th value of an output."""
        return self._step(lambda: self._tasks.emission(key, output, index, value, now), now)

    def ended(self, key: int, end: Ended, now: float) -> list[Command]:
        """Task `key` has ended."""
        return self._step(lambda: self._tasks.ended(key, end, now), now)

    def played(self, response_id: str, samples: int, now: float) -> list[Command]:
        """Counted playout: `samples` of a response have been heard."""
        return self._step(lambda: self._responder.report(response_id, samples, now), now)

    def congested(self, congested: bool, now: float) -> list[Command]:
        """Whether the client has stopped reading."""
        self._responder.congested = congested
        return self._step(lambda: self._responder.tick(now), now)

    def tick(self, now: float) -> list[Command]:
        """Time has passed; see `next`."""
        return self._step(lambda: self._responder.tick(now), now)

    def next(self, now: float) -> float:
        """When `tick` should be called at the latest; never (inf) once the session has ended."""
        if self._ended:
            return math.inf
        times = [self._expires, self._responder.next(now), self._turns.next()]
        return min(at for at in times if at is not None)

    @property
    def saturated(self) -> bool:
        """Too much sound waits to be heard: read no more of the client for now."""
        return self._mic.backlog > MOST_BACKLOG

    @property
    def answering(self) -> bool:
        """Something is being answered, or played."""
        return self._responder.interruptible

    @property
    def running(self) -> int:
        """Tasks that run for this session."""
        return self._tasks.running

    # ------------------------------------------------------------------------------------------- inside

    def _step(self, act: Callable[[], None], now: float) -> list[Command]:
        if self._ended:
            return []
        act()
        self._turns.tick(now)
        if now >= self._expires:
            self._ended = True
            minutes = round(self._options.seconds / 60)
            text = f"Your session hit the maximum duration of {minutes} minutes."
            self._out.refuse(Rejected(text, code="session_expired"), None)
            self._out.do(EndSession(1001, "session_expired"))
        return self._out.take()

    def _client(self, event: AnyClientEvent, now: float) -> None:
        match event:
            case SessionUpdate():
                self._update(event)
            case InputAudioBufferCommit():
                self._turns.commit(now)
            case InputAudioBufferClear():
                self._turns.clear()
            case ConversationItemCreate():
                self._create(event)
            case ConversationItemRetrieve():
                self._conversation.retrieve(event.item_id, self.session.audio)
            case ConversationItemDelete():
                self._conversation.delete(event.item_id, now)
            case ConversationItemTruncate():
                self._conversation.truncate(event)
            case ResponseCreate() | ResponseCancel() | OutputAudioBufferClear():
                self._respond(event, now)
            case InputAudioBufferAppend():
                raise TypeError("sound goes to `hear`")

    def _create(self, event: ConversationItemCreate) -> None:
        if event.item.id and self._turns.promises(event.item.id):
            raise taken(event.item.id)
        self._conversation.create(event, self.session.audio.input.format)

    def _respond(self, event: ResponseCreate | ResponseCancel | OutputAudioBufferClear, now: float) -> None:
        if self._options.transcribing:
            raise Rejected("A transcription session has no responses.", code="invalid_session_type", param="type")
        match event:
            case ResponseCreate():
                marks = Marks(self._opened)
                marks.set("endpoint", now)
                self._responder.respond(event.response, now, marks)
            case ResponseCancel():
                self._responder.cancel(event.response_id, now)
            case OutputAudioBufferClear():
                if not self._options.counted:
                    raise Rejected(
                        "output_audio_buffer.clear needs a connection whose playout the server counts (WebRTC).",
                        code="invalid_value",
                        param="type",
                    )
                self._responder.clear(now)

    def _update(self, event: SessionUpdate) -> None:
        wanted = "transcription" if self._options.transcribing else "realtime"
        if event.session.type != wanted:
            raise Rejected(f"The type of this session is '{wanted}'.", code="invalid_value", param="session.type")
        session = updated(self.session, event.session, spoken=self._log.spoken, buffered=self._turns.buffered)
        check_choice(session.tool_choice, self._offer, "session.tool_choice")
        self._effective(session)
        self._turns.reconfigure()
        self._out.send(SessionUpdated(session=self._shown()))

    def _effective(self, session: Session) -> None:
        self.session = session
        self._responder.asking.session = session
        self._transcripts.session = session
        self._turns.session = session

    def _shown(self) -> Session | TranscriptionSession:
        return shown(self.session, transcribing=self._options.transcribing)


def _voice(name: str) -> SessionPatch:
    return msgspec.convert({"type": "realtime", "audio": {"output": {"voice": name}}}, SessionPatch)
