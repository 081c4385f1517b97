"""The language model that writes speech."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from torch import Tensor

from models.blocks.values import integer, ints, record
from models.llama.network import Llama, kernel_of
from models.llama.nodes import LMSubmodule
from models.orpheus.model import LONGEST
from models.orpheus.nodes.checkpoints import speech_model
from models.orpheus.tokens import SpeechTokens
from mstar.errors import Rejected
from mstar.submodule import STATE, Attention, Call, Many, Output, Outputs, Packed, Rows, Sampling, Step
from mstar.tensors import Value

SAMPLING = Sampling(temperature=0.6, top_p=0.8, repetition_penalty=1.3)
MAX_TOKENS = 1200  # of a sentence: 14.6 s


@dataclass(frozen=True, slots=True)
class Written:
    """State of a sentence: the language model's own, codes so far by both rules, those that wait for the next pass.

    `usage` is there from the last token on.
    """

    lm: Value = None
    codes: int = 0
    window_codes: int = 0
    held: tuple[int, ...] = ()
    window_held: tuple[int, ...] = ()
    usage: Value = None

    @classmethod
    def of(cls, value: Value) -> Written:
        got = record(value)
        counts = integer(got["codes"]), integer(got["window_codes"])
        held, window_held = (tuple(ints(got[name]).tolist()) for name in ("held", "window_held"))
        return cls(got["lm"], *counts, held, window_held, got["usage"])

    def value(self) -> Value:
        return {
            "lm": self.lm,
            "codes": self.codes,
            "window_codes": self.window_codes,
            "held": self.held,
            "window_held": self.window_held,
            "usage": self.usage,
        }

    def take(self, token: int, tokens: SpeechTokens, usage: Value, lm: Value) -> Written:
        """After one more token."""
        code = tokens.code(token, self.codes)
        window_code = tokens.published_code(token, self.window_codes)
        return Written(
            lm,
            self.codes + (code is not None),
            self.window_codes + (window_code is not None),
            self.held if code is None else (*self.held, code),
            self.window_held if window_code is None else (*self.window_held, window_code),
            usage,
        )


class SpeechLMSubmodule:
    """A sentence's prompt (input `tokens`), or a pass of decoding (input `token`, the one drawn before).

    A prompt puts out `token` alone, what else there is of its token comes with the next pass. Outputs of a pass:
    - `token`: the id drawn; feeds the next pass.
    - `code`, items: the codes of the sentence in the order of their tokens, each of its slot; `cut` with the last.
      A token that is no code of the slot that is next is left out.
    - `window_code`, items: the same as the published decoder reads them (`SpeechTokens.published_code`).
    - `usage`, with a sentence's last token: {"prompt", "reused", "generated", "reason": "stop" | "length"}.

    A sentence ends with the token of its end, or with number `max_tokens`. That is the verdict of a pass, which ends
    the loop around decoding; a first token that is the last ends it in the pass behind it, which draws nothing of use.

    Settings: `max_tokens` (of a sentence; 1200 if absent, at most 4096), and those of sampling, which the engine reads.
    The repetition penalty is for tokens of the sentence itself. State: `Written`.
    """

    def __init__(
        self, network: Llama, tokens: SpeechTokens, *, max_batch: int = 16, sampling: Sampling = SAMPLING
    ) -> None:
        """`network.config.eos` holds the end of speech."""
        self.lm = LMSubmodule(network, max_batch=max_batch, sampling=sampling)
        self.tokens = tokens
        self.max_batch = max_batch
        self.geometry = self.lm.geometry
        self.together = self.lm.together
        self.capturable = self.lm.capturable
        self.sampling: Sampling | None = sampling

    def keys(self, call: Call) -> np.ndarray:
        return self.lm.keys(_plain(call))

    def cut(self, call: Call, stop: int) -> Call:
        """The first `stop` tokens of a prompt."""
        return self.lm.cut(call, stop)

    def recompute(self, call: Call, keys: np.ndarray) -> Call:
        """A prompt of the tokens that stood in a sequence whose K/V were dropped."""
        return self.lm.recompute(call, keys)

    def collate(self, calls: Sequence[Call]) -> Packed:
        return self.lm.collate([_plain(call) for call in calls])

    def forward(self, packed: Packed, step: Step) -> Outputs:
        if step.attention is None:
            raise ValueError("a language model needs a KV engine")
        return self.conclude(self.compute(packed.tensors, step.attention), packed, step)

    def compute(self, tensors: Mapping[str, Tensor], attention: Attention) -> Mapping[str, Tensor]:
        """See `LMSubmodule.compute`."""
        return self.lm.compute(tensors, attention)

    def blank(self, counts: Sequence[int]) -> Mapping[str, Tensor]:
        """See `LMSubmodule.blank`."""
        return self.lm.blank(counts)

    def conclude(self, computed: Mapping[str, Tensor], packed: Packed, step: Step) -> Outputs:
        """The tokens drawn, and the codes that they are."""
        drawn = self.lm.conclude(computed, packed, replace(step, calls=[_plain(call) for call in step.calls]))
        columns = [map(_value, drawn[name]) for name in ("token", "usage", STATE)]
        each = [self._outputs(call, integer(token), *of) for call, token, *of in zip(step.calls, *columns, strict=True)]
        return {name: [outputs[name] for outputs in each] for name in each[0]}

    def verdict(self, call: Call, outputs: Mapping[str, Output]) -> bool:
        return not _begins(call) and record(_value(outputs[STATE]))["usage"] is not None

    def _outputs(self, call: Call, token: int, usage: Value, lm: Value) -> dict[str, Output]:
        begins = _begins(call)
        before = Written() if begins else Written.of(call.state)
        after = before if before.usage is not None else before.take(token, self.tokens, usage, lm)
        if begins:
            return {"token": token, "code": None, "window_code": None, "usage": None, STATE: after.value()}
        ended = after.usage is not None
        return {
            "token": token,
            "code": _items(after.held, ended),
            "window_code": _items(after.window_held, ended),
            "usage": after.usage,
            STATE: replace(after, held=(), window_held=()).value(),
        }


def _value(output: Output) -> Value:
    if isinstance(output, Many | Rows):
        raise TypeError(f"expected one value, got {type(output).__name__}")
    return output


def _items(codes: tuple[int, ...], ended: bool) -> Many | None:
    return Many(codes, cut=ended) if codes or ended else None


def _begins(call: Call) -> bool:
    return "tokens" in call.inputs


def _plain(call: Call) -> Call:
    """The call as the language model takes it."""
    limit = call.settings.get("max_tokens")
    if isinstance(limit, int) and limit > LONGEST:
        raise Rejected(f"max_tokens is {limit}, {LONGEST} is the most", param="max_tokens")
    settings = {**call.settings, "max_tokens": MAX_TOKENS if limit is None else limit}
    return replace(call, settings=settings, state=None if _begins(call) else record(call.state)["lm"])


def lm(settings: Mapping[str, Value]) -> SpeechLMSubmodule:
    """The language model. Settings `llm_kernel` and `device`: see `models.llama.network.kernel_of`."""
    model = speech_model(settings)
    config = replace(model.config, eos=(model.tokens.end_of_speech,))
    kernel, device = kernel_of(settings)
    return SpeechLMSubmodule(Llama(config, model.weights, kernel, device=device), model.tokens)
