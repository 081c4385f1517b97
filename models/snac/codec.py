"""Codes → sound: in one piece, or chunk by chunk with carried state.

A sum is rounded by the order of its terms, which libraries choose by the shapes of a product and the threads that share
it. So on a CPU every sound is decoded alone, frame by frame, by one thread: its bits are the same however it comes and
whatever is decoded beside it. At the published size batches would be a tenth faster (`docs/determinism.md`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
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

    @property
    def device(self) -> torch.device:
        return self._tables[0].device

    @torch.inference_mode()
    def latents(self, codes: Sequence[Tensor]) -> Tensor:
        """→ [rows, latent, steps]: the sum of the levels, each code repeated as long as it lasts."""
        parts = [
            table[level].repeat_interleave(stride, dim=1)
            for table, level, stride in zip(self._tables, codes, self.config.levels, strict=True)
        ]
        return torch.stack(parts).sum(0).transpose(1, 2)

    def decode(self, codes: Sequence[Tensor], noise: Sequence[RowNoise] = ()) -> Tensor:
        """Whole sounds [rows, steps · hop] float32, with the noise of each row (none if empty)."""
        return self.push(codes, [self.begin() for _ in codes[0]], last=True, noise=noise)[0]

    def begin(self) -> Carried:
        """A sound of which nothing was read."""
        return Carried(0, self.decoder.start(1))

    @torch.inference_mode()
    def push(
        self, codes: Sequence[Tensor], carried: Sequence[Carried], *, last: bool, noise: Sequence[RowNoise] = ()
    ) -> tuple[Tensor, list[Carried]]:
        """The next codes of several sounds whose tails have the same shapes → [rows, n] samples, and what is carried.

        All chunks of a sound, the last with `last`, give what `decode` gives for all of its codes: on a CPU bit for bit
        and beside whatever others.
        """
        if self.device.type != "cpu":
            return self.together(codes, carried, last=last, noise=noise)
        with _one_thread():
            alone = [
                self._frames([level[row : row + 1] for level in codes], each, last=last, noise=noise[row : row + 1])
                for row, each in enumerate(carried)
            ]
        return torch.cat([sound for sound, _ in alone]), [after for _, after in alone]

    @torch.inference_mode()
    def together(
        self, codes: Sequence[Tensor], carried: Sequence[Carried], *, last: bool, noise: Sequence[RowNoise] = ()
    ) -> tuple[Tensor, list[Carried]]:
        """As `push`, all rows and frames in one pass: equal to 1e-4."""
        tails = [torch.cat(parts) for parts in zip(*(each.tails for each in carried), strict=True)]
        latents = self.latents(codes)
        chunk = Chunk(last=last, before=[each.steps for each in carried], noise=noise)
        sound, after = self.decoder.push(latents, tails, chunk)
        split = [tail.split(1) for tail in after]
        return sound, [
            Carried(each.steps + latents.shape[2], tuple(tail[row].clone() for tail in split))
            for row, each in enumerate(carried)
        ]

    def _frames(
        self, codes: Sequence[Tensor], carried: Carried, *, last: bool, noise: Sequence[RowNoise]
    ) -> tuple[Tensor, Carried]:
        """One sound, a frame at a time, the end by itself: every shape is a function of the frame's number."""
        latents = self.latents(codes)  # [1, latent, steps]
        steps, tails, sounds = carried.steps, carried.tails, []
        for frame in latents.split(self.config.frame, dim=2) if latents.shape[2] else ():
            chunk = Chunk(last=False, before=[steps], noise=noise)
            sound, tails = self.decoder.push(frame.contiguous(), tails, chunk)
            sounds.append(sound)
            steps += frame.shape[2]
        if last:
            sound, tails = self.decoder.push(latents[..., :0], tails, Chunk(last=True, before=[steps], noise=noise))
            sounds.append(sound)
        kept = tuple(tail.clone() for tail in tails)
        return torch.cat(sounds, dim=1) if sounds else latents.new_zeros(1, 0), Carried(steps, kept)

    def _table(self, weights: SnacWeights, name: str) -> Tensor:
        """Codebook and output projection of a level as one table: [codes, latent]."""
        config = self.config
        vectors = weights.take(f"{name}.codebook.weight", (config.codebook, config.code))
        kernel = weights.kernel(f"{name}.out_proj", (config.latent, config.code, 1))
        table: Tensor = vectors @ kernel[:, :, 0].T + weights.take(f"{name}.out_proj.bias", (config.latent,))
        return table


@contextmanager
def _one_thread() -> Iterator[None]:
    """The calling thread's products are computed by itself."""
    threads = torch.get_num_threads()
    if threads == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
