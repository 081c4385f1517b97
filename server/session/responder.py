"""Who is answering: the one response of the conversation, those beside it, how they go on and how they end."""

from __future__ import annotations

from typing import Literal

from models.registry import Conversation as Offer
from mstar.errors import Rejected
from server.events.client import ResponseParams
from server.events.server import (
    ConversationItemTruncated,
    OutputAudioBufferCleared,
    OutputAudioBufferStarted,
    OutputAudioBufferStopped,
    StatusDetails,
    StatusError,
    TurnMarks,
)
from server.events.session import Session
from server.session import emissions
from server.session.answers import Answer, Emitted
from server.session.asking import Asking
from server.session.commands import ClearAudio, GrantCredit
from server.session.log import Log, cut
from server.session.marks import Marks
from server.session.options import Options
from server.session.outbox import Outbox
from server.session.playout import Listener, Playout, ReportedListener, assumed_listener
from server.session.prompts import spec_of
from server.session.recordings import Recordings
from server.session.responses import Response
from server.session.tasks import Ended, Tasks
from server.session.transcripts import Transcripts

MOST_APART = 16
"""Responses outside of the conversation that a session may have in progress."""
MOST_RETRIES = 4
"""How often a prompt that the model finds too long is shortened."""

CancelReason = Literal["turn_detected", "client_cancelled"]


