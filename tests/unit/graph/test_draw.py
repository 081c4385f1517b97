"""Drawings show what a graph has, in words and in boxes that do not lie on one another."""

from __future__ import annotations

import itertools
import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from models.registry import BUILT_IN, drawn, family
from mstar.errors import Rejected
from mstar.graph.declare import Graph
from mstar.graph.describe import describe
from mstar.graph.draw import draw
from server.cli import main

SVG = "{http://www.w3.org/2000/svg}"
Rect = tuple[float, float, float, float]


def tree_of(name: str) -> Graph:
    return family(name).graph({})


def rects(element: ET.Element, *kinds: str) -> list[Rect]:
    found = [each for each in element.iter(f"{SVG}rect") if each.get("class") in kinds]
    return [
        (float(each.get("x", 0)), float(each.get("y", 0)), float(each.get("width", 0)), float(each.get("height", 0)))
        for each in found
    ]


def apart(one: Rect, other: Rect) -> bool:
    return (
        one[0] + one[2] <= other[0]
        or other[0] + other[2] <= one[0]
        or one[1] + one[3] <= other[1]
        or other[1] + other[3] <= one[1]
    )


def inside(inner: Rect, outer: Rect) -> bool:
    return (
        inner[0] >= outer[0]
        and inner[1] >= outer[1]
        and inner[0] + inner[2] <= outer[0] + outer[2] + 0.2
        and inner[1] + inner[3] <= outer[1] + outer[3] + 0.2
    )


@pytest.mark.parametrize("name", sorted(BUILT_IN))
def test_boxes_lie_apart_and_inside_one_another(name: str) -> None:
    root = ET.fromstring(draw(tree_of(name), "svg"))
    whole = (0.0, 0.0, float(root.get("width", 0)), float(root.get("height", 0)))
    groups = root.findall(f"{SVG}g")
    placed = []
    for group in groups:
        moved = re.fullmatch(r"translate\(([\d.]+) ([\d.]+)\)", group.get("transform", ""))
        assert moved
        [(_, _, width, height)] = rects(group, "partition")
        placed.append((float(moved[1]), float(moved[2]), width, height))
        parts = rects(group, "node", "input", "stream", "emit", "keep")
        assert all(inside(each, (0, 0, width, height)) for each in parts + rects(group, "walk", "frame"))
        assert all(apart(one, other) for one, other in itertools.combinations(parts, 2))
        for frame, node in itertools.product(rects(group, "frame"), rects(group, "node")):
            assert inside(node, frame) or apart(node, frame)
        for wire in group.iter(f"{SVG}path"):  # every edge between nodes begins and ends at one
            points = [tuple(map(float, pair.split())) for pair in re.split("[ML]", wire.get("d", ""))[1:]]
            for x, y in (points[0], points[-1]):
                assert any(
                    n[0] - 0.2 <= x <= n[0] + n[2] + 0.2 and n[1] - 0.2 <= y <= n[1] + n[3] + 0.2
                    for n in rects(group, "node")
                )
    assert all(inside(each, whole) for each in placed)
    assert all(apart(one, other) for one, other in itertools.combinations(placed, 2))


@pytest.mark.parametrize("form", ["svg", "text"])
@pytest.mark.parametrize("name", sorted(BUILT_IN))
def test_everything_that_a_graph_has_is_shown(name: str, form: Any) -> None:
    tree: dict[str, Any] = describe(tree_of(name))
    drawing = draw(tree_of(name), form)
    for partition in tree["partitions"]:
        assert partition["name"] in drawing
        for walk in partition["walks"]:
            assert f"{walk['name']}" in drawing
            for node in walk["nodes"]:
                assert node["name"] in drawing
            for edge in walk["edges"]:
                mark = {"emit": "⇥ ", "keep": "keeps "}.get(edge["kind"], "")
                assert f"{mark}{edge['name']}" in drawing
    for stream in tree["streams"]:
        assert f"{stream['name']}: " in drawing
        assert f"≤ {stream['bound']}" in drawing


def test_policies_loops_and_the_nodes_that_make_a_loops_outputs_in_words() -> None:
    drawing = drawn("toy", {}, "text")
    assert "~ frames: ramp 5 ×2 → 40 after 2 of rows, ≤ 400 → vocoder, from tone.tone.tone" in drawing
    world = drawing[drawing.index("partition world") : drawing.index("\n\npartition canvas")].splitlines()
    fed = ("latent → predict", "latent → guide", "context → predict", "imagined → decode")
    assert world == [
        "partition world",
        "  walk roll   ⟵ roll",
        "    ┌ horizon ↺ ≤ 8 or stop",
        f"    │ encode(state): ⇥ imagined: signal; {'; '.join(fed)}",
        "    │ ┌ refine ↺ ≤ 3",
        "    │ │ predict: main → combine",
        "    │ │ guide: other → combine",
        "    │ │ combine: latent ↺ predict; latent ↺ guide; latent → decode; latent ↺ encode",
        "    │ └",
        "    └",
        "    decode: ⇥ picture: image",
    ]


def test_a_use_of_a_component_is_drawn_by_its_own_name() -> None:
    assert "ASR_begin (ASR)" in drawn("voice", {}, "text")
    assert ">ASR_begin (ASR)<" in drawn("voice", {}, "svg")


def test_the_command_writes_a_file_or_to_standard_output(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "toy.svg"
    assert main(["graph", "toy", "--format", "svg", "-o", str(path)]) == 0
    assert path.read_text(encoding="utf-8") == drawn("toy", {}, "svg")
    assert main(["graph", "toy"]) == 0
    assert capsys.readouterr().out == drawn("toy", {}, "text")
    assert main(["graph", "none"]) == 2
    assert capsys.readouterr().err.startswith("mstar: unknown family 'none'")
    assert main(["graph", "toy", "-o", str(tmp_path)]) == 1
    with pytest.raises(Rejected):
        drawn("none", {}, "svg")
