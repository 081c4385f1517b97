"""Nodes that hand on what they get."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mstar.submodule import Call, Output, Outputs, Packed, Step
from mstar.tensors import Value


@dataclass(frozen=True, slots=True)
class Hand:
    """Input `source` → output `target`."""

    source: str
    target: str
    max_batch: int = 16

    def collate(self, calls: Sequence[Call]) -> Packed:
        return Packed({})

    def forward(self, packed: Packed, step: Step) -> Outputs:
        return {self.target: [call.inputs[self.source] for call in step.calls]}

    def verdict(self, call: Call, outputs: Mapping[str, Output]) -> bool:
        return False


def same(_: Mapping[str, Value]) -> Hand:
    """`value` → `value`."""
    return Hand("value", "value")


def echo(_: Mapping[str, Value]) -> Hand:
    """`ticks` → `tick`."""
    return Hand("ticks", "tick")


def near(_: Mapping[str, Value]) -> Hand:
    """`value` → `sent`."""
    return Hand("value", "sent")


def far(_: Mapping[str, Value]) -> Hand:
    """`sent` → `value`."""
    return Hand("sent", "value")
