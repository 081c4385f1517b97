"""A chat request as what a family is asked: its messages, tools and settings; sound in them is written down first."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from typing import Any

from models.registry import Card
from mstar.client import Session as Runtime
from mstar.errors import Rejected
from server.http.answering import Asked
from server.http.chat_wire import ChatRequest, ChosenTool, FunctionTool, Message
from server.http.content import Part, Sound, Text, parts_of
from server.http.recognising import Piece, recognised
from server.http.sampling import check, settings_of, stops_of, unsupported
from server.limits import Account
from server.speech.offers import settings_of as voice_settings

MOST_SPOKEN = 1000
"""Spoken answers whose words are remembered, for clients that name them by id."""
SPOKEN_TOKENS = 1024
"""Of a spoken answer: some five minutes."""


class Spoken:
    """Words of spoken answers by id, the oldest forgotten first."""

    def __init__(self) -> None:
        self._words: OrderedDict[str, str] = OrderedDict()

    def keep(self, name: str, words: str) -> None:
        self._words[name] = words
        while len(self._words) > MOST_SPOKEN:
            self._words.popitem(last=False)

    def words(self, name: str, param: str) -> str:
        """Raises Rejected for an id that is not (or no more) known."""
        if name not in self._words:
            raise Rejected(f"There is no spoken answer '{name:.80}' (any more).", code="audio_not_found", param=param)
        return self._words[name]


def checked(wanted: ChatRequest, card: Card) -> None:
    """Raises Rejected for what can not be answered as it was asked."""
    check(wanted)
    if wanted.response_format is not None and wanted.response_format.type != "text":
        raise Rejected(
            f"'response_format' can only be 'text', not '{wanted.response_format.type:.40}'.",
            code="unsupported_value",
            param="response_format",
        )
    if wanted.top_logprobs:
        raise unsupported("top_logprobs", "are not served")
    modalities = wanted.modalities or ["text"]
    if "audio" in modalities:
        if wanted.audio is None:
            text = "Missing required parameter: 'audio'."
            raise Rejected(text, code="missing_required_parameter", param="audio")
        if card.speech is None:
            raise unsupported("modalities", "can only be ['text'] with this model")
        if wanted.stream and wanted.audio.format != "pcm16":
            raise Rejected("'audio.format' must be 'pcm16' where 'stream' is true.", param="audio.format")
        if wanted.stop:
            raise unsupported("stop", "can not end a spoken answer")
    _check_tools(wanted, card)
    _check_roles(wanted.messages)


def _check_tools(wanted: ChatRequest, card: Card) -> None:
    chosen = wanted.tool_choice
    names = [each.function.name for each in wanted.tools or ()]
    if isinstance(chosen, ChosenTool) and chosen.function.name not in names:
        raise Rejected(f"There is no tool '{chosen.function.name:.64}'.", param="tool_choice")
    if chosen == "required" and not names:
        raise Rejected("'tool_choice' is 'required', and there are no tools.", param="tool_choice")
    forced = chosen == "required" or isinstance(chosen, ChosenTool)
    if forced and not (card.conversation is not None and card.conversation.forces_calls):
        raise unsupported("tool_choice", "can only be 'auto' or 'none': this model calls what it likes")


def _check_roles(messages: Sequence[Message]) -> None:
    called: set[str] = set()
    for at, each in enumerate(messages):
        where = f"messages[{at}]"
        called |= {call.id for call in each.tool_calls or ()}
        if each.role == "tool" and each.tool_call_id not in called:
            text = f"'{where}.tool_call_id' names no call of a message before it."
            raise Rejected(text, code="invalid_value", param=f"{where}.tool_call_id")
        if each.content is None and not (each.role == "assistant" and (each.tool_calls or each.audio or each.refusal)):
            text = f"Missing required parameter: '{where}.content'."
            raise Rejected(text, code="missing_required_parameter", param=f"{where}.content")
        if each.tool_calls and each.role != "assistant":
            raise Rejected("Only an assistant calls tools.", param=f"{where}.tool_calls")


async def asked_of(wanted: ChatRequest, card: Card, runtime: Runtime, account: Account, spoken: Spoken) -> Asked:
    """The family's task. Raises Rejected, Refusal."""
    offer = card.conversation
    assert offer is not None
    takes = offer.takes if card.recognition is not None else tuple(each for each in offer.takes if each != "audio")
    rate = card.recognition.rate if card.recognition is not None else 0

    def read() -> list[list[Part]]:
        return [
            parts_of(each.content, f"messages[{at}].content", takes, rate, spoken=each.role == "user")
            for at, each in enumerate(wanted.messages)
        ]

    plain = all(not isinstance(each.content, list) for each in wanted.messages)
    parts = read() if plain else await asyncio.to_thread(read)
    words = [await _words(each, card, runtime, account) for each in parts]
    history = _history(wanted.messages, words, spoken)
    aloud = "audio" in (wanted.modalities or ())
    settings = settings_of(wanted, wanted.max_completion_tokens or wanted.max_tokens)
    tools = _tools(wanted)
    settings["calls"] = bool(tools)
    if tools and wanted.tool_choice not in (None, "auto"):
        settings["tool_choice"] = "required"  # of those that are shown
    if aloud:
        assert wanted.audio is not None
        assert card.speech is not None
        voice = wanted.audio.voice if isinstance(wanted.audio.voice, str) else wanted.audio.voice.id
        settings |= voice_settings(card.speech, voice=voice, voice_param="audio.voice")
        settings["max_tokens"] = min(settings.get("max_tokens", SPOKEN_TOKENS), SPOKEN_TOKENS)
    return Asked(
        offer.answer[(False, aloud)],
        {"history": history, "tools": tools},
        settings,
        stops_of(wanted),
        offer.speech_rate if aloud else 0,
        one_call=wanted.parallel_tool_calls is False,
    )


