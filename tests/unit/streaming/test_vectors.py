"""Golden vectors of the chunk policies, and the reference's own totals: what a consumer gets, eagerly and lazily."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mstar.streaming.buffer import StreamBuffer
from mstar.streaming.policies import (
    ChunkPolicy,
    ContinueChunkPolicy,
    FixedChunkPolicy,
    LeftContextChunkPolicy,
    SlidingWindowChunkPolicy,
)
from tests.unit.streaming.consumer import Got, drain

VECTORS = json.loads((Path(__file__).parents[2] / "data" / "streams" / "vectors.json").read_text())
KINDS: dict[str, Callable[..., ChunkPolicy]] = {
    "fixed": FixedChunkPolicy,
    "sliding": SlidingWindowChunkPolicy,
    "left_context": LeftContextChunkPolicy,
}


def run(policy: ChunkPolicy, total: int, mode: str) -> tuple[list[Got], StreamBuffer]:
    buffer = StreamBuffer(policy, 1000)
    got: list[Got] = []
    for index in range(total):
        buffer.put(index, index)
        if mode == "eager":
            got += drain(buffer)
    buffer.end(total)
    return got + drain(buffer), buffer


def test_the_vectors_hold_all_three_policies() -> None:
    assert {vector["policy"] for vector in VECTORS} == set(KINDS)
    assert {vector["mode"] for vector in VECTORS} == {"eager", "lazy"}


@pytest.mark.parametrize("vector", VECTORS, ids=lambda v: f"{v['policy']}{tuple(v['args'])}-{v['total']}-{v['mode']}")
def test_golden_vector(vector: dict[str, Any]) -> None:
    got, _ = run(KINDS[vector["policy"]](*vector["args"]), vector["total"], vector["mode"])
    assert [(list(chunk.items), chunk.n_context, chunk.final) for chunk in got] == [
        (chunk["items"], chunk["n_context"], chunk["final"]) for chunk in vector["chunks"]
    ]


@pytest.mark.parametrize("mode", ["eager", "lazy"])
@pytest.mark.parametrize(
    ("policy", "totals"),
    [
        (FixedChunkPolicy(30), (0, 1, 29, 30, 31, 60, 90, 100)),
        (SlidingWindowChunkPolicy(28, 7), (0, 7, 14, 28, 35, 56)),
        (LeftContextChunkPolicy(10, 2), (0, 5, 10, 20, 40)),
    ],
)
def test_one_final_chunk_and_nothing_after_it(policy: ChunkPolicy, totals: tuple[int, ...], mode: str) -> None:
    for total in totals:
        got, buffer = run(policy, total, mode)
        assert [chunk.final for chunk in got] == [False] * (len(got) - 1) + [True]
        assert [item for chunk in got for item in chunk.items[chunk.n_context :]] == list(range(total))
        assert not buffer.ready()
        with pytest.raises(RuntimeError, match="no chunk is ready"):
            buffer.take()


@pytest.mark.parametrize(
    ("policy", "total", "firsts"),
    [(LeftContextChunkPolicy(4, 2), 12, [0, 2, 6, 10]), (SlidingWindowChunkPolicy(4, 1), 7, [0, 1, 2, 3, 4])],
)
def test_chunks_say_where_they_start(policy: ChunkPolicy, total: int, firsts: list[int]) -> None:
    assert [chunk.first for chunk in run(policy, total, "eager")[0]] == firsts


def test_a_continuing_stream_is_never_final() -> None:
    buffer = StreamBuffer(ContinueChunkPolicy(FixedChunkPolicy(30)), 100)
    for index in range(90):
        buffer.put(index, index)
    full = drain(buffer)
    assert [len(chunk.items) for chunk in full] == [30, 30, 30]
    buffer.end(90)
    empty = [buffer.take() for _ in range(7)]
    assert all(chunk.n_new == chunk.n_context == 0 and chunk.value is None for chunk in empty)
    assert not any(chunk.final for chunk in full)
    assert not any(chunk.final for chunk in empty)
    assert [chunk.segment_final for chunk in empty] == [True] + [False] * 6
    assert buffer.ready()
    assert buffer.ended


def test_a_continuing_stream_of_nothing_gives_empty_chunks() -> None:
    buffer = StreamBuffer(ContinueChunkPolicy(FixedChunkPolicy(1)), 1)
    assert not buffer.ready()
    buffer.end(0)
    assert [buffer.take().n_new for _ in range(3)] == [0, 0, 0]
