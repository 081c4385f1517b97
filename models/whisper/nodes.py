"""The three nodes of speech recognition: encoder | decoder | transcript. A firing is one piece of at most 30 s."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from media.features import HOP, RATE, log_mel
from models.blocks.values import floats, integer, ints, items, record, text
from models.whisper.config import Ids
from models.whisper.decoding import Progress, Rules, believable
from models.whisper.head import ExactHead, Head, ShortlistHead
from models.whisper.network import Whisper
from models.whisper.prompting import Conditioning
from models.whisper.tokenizer import Tokenizer
from mstar.engine.sampling import uniform
from mstar.errors import Rejected
from mstar.submodule import STATE, Call, KVGeometry, Output, Outputs, Packed, Row, Sampling, Step
from mstar.tensors import Value

CONTEXTS = (256, 384, 512, 750, 1000, 1250, 1500)
"""Contexts of the encoder, in frames of 20 ms; the smallest that holds the audio and `MARGIN` is taken.

The published model always hears 30 s (1500). A decoder without times runs away on less than 750; with times, and with
`Progress.ended`, 256 is as good as 1500 on spoken sentences that fit, at a sixth of the work.
"""
MARGIN = 25
"""Frames (0.5 s) of silence behind the audio, where the piece is short enough to have them."""
FRAME = 2 * HOP
"""Samples per frame of the encoder."""


def context_for(samples: int, longest: int = CONTEXTS[-1]) -> int:
    """Frames of context that the encoder hears `samples` samples in.

    Raises Rejected for audio longer than `longest` frames.
    """
    frames = -(-samples // FRAME)
    if frames > longest:
        raise Rejected(
            f"audio: {samples / RATE:.1f} s are longer than the {longest * FRAME / RATE:g} s of one piece",
            param="audio",
        )
    fits = (size for size in CONTEXTS if size <= longest and size >= frames + MARGIN)
    return next(fits, longest)


class EncoderSubmodule:
    """Input `audio`, float32 of any shape (taken in order), 16 kHz, at most 30 s.

    Outputs: `states` [frames, d_model] float32; `seconds`, the length of the audio. It keeps nothing. Audio of one
    context goes through the network together on a GPU; on a CPU, where that gains nothing, each alone.
    """

    def __init__(self, network: Whisper) -> None:
        self.network = network
        self.max_batch = 1 if network.device.type == "cpu" else 16

    def collate(self, calls: Sequence[Call]) -> Packed:
        tensors = {}
        for number, call in enumerate(calls):
            audio = floats(call.inputs["audio"]).reshape(-1)
            if not np.isfinite(audio).all():
                raise Rejected("audio: holds numbers that are not finite", param="audio")
            frames = context_for(len(audio), self.network.config.max_source_positions)
            mel = log_mel(audio, bins=self.network.config.num_mel_bins, frames=2 * frames)
            tensors[str(number)] = torch.from_numpy(mel).to(self.network.device)
        return Packed(tensors)

    @torch.inference_mode()
    def forward(self, packed: Packed, step: Step) -> Outputs:
        mels = [packed.tensors[str(number)] for number in range(len(step.calls))]
        states: list[Value] = [None] * len(mels)
        order = sorted(range(len(mels)), key=lambda number: mels[number].shape[1])
        for _, together in groupby(order, key=lambda number: mels[number].shape[1]):
            numbers = list(together)
            for number, own in zip(numbers, self.network.encode(torch.stack([mels[n] for n in numbers])), strict=True):
                states[number] = own
        seconds = [floats(call.inputs["audio"]).size / RATE for call in step.calls]
        return {"states": states, "seconds": seconds}

    def verdict(self, call: Call, outputs: Mapping[str, Output]) -> bool:  # noqa: ARG002 - a firing is a whole piece
        return False


class DecoderSubmodule:
    """Greedy decoding with times, on the engine with a K/V cache.

    A firing with `states` and `seconds` begins a piece: the prompt is laid down and the states' K/V are written for
    cross-attention. A firing with `token` goes on from it. Output `token`, int: the next id. Its verdict is True when
    it ends the transcript (`Progress.ended`): the end token (at once where nobody speaks), a closing time at the end of
    the audio, or more tokens than anyone speaks in that time. After that a firing puts out the end token again.
    Its tokens do not depend on its batch when the network's kernel is "int8".

    Settings of a first firing: `language`, `translate` (checkpoints of many languages), `transcript_prompt` (text that
    came before; nothing where `conditioning` is None); of both `transcript_times` (False: no times; then the encoder
    should hear 30 s) and `transcript_temperature` (0: the likeliest token). State: `Progress`.
    """

    max_batch = 32
    sampling: Sampling | None = None  # greedy whatever the request's settings are for other nodes

    def __init__(
        self, network: Whisper, ids: Ids, *, head: Head | None = None, conditioning: Conditioning | None = None
    ) -> None:
        config = network.config
        self.conditioning = conditioning
        self.network = network
        self.ids = ids
        self.rules = Rules(ids, config.vocab_size, network.device)
        self.geometry = KVGeometry(
            layers=config.decoder_layers,
            kv_heads=config.decoder_attention_heads,
            head_dim=config.d_model // config.decoder_attention_heads,
            dtype=network.embedding.dtype,
            cross_context=config.max_source_positions,
            cross_layers=config.decoder_layers,
        )
        on_cpu = network.device.type == "cpu"
        self.head = head or (
            ShortlistHead(network.embedding, ids.first_stamp) if on_cpu else ExactHead(network.embedding)
        )

    def keys(self, call: Call) -> NDArray[np.int64]:
        """The prompt, or the one token. The K/V depend on the audio as well: nothing of them may be reused."""
        return np.asarray(self._tokens(call), dtype=np.int64)

    def collate(self, calls: Sequence[Call]) -> Packed:
        tokens = [self._tokens(call)[call.reused :] for call in calls]
        ids = torch.tensor([token for own in tokens for token in own], device=self.network.device)
        rows = tuple(Row(call=number, tokens=len(own)) for number, own in enumerate(tokens))
        return Packed({"ids": ids}, rows)

    @torch.inference_mode()
    def forward(self, packed: Packed, step: Step) -> Outputs:
        attention = step.attention
        if attention is None:
            raise ValueError("the decoder of Whisper runs on an engine with a K/V cache")
        begins = [number for number, call in enumerate(step.calls) if "states" in call.inputs]
        states = [_tensor(step.calls[number].inputs["states"]).to(self.network.device) for number in begins]
        self.network.write_cross(states, begins, attention)
        hidden = self.network.decode(packed.tensors["ids"], attention)
        ends = torch.tensor([row.tokens for row in packed.rows]).cumsum(0)
        starts = [
            packed.rows[number].tokens - self._tokens(step.calls[number]).index(self.ids.start) for number in begins
        ]
        firsts = torch.tensor([int(ends[n]) - back for n, back in zip(begins, starts, strict=True)], dtype=torch.int64)
        silent = dict(zip(begins, self.rules.silent(self.head(hidden[firsts])), strict=True)) if begins else {}
        before = [self._progress(call) for call in step.calls]
        allowed = self.rules.apply(self.head(hidden[ends - 1]), before)
        chosen = [_choose(row, call) for row, call in zip(allowed, step.calls, strict=True)]
        tokens = [
            self.ids.end if silent.get(number) or so_far.ended(self.ids) else token
            for number, (token, so_far) in enumerate(zip(chosen, before, strict=True))
        ]
        after = [so_far.take(token, self.ids) for so_far, token in zip(before, tokens, strict=True)]
        return {"token": tokens, STATE: [so_far.value() for so_far in after]}

    def verdict(self, call: Call, outputs: Mapping[str, Output]) -> bool:
        if "states" in call.inputs:  # the loop around the first firing goes over pieces; that over tokens comes next
            return False
        token = outputs["token"]
        if not isinstance(token, int):
            raise TypeError(f"token: expected an integer, got {type(token).__name__}")
        return self._progress(call).take(token, self.ids).ended(self.ids)

    def _tokens(self, call: Call) -> tuple[int, ...]:
        if "states" not in call.inputs:
            return (integer(call.inputs["token"]),)
        language = call.settings.get("language")
        told = text(call.settings.get("transcript_prompt") or "")
        before = self.conditioning(told) if self.conditioning is not None else ()
        try:
            return before + self.ids.prompt(
                language=None if language is None else text(language),
                translate=bool(call.settings.get("translate", False)),
                stamps=_times(call),
            )
        except ValueError as wrong:
            raise Rejected(str(wrong), param=str(wrong).partition(":")[0]) from wrong

    def _progress(self, call: Call) -> Progress:
        """Before this firing's token. A first firing begins anew, whatever an earlier piece left."""
        if "states" in call.inputs:
            room = self.network.config.max_target_positions - len(self._tokens(call))
            return Progress(float(floats(call.inputs["seconds"])), _times(call), room)
        return Progress.of(call.state)


