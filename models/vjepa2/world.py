"""The action-conditioned predictor of V-JEPA 2-AC: the next frame's tokens from frames, actions and states.

A frame is [action, state, patches …]. Every token sees its whole frame and all frames before it, so a rollout appends
one frame to a K/V cache at each step. (Within a frame sight goes both ways: what is cached of the first frame depends
on the first action, and candidate plans share nothing but the encoder's tokens.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from models.vjepa2.config import WorldConfig
from models.vjepa2.network import Affine, Layer, Norm, Rotation, places, rotation
from models.vjepa2.weights import Weights
from mstar.submodule import Attention


@dataclass(frozen=True, slots=True)
class Frames:
    """New frames of one request's candidates.

    tokens [candidates or 1, frames, patches, width of the encoder], actions [candidates, frames, action],
    states [candidates, frames, state]; `first` is the index of the first of these frames.
    """

    tokens: Tensor
    actions: Tensor
    states: Tensor
    first: int

    @property
    def candidates(self) -> int:
        return self.actions.shape[0]

    @property
    def count(self) -> int:
        """Frames of each candidate."""
        return self.actions.shape[1]


@dataclass(frozen=True, slots=True)
class Folding:
    """Lays candidates into sequences of the K/V cache, `fold` of them side by side as if they were more heads.

    Attention is the same for every head, so candidates that are heads of one sequence do not see one another; a step
    then takes one attention for many candidates. The last sequence of a request is filled up with zeros.
    """

    fold: int
    shares: tuple[tuple[int, int], ...]  # per request: candidates, tokens of each

    def sequences(self, candidates: int) -> int:
        return -(-candidates // self.fold)

    def join(self, x: Tensor) -> Tensor:
        """[tokens of all candidates, heads, dim] → [tokens of all sequences, fold · heads, dim]."""
        if self.fold == 1:
            return x
        parts = []
        for (candidates, tokens), part in zip(self.shares, x.split([c * n for c, n in self.shares]), strict=True):
            sequences = self.sequences(candidates)
            by_candidate = part.unflatten(0, (candidates, tokens))
            padded = F.pad(by_candidate, (0, 0, 0, 0, 0, 0, 0, sequences * self.fold - candidates))
            parts.append(padded.unflatten(0, (sequences, self.fold)).transpose(1, 2).flatten(2, 3).flatten(0, 1))
        return torch.cat(parts)

    def split(self, x: Tensor) -> Tensor:
        """The other way round."""
        if self.fold == 1:
            return x
        parts = []
        sizes = [self.sequences(candidates) * tokens for candidates, tokens in self.shares]
        for (candidates, tokens), part in zip(self.shares, x.split(sizes), strict=True):
            folded = part.unflatten(0, (-1, tokens)).unflatten(
                2, (self.fold, -1)
            )  # [sequences, tokens, fold, heads, …]
            parts.append(folded.transpose(1, 2).flatten(0, 1)[:candidates].flatten(0, 1))
        return torch.cat(parts)


class ActionPredictor:
    """See the module's head; source: V-JEPA 2, section 3."""

    def __init__(self, weights: Weights, config: WorldConfig) -> None:
        self.config = config
        sizes, width = config.predictor, config.encoder.width
        self._embed = Affine(weights, "predictor.predictor_embed", sizes.width, width)
        self._action = Affine(weights, "predictor.action_encoder", sizes.width, config.action)
        self._state = Affine(weights, "predictor.state_encoder", sizes.width, config.state)
        self._layers = [Layer(weights, f"predictor.predictor_blocks.{n}", sizes) for n in range(sizes.depth)]
        self._norm = Norm(weights, "predictor.predictor_norm", sizes.width)
        self._out = Affine(weights, "predictor.predictor_proj", width, sizes.width)
        self.dtype = weights.dtype
        self.device = self._embed.device
        self._rotation = self._rotations().to(self.device)

    def _rotations(self) -> Rotation:
        """Angles of every token of every frame [steps, frame_tokens, head_dim]; action and state have a time only."""
        clip = self.config.clip
        patches = places(clip, clip.steps).unflatten(0, (clip.steps, clip.patches))
        timed = F.pad(torch.arange(clip.steps)[:, None, None].expand(-1, 2, -1), (0, 2))
        everything = rotation(self.config.predictor.head_dim, torch.cat((timed, patches), dim=1).flatten(0, 1))
        shape = (clip.steps, self.config.frame_tokens)
        return Rotation(everything.cos.unflatten(0, shape), everything.sin.unflatten(0, shape))

    def forward(self, batch: Sequence[Frames], attention: Attention, fold: int = 1) -> list[Tensor]:
        """Hidden states of the new frames, per request [candidates, frames, frame_tokens, predictor width].

        The attention's rows are, request after request, its sequences: `fold` candidates each.
        """
        folding = Folding(fold, tuple((f.candidates, f.count * self.config.frame_tokens) for f in batch))
        x = torch.cat([self._embedded(frames).flatten(0, 2) for frames in batch])
        turns = [self._turns(frames) for frames in batch]
        rotate = Rotation(torch.cat([turn.cos for turn in turns]), torch.cat([turn.sin for turn in turns]))

        def mix(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            return folding.split(attention.attend(layer, folding.join(q), folding.join(k), folding.join(v)))

        for n, layer in enumerate(self._layers):
            x = layer(x, rotate, partial(mix, n))
        parts = x.split([f.candidates * f.count * self.config.frame_tokens for f in batch])
        shape = self.config.frame_tokens
        return [part.unflatten(0, (f.candidates, f.count, shape)) for part, f in zip(parts, batch, strict=True)]

    def predicted(self, hidden: Tensor) -> Tensor:
        """Hidden states of a frame [..., frame_tokens, width] → tokens of the next [..., patches, encoder width], both
        float32.
        """
        return self._out(self._norm(hidden[..., 2:, :])).float()

    def _embedded(self, frames: Frames) -> Tensor:
        """[candidates, frames, frame_tokens, width]; tokens that all candidates share are embedded once."""
        patches = self._embed(frames.tokens).expand(frames.candidates, -1, -1, -1)
        conditions = torch.stack((self._action(frames.actions), self._state(frames.states)), dim=2)
        return torch.cat((conditions, patches), dim=2).float()

    def _turns(self, frames: Frames) -> Rotation:
        """[candidates · frames · frame_tokens, head_dim]."""
        there = slice(frames.first, frames.first + frames.count)
        cos, sin = (
            table[there].flatten(0, 1).repeat(frames.candidates, 1)
            for table in (self._rotation.cos, self._rotation.sin)
        )
        return Rotation(cos, sin)
