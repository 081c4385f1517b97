"""ElevenLabs' sockets: `stream-input` (one text) and `multi-stream-input` (several contexts)."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from aiohttp import web
from msgspec import UNSET, UnsetType

from mstar.errors import Rejected
from server.door import SERVER, Server
from server.security import Refusal
from server.speech.context import Ended, Event, Flushed, Sound, Words
from server.speech.driver import Speaker
from server.speech.elevenlabs_wire import (
    AudioOut,
    ContextPiece,
    FinalOut,
    Piece,
    Problem,
    Query,
    VoiceSettings,
    alignment_of,
    shape_of,
)
from server.speech.entry import allowed, key_for
from server.speech.offers import Said, settings_of, speaking
from server.speech.socket import Line, converse
from server.speech.sound import Outlet, Shape
from server.speech.timing import Timeline, characters
from server.speech.wire import message_of, query_of, tree_of

MOST_CONTEXTS = 5


class Voicing:
    """One context: what it says goes out as messages, each with the characters that begin in its sound."""

    def __init__(
        self, line: Line, said: Said, shape: Shape, name: str, over: Callable[[Voicing, Rejected | None], None]
    ) -> None:
        self._line = line
        self._rate = said.offer.rate
        self._outlet = Outlet(said.offer.rate, shape)
        self._timeline = Timeline()
        self.name = name
        self._id: str | UnsetType = name or UNSET
        self._context = name or "text"
        self._over = over
        self._sent = self._end = 0  # samples: told to the client, given by the context
        self.speaker: Speaker | None = None
        self.flushed = False
        """The last message was a flush …"""
        self.sounded = False
        """… and something has sounded since."""

    @property
    def busy(self) -> bool:
        return self.speaker is not None and not self.speaker.context.idle

    def write(self, piece: Piece) -> None:
        """Text, a flush, both or neither. Raises Rejected."""
        assert self.speaker is not None
        if piece.text and piece.text != " ":
            self.speaker.append(piece.text)
            self.flushed = False
        if piece.flush:
            self.flushed, self.sounded = True, False
            self.speaker.flush(0)

    def end(self) -> None:
        """`isFinal` follows when everything is said."""
        assert self.speaker is not None
        self.speaker.end()

    def cancel(self) -> None:
        assert self.speaker is not None
        self.speaker.cancel()

    def cut(self) -> None:
        """Nothing more is wanted, not even what has not left."""
        self.cancel()
        if rest := self._line.cut(self._context, self._outlet):
            self._line.send(AudioOut(rest, None, None, None, self._id))

    def told(self, event: Event) -> None:
        match event:
            case Sound(start, pcm):
                self._end = start + len(pcm)
                self.sounded = True
                self._line.sound(pcm, self._outlet, self._message(), self._context)
            case Words(words):
                self._timeline.add(characters(words))
            case Flushed(id=number):
                if number is not None:
                    self._line.border(self._outlet, self._message(), self._context)
            case Ended("done"):
                self._line.border(self._outlet, self._message(), self._context, last=True)
                self._line.send(FinalOut(contextId=self._id))
                self._over(self, None)
            case Ended("failed", error=Rejected() as why):
                self._over(self, why)
            case _:
                pass

    def _message(self) -> Callable[[bytes], AudioOut]:
        """What makes a message of the sound up to here."""
        end = self._end

        def made(audio: bytes) -> AudioOut:
            told = [each.cut(end) for each in self._timeline.take(end)]
            alignment = alignment_of(told, self._sent, self._rate)
            self._sent = end
            return AudioOut(audio, None, alignment, alignment, self._id)

        return made


class ElevenLabsSocket:
    """One connection. Mistakes end it, as the vendor's do: a last message, then close code 1008."""

    def __init__(self, line: Line, server: Server, query: Mapping[str, str], voice: str, key: str | None) -> None:
        self.idle_seconds = 20.0
        self._line = line
        self._server = server
        self._raw = query
        self._voice = voice
        self._key = key
        self._query: Query | None = None
        self._said: Said | None = None
        self._shape: Shape | None = None
        self._contexts: dict[str, Voicing] = {}
        self._leaving: set[Voicing] = set()  # contexts that take no more and are still being said
        self._closed = False  # no more is taken
        self._failed = False

    @property
    def busy(self) -> bool:
        return any(each.busy for each in (*self._contexts.values(), *self._leaving))

    def idle(self) -> None:
        text = f"No text came for {self.idle_seconds:g} seconds."
        self.refuse(Rejected(text, code="input_timeout_exceeded", param="inactivity_timeout"))

    def gone(self) -> None:
        for each in (*self._contexts.values(), *self._leaving):
            each.cancel()

    def refuse(self, why: Rejected) -> None:
        self._fail(why, UNSET)

    async def take(self, frame: str) -> None:
        if self._closed:
            return
        piece = message_of(tree_of(frame), Piece)
        self._enter(piece)
        voicing = self._contexts.get("") or await self._open("", piece.voice_settings)
        if piece.text == "":
            self._leave(voicing)
        else:
            voicing.write(piece)

    def _enter(self, piece: Piece) -> Query:
        """Checks of the first message: the key, the address. Raises Rejected."""
        if self._query is not None:
            return self._query
        bearer = (piece.authorization or "").removeprefix("Bearer ").strip()
        try:
            grant = self._server.keys.check(self._key or piece.xi_api_key or bearer or None, int(time.time()))
        except Refusal as why:
            raise Rejected(why.message, code=why.code, param="xi_api_key") from None
        if grant.account:
            self._line.account = self._server.accounts.of(grant.account)
        query = query_of(self._raw, Query)
        if query.enable_ssml_parsing:
            raise Rejected("SSML is not spoken here.", code="unsupported_value", param="enable_ssml_parsing")
        self._shape = shape_of(query.output_format)
        self._said = speaking(self._server.cards, query.model_id, "model_id")
        settings_of(self._said.offer, voice=self._voice, voice_param="voice_id")
        self.idle_seconds = query.inactivity_timeout
        self._query = query
        return query

    async def _open(self, name: str, settings: VoiceSettings | None) -> Voicing:
        assert self._query is not None
        assert self._said is not None
        assert self._shape is not None
        task = settings_of(
            self._said.offer,
            voice=self._voice,
            speed=settings.speed if settings is not None else None,
            seed=self._query.seed,
            voice_param="voice_id",
            speed_param="voice_settings.speed",
        )
        voicing = Voicing(self._line, self._said, self._shape, name, self._over)
        voicing.speaker = await self._line.speaker(self._said, task, voicing.told)
        self._contexts[name] = voicing
        return voicing

    def _leave(self, voicing: Voicing) -> None:
        """It ends when everything is said, and takes no more."""
        self._closed = self._closed or not voicing.name
        self._contexts.pop(voicing.name, None)
        self._leaving.add(voicing)
        voicing.end()

    def _over(self, voicing: Voicing, why: Rejected | None) -> None:
        self._leaving.discard(voicing)
        if why is not None:
            self._fail(why, voicing.name or UNSET)
        self._finish()

    def _finish(self) -> None:
        if self._closed and not self._failed and not self._leaving:
            self._line.end(1000, "")

    def _fail(self, why: Rejected, context: str | UnsetType) -> None:
        if not self._failed:
            self._closed = self._failed = True
            self._line.send(Problem(why.message, why.code, 1008, why.param, context))
            self._line.end(1008, why.message)


