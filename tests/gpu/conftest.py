"""What the tests of the GPU path need, or the reason for which they are skipped."""

from __future__ import annotations

from importlib.util import find_spec

import pytest
import torch

from tests.absent import absent


@pytest.fixture
def cuda() -> str:
    """The device's name."""
    if not torch.cuda.is_available():
        absent("there is no CUDA device")
    return "cuda"


@pytest.fixture
def flashinfer(cuda: str) -> str:
    """The device's name, where FlashInfer is installed as well."""
    if find_spec("flashinfer") is None:
        absent("flashinfer is not installed (pip install 'mstar-live[cuda]')")
    return cuda
