"""For all tests: one math thread, no wall-clock limits, the cached weights, free ports."""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch or numpy start their pools; child processes inherit it

import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from models.pull import part_dir
from tests.absent import absent

settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")


def _cached(part: str) -> Path:
    folder = part_dir(part)
    if not folder.is_dir():
        absent(f"weights {part} are not in the cache ({folder}): mstar pull voice")
    return folder


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """Folder of SmolLM2-135M-Instruct (GGUF Q4_1)."""
    return _cached("smollm2")


@pytest.fixture(scope="session")
def whisper_tiny_en() -> Path:
    """Folder of Whisper tiny.en (CTranslate2 `model.bin`, tokenizer)."""
    return _cached("whisper-tiny-en")


@pytest.fixture(scope="session")
def piper_joe() -> Path:
    """Folder of the Piper voice en_US-joe-medium (ONNX and its JSON)."""
    return _cached("piper-joe")


@pytest.fixture(scope="session")
def ear() -> Path:
    """Folder of silero_vad.onnx and smart-turn-v3.2-cpu.onnx."""
    return _cached("ear")


@pytest.fixture
def free_port() -> Callable[[], int]:
    """Give TCP ports of 127.0.0.1 that nobody listened on a moment ago, another one with every call."""
    given: set[int] = set()

    def draw() -> int:
        while True:
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                port: int = probe.getsockname()[1]
            if port not in given:
                given.add(port)
                return port

    return draw
