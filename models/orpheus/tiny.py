"""Small parts of random weights in the family's own shape: everything runs, nothing of it is speech.

The language model is random but for one thing: what it embeds of a token points at the slot that comes next, and its
head listens there, so that it writes whole frames and ends a sentence after a second or a few.
"""

from __future__ import annotations

import math
import zlib
from functools import cache

import torch
from tokenizers import AddedToken, decoders, models, pre_tokenizers
from tokenizers import Tokenizer as Vocabulary
from torch import Tensor

from models.blocks.rope_config import RopeConfig
from models.llama.config import LlamaConfig
from models.llama.tokenizer import Tokenizer
from models.orpheus.tokens import CONTROLS, FRAME, SpeechTokens
from models.snac.codec import Snac
from models.snac.config import SnacConfig
from models.snac.weights import SnacWeights
from mstar.errors import WeightsError

CODEBOOK = 256
_POINTER = 8.0  # length of what a token's embedding says of the next slot, beside a random part of length 1
_HEARD = 1.5  # logit of a code for one unit of the slot's direction, of the √hidden that the last norm gives
_ENDS = 1.75  # the same of the end of speech, where a frame begins
_SPREAD = 0.15


def tokenizer() -> Tokenizer:
    """Bytes, and the tokens of a prompt."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = Vocabulary(models.BPE({character: i for i, character in enumerate(alphabet)}, []))
    vocabulary.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    vocabulary.decoder = decoders.ByteLevel()
    controls = ["<|begin_of_text|>", "<|eot_id|>", *(f"<custom_token_{i}>" for i in range(CONTROLS))]
    vocabulary.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in controls])
    return Tokenizer(vocabulary)


def config(tokens: SpeechTokens) -> LlamaConfig:
    """Two layers of 128 channels."""
    return LlamaConfig(
        family="llama",
        vocab=tokens.first + CONTROLS + FRAME * CODEBOOK,
        hidden=128,
        inner=256,
        layers=2,
        heads=4,
        kv_heads=2,
        head_dim=32,
        eps=1e-5,
        rope=RopeConfig(32, 500_000.0),
        max_positions=8192,
        tied=False,
    )


class TinyWeights:
    """Random tensors under the public names; a function of the name alone."""

    def __init__(self, config: LlamaConfig, tokens: SpeechTokens) -> None:
        self._config = config
        self._tokens = tokens
        directions = _normal("directions", (config.hidden, FRAME))
        self._slots = torch.linalg.qr(directions).Q.T  # [slots, hidden], orthonormal

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name.endswith(".weight") and name != "rope_freqs.weight"

    def take(self, name: str, shape: tuple[int, ...]) -> Tensor:
        match name:
            case "model.embed_tokens.weight":
                return self._embedding()
            case "lm_head.weight":
                return self._head()
            case _ if len(shape) == 1:
                return torch.ones(shape)
            case _:
                quiet = 0.3 if name.endswith(("o_proj.weight", "down_proj.weight")) else 1.0
                return _normal(name, shape) * (quiet / math.sqrt(shape[1]))

    def _embedding(self) -> Tensor:
        """[vocab, hidden]."""
        rows = _normal("embedding", (self._config.vocab, self._config.hidden)) / math.sqrt(self._config.hidden)
        for slot, codes in enumerate(self._codes()):
            rows[codes] += _POINTER * self._slots[(slot + 1) % FRAME]
        rows[self._tokens.first + 1] += _POINTER * self._slots[0]
        return rows

    def _head(self) -> Tensor:
        """[vocab, hidden]."""
        rows = _SPREAD * _normal("head", (self._config.vocab, self._config.hidden))
        for slot, codes in enumerate(self._codes()):
            rows[codes] += _HEARD * self._slots[slot]
        rows[self._tokens.end_of_speech] = _ENDS * self._slots[0]
        return rows

    def _codes(self) -> list[slice]:
        """The rows of each slot's codes."""
        first = self._tokens.first + CONTROLS
        return [slice(first + slot * CODEBOOK, first + (slot + 1) * CODEBOOK) for slot in range(FRAME)]


@cache
def codec(device: str = "cpu") -> Snac:
    """A SNAC of 64 channels at the rates of the published one."""
    shape = SnacConfig(24_000, 96, 64, (8, 8, 4, 2), CODEBOOK, 8, (4, 2, 1), noise=True, depthwise=True)
    return Snac(shape, CodecWeights({}, "tiny", device))


class CodecWeights(SnacWeights):
    """Random weights under which a layer's output is about as loud as its input."""

    def take(self, name: str, shape: tuple[int, ...]) -> Tensor:
        return self._drawn(name, shape).to(self._device)

    @staticmethod
    def _drawn(name: str, shape: tuple[int, ...]) -> Tensor:
        kind = name.rpartition(".")[2]
        match kind:
            case "alpha" | "original0":
                return torch.ones(shape)
            case "bias":
                return 0.1 * _normal(name, shape)
            case "weight" | "original1":
                return _normal(name, shape)
            case _:
                raise WeightsError(f"tiny: tensor {name} is not known")

    def kernel(self, name: str, shape: tuple[int, int, int]) -> Tensor:
        upsamples = shape[2] % 2 == 0
        return super().kernel(name, shape) * (math.sqrt(shape[2] / 4) if upsamples else 0.7)


def _normal(name: str, shape: tuple[int, ...]) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(zlib.crc32(name.encode())))
