"""A Piper voice: text-free synthesis from phoneme ids, prior → flow → decoder; the last two carry their state."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from numpy.typing import NDArray

from models.piper.carry import OUT, CarriedGraph, carry_state
from models.piper.split import Stages, split
from models.piper.streams import CLOSING, FRAMES
from mstar.errors import WeightsError

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class VoiceConfig:
    """What `voice.onnx.json` says."""

    sample_rate: int  # Hz
    language: str  # espeak-ng voice name
    phoneme_ids: Mapping[str, tuple[int, ...]]
    noise_scale: float
    length_scale: float
    noise_w: float

    def ids(self, phonemes: str) -> tuple[Ints, Ints]:
        """Phonemes (one a character) → ids [n], and for each character and the end the index of its first id [m + 1].

        As in Piper: `^`, then every id followed by `_`, then `$`; a phoneme that the voice does not have is left out.
        """
        pad = self.phoneme_ids["_"]
        ids = [*self.phoneme_ids["^"], *pad]
        firsts = []
        for phoneme in phonemes:
            firsts.append(len(ids))
            for i in self.phoneme_ids.get(phoneme, ()):
                ids += [i, *pad]
        firsts.append(len(ids))
        return np.array([*ids, *self.phoneme_ids["$"]], np.int64), np.array(firsts, np.int64)


@dataclass(frozen=True, slots=True)
class Latents:
    frames: Floats  # [frames, channels]
    durations: Ints  # [ids], frames per phoneme id


Tails = tuple[Floats, ...]
"""State of a carried stage."""


@dataclass(frozen=True, slots=True)
class Carried:
    """A stage that takes a segment of frames in chunks."""

    graph: CarriedGraph
    session: ort.InferenceSession

    @classmethod
    def of(cls, stage: onnx.ModelProto, threads: int) -> Carried:
        """Raises WeightsError if it holds an operation that can not be carried."""
        model, graph = carry_state(stage)
        return cls(graph, session(model, threads))

    def fresh(self) -> Tails:
        """The state at the start of a segment."""
        return tuple(np.zeros((1, t.channels, 1, t.start), np.float32) for t in self.graph.tails)

    def advance(self, frames: Floats, tails: Tails, last: bool) -> tuple[Floats, Tails]:
        """New frames [n, channels] → the items that they determine [m, channels out], and the next state.

        A chunk has at least one frame, the first of a segment `graph.first` unless it is the last one, too.
        """
        feed = {f"{t.name}.tail": value for t, value in zip(self.graph.tails, tails, strict=True)}
        feed[FRAMES] = np.ascontiguousarray(frames.T)[None, :, None, :]
        feed[CLOSING] = np.array([1, 1, 1, int(last)], np.int64)
        out, *rest = self.session.run([OUT, *(f"{t.name}.next" for t in self.graph.tails)], feed)
        return np.ascontiguousarray(out[0, :, 0].T), tuple(rest)


@dataclass(frozen=True, slots=True)
class Voice:
    """Sessions over the stages of one voice; immutable and safe to share between calls of one thread."""

    config: VoiceConfig
    path: Path
    prior: ort.InferenceSession
    prior_in: tuple[str, ...]  # ids, their number, scales, noise
    prior_out: tuple[str, ...]  # durations, mean, deviation, mask
    flow: Carried  # latents → frames
    decoder: Carried  # frames → samples

    @property
    def hop(self) -> int:
        """Samples per frame."""
        return self.decoder.graph.hop

    @classmethod
    def load(cls, path: Path, threads: int = 1) -> Voice:
        """Read `path` (.onnx) and `path`.json. WeightsError (path, cause) if either is missing or unlike Piper's."""
        config = read_config(path.with_name(path.name + ".json"))
        stages = read_stages(path)
        try:
            flow, decoder = (Carried.of(stage, threads) for stage in (stages.flow, stages.decoder))
        except WeightsError as cause:
            raise WeightsError(f"{path}: {cause}") from cause
        prior = session(stages.prior, threads)
        return cls(config, path, prior, stages.prior_in, stages.prior_out, flow, decoder)

    def latents(
        self, ids: Ints, rng: np.random.Generator, *, noise_scale: float, noise_w: float, length_scale: float
    ) -> Latents:
        """Phoneme ids [n] → latents; both draws (durations, prior) come from `rng`, a scale of 0 silences them."""
        draw = rng.standard_normal((1, 2, len(ids)), np.float32)
        scales = np.array([noise_scale, length_scale, noise_w], np.float32)
        values = (ids[None, :], np.array([len(ids)], np.int64), scales, draw)
        feed = dict(zip(self.prior_in, values, strict=True))
        durations, mean, deviation, _ = self.prior.run(list(self.prior_out), feed)
        z_p = mean + rng.standard_normal(mean.shape, np.float32) * deviation * np.float32(noise_scale)
        return Latents(np.ascontiguousarray(z_p[0].T), durations.reshape(-1).astype(np.int64))


def read_stages(path: Path) -> Stages:
    """The voice's own graph in three. WeightsError (path, cause) if it is missing, damaged or unlike Piper's."""
    try:
        model = onnx.load(str(path))
    except Exception as cause:  # onnx raises protobuf's own classes on damaged files
        raise WeightsError(f"{path}: {cause}") from cause
    try:
        return split(model)
    except WeightsError as cause:
        raise WeightsError(f"{path}: {cause}") from cause


def session(model: onnx.ModelProto, threads: int) -> ort.InferenceSession:
    """A CPU session that does not spin while it waits (spinning threads starve their neighbours)."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    made = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    made._model_bytes = b""  # noqa: SLF001 - kept to open the session anew, as large as the weights
    return made


def read_config(path: Path) -> VoiceConfig:
    """WeightsError with path and cause."""
    try:
        found: dict[str, Any] = json.loads(path.read_text("utf-8"))
        if found.get("phoneme_type", "espeak") != "espeak":
            raise WeightsError(f"{path}: phoneme_type {found['phoneme_type']!r} is not served, only espeak")
        scales = found.get("inference", {})
        return VoiceConfig(
            sample_rate=int(found["audio"]["sample_rate"]),
            language=str(found["espeak"]["voice"]),
            phoneme_ids={k: tuple(int(i) for i in v) for k, v in found["phoneme_id_map"].items()},
            noise_scale=float(scales.get("noise_scale", 0.667)),
            length_scale=float(scales.get("length_scale", 1.0)),
            noise_w=float(scales.get("noise_w", 0.8)),
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as cause:
        raise WeightsError(f"{path}: {type(cause).__name__}: {cause}") from cause
