"""`POST /v1/completions`: texts in, each gone on with, without a template."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing

import msgspec
from aiohttp import web
from msgspec import UNSET

from mstar.client import Session as Runtime
from mstar.errors import Rejected
from server.door import SERVER, account_of, authorised
from server.http.answering import Asked, Begun, Delta, Finished, Said, answered
from server.http.chat_wire import Completion, CompletionRequest, TextChoice, Usage
from server.http.events import Events
from server.http.leaving import while_connected
from server.http.reading import message_in
from server.http.sampling import check, settings_of, stops_of, unsupported, usage_of
from server.security import Refusal
from server.session.responses import Tokens
from server.sessions import using

DEFAULT_TOKENS = 16
"""The API's own default of `max_tokens`."""
MOST_PROMPTS = 16
"""Texts of one request; they are gone on with at the same time."""

Numbered = tuple[int, Said | Rejected | Refusal]


async def completions(request: web.Request) -> web.StreamResponse:
    """What follows the prompts. Refused as JSON before any of it."""
    server = request.app[SERVER]
    authorised(request)
    wanted = await message_in(request, CompletionRequest)
    _check(wanted)
    card = server.card(wanted.model)
    model = wanted.model or next(iter(server.cards))
    assert card.conversation is not None
    if not card.conversation.complete:
        raise Rejected(f"The model '{model}' answers conversations only.", code="unsupported_value", param="model")
    prompts = [wanted.prompt] if isinstance(wanted.prompt, str) else wanted.prompt
    settings = settings_of(wanted, wanted.max_tokens or DEFAULT_TOKENS) | {"calls": False}
    asked = [Asked(card.conversation.complete, {"prompt": each}, settings, stops_of(wanted)) for each in prompts]
    async with using(request, model, "completions") as runtime:
        account_of(request).write(sum(len(each) for each in prompts))
        reply = _Reply(wanted, model, prompts)
        return await while_connected(request, _answer(request, reply, runtime, asked))


def _check(wanted: CompletionRequest) -> None:
    check(wanted)
    if wanted.best_of not in (None, 1):
        raise unsupported("best_of", "can only be 1")
    if wanted.suffix:
        raise unsupported("suffix", "is not served")
    if not all(wanted.prompt if isinstance(wanted.prompt, list) else [wanted.prompt]):
        raise Rejected("'prompt' holds a text that is empty.", code="empty_prompt", param="prompt")
    if isinstance(wanted.prompt, list) and not 1 <= len(wanted.prompt) <= MOST_PROMPTS:
        raise Rejected(f"'prompt' holds {len(wanted.prompt)} texts; 1 to {MOST_PROMPTS} can be.", param="prompt")


class _Reply:
    """The answer's forms."""

    def __init__(self, wanted: CompletionRequest, model: str, prompts: list[str]) -> None:
        self.wanted = wanted
        self.prompts = prompts
        self._model = model
        self._id = f"cmpl-{secrets.token_hex(12)}"
        self._created = int(time.time())

    @property
    def counted(self) -> bool:
        options = self.wanted.stream_options
        return options is not None and bool(options.include_usage)

    def told(self, choices: list[TextChoice], usage: Usage | None) -> Completion:
        """Whole, or a chunk: these tell usage only where it was asked for."""
        shown = usage if self.counted or not self.wanted.stream else UNSET
        return Completion(self._id, "text_completion", self._created, self._model, choices, shown)


async def _answer(request: web.Request, reply: _Reply, runtime: Runtime, asked: list[Asked]) -> web.StreamResponse:
    async with aclosing(_together(runtime, asked)) as said:
        return await (_stream(request, reply, said) if reply.wanted.stream else _whole(reply, said))


async def _together(runtime: Runtime, asked: list[Asked]) -> AsyncGenerator[Numbered]:
    """The events of all answers as they come, each with its number; the first failure ends it."""
    queue: asyncio.Queue[Numbered] = asyncio.Queue(maxsize=64)

    async def follow(number: int, one: Asked) -> None:
        try:
            async with aclosing(answered(runtime, one)) as events:
                async for said in events:
                    await queue.put((number, said))
        except (Rejected, Refusal) as why:
            await queue.put((number, why))

    tasks = [asyncio.create_task(follow(number, one)) for number, one in enumerate(asked)]
    running = len(tasks)
    try:
        while running:
            number, said = await queue.get()
            yield number, said
            running -= isinstance(said, Finished | Rejected | Refusal)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _whole(reply: _Reply, events: AsyncGenerator[Numbered]) -> web.Response:
    texts = [prompt if reply.wanted.echo else "" for prompt in reply.prompts]
    reasons = ["stop"] * len(texts)
    tokens: list[Tokens] = []
    async for number, said in events:
        match said:
            case Rejected() | Refusal():
                raise said
            case Delta(text):
                texts[number] += text
            case Finished(reason, own):
                reasons[number] = reason
                tokens.append(own)
            case _:
                pass
    choices = [TextChoice(number, text, reasons[number]) for number, text in enumerate(texts)]
    body = reply.told(choices, usage_of(*tokens))
    return web.Response(body=msgspec.json.encode(body), content_type="application/json")


async def _stream(request: web.Request, reply: _Reply, said: AsyncGenerator[Numbered]) -> web.StreamResponse:
    _, first = await anext(said)
    if isinstance(first, Rejected | Refusal):
        raise first
    assert isinstance(first, Begun)
    events = Events(request)
    await events.open()
    tokens: list[Tokens] = []
    if reply.wanted.echo:
        for number, prompt in enumerate(reply.prompts):
            await events.send(reply.told([TextChoice(number, prompt, None)], None))
    async for number, each in said:
        match each:
            case Rejected() | Refusal():
                await events.fail(each)
                return await events.close()
            case Delta(text):
                await events.send(reply.told([TextChoice(number, text, None)], None))
            case Finished(reason, own):
                tokens.append(own)
                await events.send(reply.told([TextChoice(number, "", reason)], None))
            case _:
                pass
    if reply.counted:
        await events.send(reply.told([], usage_of(*tokens)))
    return await events.close(b"[DONE]")
