"""Out of the session, a `response.create` and the log: what a response is to be, and the task that answers it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from models.registry import Conversation as Offer
from mstar.errors import Rejected
from mstar.tensors import Value
from server.events.client import ResponseParams
from server.events.items import InputItem, Item, check_item
from server.events.session import ChosenTool, Session, ToolChoice, VoiceId, check_format
from server.session.commands import Input
from server.session.context import Budget, Message, messages, tools_value
from server.session.items import entry_of
from server.session.log import Entry, Log
from server.session.options import Options
from server.session.outbox import Ids
from server.session.responses import Spec
from server.session.tasks import TaskRequest

T = TypeVar("T")


def _or(given: T | None | UnsetType, otherwise: T) -> T:
    return otherwise if given is None or given is UNSET else given


def check_choice(choice: ToolChoice, offer: Offer, param: str) -> None:
    """Raises Rejected for a call that the family can not be made to write."""
    if choice not in ("auto", "none") and not offer.forces_calls:
        raise Rejected(
            f"'{param}' can only be 'auto' or 'none': this model calls what it likes.",
            code="unsupported_value",
            param=param,
        )


def spec_of(session: Session, params: ResponseParams | None, log: Log, new_id: Ids, offer: Offer) -> Spec:
    """Raises Rejected for a format, item, reference or forced call that is not to be had."""
    params = params or ResponseParams()
    conversation = _or(params.conversation, "auto")
    if conversation not in ("auto", "none"):
        raise Rejected(
            f"Invalid value: '{conversation}'. Supported values are: 'auto' and 'none'.",
            code="invalid_value",
            param="response.conversation",
        )
    check_choice(_or(params.tool_choice, "auto"), offer, "response.tool_choice")
    output = session.audio.output
    if params.audio and params.audio.output:
        wanted = params.audio.output
        voice = wanted.voice or output.voice
        output = msgspec.structs.replace(
            output,
            format=check_format(wanted.format, "response.audio.output.format") if wanted.format else output.format,
            voice=voice.id if isinstance(voice, VoiceId) else voice,
            speed=_or(wanted.speed, output.speed),
        )
    entries: tuple[Entry, ...] | None = None
    if params.input is not None and params.input is not UNSET:
        entries = tuple(
            _given(item, f"response.input[{index}]", session, log, new_id, offer)
            for index, item in enumerate(params.input)
        )
    return Spec(
        conversation=conversation == "auto",
        modality=_or(params.output_modalities, session.output_modalities)[0],
        format=output.format,
        voice=output.voice,
        speed=output.speed,
        max_output_tokens=_or(params.max_output_tokens, session.max_output_tokens),
        instructions=_or(params.instructions, session.instructions),
        tools=_or(params.tools, session.tools),
        tool_choice=_or(params.tool_choice, session.tool_choice),
        metadata=params.metadata or None,
        entries=entries,
        answer_silence=bool(params.instructions),
    )


def _given(given: InputItem, param: str, session: Session, log: Log, new_id: Ids, offer: Offer) -> Entry:
    if given.type == "item_reference":
        return log.get(given.id or "", f"{param}.id")
    item = Item(**msgspec.structs.asdict(given))
    check_item(item, param)
    return entry_of(item, param, session.audio.input.format, new_id, offer)


class TooLong(Exception):
    """The prompt does not fit the model's context, and may not be cut."""


class Prompts:
    """Builds answer tasks; keeps their prompts within the context."""

    def __init__(self, offer: Offer, options: Options) -> None:
        self.budget = Budget(offer.context)
        self._offer = offer
        self._options = options

    def request(self, session: Session, spec: Spec, entries: Sequence[Entry]) -> tuple[TaskRequest, int, int]:
        """The task, and of its prompt the characters and messages. Raises TooLong.

        A spoken last entry without words goes in as sound, behind the history.
        """
        history, tools, kept = self._prompt(session, spec, entries)
        inputs: dict[str, Input] = {"history": history, "tools": tools}
        sound = kept[-1].sound if kept else None
        if sound is not None:
            inputs["audio"] = sound.audio
        spoken = spec.modality == "audio"
        task = self._offer.answer[(sound is not None, spoken)]
        chars = sum(len(str(message["content"])) for message in history) + len(str(tools)) * bool(tools)
        return TaskRequest(task, inputs, self._settings(spec, spoken=spoken)), chars, len(history)

    def warm(self, session: Session, spec: Spec, entries: Sequence[Entry]) -> TaskRequest:
        """The task that reads what is known of the next prompt. Raises TooLong."""
        history, tools, _ = self._prompt(session, spec, entries)
        return TaskRequest(self._offer.warm, {"history": history, "tools": tools})

    def _prompt(
        self, session: Session, spec: Spec, entries: Sequence[Entry]
    ) -> tuple[list[Message], list[Message], list[Entry]]:
        """Messages and tools, and the entries they are of. Raises TooLong."""
        bounded = spec.max_output_tokens
        reserve = self._options.answer_tokens if bounded == "inf" else bounded
        reserve = min(reserve, self.budget.context // 2)
        tools = tools_value(spec.tools) if spec.tool_choice != "none" else []
        fixed = len(spec.instructions) + len(str(tools)) * bool(tools)
        own = spec.entries is not None
        if own or not spec.conversation:  # what such a prompt has no room for stays in the conversation's
            entries = [replace(entry, left_out=entry.left_out and not own) for entry in entries]
        kept = self.budget.fit(entries, fixed, reserve, session.truncation)
        if kept is None:
            raise TooLong
        history = messages(kept)
        if spec.instructions:
            history = [{"role": "system", "content": spec.instructions}, *history]
        return history, tools, kept

    def _settings(self, spec: Spec, *, spoken: bool) -> dict[str, Value]:
        settings: dict[str, Value] = {}
        if spoken:
            settings["voice"] = spec.voice if spec.voice in self._offer.voices else self._offer.voices[0]
            settings["speed"] = spec.speed
        if spec.answer_silence:
            settings["answer_silence"] = True
        if spec.max_output_tokens != "inf":
            settings["max_tokens"] = spec.max_output_tokens
        if spec.tools:
            choice = spec.tool_choice
            settings["tool_choice"] = {"name": choice.name} if isinstance(choice, ChosenTool) else choice
        return settings