class MultiSocket(ElevenLabsSocket):
    """A connection with contexts by name; only `close_socket` and mistakes end it."""

    async def take(self, frame: str) -> None:
        if self._closed:
            return
        piece = message_of(tree_of(frame), ContextPiece)
        self._enter(piece)
        name = piece.context
        voicing = self._contexts.get(name)
        if piece.close_socket:
            self._close_all()
        elif piece.close_context:
            self._close(name)
        elif voicing is not None:
            if piece.voice_settings is not None:
                text = "voice_settings belong in the first message of a context."
                raise Rejected(text, code="invalid_value", param="voice_settings")
            voicing.write(piece)
        elif piece.text:  # "" keeps alive what is there, or the socket
            if len(self._contexts) >= MOST_CONTEXTS:
                text = f"At most {MOST_CONTEXTS} contexts may be open at once."
                raise Rejected(text, code="too_many_contexts", param="context_id")
            (await self._open(name, piece.voice_settings)).write(piece)

    def _close(self, name: str) -> None:
        """A context that was flushed, and has not sounded since, ends when that is said; another stops at once."""
        voicing = self._contexts.get(name)
        if voicing is not None and voicing.flushed and not voicing.sounded:
            self._leave(voicing)
            return
        stopped = [] if voicing is None else [voicing]
        stopped += [each for each in self._leaving if each.name == name]
        if stopped:
            self._stop(stopped)
            self._line.send(FinalOut(contextId=name))

    def _close_all(self) -> None:
        """What was flushed is still said."""
        self._closed = True
        for voicing in list(self._contexts.values()):
            if voicing.flushed:
                self._leave(voicing)
            else:
                self._stop([voicing])
        self._finish()

    def _stop(self, voicings: Sequence[Voicing]) -> None:
        for each in voicings:
            self._contexts.pop(each.name, None)
            self._leaving.discard(each)
            each.cut()


async def stream_input(request: web.Request) -> web.StreamResponse:
    """`WS /v1/text-to-speech/{voice}/stream-input`."""
    return await _serve(request, ElevenLabsSocket)


async def multi_stream_input(request: web.Request) -> web.StreamResponse:
    """`WS /v1/text-to-speech/{voice}/multi-stream-input`."""
    return await _serve(request, MultiSocket)


async def _serve(request: web.Request, kind: type[ElevenLabsSocket]) -> web.StreamResponse:
    server = request.app[SERVER]
    key = key_for(request, header="xi-api-key")
    if key is not None:  # else it comes in the first message
        allowed(request, key)
    voice = request.match_info["voice"]
    return await converse(request, "elevenlabs", lambda line: kind(line, server, request.query, voice, key))
