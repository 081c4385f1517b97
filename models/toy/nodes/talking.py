"""Toy language: a prompt of bytes, a scripted language model on a real KV cache, words out of tokens."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from threading import Event

import numpy as np
import torch

from models.blocks.silence import nothing_to_answer
from models.blocks.values import integer, items, record, text
from models.toy.language import EOS, render, script
from models.toy.nodes.plain import PerCall
from mstar.submodule import STATE, Call, KVGeometry, Many, Output, Outputs, Packed, Row, Sampling, Step
from mstar.tensors import Value


def prompt(_: Mapping[str, Value]) -> PerCall:
    """history, tools[, transcript] → tokens [n] int64: the bytes of the rendered prompt; none for a mere noise."""

    def run(call: Call) -> Mapping[str, Output]:
        if nothing_to_answer(call):
            return {}
        heard = call.inputs.get("transcript")
        history = [record(each) for each in items(call.inputs["history"])]
        tools = [record(each) for each in items(call.inputs["tools"])]
        rendered = render(history, tools, None if heard is None else text(record(heard)["text"]))
        if call.walk == "warm":
            rendered = rendered.removesuffix("assistant:")
        return {"tokens": np.frombuffer(rendered.encode(), dtype=np.uint8).astype(np.int64)}

    return PerCall(run, ("tokens",), stop=nothing_to_answer)


def plain(_: Mapping[str, Value]) -> PerCall:
    """prompt (a text to go on with) → tokens [n] int64: its bytes."""

    def run(call: Call) -> Mapping[str, Output]:
        return {"tokens": np.frombuffer(text(call.inputs["prompt"]).encode(), dtype=np.uint8).astype(np.int64)}

    return PerCall(run, ("tokens",))


class ScriptedLM:
    """Says `script(prompt)` byte by byte; the setting `tool_choice` makes it a call.

    Which byte is next comes out of attention: the sum over the cached values says how many positions the sequence holds
    that were decoded, so a wrong cache gives a wrong word. (A later turn's prompt quotes the answer and may reuse its
    positions: they are counted when the prompt has been read, and taken off.)
    """

    max_batch = 16
    sampling: Sampling | None = None
    geometry = KVGeometry(layers=1, kv_heads=1, head_dim=4)

    def keys(self, call: Call) -> np.ndarray:
        if call.walk == "decode":
            return np.array([integer(call.inputs["token"])], dtype=np.int64)
        return np.asarray(call.inputs["tokens"], dtype=np.int64)

    def cut(self, call: Call, stop: int) -> Call:
        """The first `stop` bytes of a prompt."""
        return replace(call, inputs={**call.inputs, "tokens": np.asarray(call.inputs["tokens"])[:stop]})

    def collate(self, calls: Sequence[Call]) -> Packed:
        rows, flags = [], []
        for index, call in enumerate(calls):
            keys = self.keys(call)[call.reused :]
            rows.append(Row(index, len(keys)))
            flags.append(torch.full((len(keys),), float(call.walk == "decode")))
        return Packed({"decoded": torch.cat(flags)}, tuple(rows))

    def forward(self, packed: Packed, step: Step) -> Outputs:
        assert step.attention is not None
        decoded = packed.tensors["decoded"]  # [tokens]
        values = torch.zeros(len(decoded), 1, 4)
        values[:, 0, 0] = decoded
        nothing = torch.zeros(len(decoded), 1, 4)
        share = step.attention.attend(0, nothing, nothing, values)[:, 0, 0]  # of decoded positions, over the sequence
        tokens: list[Value] = []
        states: list[Value] = []
        usages: list[Value] = []
        begun: list[Value] = []
        end = 0
        for call, row in zip(step.calls, packed.rows, strict=True):
            end += row.tokens
            length = call.length + row.tokens
            count = round(float(share[end - 1]) * length)
            state = self._start(call, count) if call.walk != "decode" else record(call.state)
            said = count - integer(state["before"])
            reply = text(state["reply"]).encode()
            if not reply:
                raise ValueError("the toy language model was told to fail")
            limit = integer(call.settings.get("max_tokens") or len(reply))
            token = reply[said] if said < min(len(reply), limit) else EOS
            tokens.append(token)
            states.append(state)
            read: Value = {name: state[name] for name in ("prompt", "reused")}
            begun.append(None if call.walk == "decode" else read)
            usages.append(
                {
                    "prompt": state["prompt"],
                    "reused": state["reused"],
                    "generated": said,
                    "reason": "length" if said < len(reply) else "stop",
                }
                if token == EOS
                else None
            )
        return {"token": tokens, "usage": usages, "begun": begun, STATE: states}

    def _start(self, call: Call, before: int) -> Mapping[str, Value]:
        prompt = bytes(np.asarray(call.inputs["tokens"], dtype=np.uint8)).decode(errors="replace")
        if prompt.endswith("wedge\x1dassistant:"):  # told never to end
            Event().wait()
        if call.walk == "complete":
            reply = script(f"tools:\x1duser:{prompt}\x1dassistant:")
            return {"reply": reply, "prompt": len(self.keys(call)), "reused": call.cached, "before": before}
        reply = "" if prompt.endswith("fail\x1dassistant:") else script(prompt, _forced(call))
        return {"reply": reply, "prompt": len(self.keys(call)), "reused": call.cached, "before": before}

    def verdict(self, call: Call, outputs: Mapping[str, Output]) -> bool:
        return outputs["token"] == EOS


def _forced(call: Call) -> str:
    """The tool that is to be called, "required" for any, "" for none."""
    match call.settings.get("tool_choice"):
        case {"name": str(name)}:
            return name
        case "required":
            return "required"
        case _:
            return ""


def lm(_: Mapping[str, Value]) -> ScriptedLM:
    """The scripted language model."""
    return ScriptedLM()


def words(_: Mapping[str, Value]) -> PerCall:
    """token (a byte each) → text deltas, `word` items, and a call when the text is one.

    A word ends at a space or with the answer; its item is {"text", "from", "to"} (characters of the answer).
    """

    def run(call: Call) -> Mapping[str, Output]:
        state: Mapping[str, Value] = {"text": "", "from": 0} if call.state is None else record(call.state)
        tokens = [integer(token) for token in items(call.inputs["token"])]
        fresh = "".join(chr(token) for token in tokens if token != EOS)
        before = text(state["text"])
        said, start, ended = before + fresh, integer(state["from"]), EOS in tokens
        if said.startswith("<"):
            if not ended:
                return {STATE: {"text": said, "from": 0}}
            body = json.loads(said.removeprefix("<tool_call>").removesuffix("</tool_call>"))
            return {"call": {"name": body["name"], "arguments": json.dumps(body["arguments"])}, STATE: state}
        found: list[Value] = []
        while (border := said.find(" ", start)) >= 0 or (ended and start < len(said)):
            stop = border + 1 if border >= 0 else len(said)
            found.append({"text": said[start:stop].strip(" ,"), "from": start, "to": stop})
            start = stop
        return {
            "text": {"text": fresh, "at": len(before), "tokens": len(said) + ended} if fresh else None,
            "word": Many(tuple(found)) if found else None,
            STATE: {"text": said, "from": start},
        }

    return PerCall(run, ("text", "call", "word", STATE))


def spell(_: Mapping[str, Value]) -> PerCall:
    """written (pieces of text, cut anywhere) → `word` items as of `words`; a cut or the end ends a word."""

    def run(call: Call) -> Mapping[str, Output]:
        state: Mapping[str, Value] = {"rest": "", "from": 0} if call.state is None else record(call.state)
        rest, start = text(state["rest"]), integer(state["from"])
        if call.inputs["written"] is not None:
            rest += "".join(text(piece) for piece in items(call.inputs["written"]))
        span = call.spans["written"]
        ended = span.segment_final or span.final
        found: list[Value] = []
        while (border := rest.find(" ")) >= 0 or (ended and rest):
            length = border + 1 if border >= 0 else len(rest)
            if rest[:length].strip(" ,"):
                found.append({"text": rest[:length].strip(" ,"), "from": start, "to": start + length})
            rest, start = rest[length:], start + length
        return {"word": Many(tuple(found)) if found else None, STATE: {"rest": rest, "from": start}}

    return PerCall(run, ("word", STATE))
