"""A sound written down by a family: fed a little ahead, its pieces told as they are known."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from media.frames import PcmF
from models.registry import Recognition as Offer
from mstar.client import Emission, RequestEnded
from mstar.client import Session as Runtime
from server.http.failures import failure
from server.session import emissions


class Segment(Struct):
    """A stretch of text with its times (s)."""

    text: str
    start: float
    end: float
    tokens: list[int]
    logprob: float
    compression: float


class Word(Struct):
    text: str
    start: float
    end: float
    logprob: float


class Token(Struct):
    text: str
    bytes: list[int]
    logprob: float


class Piece(Struct):
    """What was heard in seconds `start` … `end` of the sound."""

    text: str
    start: float
    end: float
    no_speech: float
    language: str
    segments: list[Segment]
    words: list[Word]
    tokens: list[Token]


async def recognised(
    runtime: Runtime, offer: Offer, pcm: PcmF, settings: Mapping[str, Any]
) -> AsyncGenerator[str | Piece]:
    """Text as it is written, and each piece when it is known, of sound [n] at the family's rate.

    Raises Rejected where the family refuses, Refusal where it fails.
    """
    request = runtime.start(offer.recognise, {}, settings)
    size = round(offer.item * offer.rate)
    items = range(0, len(pcm), size)
    fed = 0
    done = 0.0

    def feed() -> None:
        nonlocal fed
        while fed < len(items) and fed * offer.item - done < offer.ahead:
            at = items[fed]
            request.feed(offer.sound, fed, pcm[at : at + size], cut=fed == len(items) - 1)
            fed += 1
            if fed == len(items):
                request.commit(offer.sound, fed)

    try:
        feed()
        async for event in request:
            match event:
                case Emission(output="heard", value=value):
                    yield emissions.text(value)
                case Emission(output="recognised", value=value):
                    piece = msgspec.convert(value, Piece, strict=False)
                    done = max(done, piece.end)
                    feed()
                    yield piece
                case RequestEnded(status="done"):
                    return
                case RequestEnded():
                    raise failure(event)
    finally:
        request.interrupt()
