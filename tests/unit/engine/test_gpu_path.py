"""The whole GPU path on a CPU: the language model's node on a device that is stood for, as are FlashInfer and graphs.

The tests are those of `tests/gpu`.
"""

from __future__ import annotations

from collections.abc import Iterator
from unittest.mock import patch

import pytest
import torch

from mstar.engine.attention.choose import best_backend
from mstar.engine.kv.settings import KVSettings
from mstar.submodule import KVGeometry
from tests.gpu import test_captured as captured
from tests.gpu.decoder import TINY, DrawnWeights
from tests.pretend import Pretending, pretending
from tests.unit.engine.captured import Again
from tests.unit.engine.stand_in import stood_for


@pytest.fixture
def device() -> Iterator[Pretending]:
    with (
        patch("mstar.engine.kv.part.CudaRecorder", Again),
        patch("tests.gpu.decoder.DrawnWeights", lambda _: DrawnWeights("cpu")),
        stood_for(),
        pretending() as mode,
    ):
        yield mode


def test_it_is_flashinfers_attention_that_is_captured(device: Pretending) -> None:
    geometry = KVGeometry(TINY.layers, TINY.kv_heads, TINY.head_dim, torch.bfloat16)
    assert type(best_backend(geometry, KVSettings(pages=1, device="cuda"))).__name__ == "FlashInferBackend"


@pytest.mark.parametrize("count", [1, 3])
def test_captured_is_eager(device: Pretending, count: int) -> None:
    captured.test_captured_is_eager("cuda", count)


def test_what_is_captured_ahead_is_all_that_requests_need(device: Pretending) -> None:
    captured.test_what_is_captured_ahead_is_all_that_requests_need("cuda")
