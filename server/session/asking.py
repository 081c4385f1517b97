"""Answer tasks of the family: prepared while the user pauses, adopted by a response, launched when words are known."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from models.registry import Conversation as Offer
from mstar.tensors import Value
from server.events.session import Session
from server.session import emissions
from server.session.answers import Answer, Forward
from server.session.log import Entry, Log, Sound, user_audio
from server.session.marks import Marks
from server.session.options import Options
from server.session.outbox import Outbox
from server.session.prompts import Prompts, TooLong, spec_of
from server.session.responses import Spec
from server.session.tasks import Ended, Tasks
from server.session.transcripts import Transcripts


class _Nobody:
    """Owner of a task whose emissions nobody waits for."""

    def emission(self, _output: str, _index: int, _value: Value, _now: float) -> None:
        return

    def ended(self, _end: Ended, _now: float) -> None:
        return


_NOBODY = _Nobody()


class Asking:
    """`session` is the effective session object. `take` gets what answers emit, `too_long` those that do not fit."""

    def __init__(
        self,
        out: Outbox,
        tasks: Tasks,
        log: Log,
        transcripts: Transcripts,
        offer: Offer,
        options: Options,
        session: Session,
        take: Forward,
        too_long: Callable[[Answer, float], None],
    ) -> None:
        self.session = session
        self._out = out
        self._tasks = tasks
        self._log = log
        self._transcripts = transcripts
        self._offer = offer
        self._take = take
        self._too_long = too_long
        self._prompts = Prompts(offer, options)
        self._waiting: list[Answer] = []  # for the words of what was said before

    def prepare(self, sound: Sound, marks: Marks) -> Answer | None:
        """Start the answer to what the user may have said to its end; what it emits is held until it is adopted."""
        if any(entry.sound is not None for entry in self._log.entries):
            return None
        answer = Answer(marks, self._take)
        entries = [*self._log.entries, Entry(user_audio(""), sound=sound)]
        try:
            self._ask(answer, self._usual(), entries)
        except TooLong:
            return None
        return answer

    def warm(self) -> None:
        """Somebody begins to speak: let the family read the conversation so far, so that an answer need not."""
        if not self._offer.warm:
            return
        try:
            self._tasks.start(self._prompts.warm(self.session, self._usual(), self._log.entries), _NOBODY)
        except TooLong:
            return

    def drop(self, answer: Answer) -> None:
        """The user went on: nobody wants this prepared answer."""
        if answer.key is not None:
            self._tasks.interrupt(answer.key)

    def adopt(self, prepared: Answer, now: float) -> Answer | None:
        """The prepared answer, if it answers just what is asked now; else it is dropped."""
        entries = self._log.entries
        try:
            wanted, _, _ = self._prompts.request(self.session, self._usual(), entries)
        except TooLong:
            wanted = None
        if prepared.request != wanted or prepared.failed:
            self.drop(prepared)
            return None
        prepared.user = entries[-1]
        words = prepared.held_transcript()
        if words is not None:
            self._transcripts.take(entries[-1], emissions.text(words.value), now)
        return prepared

    def launch(self, answer: Answer, now: float) -> None:
        """Start the task behind a response, once the words of all that was said before are known.

        A noise that is known to hold no words is answered with nothing, as the family answers it.
        """
        response = answer.response
        if response is None or response.status != "in_progress":
            return
        spec = response.spec
        entries = self._log.entries if spec.entries is None else spec.entries
        unknown = [entry for entry in entries[:-1] if entry.sound is not None]
        if unknown:
            for entry in unknown:
                self._transcripts.want(entry)
            self._waiting.append(answer)
            return
        if entries and entries[-1].wordless and not spec.answer_silence:
            self._take(answer, Ended("done"), now)
            return
        try:
            self._ask(answer, spec, entries)
        except TooLong:
            self._too_long(answer, now)
            return
        if entries and entries[-1].sound is not None:
            answer.user = entries[-1]
            self._transcripts.leave(answer.user)

    def known(self, now: float) -> None:
        """The words of something said are known: responses that waited for them go on."""
        waiting, self._waiting = self._waiting, []
        for answer in waiting:
            self.launch(answer, now)

    def forget(self, answer: Answer) -> None:
        """A response has ended; it waits for nothing any more."""
        if answer in self._waiting:
            self._waiting.remove(answer)

    def counted(self, answer: Answer, tokens: int) -> None:
        """The family says how many tokens an answer's prompt had."""
        self._prompts.budget.counted(answer.chars, answer.messages, tokens)

    def shorten(self) -> bool:
        """The model refused a prompt as too long → whether the next one leaves out more."""
        return self._prompts.budget.too_long(self._log.entries)

    def _usual(self) -> Spec:
        """What the session asks for where the client asks for nothing else."""
        return spec_of(self.session, None, self._log, self._out.new_id, self._offer)

    def _ask(self, answer: Answer, spec: Spec, entries: Sequence[Entry]) -> None:
        """Raises TooLong."""
        answer.request, answer.chars, answer.messages = self._prompts.request(self.session, spec, entries)
        answer.key = self._tasks.start(answer.request, answer)