async def _words(parts: Sequence[Part], card: Card, runtime: Runtime, account: Account) -> str:
    """The text of a message: parts in order, sound as what was heard in it."""
    found: list[str] = []
    for part in parts:
        match part:
            case Text(text):
                found.append(text)
            case Sound(pcm):
                assert card.recognition is not None
                account.hear(len(pcm) / card.recognition.rate)
                async with aclosing(recognised(runtime, card.recognition, pcm, {})) as pieces:
                    heard = [piece.text async for piece in pieces if isinstance(piece, Piece)]
                found.append(" ".join(each for each in heard if each))
    return "\n".join(each for each in found if each)


def _history(messages: Sequence[Message], words: Sequence[str], spoken: Spoken) -> list[Mapping[str, Any]]:
    """Messages as a family's template takes them."""
    history: list[Mapping[str, Any]] = []
    names: dict[str, str] = {}
    for at, (each, text) in enumerate(zip(messages, words, strict=True)):
        match each.role:
            case "system" | "developer":
                history.append({"role": "system", "content": text})
            case "assistant":
                before = text or each.refusal or ""
                if each.audio is not None and not before:
                    before = spoken.words(each.audio.id, f"messages[{at}].audio.id")
                said: dict[str, Any] = {"role": "assistant", "content": before}
                if each.tool_calls:
                    names |= {call.id: call.function.name for call in each.tool_calls}
                    said["tool_calls"] = [
                        {"name": call.function.name, "arguments": call.function.arguments} for call in each.tool_calls
                    ]
                history.append(said)
            case "tool":
                history.append({"role": "tool", "name": names[str(each.tool_call_id)], "content": text})
            case "user":
                history.append({"role": "user", "content": text})
    return history


def _tools(wanted: ChatRequest) -> list[Mapping[str, Any]]:
    """Tools as the family takes them; of a chosen one only that."""
    offered: Sequence[FunctionTool] = wanted.tools or ()
    if wanted.tool_choice == "none":
        offered = ()
    elif isinstance(wanted.tool_choice, ChosenTool):
        offered = [each for each in offered if each.function.name == wanted.tool_choice.function.name]
    return [
        {
            "name": each.function.name,
            "description": each.function.description or "",
            "parameters": each.function.parameters or {},
        }
        for each in offered
    ]
