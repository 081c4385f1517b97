"""The network of Whisper: an encoder over any context up to its longest, a decoder over packed rows.

Radford et al. 2022, "Robust Speech Recognition via Large-Scale Weak Supervision", §2.2; tensors as in the public
checkpoints. There is no per-request state here: what has been decoded lies behind `Attention`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

from models.blocks.linear import Int8Linear
from models.whisper.config import WhisperConfig
from mstar.submodule import Attention


class Norm(NamedTuple):
    """Layer norm over the last dimension."""

    weight: Tensor
    bias: Tensor

    def __call__(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias, 1e-5)


class Linear(NamedTuple):
    """x @ weight.T + bias, weight [out, in]."""

    weight: Tensor
    bias: Tensor | None

    def __call__(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, self.bias)


class EightBits:
    """A linear layer with its weights in 8 bits: a quarter of the bytes to read for a token.

    A row's result does not depend on the other rows.
    """

    def __init__(self, layer: Linear) -> None:
        self._product = Int8Linear(layer.weight)
        self._bias = layer.bias

    def __call__(self, x: Tensor) -> Tensor:
        out = self._product(x).to(x.dtype)
        return out if self._bias is None else out + self._bias


Product: TypeAlias = Linear | EightBits
Kernel: TypeAlias = Literal["float32", "int8"]


class EncoderLayer(NamedTuple):
    """Self-attention over all frames, then a feed-forward layer; normed before each."""

    norm: Norm
    qkv: Linear
    out: Linear
    wide_norm: Norm
    wide: Linear
    narrow: Linear


class DecoderLayer(NamedTuple):
    """Causal self-attention, attention over the encoder's states, then a feed-forward layer; normed before each."""

    norm: Norm
    qkv: Product
    out: Product
    cross_norm: Norm
    cross_q: Product
    cross_out: Product
    wide_norm: Norm
    wide: Product
    narrow: Product


def _norm(tensors: Mapping[str, Tensor], name: str) -> Norm:
    return Norm(tensors[f"{name}.weight"], tensors[f"{name}.bias"])


def _linear(tensors: Mapping[str, Tensor], *names: str) -> Linear:
    """Linear layers of one input as one matrix; a missing bias is 0."""
    weights = [tensors[f"{name}.weight"] for name in names]
    biases = [
        tensors.get(f"{name}.bias", torch.zeros_like(weight[:, 0])) for name, weight in zip(names, weights, strict=True)
    ]
    return Linear(torch.cat(weights).contiguous(), torch.cat(biases).contiguous())


