"""A context on the runtime: its orders carried out, its events told as they come."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from models.registry import Speech as Offer
from mstar.client import Emission, Request, RequestEnded
from mstar.client import Session as Runtime
from mstar.errors import Rejected
from server.security import PASSING
from server.speech.context import Begin, Close, Context, Ended, Event, Flushed, Sound, Step, Stop, Words, Write

AUDIO = "audio"
"""Name of the emission that credit is granted for."""
LEAD_SECONDS = 10
"""Sound that may be made beyond what was given to the client; the client's socket holds it back."""
HEARD_SECONDS = 0.15
"""How often the runtime is told what was played meanwhile, so that it knows who runs short while others are served."""
FEED_SECONDS = 0.005
"""Pieces of text that come within this time travel together."""


async def at_once() -> None:
    """A client that takes everything."""


def free(characters: int) -> None:
    """Text that costs nothing."""


class Speaker:
    """One context of one client, inside its TaskGroup.

    `tell` gets every event of the context, in order; `eased` returns when the client reads, and until then it is given
    no more credit; `written` is told the characters of every piece of text, and may refuse it. Settings of the family's
    `say` task: `voice`, `speed`, `seed`.
    """

    def __init__(
        self,
        runtime: Runtime,
        offer: Offer,
        settings: Mapping[str, Any],
        group: asyncio.TaskGroup,
        tell: Callable[[Event], None],
        eased: Callable[[], Awaitable[None]] = at_once,
        written: Callable[[int], None] = free,
    ) -> None:
        self.context = Context()
        self._runtime = runtime
        self._offer = offer
        self._settings = settings
        self._group = group
        self._tell = tell
        self._eased = eased
        self._written = written
        self._clock = asyncio.get_running_loop().time
        self._requests: dict[int, _Asked] = {}
        self._began: float | None = None  # when the first sample was given out
        self._telling: asyncio.TimerHandle | None = None

    def append(self, text: str, param: str = "text") -> None:
        """More text, of the protocol's field `param`. Raises Rejected."""
        self._written(len(text))
        self._run(self.context.append(text, param))

    def flush(self, id: int | None = None) -> None:  # noqa: A002 - the protocols' own word
        """Raises Rejected."""
        self._run(self.context.flush(id))

    def end(self) -> None:
        self._run(self.context.end())

    def cancel(self) -> None:
        self._run(self.context.cancel())

    def _run(self, step: Step) -> None:
        for each in step:
            match each:
                case Begin(segment):
                    request = self._runtime.start(self._offer.say, {}, self._settings)
                    self._requests[segment] = _Asked(request, self._offer.written)
                    self._group.create_task(self._follow(segment, request))
                case Write(segment, text):
                    self._requests[segment].write(text)
                case Close(segment):
                    self._requests[segment].close()
                case Stop(segment):
                    if (asked := self._requests.pop(segment, None)) is not None:  # else its start has failed
                        asked.stop(self._played())
                case Sound() | Words() | Flushed() | Ended():
                    if isinstance(each, Sound) and self._began is None:
                        self._began = self._clock()
                    if isinstance(each, Sound) and self._telling is None:
                        self._tell_heard()
                    self._tell(each)

    async def _follow(self, segment: int, request: Request) -> None:
        """Every event of a request goes into the context, its terminal one last."""
        async for event in request:
            match event:
                case Emission():
                    self._run(self.context.emission(segment, event.output, event.value))
                    if event.output == AUDIO:
                        await self._eased()
                        self._credit(segment)
                case RequestEnded():
                    self._requests.pop(segment, None)
                    self._run(self.context.done(segment, _wrong(event)))
                    for waiting in self._requests:
                        self._credit(waiting)

    def _credit(self, segment: int) -> None:
        """More may be made of the segment that sounds; one that waits for it has what it began with."""
        asked = self._requests.get(segment)
        if asked is not None and self.context.sounding(segment):
            asked.granted = self.context.of_segment + LEAD_SECONDS * self._offer.rate
            self._grant(asked)

    def _grant(self, asked: _Asked) -> None:
        """What was granted, with what is heard of it by now."""
        made = self.context.of_segment
        played = max(0, self._played() - (self.context.samples - made))
        asked.request.credit(AUDIO, asked.granted, min(made, played))

    def _tell_heard(self) -> None:
        """Now and, as long as something is being made, again."""
        self._telling = None
        for segment, asked in self._requests.items():
            if asked.granted and self.context.sounding(segment):
                self._grant(asked)
        if self._requests:
            self._telling = asyncio.get_running_loop().call_later(HEARD_SECONDS, self._tell_heard)

    def _played(self) -> int:
        """Samples of the context that a client hears if it plays at once."""
        if self._began is None:
            return 0
        return min(self.context.samples, int((self._clock() - self._began) * self._offer.rate))


class _Asked:
    """A request whose text travels in pieces no faster than one in `FEED_SECONDS`: it may not have begun yet."""

    def __init__(self, request: Request, stream: str) -> None:
        self.request = request
        self.granted = 0  # samples
        self._stream = stream
        self._index = 0
        self._text = ""
        self._timer: asyncio.TimerHandle | None = None

    def write(self, text: str) -> None:
        self._text += text
        if self._timer is None:
            self._send()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._feed(cut=True)  # an item of its own, if only an empty one: an end without items runs no node
        self.request.commit(self._stream, self._index)

    def stop(self, heard: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.request.interrupt(heard)

    def _send(self) -> None:
        self._timer = None
        if self._text:
            self._feed()
            self._timer = asyncio.get_running_loop().call_later(FEED_SECONDS, self._send)

    def _feed(self, *, cut: bool = False) -> None:
        self.request.feed(self._stream, self._index, self._text, cut=cut)
        self._index += 1
        self._text = ""


def _wrong(end: RequestEnded) -> Rejected | None:
    """What the client is told of a request that was not done."""
    if end.status == "done":
        return None
    if end.param:  # the caller's fault: the family says which field
        return Rejected(end.cause, code=end.code, param=end.param)
    if end.code in PASSING:
        return Rejected("The voice was lost; another one takes its place.", code=end.code)
    return Rejected("The voice failed.", code=end.code or "server_error")
