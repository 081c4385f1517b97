"""Bodies of requests, read to a limit: JSON objects and forms. What is wrong with one is told with the field's name."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeVar

from aiohttp import BodyPartReader, web
from aiohttp.http_exceptions import HttpProcessingError

from mstar.errors import Rejected
from server.security import Refusal
from server.speech.wire import message_of, tree_of

T = TypeVar("T")

BODY_BYTES = 36 * 1024 * 1024
"""Longest body: 25 MiB of sound in base64, and the conversation around it."""
LONG_BODY = 256 * 1024
"""Bodies from this length on are decoded beside the event loop."""
FILE_BYTES = 25 * 1024 * 1024
"""Longest file of a form."""
FIELD_BYTES = 64 * 1024
"""Longest value of a form's other fields."""
FIELDS = 64
NONE_LONGER: Mapping[str, int] = MappingProxyType({})
CHUNK = 64 * 1024
IDLE_SECONDS = 30.0
"""How long nothing of a body may come."""


@dataclass(frozen=True, slots=True)
class Form:
    """A form: its file, and its other fields in order; a name may come more than once."""

    file: bytes | None
    fields: tuple[tuple[str, str], ...]


def too_large(what: str, limit: int, param: str | None = None) -> Refusal:
    """413: longer than is taken."""
    size = f"{limit // 1024} KiB" if limit % (1024 * 1024) else f"{limit // (1024 * 1024)} MiB"
    return Refusal(413, "body_too_large", f"{what} is longer than {size}.", param)


async def body_of(request: web.Request, limit: int = BODY_BYTES) -> bytes:
    """The whole body. Raises Refusal(408, 413)."""
    if (request.content_length or 0) > limit:
        raise too_large("The body", limit)
    body = bytearray()
    while chunk := await _soon(request.content.read(CHUNK)):
        body += chunk
        if len(body) > limit:
            raise too_large("The body", limit)
    return bytes(body)


async def message_in(request: web.Request, kind: type[T], limit: int = BODY_BYTES) -> T:
    """The JSON object of a request as a message. Raises Refusal(413), Rejected naming the field."""
    body = await body_of(request, limit)

    def read() -> T:
        return message_of(tree_of(body, cut=False), kind)

    return await asyncio.to_thread(read) if len(body) > LONG_BODY else read()


async def form_of(request: web.Request, longer: Mapping[str, int] = NONE_LONGER) -> Form:
    """The fields of a form. Raises Refusal(408, 413, 415), Rejected for one that is none.

    `longer`: bytes of fields that may have more than `FIELD_BYTES`.
    """
    if request.content_type != "multipart/form-data":
        raise Refusal(415, "unsupported_media_type", "Expected multipart/form-data.")
    file: bytes | None = None
    fields: list[tuple[str, str]] = []
    left = most = FIELDS * FIELD_BYTES + sum(longer.values())
    try:
        reader = await request.multipart()
        while (part := await _soon(reader.next())) is not None:
            if not isinstance(part, BodyPartReader) or part.name is None:
                raise Rejected("A part of the form has no name.", code="invalid_form")
            if len(fields) >= FIELDS:
                raise Rejected(f"The form holds more than {FIELDS} fields.", code="invalid_form")
            if part.name == "file":
                file = await _read(part, FILE_BYTES)
            else:
                value = await _read(part, longer.get(part.name, FIELD_BYTES))
                left -= len(value)
                if left < 0:  # one of the longer ones, again and again
                    raise too_large("The form", most)
                fields.append((part.name, value.decode(errors="replace")))
    except (
        HttpProcessingError,
        ValueError,
        AssertionError,
        LookupError,
        RuntimeError,
    ) as wrong:  # what the library says to a broken form
        raise Rejected("The body is no readable form.", code="invalid_form") from wrong
    return Form(file, tuple(fields))


async def _soon(reading: Awaitable[T]) -> T:
    """Raises Refusal(408) for a client that stops in the middle."""
    try:
        async with asyncio.timeout(IDLE_SECONDS):
            return await reading
    except TimeoutError:
        raise Refusal(408, "request_timeout", f"Nothing of the body came for {IDLE_SECONDS:g} seconds.") from None


async def _read(part: BodyPartReader, limit: int) -> bytes:
    read = bytearray()
    while chunk := await _soon(part.read_chunk(CHUNK)):
        read += chunk
        if len(read) > limit:
            raise too_large(f"'{part.name}'", limit, part.name)
    return bytes(part.decode(bytes(read)))
