"""A conversation → the text and token ids a checkpoint was trained to continue (torch-free)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence

from jinja2 import TemplateError
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from models.llama.checkpoint import Checkpoint, HubFolder
from models.llama.gguf_file import GgufFile
from models.llama.tokenizer import Tokenizer, read_tokenizer
from mstar.errors import Rejected, WeightsError
from mstar.tensors import Value

Message = Mapping[str, Value]
"""`role`, `content` (text), and what the template knows besides, e.g. `tool_calls`, `tool_call_id`, `name`."""


class ChatTemplate:
    """A checkpoint's own jinja template, rendered in a sandbox without clock, files or attributes of Python objects."""

    def __init__(self, source: str, tokenizer: Tokenizer, special: Mapping[str, str]) -> None:
        """`special`: what the template calls `bos_token`, `eos_token` …; raises WeightsError for a broken template."""
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
        environment.filters["tojson"] = _tojson
        environment.globals["raise_exception"] = _raise
        try:
            self._template = environment.from_string(source)
        except TemplateError as cause:
            raise WeightsError(f"chat template: {cause}") from None
        self._tokenizer = tokenizer
        self._special = dict(special)

    def render(self, messages: Sequence[Message], *, tools: Sequence[Value] | None = None, answer: bool = True) -> str:
        """The prompt's text; `answer` opens the assistant's turn. Control tokens spelled in messages are made inert.

        Raises Rejected when the template refuses the messages.
        """
        try:
            return self._template.render(
                messages=_inert(list(messages), self._tokenizer.inert),
                tools=None if tools is None else _inert(list(tools), self._tokenizer.inert),
                add_generation_prompt=answer,
                **self._special,
            )
        except (TemplateError, TypeError, KeyError, ValueError) as cause:
            raise Rejected(f"the model's chat template refuses the conversation: {cause}", param="messages") from None

    def ids(
        self, messages: Sequence[Message], *, tools: Sequence[Value] | None = None, answer: bool = True
    ) -> list[int]:
        """Token ids of `render`'s text."""
        return self._tokenizer.encode(self.render(messages, tools=tools, answer=answer))


def _inert(value: Value, mark: Callable[[str], str]) -> Value:
    match value:
        case str():
            return mark(value)
        case Mapping():
            return {key: _inert(item, mark) for key, item in value.items()}
        case list() | tuple():
            return [_inert(item, mark) for item in value]
        case _:
            return value


def _tojson(value: Value, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _raise(message: str) -> str:
    raise TemplateError(message)


def read_chat_template(checkpoint: Checkpoint, tokenizer: Tokenizer | None = None) -> ChatTemplate:
    """Raises WeightsError when the checkpoint brings no template."""
    words = tokenizer or read_tokenizer(checkpoint)
    match checkpoint:
        case HubFolder():
            return ChatTemplate(_hub_source(checkpoint), words, _hub_special(checkpoint))
        case GgufFile():
            source = checkpoint.text("tokenizer.chat_template")
            return ChatTemplate(source, words, _gguf_special(checkpoint))


def _hub_source(folder: HubFolder) -> str:
    file = folder.path / "chat_template.jinja"
    if file.exists():
        return file.read_text(encoding="utf-8")
    template = folder.json("tokenizer_config.json").get("chat_template")
    if isinstance(template, list):  # several, by name
        named = {t.get("name"): t.get("template") for t in template if isinstance(t, Mapping)}
        template = named.get("default")
    if not isinstance(template, str):
        raise WeightsError(f"{folder.path / 'tokenizer_config.json'}: chat_template is missing")
    return template


def _hub_special(folder: HubFolder) -> Mapping[str, str]:
    config = folder.optional_json("tokenizer_config.json")
    found: dict[str, str] = {}
    for name in ("bos_token", "eos_token", "unk_token", "pad_token"):
        token = config.get(name)
        spelling = token.get("content") if isinstance(token, Mapping) else token
        if isinstance(spelling, str):
            found[name] = spelling
    return found


def _gguf_special(file: GgufFile) -> Mapping[str, str]:
    tokens = file.fields.get("tokenizer.ggml.tokens")
    found: dict[str, str] = {}
    for name, field in (("bos_token", "bos"), ("eos_token", "eos"), ("unk_token", "unknown"), ("pad_token", "padding")):
        index = file.fields.get(f"tokenizer.ggml.{field}_token_id")
        if isinstance(index, int) and isinstance(tokens, list) and 0 <= index < len(tokens):
            found[name] = str(tokens[index])
    return found
