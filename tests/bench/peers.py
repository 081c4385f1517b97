"""Separate engines on the same weights: faster-whisper, llama.cpp (xllamacpp) and piper-tts."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from models.pull import part_dir
from tests.bench.sound import Pcm

THREADS = 2
HEARING_RATE = 16_000


class Recogniser:
    """faster-whisper, int8, greedy."""

    def __init__(self) -> None:
        whisper = importlib.import_module("faster_whisper")
        self._model = whisper.WhisperModel(
            str(part_dir("whisper-tiny-en")), device="cpu", compute_type="int8", cpu_threads=THREADS
        )

    def transcribe(self, pcm: Pcm) -> str:
        """Sound [n] at 16 kHz → text."""
        segments, _ = self._model.transcribe(
            pcm, language="en", beam_size=1, temperature=0.0, condition_on_previous_text=False
        )
        return "".join(segment.text for segment in segments).strip()


class LanguageModel:
    """llama.cpp on the GGUF file, greedy; `slots` sequences may be decoded together."""

    def __init__(self, slots: int = 1) -> None:
        llama = importlib.import_module("xllamacpp")
        params = llama.CommonParams()
        params.model.path = str(next(part_dir("smollm2").glob("*.gguf")))
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = THREADS
        params.n_ctx = 2048 * slots
        params.n_parallel = slots
        params.verbosity = -1
        self._server = llama.Server(params)

    def stream(self, prompt: str, max_tokens: int, piece: Callable[[str], bool]) -> None:
        """Give the text of one token after another to `piece` until that returns True."""
        self._server.handle_completions(
            json.dumps({"prompt": prompt, "n_predict": max_tokens, "temperature": 0.0, "stream": True}),
            lambda line: piece("".join(choice["text"] for choice in json.loads(line)["choices"])),
        )

    def complete(self, prompt: str, tokens: int, *, reuse: bool = True) -> dict[str, Any]:
        """Write just so many tokens → llama.cpp's own timings (`prompt_per_second`, `predicted_per_second` …)."""
        asked = {"prompt": prompt, "n_predict": tokens, "temperature": 0.0, "ignore_eos": True, "cache_prompt": reuse}
        answers: list[dict[str, Any]] = []
        self._server.handle_completions(asked, answers.append)
        [answer] = answers
        if "timings" not in answer:
            raise RuntimeError(f"llama.cpp: {answer}")
        return dict(answer["timings"])


class Speaker:
    """piper-tts with the same voice."""

    def __init__(self) -> None:
        piper = importlib.import_module("piper")
        self._voice = piper.PiperVoice.load(str(_only(part_dir("piper-joe"), "*.onnx")))
        self.rate: int = self._voice.config.sample_rate

    def sentences(self, text: str) -> Iterator[Pcm]:
        """Sound at `rate`, a sentence at a time, each made when it is asked for."""
        for chunk in self._voice.synthesize(text):
            yield np.asarray(chunk.audio_float_array, dtype=np.float32).reshape(-1)


def _only(folder: Path, pattern: str) -> Path:
    [found] = folder.glob(pattern)
    return found
