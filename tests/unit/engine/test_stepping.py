"""A step on a device: it is the thread's current one, and the step ends when the device has done it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from models.llama.nodes import language_model
from mstar.engine.api import Engine, Firing
from mstar.engine.kv.settings import KVSettings
from mstar.engine.kv_engine import KVCacheEngine
from mstar.engine.stateless import StatelessEngine
from tests.pretend import Pretending, pretending
from tests.unit.engine.test_stateless import RunningSum, fire

CHECKPOINT = Path(__file__).parents[2] / "data" / "llama" / "qwen3"


class Watched(RunningSum):
    """Notes how often the host had waited for the device when it ran."""

    def __init__(self, mode: Pretending) -> None:
        super().__init__()
        self._mode = mode
        self.seen: list[tuple[list[str], int]] = []

    def collate(self, calls: Any) -> Any:
        self.seen.append((list(self._mode.entered), self._mode.waits))
        return super().collate(calls)


@pytest.mark.parametrize("device", ["cuda:1", "cpu"])
def test_a_stateless_step_is_done_on_its_device_and_waited_for_once(device: str) -> None:
    with pretending() as mode:
        submodule = Watched(mode)
        engine = StatelessEngine({"sum": submodule}, device=device)
        engine.step([fire(name, 1) for name in "abcd"])  # in two batches
        of_device = device != "cpu"
        assert submodule.seen == [(["cuda:1"] * of_device, 0)] * 2
        assert mode.waits == of_device
        engine.step([fire("a", -1)])  # one that fails ends like others
        assert mode.waits == 2 * of_device


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_a_step_with_attention_too(device: str) -> None:
    with pretending() as mode:
        lm: Engine = KVCacheEngine(
            {"lm": language_model({"llm": str(CHECKPOINT), "llm_kernel": "float32", "device": device})},
            settings={"lm": KVSettings(pages=16, device=device)},
        )
        for _ in range(3):
            lm.step([Firing("s", "r", "lm", "go", {"tokens": [3, 1, 4]}, prompt=True)])
        assert mode.entered == ["cuda"] * 3 * (device != "cpu")
        assert mode.waits == 3 * (device != "cpu")
