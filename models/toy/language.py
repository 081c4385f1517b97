"""What the toy family hears and says, as pure functions: tones for words, a script for answers (torch-free)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

LEXICON = (
    "hello", "count", "weather", "call", "yes", "no", "stop", "again", "long", "fail", "name", "sing",
)  # fmt: skip
BASE_HZ = 300.0
STEP_HZ = 100.0
EOS = 0
NUMBERS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
MARK = "\x1d"
"""Separates messages in a toy prompt."""


UNSAYABLE = "unsayable"
"""A word at which the voice fails."""


def tone_of(word: str) -> float:
    """Hz of a word: of the lexicon by place, of others by their letters, above the lexicon's."""
    if word in LEXICON:
        return BASE_HZ + STEP_HZ * LEXICON.index(word)
    return 2000.0 + 10.0 * (sum(word.encode()) % 100)


def word_at(hertz: float) -> str | None:
    """The lexicon's word of a tone, None if it is none."""
    place = round((hertz - BASE_HZ) / STEP_HZ)
    near = abs(hertz - BASE_HZ - STEP_HZ * place) < STEP_HZ / 3
    return LEXICON[place] if near and 0 <= place < len(LEXICON) else None


def render(history: Sequence[Mapping[str, Any]], tools: Sequence[Any], heard: str | None) -> str:
    """The whole prompt as one text."""
    messages = [(str(each.get("role", "")), str(each.get("content", ""))) for each in history]
    if heard is not None:
        messages.append(("user", heard))
    names = ",".join(str(tool.get("name", "")) for tool in tools)
    return MARK.join([f"tools:{names}", *(f"{role}:{content}" for role, content in messages), "assistant:"])


def call_of(tool: str) -> str:
    """An answer that calls a tool."""
    return f"<tool_call>{json.dumps({'name': tool, 'arguments': {'city': 'Paris'}})}</tool_call>"


def script(prompt: str, choice: str = "") -> str:
    """The answer to a prompt: a function of its messages alone. `choice`: a tool that is to be called."""
    messages = [part.partition(":") for part in prompt.split(MARK)[:-1]]
    tools = messages[0][2].split(",") if messages else []
    said = [(role, content) for role, _, content in messages[1:]]
    role, last = said[-1] if said else ("user", "")
    words = last.split()
    if choice:
        return call_of(tools[0] if choice == "required" else choice)
    if role == "tool":
        return f"it is {last}"
    if "count" in words:
        return ", ".join(NUMBERS)
    if "call" in words and tools and tools[0]:
        return call_of(tools[0])
    if "long" in words:
        return " ".join(NUMBERS * 20)
    if "again" in words:
        answers = [content for role, content in said if role == "assistant"]
        return f"again {answers[-1]}" if answers else "nothing yet"
    return f"you said {last}" if last else "hello"
