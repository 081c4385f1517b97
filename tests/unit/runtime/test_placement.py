"""Placements: where nodes run, what is refused (with the line that is wrong), and when there are too many threads."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path

import pytest

from models.registry import module_of
from models.toy.model import FAMILY
from mstar.errors import Rejected
from mstar.local import LocalSystem
from mstar.model import load_graph
from mstar.placement import Placement, one_rank, placement_of, read_placement, source_told, tree_of
from mstar.worker.room import available_bytes, shortage
from tests.pretend import pretending

GRAPH = FAMILY.graph({})
EAR = """\
# ear is named here, too
ranks:
  ear: {threads: 1}
  main: {device: cpu, threads: 2}
families:
  toy:
    default: main
    nodes: {vad: ear, turn: ear}
"""


def read(path: Path, text: str) -> Placement:
    file = path / "placement.yaml"
    file.write_text(text, encoding="utf-8")
    return read_placement(file)


def test_nodes_run_where_they_are_put_and_streams_go_to_all_who_take_them(tmp_path: Path) -> None:
    placed = read(tmp_path, EAR).place("toy", GRAPH).seat()
    assert {placed.homes[name] for name in ("ear", "turns")} == {"worker.ear"}
    assert {placed.homes[name] for name in ("asr", "lm", "vocoder")} == {"worker.main"}
    assert placed.live["mic"] == ("worker.ear", "worker.main")
    assert placed.outputs["speech"] == ("worker.ear",)
    assert placed.outputs["audio"] == ("worker.main",)
    assert placed.workers == ("worker.ear", "worker.main")


def test_a_device_that_is_not_there_is_refused_at_the_start(tmp_path: Path) -> None:
    for device, said in (("cuda", "no CUDA device that torch can use"), ("cuda:2", "this host has 1 CUDA device")):
        placement = read(tmp_path, EAR.replace("device: cpu", f"device: {device}"))
        with (
            nullcontext() if device == "cuda" else pretending(),
            pytest.raises(Rejected, match=rf"placement.yaml:4: rank main: device {device}: .*{said}"),
        ):
            LocalSystem({"toy": GRAPH}, placement=placement)


def test_without_a_file_everything_is_on_one_rank() -> None:
    assert one_rank(3).place("toy", GRAPH).workers == ("worker.main",)


@pytest.mark.parametrize(
    ("old", "new", "line", "said"),
    [
        ("{vad: ear, turn: ear}", "{vad: nowhere}", 8, "vad of family toy is on rank 'nowhere', which does not exist"),
        ("default: main", "default: other", 7, "default of family toy is on rank 'other', which does not exist"),
        ("{vad: ear, turn: ear}", "{nose: ear}", 8, "family toy has no node 'nose'; it has LM, "),
        (
            "{vad: ear, turn: ear}",
            "{LM: {begin: ear}}",
            8,
            "node LM of family toy is in no walk 'begin', but in ",
        ),
        ("{vad: ear, turn: ear}", "{LM: {decode: far}}", 8, "LM in walk decode of family toy is on rank 'far'"),
        ("{vad: ear, turn: ear}", "{tone: [ear, ear]}", 8, "tone of family toy is on a rank twice"),
        ("{vad: ear, turn: ear}", "{tone: []}", 8, "tone of family toy is on a rank twice, or on none"),
        ("{vad: ear, turn: ear}", "{tone: 3}", 8, "tone of family toy must be on a rank"),
        ("{vad: ear, turn: ear}", "{vad: ear, vad: main}", 8, "key 'vad' stands twice, first in line 8"),
        ("  ear: {threads: 1}", "  main: {threads: 1}", 4, "rank 'main' stands twice, first in line 3"),
        ("nodes: {vad: ear, turn: ear}", "partitions: {mouth: ear}", 8, "family toy has no partition 'mouth'; it has "),
        (
            "nodes: {vad: ear, turn: ear}",
            "partitions: {lm: {sing: ear}}",
            8,
            "partition lm of family toy is in no walk",
        ),
        ("families:", "transport: pigeon\nfamilies:", 5, "`transport` must be one of shared, tcp, inline"),
        ("families:", "oversubscribe: 1\nfamilies:", 5, "`oversubscribe` must be true or false"),
        ("threads: 2}", "threads: none}", 4, "rank main: threads must be a positive integer"),
        ("threads: 2}", "threads: true}", 4, "rank main: threads must be a positive integer"),
        ("threads: 1}", "threads: 0}", 3, "rank ear: threads must be a positive integer"),
        ("{threads: 1}", "{cores: 1}", 3, "rank ear has an unknown field; known: device, threads, host"),
        (
            "{threads: 1}",
            "{threads: 1, device: gpu0}",
            3,
            "rank ear: device must be cpu, cuda or cuda:N, not 'gpu0'",
        ),
        ("{threads: 1}", "7", 3, "rank ear must be {device, threads, host}"),
        ("ranks:", "rank:", None, "`ranks` must map names to {device, threads, host}"),
        ("families:", "family:", 5, "unknown field 'family'; known: ranks, families, oversubscribe, transport"),
        ("default: main", "defaults: main", 6, "family toy must be {default, partitions, nodes, memory}"),
        ("{vad: ear, turn: ear}", "[vad]", 8, "`nodes` of family toy must map nodes to ranks"),
        ("{vad: ear, turn: ear}", "{vad: ear", 9, "expected ',' or '}'"),
    ],
)
def test_what_is_wrong_is_refused_with_its_line(
    tmp_path: Path, old: str, new: str, line: int | None, said: str
) -> None:
    with pytest.raises(Rejected) as refused:
        read(tmp_path, EAR.replace(old, new)).place("toy", GRAPH)
    where = tmp_path / "placement.yaml"
    assert str(refused.value).startswith(f"{where}:{line}: " if line else f"{where}: ")
    assert said in str(refused.value)
    assert refused.value.code == "invalid_placement"


@pytest.mark.parametrize("text", ["", "- ranks", "ranks: {}", "ranks: 3", "\x00", "families: {}"])
def test_what_is_no_placement_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(Rejected, match=r"placement\.yaml"):
        read(tmp_path, text)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Rejected, match=r"nowhere\.yaml: No such file"):
        read_placement(tmp_path / "nowhere.yaml")


def test_more_threads_than_cores_are_refused_unless_the_file_allows_them(tmp_path: Path) -> None:
    placement = read(tmp_path, EAR)
    placement.check_threads(3)
    with pytest.raises(Rejected, match=r"placement\.yaml:2: 3 threads \(ear 1, main 2\) on 2 cores"):
        placement.check_threads(2)
    read(tmp_path, EAR + "oversubscribe: true\n").check_threads(1)


def test_a_node_may_be_placed_by_walk_and_its_partition_is_at_home_where_most_fires(tmp_path: Path) -> None:
    text = EAR.replace("{vad: ear, turn: ear}", "{LM: {prefill: ear, prefill_heard: ear, warm: ear, lm.decode: main}}")
    seating = read(tmp_path, text).place("toy", GRAPH).seat()
    assert seating.homes["lm"] == "worker.main"
    assert seating.away == {("lm", walk, "LM"): "worker.ear" for walk in ("prefill", "prefill_heard", "warm")}
    assert seating.moving == {"LM"}
    assert seating.of(["lm", "words"]) == ("worker.ear", "worker.main")
    assert seating.of(["words"]) == ("worker.main",)


def test_the_home_of_a_loop_is_where_its_body_runs(tmp_path: Path) -> None:
    text = EAR.replace("{vad: ear, turn: ear}", "{predict: ear, guide: ear, combine: ear}")
    seating = read(tmp_path, text).place("toy", GRAPH).seat()
    assert seating.homes["world"] == "worker.ear"
    assert set(seating.away) == {("world", "roll", "encode"), ("world", "roll", "decode")}


def test_a_session_gets_the_replica_with_the_fewest_sessions_and_equal_lists_go_together(tmp_path: Path) -> None:
    text = EAR.replace("{vad: ear, turn: ear}", "{tone: [ear, main], vocoder: [ear, main]}")
    placed = read(tmp_path, text).place("toy", GRAPH)
    assert placed.choices == (("worker.ear", "worker.main"),)
    assert placed.pins({}) == ("worker.ear",)
    assert placed.pins({"worker.ear": 2, "worker.main": 1}) == ("worker.main",)
    for worker in ("worker.ear", "worker.main"):
        seating = placed.seat((worker,))
        assert seating.homes["tone"] == seating.homes["vocoder"] == worker
        assert seating.outputs["audio"] == (worker,)
    assert placed.seat() is placed.seat(("worker.ear",))
    assert placed.workers == ("worker.ear", "worker.main")


@pytest.mark.parametrize("path", sorted(Path("models").glob("*/placement*.yaml")), ids=str)
def test_every_shipped_file_places_its_family(path: Path) -> None:
    family = path.parent.name
    placement = read_placement(path)
    placed = placement.place(family, load_graph(module_of(family), {}))
    assert set(placed.workers) == {rank.worker for rank in placement.ranks}


def test_more_kv_memory_than_there_is_is_refused_with_its_line(tmp_path: Path) -> None:
    placement = read(tmp_path, EAR + "    memory: {LM: {pages: 4000000000}}\n")
    with pytest.raises(
        Rejected, match=r"placement\.yaml:9: rank main: K/V memory needs \d+ MiB \(toy/LM 1953125, toy/free 1, "
    ):
        LocalSystem({"toy": GRAPH}, placement=placement)


def test_the_room_of_a_rank_is_what_is_left_for_all_its_components() -> None:
    assert shortage({"a/LM": 2**30, "b/LM": 2**20}, 2**30 + 2**20) is None
    named = shortage({"a/LM": 2**30, "b/LM": 2**20}, 2**30)
    assert named == ("a/LM", "K/V memory needs 1025 MiB (a/LM 1024, b/LM 1), 1024 MiB are left beside the weights")
    assert 2**20 < available_bytes("cpu") < 2**50


def test_processes_that_have_not_read_the_file_know_its_lines(tmp_path: Path) -> None:
    placement = read(tmp_path, EAR)
    told = source_told(json.loads(json.dumps(placement.source.told())))
    assert told == placement.source
    again = placement_of(json.loads(json.dumps(tree_of(placement))), source=told)
    assert again == placement
