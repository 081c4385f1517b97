"""What a declaration and a placement file may say of a component's K/V memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from mstar.engine.kv.settings import KVSettings, default_settings, kv_settings, page_bytes
from mstar.errors import Rejected
from mstar.graph.declare import Component, Emit, Graph, GraphNode, Partition, Task, Walk
from mstar.placement import placement_of, read_placement
from mstar.submodule import KVGeometry

GEOMETRY = KVGeometry(layers=30, kv_heads=3, head_dim=64)
HALF = KVGeometry(layers=28, kv_heads=8, head_dim=128, dtype=torch.bfloat16)


def graph(**memory: int | bool | str) -> Graph:
    lm = GraphNode("LM", ("x",), (Emit("text", "text"),), prompt=True)
    return Graph(
        name="f",
        components=(Component("LM", "a:b", engine="kv", memory=memory),),
        partitions=(Partition("p", (Walk("w", lm),)),),
        tasks=(Task("t", {"p": "w"}, ("x",)),),
    )


def test_pages_by_number_and_by_bytes() -> None:
    assert page_bytes(GEOMETRY, 16) == 16 * 46_080
    assert page_bytes(HALF, 16) == 16 * 2 * 28 * 8 * 128 * 2
    assert kv_settings({"pages": 7, "kept": 0}, GEOMETRY, KVSettings()) == KVSettings(pages=7, kept=0)
    for size in ("512M", "512 MiB", "0.5G", 512 * 2**20, "536870912"):
        assert kv_settings({"bytes": size}, GEOMETRY, KVSettings()).pages == 512 * 2**20 // (16 * 46_080)
    assert kv_settings({"bytes": "1G", "page_size": 32}, HALF, KVSettings()).pages == 2**30 // page_bytes(HALF, 32)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"pages": 0}, "pages must be an integer ≥ 1, not 0"),
        ({"pages": True}, "pages must be an integer"),
        ({"reuse": 1}, "reuse must be true or false, not 1"),
        ({"page": 3}, "page is not known; known: bytes, pages"),
        ({"bytes": "12 apples"}, "bytes must be a number or text such as 512M"),
        ({"bytes": "1M", "pages": 3}, "give one of them"),
        ({"bytes": "1K"}, "bytes: 1024 hold no page, which has 737280"),
    ],
)
def test_what_makes_no_sense_is_refused_with_its_field(given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        kv_settings(given, GEOMETRY, KVSettings())


def test_a_gpu_reads_prompts_in_larger_pieces() -> None:
    cpu, gpu = default_settings("cpu"), default_settings("cuda:1")
    assert gpu.device == "cuda:1"
    assert gpu.piece > cpu.piece
    assert gpu.budget >= gpu.piece


def test_the_file_is_over_the_family() -> None:
    placement = placement_of({"ranks": {"main": {}}, "families": {"f": {"memory": {"LM": {"bytes": "64M"}}}}})
    assert placement.place("f", graph(pages=12, kept=1)).memory == {"LM": {"bytes": "64M", "kept": 1}}
    assert placement_of({"ranks": {"main": {}}}).place("f", graph(pages=12)).memory == {"LM": {"pages": 12}}


def test_a_wrong_file_is_refused_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "placement.yaml"
    path.write_text("ranks:\n  main: {}\nfamilies:\n  f:\n    memory:\n      LM: {pages: none}\n")
    with pytest.raises(Rejected) as refused:
        read_placement(path)
    assert refused.value.message == f"{path}:6: memory of LM: pages must be an integer ≥ 1, not 'none'"
    path.write_text("ranks:\n  main: {}\nfamilies:\n  f:\n    memory:\n      vocoder: {pages: 4}\n")
    with pytest.raises(Rejected) as refused:
        read_placement(path).place("f", graph())
    wanted = f"{path}:6: family f has no component 'vocoder' with K/V memory; those with it: LM"
    assert refused.value.message == wanted
