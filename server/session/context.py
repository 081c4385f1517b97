"""The prompt that a family's answer gets: chat messages out of log entries, within the model's context."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mstar.tensors import Value
from server.events.session import RetentionRatio, Tool, Truncation
from server.session.log import Entry

Message = Mapping[str, Value]

AUTO_RETENTION = 0.8
"""Share of the budget that `auto` keeps when it has to cut: cutting seldom keeps the cached prefix usable."""
HOPELESS = 4
"""A prompt that is estimated at so many times the context is not tried: reading it would take the model's time."""
SPOKEN_TOKENS_PER_SECOND = 6
"""Text tokens that a second of speech not yet transcribed will have, at most."""


def messages(entries: Sequence[Entry]) -> list[Message]:
    """Chat messages of entries in order. What has no words (yet) is left out; a call stands before its output."""
    calls = {entry.item.call_id: entry.item for entry in entries if entry.item.type == "function_call"}
    out: list[Message] = []
    for entry in entries:
        item = entry.item
        if item.type == "function_call_output":
            call = calls.get(item.call_id)
            if call is not None:
                said = {"name": str(call.name), "arguments": str(call.arguments)}
                out.append({"role": "assistant", "content": "", "tool_calls": [said]})
                out.append({"role": "tool", "name": str(call.name), "content": str(item.output)})
        elif item.type == "message" and entry.text.strip():
            out.append({"role": str(item.role), "content": entry.text})
    return out


def tools_value(tools: Sequence[Tool]) -> list[Message]:
    """Tools as the family takes them."""
    return [
        {"name": tool.name, "description": tool.description or "", "parameters": tool.parameters or {}}
        for tool in tools
    ]


class Budget:
    """Keeps prompts within `context` tokens by leaving out the oldest items, and says when it may not.

    Tokens are estimated from characters; each answer's counted prompt corrects the estimate.
    """

    def __init__(self, context: int) -> None:
        self.context = context
        self._per_char = 1 / 3  # tokens; cautious for English until a prompt was counted

    def estimate(self, chars: int, n_messages: int) -> float:
        """Tokens of a prompt."""
        return chars * self._per_char + 8 * n_messages

    def counted(self, chars: int, n_messages: int, tokens: int) -> None:
        """An answer says how long its prompt was."""
        if chars >= 200 and tokens > 0:
            self._per_char = max(0.1, (tokens - 4 * n_messages) / chars)

    def fit(
        self, entries: Sequence[Entry], fixed_chars: int, reserve: int, truncation: Truncation
    ) -> list[Entry] | None:
        """The entries that the prompt holds; None if they do not fit and `truncation` is disabled, or are hopeless.

        Those that it does not hold are left out of later prompts as well, so that these begin with the same ones; where
        there is no prompt, nothing is left out.
        `fixed_chars`: instructions and tools; `reserve`: tokens for the answer.
        """
        kept = [entry for entry in entries if not entry.left_out]
        lengths = [self._tokens(entry) for entry in kept]
        budget = max(64, self.context - reserve)
        tokens = self.estimate(fixed_chars, 1) + sum(lengths)
        first = 0
        if tokens > budget:
            if truncation == "disabled":
                return None
            ratio = truncation.retention_ratio if isinstance(truncation, RetentionRatio) else AUTO_RETENTION
            while first < len(kept) - 1 and tokens > budget * ratio:
                tokens -= lengths[first]
                first += 1
        if tokens > HOPELESS * self.context:
            return None
        for entry in kept[:first]:
            entry.left_out = True
        return kept[first:]

    def too_long(self, entries: Sequence[Entry]) -> bool:
        """The model refused a prompt: leave out the older half of it. False if there is nothing left to leave out."""
        kept = [entry for entry in entries if not entry.left_out]
        if len(kept) <= 1:
            return False
        for entry in kept[: len(kept) // 2]:
            entry.left_out = True
        return True

    def _tokens(self, entry: Entry) -> float:
        text = entry.text
        chars = len(text) + len(entry.item.output or "") + len(entry.item.arguments or "")
        heard = entry.sound.seconds if entry.sound is not None and not text else 0.0
        return self.estimate(chars, 1) + heard * SPOKEN_TOKENS_PER_SECOND
