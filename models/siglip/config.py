"""Shape of a SigLIP picture encoder (torch-free)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SiglipConfig:
    """A plain vision transformer (Zhai et al. 2023): square pictures, learned positions, no class token."""

    image: int  # pixels a side
    patch: int  # pixels a side
    hidden: int
    inner: int  # width of the MLP
    layers: int
    heads: int
    eps: float = 1e-6

    @property
    def tokens(self) -> int:
        """Tokens of one picture."""
        return (self.image // self.patch) ** 2


SO400M_224 = SiglipConfig(image=224, patch=14, hidden=1152, inner=4304, layers=27, heads=16)
"""So400m/14 at 224 pixels: 256 tokens a picture."""
