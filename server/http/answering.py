"""One answer of a language model, as typed events: what was read, text, calls, sound, how it ended."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from media.frames import PcmF
from mstar.client import Emission, RequestEnded
from mstar.client import Session as Runtime
from server.http.failures import failure
from server.http.stops import Stops
from server.session import emissions
from server.session.responses import Tokens

AUDIO = "audio"
MOST_TOKENS = 4096
"""Of one answer; a client that asks for more gets these."""
LEAD_SECONDS = 10
"""Sound made beyond what the client has taken."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A task with all it needs. `rate`: of its sound, 0 for none. `stops` end its text; `one_call`: at most one."""

    task: str
    inputs: Mapping[str, Any]
    settings: Mapping[str, Any]
    stops: Sequence[str] = ()
    rate: int = 0
    one_call: bool = False


@dataclass(frozen=True, slots=True)
class Begun:
    """The prompt has been read."""


@dataclass(frozen=True, slots=True)
class Delta:
    text: str


@dataclass(frozen=True, slots=True)
class Called:
    """A function is to be called; `arguments` is JSON text."""

    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Sounded:
    """float32 [n]."""

    pcm: PcmF


@dataclass(frozen=True, slots=True)
class Finished:
    reason: Literal["stop", "length", "tool_calls"]
    tokens: Tokens


Said: TypeAlias = Begun | Delta | Called | Sounded | Finished


async def answered(runtime: Runtime, asked: Asked) -> AsyncGenerator[Said]:
    """The answer's events in order; `Begun` is the first, `Finished` the last. Closing it interrupts the request.

    Raises Rejected where the family refuses, Refusal where it fails.
    """
    request = runtime.start(asked.task, asked.inputs, asked.settings)
    answer = _Answer(asked)
    sounded = 0
    try:
        if asked.rate:
            request.credit(AUDIO, LEAD_SECONDS * asked.rate)
        async for event in request:
            match event:
                case Emission(output="audio", value=value):
                    pcm = emissions.pcm(value)
                    sounded += len(pcm)
                    yield Sounded(pcm)
                    request.credit(AUDIO, sounded + LEAD_SECONDS * asked.rate)
                case Emission(output=output, value=value):
                    for said in answer.take(output, value):
                        yield said
                    if answer.stopped:
                        yield answer.finished()
                        return
                case RequestEnded(status="done"):
                    for said in answer.rest():
                        yield said
                    yield answer.finished()
                    return
                case RequestEnded():
                    raise failure(event)
    finally:
        request.interrupt()


class _Answer:
    """What was said so far."""

    def __init__(self, asked: Asked) -> None:
        self._stops = Stops(asked.stops)
        self._one_call = asked.one_call
        self._tokens = Tokens(0, 0, 0, "stop")
        self._called = False
        self._begun = False

    @property
    def stopped(self) -> bool:
        return self._stops.hit

    def take(self, output: str, value: Any) -> list[Said]:
        found: list[Said] = []
        match output:
            case "begun":
                read = emissions.tokens(value)
                self._tokens = Tokens(read.prompt, read.reused, self._tokens.generated, "stop")
            case "usage":
                self._tokens = emissions.tokens(value)
            case "text":
                self._tokens = _counted(self._tokens, value)
                if text := self._stops.feed(emissions.text(value)):
                    found.append(Delta(text))
            case "call" if not (self._called and self._one_call):
                self._called = True
                found.append(Called(*emissions.call(value)))
        return self._opened(found)

    def rest(self) -> list[Said]:
        held = self._stops.flush()
        return self._opened([Delta(held)] if held else [])

    def finished(self) -> Finished:
        reason: Literal["stop", "length", "tool_calls"] = "length" if self._tokens.reason == "length" else "stop"
        if self.stopped:
            reason = "stop"
        return Finished("tool_calls" if self._called else reason, self._tokens)

    def _opened(self, found: list[Said]) -> list[Said]:
        if self._begun:
            return found
        self._begun = True
        return [Begun(), *found]


def _counted(tokens: Tokens, value: Any) -> Tokens:
    """Tokens with those of the answer that a text tells."""
    told = value.get("tokens", 0) if isinstance(value, Mapping) else 0
    return Tokens(tokens.prompt, tokens.reused, max(tokens.generated, int(told)), tokens.reason)
