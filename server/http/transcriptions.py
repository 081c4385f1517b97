"""`POST /v1/audio/transcriptions`: a sound file in, its words out; `/v1/audio/translations` is refused."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Literal

import msgspec
from aiohttp import web
from msgspec import UNSET, Struct, UnsetType

from media.decode import decode_any
from media.frames import PcmF
from models.registry import Card, Recognition
from mstar.client import Session as Runtime
from mstar.errors import Rejected
from server.door import SERVER, account_of, authorised
from server.events.decode import described
from server.http.events import Events
from server.http.leaving import while_connected
from server.http.reading import Form, form_of
from server.http.recognising import Piece, recognised
from server.http.subtitles import cues, srt, vtt
from server.security import Refusal
from server.sessions import using
from server.speech.wire import Seed

FOREIGN_MODELS = ("whisper-1", "gpt-transcribe", "gpt-4o-transcribe", "gpt-4o-mini-transcribe", "whisper-large")
"""Models of the API: they mean the first family that writes down what it hears."""
LANGUAGES = {"en": "english"}
"""Names by which `verbose_json` tells languages; others go by their code."""
DECODING = 2
"""Files that are decoded at once: a file of half an hour takes 110 MiB."""
PROMPT_CHARS = 4096

Format = Literal["json", "text", "srt", "verbose_json", "vtt"]


class Wanted(Struct, forbid_unknown_fields=True):
    """The fields of the form beside `file`. `chunking_strategy` has no effect: cuts are always at pauses."""

    model: str = ""
    language: str = ""
    prompt: str = ""
    response_format: Format = "json"
    temperature: float = 0.0
    stream: bool = False
    timestamp_granularities: list[Literal["word", "segment"]] = []
    include: list[Literal["logprobs"]] = []
    chunking_strategy: str = ""
    seed: Seed | None = None


_LISTS = ("timestamp_granularities", "include")


class Duration(Struct):
    seconds: int
    type: str = "duration"


class Logprob(Struct):
    token: str
    bytes: list[int]
    logprob: float


class Plain(Struct, omit_defaults=True):
    """`json`."""

    text: str
    usage: Duration
    logprobs: list[Logprob] | UnsetType = UNSET


class VerboseSegment(Struct):
    id: int
    seek: int
    start: float
    end: float
    text: str
    tokens: list[int]
    temperature: float
    avg_logprob: float
    compression_ratio: float
    no_speech_prob: float


class VerboseWord(Struct):
    word: str
    start: float
    end: float


class Verbose(Struct, omit_defaults=True):
    """`verbose_json`."""

    task: str
    language: str
    duration: float
    text: str
    usage: Duration
    segments: list[VerboseSegment] | UnsetType = UNSET
    words: list[VerboseWord] | UnsetType = UNSET


class TextDelta(Struct, tag_field="type", tag="transcript.text.delta"):
    delta: str


class TextDone(Struct, tag_field="type", tag="transcript.text.done", omit_defaults=True):
    text: str
    logprobs: list[Logprob] | UnsetType = UNSET


@dataclass(frozen=True, slots=True)
class Job:
    """A sound and what is wanted of it."""

    family: str
    offer: Recognition
    wanted: Wanted
    pcm: PcmF

    @property
    def seconds(self) -> float:
        return len(self.pcm) / self.offer.rate

    @property
    def settings(self) -> dict[str, Any]:
        wanted = self.wanted
        found: dict[str, Any] = {"language": wanted.language or self.offer.languages[0], "background": True}
        if wanted.prompt:
            found["transcript_prompt"] = wanted.prompt
        if wanted.temperature:
            found["transcript_temperature"] = wanted.temperature
        return found if wanted.seed is None else {**found, "seed": wanted.seed}


def recogniser(cards: Mapping[str, Card], model: str) -> tuple[str, Recognition]:
    """The family of a model's name. Raises Refusal(404)."""
    able = {name: card.recognition for name, card in cards.items() if card.recognition is not None}
    if not model or (model not in cards and model.startswith(FOREIGN_MODELS)):
        for name, offer in able.items():
            return name, offer
    found = able.get(model)
    if found is None:
        known = ", ".join(able) or "none"
        text = f"The model '{model:.80}' does not exist or does not transcribe; there is: {known}."
        raise Refusal(404, "model_not_found", text, "model")
    return model, found


def wanted_of(form: Form) -> Wanted:
    """The form's fields. Raises Rejected naming the one that is wrong."""
    tree: dict[str, Any] = {}
    for name, value in form.fields:
        key = name.removesuffix("[]")
        if key in _LISTS:
            tree.setdefault(key, []).append(value)
        elif key in tree:
            raise Rejected(f"'{name}' is given more than once.", code="invalid_value", param=name)
        else:
            tree[key] = value
    try:
        wanted = msgspec.convert(tree, Wanted, strict=False)
    except msgspec.ValidationError as wrong:
        raise described(str(wrong)).rejected from None
    _check(wanted)
    return wanted


