"""Prompt and text around the language model."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from models.blocks.silence import nothing_to_answer
from models.blocks.values import integer, items, record
from models.blocks.values import text as as_text
from models.llama.checkpoint import open_checkpoint
from models.llama.nodes import LMSubmodule, language_model
from models.llama.prompt import ChatTemplate, read_chat_template
from models.llama.tokenizer import Tokenizer, read_tokenizer
from models.voice.model import CONVERSATION
from models.voice.nodes.checkpoints import folder
from mstar.errors import Rejected
from mstar.submodule import STATE, Call, Many, Output, Outputs, Packed, Step
from mstar.tensors import Value

CALL_OPENS, CALL_ENDS = "<tool_call>", "</tool_call>"


class PromptSubmodule:
    """Inputs `history` (messages), `tools`, and `transcript` where the last user message was spoken → `tokens` [n].

    In the walk `warm` the tokens are those that the prompt begins with whatever the user says next. Where nothing was
    said there are none, and the walk ends. Raises Rejected (`context_length_exceeded`) beyond `context` tokens.
    """

    max_batch = 16

    def __init__(self, template: ChatTemplate, context: int) -> None:
        self.template = template
        self.context = context

    def collate(self, calls: Sequence[Call]) -> Packed:
        return Packed({})

    def forward(self, packed: Packed, step: Step) -> Outputs:
        return {"tokens": [None if nothing_to_answer(call) else self._tokens(call) for call in step.calls]}

    def verdict(self, call: Call, outputs: Mapping[str, Output]) -> bool:
        return nothing_to_answer(call)

    def _tokens(self, call: Call) -> np.ndarray:
        messages = [record(message) for message in items(call.inputs["history"])]
        if "transcript" in call.inputs and (said := record(call.inputs["transcript"])["text"]):
            messages.append({"role": "user", "content": said})
        tools = items(call.inputs["tools"])
        described = [{"type": "function", "function": tool} for tool in tools] or None
        if call.walk == "warm":
            first, second = (
                self.template.ids([*messages, {"role": "user", "content": word}], tools=described) for word in "ab"
            )
            ids = first[: next(i for i, pair in enumerate(zip(first, second, strict=False)) if pair[0] != pair[1])]
        else:
            ids = self.template.ids(messages, tools=described)
        return _within(ids, self.context, "history")


class PlainSubmodule:
    """Input `prompt`, a text to go on with → `tokens` [n]. Control tokens spelled in it are ordinary characters.

    Raises Rejected for an empty one, and (`context_length_exceeded`) beyond `context` tokens.
    """

    max_batch = 16

    def __init__(self, tokenizer: Tokenizer, context: int) -> None:
        self.tokenizer = tokenizer
        self.context = context

    def collate(self, calls: Sequence[Call]) -> Packed:
        return Packed({})

    def forward(self, packed: Packed, step: Step) -> Outputs:
        return {"tokens": [self._tokens(call) for call in step.calls]}

    def verdict(self, call: Call, outputs: Mapping[str, Output]) -> bool:
        return False

    def _tokens(self, call: Call) -> np.ndarray:
        ids = self.tokenizer.encode(self.tokenizer.inert(as_text(call.inputs["prompt"])))
        if not ids:
            raise Rejected("the prompt holds no text", code="empty_prompt", param="prompt")
        return _within(ids, self.context, "prompt")


def _within(ids: Sequence[int], context: int, what: str) -> np.ndarray:
    if len(ids) > context:
        raise Rejected(
            f"the conversation is {len(ids)} tokens long, {context} are the most",
            code="context_length_exceeded",
            param=what,
        )
    return np.array(ids, dtype=np.int64)


class TextSubmodule:
    """Streaming input `text_tokens` (ids); the end of the segment ends the text.

    Outputs: `text`, {"text": new text, "at": its first character, "tokens": of the answer so far}; `written`, the same
    text as stream items, cut at the end; `call`, {"name", "arguments": JSON text} where the model calls a function,
    which is neither shown nor spoken. Setting `calls` (True): False shows a call as the text that it is.
    State: bytes of an unfinished character, characters and tokens so far, text that may yet turn out to be a call.
    """

    max_batch = 64

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer

    def collate(self, calls: Sequence[Call]) -> Packed:
        return Packed({})

    def forward(self, packed: Packed, step: Step) -> Outputs:
        done = [self._read(call) for call in step.calls]
        names = ("text", "written", "call", STATE)
        return {name: [each.get(name) for each in done] for name in names}

    def verdict(self, call: Call, outputs: Mapping[str, Output]) -> bool:
        return False

    def _read(self, call: Call) -> Mapping[str, Output]:
        state: Mapping[str, Value] = (
            {"bytes": b"", "at": 0, "held": "", "read": 0} if call.state is None else record(call.state)
        )
        span = call.spans["text_tokens"]
        last = span.segment_final or span.final
        pending = state["bytes"]
        if not isinstance(pending, bytes):
            raise TypeError("state: bytes of an unfinished character are no bytes")
        fresh = ""
        for token in items(call.inputs["text_tokens"]):
            piece, pending = self.tokenizer.push(pending, integer(token))
            fresh += piece
        if last:
            fresh += self.tokenizer.flush(pending)
        at = integer(state["at"])
        said = as_text(state["held"]) + fresh
        shown, called, held = _sort_out(said, at, last=last) if call.settings.get("calls", True) else (said, None, "")
        read = integer(state["read"]) + len(items(call.inputs["text_tokens"]))
        out: dict[str, Output] = {
            STATE: {"bytes": pending, "at": at + len(shown), "held": held, "read": read},
            "call": called,
        }
        if shown:
            out["text"] = {"text": shown, "at": at, "tokens": read}
        if shown or last:
            out["written"] = Many((shown,) if shown else (), cut=last)
        return out


def _sort_out(said: str, at: int, *, last: bool) -> tuple[str, Value, str]:
    """New text → what is shown, a call, and what must wait to be known: behind a call more calls may come."""
    opens = said.find("<")
    if opens < 0:
        return said, None, ""
    may_call = CALL_OPENS.startswith(said[opens : opens + len(CALL_OPENS)])
    if not may_call:
        shown, called, held = _sort_out(said[opens + 1 :], at, last=last)
        return said[: opens + 1] + shown, called, held
    if not last and CALL_ENDS not in said:
        return said[:opens], None, said[opens:]
    body, _, rest = said[opens:].removeprefix(CALL_OPENS).partition(CALL_ENDS)
    called = _call(body)
    return (said, None, "") if called is None else (said[:opens].rstrip(), called, rest.lstrip())


def _call(body: str) -> Value:
    """The call that a model wrote, None if it is none."""
    try:
        told: Any = json.loads(body)
    except ValueError:
        return None
    if not isinstance(told, dict) or not isinstance(told.get("name"), str):
        return None
    return {"name": told["name"], "arguments": json.dumps(told.get("arguments", {}))}


@cache
def _tokenizer(path: Path) -> Tokenizer:
    """The language model's tokenizer."""
    return read_tokenizer(open_checkpoint(path))


def lm(settings: Mapping[str, Value]) -> LMSubmodule:
    """The language model."""
    return language_model({**settings, "llm": str(folder(settings, "llm", "smollm2"))})


def prompt(settings: Mapping[str, Value]) -> PromptSubmodule:
    """A conversation → the token ids the checkpoint was trained to continue."""
    path = folder(settings, "llm", "smollm2")
    return PromptSubmodule(read_chat_template(open_checkpoint(path), _tokenizer(path)), CONVERSATION.context)


def text(settings: Mapping[str, Value]) -> TextSubmodule:
    """Token ids → text."""
    return TextSubmodule(_tokenizer(folder(settings, "llm", "smollm2")))


def plain(settings: Mapping[str, Value]) -> PlainSubmodule:
    """A text → its token ids."""
    return PlainSubmodule(_tokenizer(folder(settings, "llm", "smollm2")), CONVERSATION.context)
