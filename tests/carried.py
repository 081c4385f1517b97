"""Flow and decoder of a Piper voice as one: latents in, samples out."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from models.piper.split import Stages
from models.piper.voice import Floats, Tails, Voice, read_stages, session


@dataclass(frozen=True)
class Both:
    """The two carried stages behind each other."""

    voice: Voice

    @property
    def first(self) -> int:
        """Latents that the first chunk of a segment must have."""
        return self.voice.flow.graph.first + self.voice.decoder.graph.first - 1

    @property
    def lag(self) -> int:
        """Samples that a chunk leaves open."""
        return self.voice.flow.graph.lag * self.voice.hop + self.voice.decoder.graph.lag

    def fresh(self) -> tuple[Tails, Tails]:
        """The state at the start of a segment."""
        return self.voice.flow.fresh(), self.voice.decoder.fresh()

    def decode(self, latents: Floats, tails: tuple[Tails, Tails], last: bool) -> tuple[Floats, tuple[Tails, Tails]]:
        """Latents [n, channels] → samples [m], and the next state."""
        frames, flow = self.voice.flow.advance(latents, tails[0], last)
        samples, decoder = self.voice.decoder.advance(frames, tails[1], last)
        return samples[:, 0], (flow, decoder)


@cache
def _stages(path: Path) -> Stages:
    return read_stages(path)


def in_one_pass(voice: Voice, latents: Floats) -> Floats:
    """What the voice's own graph makes of latents [n, channels]: samples [m]."""
    stages = _stages(voice.path)
    z_p, mask = stages.flow_in
    fed = {z_p: latents.T[None], mask: np.ones((1, 1, len(latents)), np.float32)}
    [frames] = session(stages.flow, 1).run(None, fed)
    [wave] = session(stages.decoder, 1).run(None, {stages.decoder_in: frames})
    return np.asarray(wave, np.float32).reshape(-1)