class TranscriptSubmodule:
    """Inputs `first` (id), `tokens` (ids) and `seconds` of one piece after another; ids from `end` on are no text.

    Output `transcript`: {"text", "segments": [{"text", "start", "end"}]} of all pieces so far, in seconds from the
    start of the first. State: the same, and how long the pieces were.
    """

    max_batch = 16

    def __init__(self, tokenizer: Tokenizer, end: int) -> None:
        self.tokenizer = tokenizer
        self.end = end

    def collate(self, calls: Sequence[Call]) -> Packed:  # noqa: ARG002 - nothing of it is a tensor
        return Packed({})

    def forward(self, packed: Packed, step: Step) -> Outputs:  # noqa: ARG002 - nothing of it is a tensor
        done = [self._join(call) for call in step.calls]
        return {"transcript": [{"text": each["text"], "segments": each["segments"]} for each in done], STATE: done}

    def verdict(self, call: Call, outputs: Mapping[str, Output]) -> bool:  # noqa: ARG002 - a firing is a whole piece
        return False

    def _join(self, call: Call) -> Mapping[str, Value]:
        before: Mapping[str, Value] = (
            {"text": "", "segments": (), "seconds": 0.0} if call.state is None else record(call.state)
        )
        offset = float(floats(before["seconds"]))
        seconds = float(floats(call.inputs["seconds"]))
        ids = believable([integer(call.inputs["first"]), *ints(call.inputs["tokens"]).tolist()], seconds, self.end)
        segments: list[Value] = [
            {"text": part.text.strip(), "start": offset + part.start, "end": offset + part.end}
            for part in self.tokenizer.segments(ids, end=seconds)
        ]
        said = (text(before["text"]), self.tokenizer.text(ids).strip())
        return {
            "text": " ".join(part for part in said if part),
            "segments": (*items(before["segments"]), *segments),
            "seconds": offset + seconds,
        }


def _choose(row: Tensor, call: Call) -> int:
    """A token out of logits [vocab]: the likeliest, or drawn from (seed, position)."""
    given = call.settings.get("transcript_temperature")
    temperature = float(floats(given)) if given is not None else 0.0
    if temperature <= 0.0:
        return int(row.argmax())
    shares = (row.double() / temperature).softmax(-1).cumsum(-1)
    return int(
        torch.searchsorted(shares, uniform(call.seed, call.length) * shares[-1], right=True).clamp_(max=len(row) - 1)
    )


def _times(call: Call) -> bool:
    return bool(call.settings.get("transcript_times", True))


def _tensor(value: Value) -> Tensor:
    return value if isinstance(value, Tensor) else torch.from_numpy(floats(value))