class Whisper:
    """Encoder and decoder of one checkpoint, on the tensors' device.

    The encoder, and the keys and values of cross-attention, are computed in the tensors' type. `kernel` is for the
    decoder's other linear layers, which are read whole for every token.
    """

    def __init__(self, config: WhisperConfig, tensors: Mapping[str, Tensor], *, kernel: Kernel = "float32") -> None:
        self.config = config
        self.conv1 = Linear(tensors["encoder.conv1.weight"], tensors["encoder.conv1.bias"])
        self.conv2 = Linear(tensors["encoder.conv2.weight"], tensors["encoder.conv2.bias"])
        self.encoder_positions = tensors["encoder.embed_positions.weight"]
        self.encoder_norm = _norm(tensors, "encoder.layer_norm")
        self.encoder = tuple(_encoder_layer(tensors, f"encoder.layers.{n}") for n in range(config.encoder_layers))
        self.embedding = tensors["decoder.embed_tokens.weight"]
        self.decoder_positions = tensors["decoder.embed_positions.weight"]
        self.decoder_norm = _norm(tensors, "decoder.layer_norm")
        self.decoder = tuple(
            _decoder_layer(tensors, f"decoder.layers.{n}", kernel) for n in range(config.decoder_layers)
        )
        names = [f"decoder.layers.{n}.encoder_attn" for n in range(config.decoder_layers)]
        self.cross_kv = _linear(tensors, *(f"{name}.{part}" for name in names for part in ("k_proj", "v_proj")))

    @property
    def device(self) -> torch.device:
        """Where the tensors lie."""
        return self.embedding.device

    def encode(self, mel: Tensor) -> Tensor:
        """mel [batch, bins, 2 · frames] → states [batch, frames, d_model]."""
        x = F.gelu(F.conv1d(mel, self.conv1.weight, self.conv1.bias, padding=1))
        x = F.gelu(F.conv1d(x, self.conv2.weight, self.conv2.bias, stride=2, padding=1)).transpose(1, 2)
        batch, frames, d = x.shape
        heads = self.config.encoder_attention_heads
        x = x + self.encoder_positions[:frames]
        for layer in self.encoder:
            qkv = layer.qkv(layer.norm(x)).view(batch, frames, 3, heads, d // heads)
            q, k, v = qkv.permute(2, 0, 3, 1, 4)  # each [batch, heads, frames, dim]
            heard = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, frames, d)
            x = x + layer.out(heard)
            x = x + layer.narrow(F.gelu(layer.wide(layer.wide_norm(x))))
        return self.encoder_norm(x)

    def write_cross(self, states: Sequence[Tensor], rows: Sequence[int], attention: Attention) -> None:
        """Keys and values of every decoder layer over states [frames, d_model] of each row, once per utterance."""
        heads, d = self.config.decoder_attention_heads, self.config.d_model
        for row, heard in zip(rows, states, strict=True):
            layers = self.cross_kv(heard).view(len(heard), len(self.decoder), 2, heads, d // heads)
            for layer in range(len(self.decoder)):
                attention.write_cross(layer, row, layers[:, layer, 0], layers[:, layer, 1])

    def decode(self, ids: Tensor, attention: Attention) -> Tensor:
        """ids [tokens] int64, packed in the order of the step's rows → hidden [tokens, d_model] after the last norm."""
        heads, d = self.config.decoder_attention_heads, self.config.d_model
        tokens = len(ids)
        x = F.embedding(ids, self.embedding) + self.decoder_positions[attention.positions]
        for number, layer in enumerate(self.decoder):
            q, k, v = layer.qkv(layer.norm(x)).view(tokens, 3, heads, d // heads).unbind(1)
            x = x + layer.out(attention.attend(number, q, k, v).reshape(tokens, d))
            q = layer.cross_q(layer.cross_norm(x)).view(tokens, heads, d // heads)
            x = x + layer.cross_out(attention.attend_cross(number, q).reshape(tokens, d))
            x = x + layer.narrow(F.gelu(layer.wide(layer.wide_norm(x))))
        return self.decoder_norm(x)


def _encoder_layer(tensors: Mapping[str, Tensor], name: str) -> EncoderLayer:
    attn = f"{name}.self_attn"
    return EncoderLayer(
        norm=_norm(tensors, f"{name}.self_attn_layer_norm"),
        qkv=_linear(tensors, f"{attn}.q_proj", f"{attn}.k_proj", f"{attn}.v_proj"),
        out=_linear(tensors, f"{attn}.out_proj"),
        wide_norm=_norm(tensors, f"{name}.final_layer_norm"),
        wide=_linear(tensors, f"{name}.fc1"),
        narrow=_linear(tensors, f"{name}.fc2"),
    )


def _decoder_layer(tensors: Mapping[str, Tensor], name: str, kernel: Kernel) -> DecoderLayer:
    def product(*names: str) -> Product:
        layer = _linear(tensors, *names)
        return EightBits(layer) if kernel == "int8" else layer

    attn, cross = f"{name}.self_attn", f"{name}.encoder_attn"
    return DecoderLayer(
        norm=_norm(tensors, f"{name}.self_attn_layer_norm"),
        qkv=product(f"{attn}.q_proj", f"{attn}.k_proj", f"{attn}.v_proj"),
        out=product(f"{attn}.out_proj"),
        cross_norm=_norm(tensors, f"{name}.encoder_attn_layer_norm"),
        cross_q=product(f"{cross}.q_proj"),
        cross_out=product(f"{cross}.out_proj"),
        wide_norm=_norm(tensors, f"{name}.final_layer_norm"),
        wide=product(f"{name}.fc1"),
        narrow=product(f"{name}.fc2"),
    )
