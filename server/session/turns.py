"""Whose turn it is: listening, the end of a turn in two stages (prepare, then release), barge-in, commits by hand."""

from __future__ import annotations

from dataclasses import dataclass

from media.turns import (
    Listening,
    Pause,
    Signal,
    SpeechResumed,
    SpeechStarted,
    SpeechStopped,
    TurnSettings,
    forget,
    hear,
    judge,
)
from models.registry import Conversation as Offer
from mstar.errors import Rejected
from mstar.tensors import Value
from server.events import server as events
from server.events.session import SemanticVad, ServerVad, Session
from server.session import emissions
from server.session.answers import Answer
from server.session.commands import BargedIn
from server.session.conversation import Conversation
from server.session.ear import Ear, Judgement
from server.session.log import Entry
from server.session.marks import Marks
from server.session.microphone import Microphone
from server.session.options import Options
from server.session.outbox import Outbox
from server.session.partials import Partials
from server.session.responder import Responder
from server.session.tasks import Tasks
from server.session.transcripts import Transcripts

SHORTEST_COMMIT_MS = 100


@dataclass(slots=True)
class Utterance:
    """A user's turn while it is open. Positions: `first`, `stop` in microphone items."""

    item_id: str
    first: int
    marks: Marks
    stop: int | None = None  # the last pause point: where the committed sound will end
    prepared: Answer | None = None
    judging: int | None = None  # key of the turn model's task
    interrupt_at: int | None = None  # sample from which on this speech is an interruption
    onset: int = 0  # its first sample of speech


