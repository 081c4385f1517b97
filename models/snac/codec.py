"""Codes → sound: in one piece, or chunk by chunk with carried state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from models.snac.config import SnacConfig, read_config
from models.snac.decoder import Decoder, build_decoder
from models.snac.layers import Chunk, RowNoise
from models.snac.weights import SnacWeights, read_weights


@dataclass(frozen=True, slots=True)
class Carried:
    """Where one sound's decoding stands: latent steps that were read, and each layer's tail [1, channels, items]."""

    steps: int
    tails: tuple[Tensor, ...]


class Snac:
    """The decoding half of a SNAC codec.

    Codes come by level: `codes[i]` is [rows, n_i] int64, where n_i · levels[i] is the same number of latent steps for
    all levels.
    """

    def __init__(self, config: SnacConfig, weights: SnacWeights) -> None:
        """Raises WeightsError for a tensor that is missing or of another shape."""
        self.config = config
        self.decoder: Decoder = build_decoder(config, weights)
        self._tables = tuple(self._table(weights, f"quantizer.quantizers.{i}") for i in range(len(config.levels)))

    @classmethod
    def load(cls, folder: Path, device: str = "cpu") -> Snac:
        """From `config.json` and `pytorch_model.bin`. Raises WeightsError."""
        return cls(read_config(folder / "config.json"), read_weights(folder / "pytorch_model.bin", device))

    @torch.inference_mode()
    def latents(self, codes: Sequence[Tensor]) -> Tensor:
        """→ [rows, latent, steps]: the sum of the levels, each code repeated as long as it lasts."""
        parts = [
            table[level].repeat_interleave(stride, dim=1)
            for table, level, stride in zip(self._tables, codes, self.config.levels, strict=True)
        ]
        return torch.stack(parts).sum(0).transpose(1, 2)

    @torch.inference_mode()
    def decode(self, codes: Sequence[Tensor], noise: Sequence[RowNoise] = ()) -> Tensor:
        """Whole sounds [rows, steps · hop] float32, with the noise of each row (none if empty)."""
        rows = len(codes[0])
        chunk = Chunk(last=True, before=[0] * rows, noise=noise)
        return self.decoder.push(self.latents(codes), self.decoder.start(rows), chunk)[0]

    def begin(self) -> Carried:
        """A sound of which nothing was read."""
        return Carried(0, self.decoder.start(1))

    @torch.inference_mode()
    def push(
        self, codes: Sequence[Tensor], carried: Sequence[Carried], *, last: bool, noise: Sequence[RowNoise] = ()
    ) -> tuple[Tensor, list[Carried]]:
        """The next codes of several sounds whose tails have the same shapes → [rows, n] samples, and what is carried.

        All chunks of a sound, the last with `last`, give what `decode` gives for all of its codes.
        """
        tails = [torch.cat(parts) for parts in zip(*(each.tails for each in carried), strict=True)]
        latents = self.latents(codes)
        chunk = Chunk(last=last, before=[each.steps for each in carried], noise=noise)
        sound, after = self.decoder.push(latents, tails, chunk)
        split = [tail.split(1) for tail in after]
        return sound, [
            Carried(each.steps + latents.shape[2], tuple(tail[row].clone() for tail in split))
            for row, each in enumerate(carried)
        ]

    def _table(self, weights: SnacWeights, name: str) -> Tensor:
        """Codebook and output projection of a level as one table: [codes, latent]."""
        config = self.config
        vectors = weights.take(f"{name}.codebook.weight", (config.codebook, config.code))
        kernel = weights.kernel(f"{name}.out_proj", (config.latent, config.code, 1))
        table: Tensor = vectors @ kernel[:, :, 0].T + weights.take(f"{name}.out_proj.bias", (config.latent,))
        return table