class Responder:
    """`asking` starts the tasks behind responses."""

    def __init__(
        self,
        out: Outbox,
        tasks: Tasks,
        log: Log,
        transcripts: Transcripts,
        recordings: Recordings,
        offer: Offer,
        options: Options,
        session: Session,
    ) -> None:
        self.asking = Asking(out, tasks, log, transcripts, offer, options, session, self._take, self._too_long)
        self.active: Answer | None = None
        """The response in progress of the conversation itself; one at a time."""
        self.congested = False
        """The client does not read: nothing is played, so nothing more is made."""
        self.quiet_since: float | None = None
        """When the last response had been played to its end; None while one is under way or before the first."""
        self._out = out
        self._tasks = tasks
        self._log = log
        self._transcripts = transcripts
        self._recordings = recordings
        self._offer = offer
        self._options = options
        self._conversation_id = out.new_id("conv")
        self._apart: list[Answer] = []  # responses outside of the conversation
        self._listener = self._new_listener()
        self._playing: list[Answer] = []  # counted playout that has not been heard to its end

    # ------------------------------------------------------------------------------------------- beginning

    def respond(self, params: ResponseParams | None, now: float, marks: Marks, prepared: Answer | None = None) -> None:
        """Begin a response. A prepared answer is taken if it answers just what is asked now.

        Raises Rejected while another response of the conversation, or too many others, are in progress.
        """
        spec = spec_of(self.asking.session, params, self._log, self._out.new_id, self._offer)
        if spec.conversation and self.active is not None and self.active.response is not None:
            raise Rejected(
                f"Conversation already has an active response in progress: {self.active.response.id}. "
                "Wait until the response is finished before creating a new one.",
                code="conversation_already_has_active_response",
            )
        if not spec.conversation and len(self._apart) >= MOST_APART:
            raise Rejected(
                f"{MOST_APART} responses outside of the conversation are in progress already.",
                code="too_many_responses",
                param="response.conversation",
            )
        adopted = self.asking.adopt(prepared, now) if prepared is not None else None
        answer = adopted or Answer(marks, self._take)
        playout = None
        if spec.modality == "audio":
            playout = Playout(self._offer.speech_rate, self._listener if spec.conversation else self._new_listener())
        response = Response(self._out, self._log, self._recordings, spec, self._conversation_id, playout)
        if spec.conversation:
            self.active = answer
            self.quiet_since = None
        else:
            self._apart.append(answer)
        answer.give(response, now)
        if adopted is None:
            self.asking.launch(answer, now)
        self._go_on(answer, now)

    # ------------------------------------------------------------------------------------------- going on

    def _take(self, answer: Answer, event: Emitted | Ended, now: float) -> None:
        response = answer.response
        if response is None or response.status != "in_progress":
            return
        if isinstance(event, Ended):
            self._ended(answer, response, event, now)
            return
        answer.said = True
        match event.output:
            case "transcript" if answer.user is not None:
                self._transcripts.take(answer.user, emissions.text(event.value), now)
            case "text":
                response.say(emissions.text(event.value))
            case "audio":
                response.sound(emissions.pcm(event.value), emissions.trimmed(event.value))
            case "alignment":
                response.align(emissions.words(event.value))
            case "call":
                response.call(*emissions.call(event.value))
            case "usage":
                response.tokens = emissions.tokens(event.value)
                self.asking.counted(answer, response.tokens.prompt)
            case _:
                pass
        self._go_on(answer, now)

    def _ended(self, answer: Answer, response: Response, end: Ended, now: float) -> None:
        answer.key = None
        if end.status == "done":
            response.generated = True
            if response.playout is not None:
                response.playout.closed = True
            self._go_on(answer, now)
            return
        too_long = end.code == "context_length_exceeded" and self.asking.session.truncation != "disabled"
        if too_long and not answer.said and answer.retries < MOST_RETRIES and response.spec.entries is None:
            answer.retries += 1
            if self.asking.shorten():
                self.asking.launch(answer, now)
                return
        if end.lost and answer.user is not None:
            self._transcripts.lose(answer.user, end, now)
        self._fail(answer, end.code or "engine_error", end.cause or "The answer failed.", now)

    def _go_on(self, answer: Answer, now: float) -> None:
        """Play what may be played, grant what may be made, and end what is complete."""
        response = answer.response
        if response is None or response.status != "in_progress":
            return
        playout = response.playout
        if playout is not None and not self.congested:
            if response.play(now):
                if not self._options.counted:
                    self._heard(answer, now)
                elif answer not in self._playing:
                    self._playing.append(answer)
            upto = playout.credit() if answer.key is not None else None
            if upto is not None and answer.key is not None:
                self._out.do(GrantCredit(answer.key, upto, playout.heard(now)))
        if response.complete:
            if response.tokens.reason == "length":
                self._close(answer, "incomplete", StatusDetails("incomplete", reason="max_output_tokens"), now)
            else:
                self._close(answer, "completed", None, now)

    def tick(self, now: float) -> None:
        """Time has passed, or the client reads again."""
        for answer in self._all():
            self._go_on(answer, now)

    def next(self, now: float) -> float | None:
        """When `tick` has something to do."""
        times = [
            at
            for answer in self._all()
            if answer.response is not None and answer.response.playout is not None and not self.congested
            if (at := answer.response.playout.next(now)) is not None
        ]
        return min(times, default=None)

    def _all(self) -> list[Answer]:
        return [*([self.active] if self.active is not None else []), *self._apart]

    def _heard(self, answer: Answer, now: float) -> None:
        """The first sound of an answer is with its listener."""
        answer.marks.set("heard", now)
        self._tell_marks(answer)

    def _tell_marks(self, answer: Answer) -> None:
        if answer.response is not None and not answer.marks.sent:
            answer.marks.sent = True
            user = answer.user.id if answer.user is not None else None
            self._out.send(TurnMarks(item_id=user, response_id=answer.response.id, marks=answer.marks.known))

    # ------------------------------------------------------------------------------------------- counted playout

    def report(self, response_id: str, heard: int, now: float) -> None:
        """Counted playout: the listener has heard `heard` samples of a response."""
        answer = next((a for a in self._playing if a.response and a.response.id == response_id), None)
        playout = answer.response.playout if answer and answer.response else None
        if answer is None or playout is None:
            return
        first = playout.heard(now) == 0
        playout.report(heard)
        if first and heard > 0:
            self._out.send(OutputAudioBufferStarted(response_id=response_id))
            self._heard(answer, now)
        self._go_on(answer, now)
        self._stop_if_heard(answer, now)

    def _stop_if_heard(self, answer: Answer, now: float) -> None:
        response = answer.response
        if response is None or response.status == "in_progress" or response.playout is None:
            return
        if answer in self._playing and response.playout.heard(now) >= response.playout.sent:
            self._playing.remove(answer)
            if response.spec.conversation:
                self.quiet_since = now
            self._out.send(OutputAudioBufferStopped(response_id=response.id))

    # ------------------------------------------------------------------------------------------- ending

    @property
    def interruptible(self) -> bool:
        """Something is being answered, or (where that is counted) played."""
        return self.active is not None or any(_in_conversation(answer) for answer in self._playing)

    def interrupt(self, reason: CancelReason, now: float) -> None:
        """End the conversation's response, and what is still played of those that have ended."""
        mine = [answer for answer in self._playing if _in_conversation(answer)]
        for answer in mine if self.active is None or self.active in mine else [*mine, self.active]:
            self._silence(answer, reason, now)
        self.quiet_since = now

    def _silence(self, answer: Answer, reason: CancelReason, now: float) -> None:
        playing = answer in self._playing
        if playing:
            self._playing.remove(answer)
        heard = self._end(answer, now)
        self._close(answer, "cancelled", StatusDetails("cancelled", reason=reason), now)
        self._tell_marks(answer)
        if playing and heard is not None:
            self._cut(answer, heard)

    def _cut(self, answer: Answer, heard: int) -> None:
        """The server's own count says what was heard."""
        response = answer.response
        assert response is not None
        self._out.send(OutputAudioBufferCleared(response_id=response.id))
        entry = self._log.find(response.item_id or "")
        if entry is not None and entry.speech is not None:
            cut(entry, heard)
            end = heard * 1000 // entry.speech.rate
            self._out.send(ConversationItemTruncated(item_id=entry.id, content_index=0, audio_end_ms=end))

    def cancel(self, response_id: str | None, now: float) -> None:
        """Raises Rejected if there is nothing to cancel."""
        for answer in self._all():
            response = answer.response
            if response is None or response_id not in (None, response.id):
                continue
            if answer is self.active:
                self.interrupt("client_cancelled", now)
                return
            if response_id is not None:
                self._silence(answer, "client_cancelled", now)
                return
        raise Rejected("Cancellation failed: no active response found", code="response_cancel_not_active")

    def _end(self, answer: Answer, now: float) -> int | None:
        """Stop the task and the sound of an answer → samples heard."""
        heard = None
        if answer.response is not None and answer.response.playout is not None:
            heard = answer.response.playout.stop(now)
            self._out.do(ClearAudio(answer.response.id))
        if answer.key is not None:
            self._tasks.interrupt(answer.key, heard)
            answer.key = None
        return heard

    def clear(self, now: float) -> None:
        """The client throws away what the server has not played (counted playout only)."""
        self.interrupt("client_cancelled", now)
        for answer in list(self._playing):
            self._silence(answer, "client_cancelled", now)

    def _too_long(self, answer: Answer, now: float) -> None:
        self._fail(answer, "context_length_exceeded", "The conversation is longer than the model's context.", now)

    def _fail(self, answer: Answer, code: str, cause: str, now: float) -> None:
        if answer.response is not None and answer.response.playout is not None:
            answer.response.playout.abandon()
        error = StatusError("server_error", code, cause)
        self._close(answer, "failed", StatusDetails("failed", error=error), now)

    def _close(
        self,
        answer: Answer,
        status: Literal["completed", "cancelled", "failed", "incomplete"],
        details: StatusDetails | None,
        now: float,
    ) -> None:
        response = answer.response
        assert response is not None
        if response.status != "in_progress":
            return
        response.close(status, details)
        if not (answer in self._playing and response.playout is not None and response.playout.heard(now) == 0):
            self._tell_marks(answer)  # else with the first sound heard
        if self.active is answer:
            self.active = None
            self.quiet_since = now if response.playout is None else self._quiet_from(response.playout, now)
        elif answer in self._apart:
            self._apart.remove(answer)
        self.asking.forget(answer)
        if answer.user is not None:
            self._transcripts.want(answer.user)
        self._stop_if_heard(answer, now)

    def _quiet_from(self, playout: Playout, now: float) -> float:
        return now + (playout.sent - playout.heard(now)) / playout.rate

    def _new_listener(self) -> Listener:
        rate = self._offer.speech_rate
        return ReportedListener(rate) if self._options.counted else assumed_listener(rate)


def _in_conversation(answer: Answer) -> bool:
    return answer.response is not None and answer.response.spec.conversation