class TurnTaker:
    """`session` is the effective session object; the core replaces it and then calls `reconfigure`."""

    def __init__(
        self,
        out: Outbox,
        tasks: Tasks,
        mic: Microphone,
        conversation: Conversation,
        responder: Responder,
        transcripts: Transcripts,
        offer: Offer,
        options: Options,
        session: Session,
        now: float,
    ) -> None:
        self.session = session
        self._out = out
        self._tasks = tasks
        self._mic = mic
        self._conversation = conversation
        self._responder = responder
        self._transcripts = transcripts
        self._offer = offer
        self._options = options
        self._opened = now
        self._ear = Ear(out, tasks, mic, offer.listen, self._probability)
        self._partials = Partials(out, tasks, transcripts, mic, offer.transcribe)
        self._state = Listening()
        self._speech: Utterance | None = None
        self._buffer = 0  # first item of the input audio buffer
        self._deferred: Marks | None = None  # a turn that waits for the response in progress

    # ------------------------------------------------------------------------------------------- sound

    @property
    def buffered(self) -> bool:
        """Whether the input audio buffer holds sound that is neither silence to the ear nor committed."""
        if self._detection is None:
            return self._mic.position > self._buffer * self._mic.item
        return self._speech is not None

    @property
    def _detection(self) -> ServerVad | SemanticVad | None:
        return self.session.audio.input.turn_detection

    def promises(self, item_id: str) -> bool:
        """Whether the client was told this id of an item that is still being said."""
        return item_id == self._partials.item_id or (self._speech is not None and item_id == self._speech.item_id)

    def listen(self) -> None:
        """Sound is coming: have somebody listen to it."""
        if self._detection is not None:
            self._ear.open()

    def appended(self) -> None:
        """Sound has come. Without turn detection the turn is whatever the buffer holds."""
        if self._options.transcribing and self._detection is None:
            item_id = self._partials.item_id or self._out.new_id("item")
            self._partials.heard(item_id, self._buffer, self._mic.items)

    def commit(self, now: float) -> None:
        """The client says that the user has finished. Raises Rejected for less than 100 ms of sound."""
        have = self._mic.ms(self._mic.position) - self._mic.ms(self._buffer * self._mic.item)
        if have < SHORTEST_COMMIT_MS:
            raise Rejected(
                "Error committing input audio buffer: buffer too small. Expected at least "
                f"{SHORTEST_COMMIT_MS}ms of audio, but buffer only has {have:.2f}ms of audio.",
                code="input_audio_buffer_commit_empty",
            )
        self._mic.pad()
        speech, self._speech = self._speech, None
        first = self._buffer
        item_id = self._partials.item_id or self._out.new_id("item")
        if speech is not None:
            self._drop(speech)
            first, item_id = speech.first, speech.item_id
        self._state = forget(self._state)
        self._commit(item_id, first, self._mic.items, now, answered=False)

    def clear(self) -> None:
        """The client throws away what it has not committed."""
        if self._speech is not None:
            self._drop(self._speech)
            self._speech = None
        self._partials.drop()
        self._mic.pad()
        self._buffer = self._mic.items
        self._state = forget(self._state)
        self._out.send(events.InputAudioBufferCleared())

    def reconfigure(self) -> None:
        """The session object has changed; thresholds and times hold from the next item on."""
        if self._detection is None:
            self._ear.close()
            if self._speech is not None:
                self._drop(self._speech)
                self._speech = None
            self._partials.drop()
            self._state = forget(self._state)

    def _commit(self, item_id: str, first: int, stop: int, now: float, *, answered: bool) -> Entry:
        """`answered`: a response follows at once and will bring the words."""
        self._buffer = stop
        entry = self._conversation.commit(item_id, self._mic.sound(first, stop), self._mic.recent(first, stop))
        if self._options.transcribing and not answered:
            self._partials.commit(entry, first, stop, now)
        elif self.session.audio.input.transcription is not None and not answered:
            self._transcripts.want(entry)
        return entry

    # ------------------------------------------------------------------------------------------- signals

    def _probability(self, item: int, speech: float, now: float) -> None:
        if self._detection is None:
            return
        position = item * self._mic.item
        if position < self._state.now or item < self._buffer:  # judged, or committed before it was
            return
        self._state, signals = hear(self._settings(), self._state, position, speech)
        self._act(signals, now)
        open_turn = self._speech
        if self._options.transcribing and open_turn is not None:
            self._partials.heard(open_turn.item_id, open_turn.first, item + 1)
        if open_turn and open_turn.interrupt_at is not None and self._state.now >= open_turn.interrupt_at:
            self._interrupt(open_turn, now)

    def _settings(self) -> TurnSettings:
        given = self._detection
        rate, item = self._mic.rate, self._mic.item
        if isinstance(given, SemanticVad):
            return TurnSettings(eagerness=given.eagerness, rate=rate, item=item)
        assert given is not None
        return TurnSettings(
            threshold=given.threshold,
            prefix_padding_ms=given.prefix_padding_ms,
            silence_duration_ms=given.silence_duration_ms,
            rate=rate,
            item=item,
        )

    def _act(self, signals: tuple[Signal, ...], now: float) -> None:
        for signal in signals:
            match signal:
                case SpeechStarted():
                    self._started(signal, now)
                case Pause():
                    self._paused(signal, now)
                case SpeechResumed():
                    if self._speech is not None:
                        self._drop(self._speech)
                case SpeechStopped():
                    self._stopped(signal, now)

    def _started(self, signal: SpeechStarted, now: float) -> None:
        first = max(signal.at // self._mic.item, self._buffer)
        speech = Utterance(self._out.new_id("item"), first, Marks(self._opened), onset=signal.onset)
        self._speech = speech
        self._responder.quiet_since = None
        start = self._mic.ms(max(signal.at, first * self._mic.item))
        self._out.send(events.SpeechStarted(item_id=speech.item_id, audio_start_ms=start))
        detection = self._detection
        if detection is not None and detection.interrupt_response and self._responder.interruptible:
            least = detection.interrupt_min_ms or 0
            speech.interrupt_at = signal.onset + least * self._mic.rate // 1000
            if self._state.now >= speech.interrupt_at:
                self._interrupt(speech, now)
        if detection is not None and detection.create_response and not self._options.transcribing:
            self._responder.asking.warm()

    def _interrupt(self, speech: Utterance, now: float) -> None:
        speech.interrupt_at = None
        if self._responder.interruptible:
            self._responder.interrupt("turn_detected", now)
            self._out.do(BargedIn(now - self._mic.arrival(speech.onset, now)))

    def _paused(self, signal: Pause, now: float) -> None:
        speech = self._speech
        detection = self._detection
        if speech is None or detection is None:
            return
        speech.stop = self._after(signal.now)
        speech.marks = Marks(self._opened)
        speech.marks.set("speech_end", self._mic.arrival(signal.at, now), signal.at)
        sound = self._mic.sound(speech.first, speech.stop)
        if self._options.transcribing:
            self._partials.paused(speech.item_id, speech.first, speech.stop)
        if detection.create_response and detection.prepare is not False and not self._options.transcribing:
            if self._responder.active is None:
                speech.prepared = self._responder.asking.prepare(sound, speech.marks)
            if speech.prepared is not None:
                speech.marks.set("prepared", now)
        if isinstance(detection, SemanticVad):
            judgement = Judgement(signal.at, self._judged)
            speech.judging = self._tasks.start(self._ear.question(self._offer.judge, sound), judgement)

    def _judged(self, at: int, value: Value, now: float) -> None:
        if self._detection is not None:
            self._state, signals = judge(self._settings(), self._state, at, emissions.probability(value))
            self._act(signals, now)

    def _stopped(self, signal: SpeechStopped, now: float) -> None:
        speech, self._speech = self._speech, None
        detection = self._detection
        if speech is None or detection is None:
            return
        prepared, speech.prepared = speech.prepared, None
        self._drop(speech)
        stop = speech.stop or self._after(signal.now)
        speech.marks.set("endpoint", now, signal.now)
        self._out.send(events.SpeechStopped(item_id=speech.item_id, audio_end_ms=self._mic.ms(signal.at)))
        answer = detection.create_response and not self._options.transcribing
        free = self._responder.active is None
        self._commit(speech.item_id, speech.first, stop, now, answered=answer and free)
        self._deferred = None
        if answer and free:
            self._responder.respond(None, now, speech.marks, prepared)
            return
        if prepared is not None:
            self._responder.asking.drop(prepared)
        if answer:
            self._deferred = speech.marks

    def _drop(self, speech: Utterance) -> None:
        """Whatever was begun for the end of the turn is not wanted (any more)."""
        if speech.prepared is not None:
            self._responder.asking.drop(speech.prepared)
            speech.prepared = None
        if speech.judging is not None:
            self._tasks.interrupt(speech.judging)
            speech.judging = None

    def _after(self, sample: int) -> int:
        """First item that begins at or behind a sample."""
        return -(-sample // self._mic.item)

    # ------------------------------------------------------------------------------------------- time

    def tick(self, now: float) -> None:
        """Answer a turn that had to wait; end a silence that lasts too long."""
        if self._deferred is not None and self._responder.active is None and self._speech is None:
            marks, self._deferred = self._deferred, None
            self._responder.respond(None, now, marks)
        due = self.next()
        if due is not None and now >= due:
            self._timed_out(now)

    def next(self) -> float | None:
        """When the user has been silent for too long."""
        detection, quiet = self._detection, self._responder.quiet_since
        if not isinstance(detection, ServerVad) or detection.idle_timeout_ms is None or self._speech is not None:
            return None
        return quiet + detection.idle_timeout_ms / 1000 if quiet is not None else None

    def _timed_out(self, now: float) -> None:
        quiet, self._responder.quiet_since = self._responder.quiet_since, None
        assert quiet is not None
        self._mic.pad()
        end = self._mic.ms(self._mic.position)
        start = max(0, end - round((now - quiet) * 1000))
        item_id = self._out.new_id("item")
        self._out.send(events.InputAudioBufferTimeoutTriggered(item_id=item_id, audio_start_ms=start, audio_end_ms=end))
        entry = self._commit(item_id, self._buffer, self._mic.items, now, answered=True)
        entry.sound = None  # silence has no words
        self._state = forget(self._state)
        if self._detection is not None and self._detection.create_response and self._responder.active is None:
            self._responder.respond(None, now, Marks(self._opened))
