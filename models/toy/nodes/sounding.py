"""Toy speech: a word is a quarter of a second of its tone, in frames of 10 ms."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from models.blocks.values import integer, record, text
from models.toy.language import UNSAYABLE, tone_of
from models.toy.model import FRAME, RATE, WORD_FRAMES
from models.toy.nodes.plain import PerCall
from mstar.submodule import STATE, Call, Output, Rows
from mstar.tensors import Value


def tone(_: Mapping[str, Value]) -> PerCall:
    """word {"text", "from", "to"} → frames: rows [25, 2] (Hz, place in the word), and where the word sounds."""

    def run(call: Call) -> Mapping[str, Output]:
        if call.inputs["word"] is None:
            return {}
        word = record(call.inputs["word"])
        if word["text"] == UNSAYABLE:
            raise ValueError("the toy voice was told to fail")
        start = 0 if call.state is None else integer(call.state)
        stop = start + WORD_FRAMES * FRAME
        frames = np.stack(
            [np.full(WORD_FRAMES, tone_of(text(word["text"]))), np.arange(WORD_FRAMES, dtype=np.float64)], axis=1
        ).astype(np.float32)
        words = np.array([[integer(word["from"]), integer(word["to"]), start, stop]])
        return {"frames": Rows(frames, cut=True), "alignment": {"words": words}, STATE: stop}

    return PerCall(run, ("frames", "alignment", STATE))


def vocoder(_: Mapping[str, Value]) -> PerCall:
    """frames [n, 2] → audio {"pcm": float32 [n · 240], "start"}; the context frames are not sounded again."""

    def run(call: Call) -> Mapping[str, Output]:
        span = call.spans["frames"]
        if span.n_new == 0:
            return {}
        frames = np.asarray(call.inputs["frames"])[span.n_context :]  # [new, 2]
        start = 0 if call.state is None else integer(call.state)
        within = frames[:, 1:2] * FRAME + np.arange(FRAME)[None]  # samples since the word began
        pcm = (0.3 * np.sin(2 * np.pi * frames[:, :1] * within / RATE)).astype(np.float32).reshape(-1)
        return {"audio": {"pcm": pcm, "start": start}, STATE: start + len(pcm)}

    return PerCall(run, ("audio", STATE))