def _check(wanted: Wanted) -> None:
    """Raises Rejected for what does not go together."""
    if not 0.0 <= wanted.temperature <= 1.0:
        raise Rejected(f"'temperature' must be from 0 to 1, not {wanted.temperature}.", param="temperature")
    if len(wanted.prompt) > PROMPT_CHARS:
        raise Rejected(f"'prompt' is longer than {PROMPT_CHARS} characters.", param="prompt")
    if wanted.timestamp_granularities and wanted.response_format != "verbose_json":
        text = "'timestamp_granularities' needs response_format 'verbose_json'."
        raise Rejected(text, code="unsupported_value", param="timestamp_granularities")
    if wanted.include and wanted.response_format != "json":
        raise Rejected("'logprobs' need response_format 'json'.", code="unsupported_value", param="include")
    if wanted.stream and wanted.response_format not in ("json", "text"):
        text = f"'stream' sends text; it can not be response_format '{wanted.response_format}'."
        raise Rejected(text, code="unsupported_value", param="stream")


async def transcriptions(request: web.Request) -> web.StreamResponse:
    """The words of a file. Refused as JSON before any text."""
    server = request.app[SERVER]
    authorised(request)
    form = await form_of(request)
    wanted = wanted_of(form)
    family, offer = recogniser(server.cards, wanted.model)
    if wanted.language and wanted.language not in offer.languages:
        known = ", ".join(offer.languages)
        text = f"'language' can be {known}; not '{wanted.language:.40}'."
        raise Rejected(text, code="unsupported_value", param="language")
    if not form.file:
        raise Rejected("Missing required parameter: 'file'.", code="missing_required_parameter", param="file")
    async with using(request, family, "transcriptions") as runtime:
        job = Job(family, offer, wanted, await _decoded(request.app[DECODER], form.file, offer.rate))
        account_of(request).hear(job.seconds)
        return await while_connected(request, _answered(request, runtime, job))


async def _answered(request: web.Request, runtime: Runtime, job: Job) -> web.StreamResponse:
    async with aclosing(recognised(runtime, job.offer, job.pcm, job.settings)) as pieces:
        if job.wanted.stream:
            return await _stream(request, job, pieces)
        return _answer(job, [piece async for piece in pieces if isinstance(piece, Piece)])


DECODER: web.AppKey[asyncio.Semaphore] = web.AppKey("decoder", asyncio.Semaphore)


async def _decoded(turn: asyncio.Semaphore, file: bytes, rate: int) -> PcmF:
    """Raises Rejected for a file that can not be read."""
    async with turn:
        try:
            pcm, _ = await asyncio.to_thread(decode_any, file, rate=rate)
        except ValueError as wrong:
            raise Rejected(f"'file': {wrong}.", code="invalid_file", param="file") from None
    return pcm


def _answer(job: Job, pieces: list[Piece]) -> web.Response:
    text = " ".join(piece.text for piece in pieces if piece.text)
    usage = Duration(math.ceil(job.seconds))
    words = [word for piece in pieces for word in piece.words]
    match job.wanted.response_format:
        case "text":
            return web.Response(text=text + "\n")
        case "srt":
            return web.Response(text=srt(cues(words)))
        case "vtt":
            return web.Response(text=vtt(cues(words)), content_type="text/vtt")
        case "json":
            plain = Plain(text, usage, _logprobs(pieces) if job.wanted.include else UNSET)
            return web.Response(body=msgspec.json.encode(plain), content_type="application/json")
        case "verbose_json":
            body = msgspec.json.encode(_verbose(job, pieces, text, usage))
            return web.Response(body=body, content_type="application/json")


def _logprobs(pieces: list[Piece]) -> list[Logprob]:
    return [Logprob(each.text, each.bytes, each.logprob) for piece in pieces for each in piece.tokens]


def _verbose(job: Job, pieces: list[Piece], text: str, usage: Duration) -> Verbose:
    asked = job.wanted.timestamp_granularities or ["segment"]
    segments: list[VerboseSegment] = []
    for piece in pieces:
        for each in piece.segments:
            segments.append(
                VerboseSegment(
                    id=len(segments),
                    seek=round(piece.start * 100),
                    start=round(each.start, 3),
                    end=round(each.end, 3),
                    text=each.text,
                    tokens=each.tokens,
                    temperature=job.wanted.temperature,
                    avg_logprob=each.logprob,
                    compression_ratio=each.compression,
                    no_speech_prob=piece.no_speech,
                )
            )
    words = [
        VerboseWord(each.text, round(each.start, 3), round(each.end, 3)) for piece in pieces for each in piece.words
    ]
    language = pieces[0].language if pieces else job.offer.languages[0]
    return Verbose(
        task="transcribe",
        language=LANGUAGES.get(language, language),
        duration=round(job.seconds, 3),
        text=text,
        usage=usage,
        segments=segments if "segment" in asked else UNSET,
        words=words if "word" in asked else UNSET,
    )


async def _stream(request: web.Request, job: Job, pieces: AsyncIterator[str | Piece]) -> web.StreamResponse:
    """Text as it is written."""
    each: str | Piece | None = await anext(pieces, None)  # a refusal comes before any text
    events = Events(request)
    await events.open()
    said = ""
    known: list[Piece] = []
    try:
        while each is not None:
            if isinstance(each, Piece):
                known.append(each)
            else:
                said += each
                await events.send(TextDelta(each))
            each = await anext(pieces, None)
    except (Rejected, Refusal) as why:
        await events.fail(why)
    else:
        await events.send(TextDone(said, _logprobs(known) if job.wanted.include else UNSET))
    return await events.close()


async def translations(request: web.Request) -> web.StreamResponse:
    """No family translates speech."""
    authorised(request)
    raise Refusal(400, "unsupported_operation", "No model served here translates speech; see /v1/audio/transcriptions.")
