"""Placements: where nodes run, what is refused (with the line that is wrong), and when there are too many threads."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from models.toy.model import FAMILY
from mstar.errors import Rejected
from mstar.placement import Placement, one_rank, placement_of, read_placement
from server import serve
from server.settings import Settings

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
    placed = read(tmp_path, EAR).place("toy", GRAPH)
    assert {placed.partitions[name] for name in ("ear", "turns")} == {"worker.ear"}
    assert {placed.partitions[name] for name in ("asr", "lm", "vocoder")} == {"worker.main"}
    assert placed.live["mic"] == ("worker.ear", "worker.main")
    assert placed.outputs["speech"] == ("worker.ear",)
    assert placed.outputs["audio"] == ("worker.main",)
    assert placed.workers == ("worker.ear", "worker.main")


def test_without_a_file_everything_is_on_one_rank() -> None:
    assert one_rank(3).place("toy", GRAPH).workers == ("worker.main",)


@pytest.mark.parametrize(
    ("old", "new", "line", "said"),
    [
        ("{vad: ear, turn: ear}", "{vad: nowhere}", 8, "vad of family toy is on rank 'nowhere', which does not exist"),
        ("default: main", "default: other", 7, "default of family toy is on rank 'other', which does not exist"),
        ("{vad: ear, turn: ear}", "{nose: ear}", 8, "family toy has no node 'nose'; it has LM, "),
        ("{vad: ear, turn: ear}", "{prompt: ear}", 8, "partition 'lm' of toy is on two ranks: "),
        ("threads: 2}", "threads: none}", 4, "rank main: threads must be a positive integer"),
        ("threads: 2}", "threads: true}", 4, "rank main: threads must be a positive integer"),
        ("threads: 1}", "threads: 0}", 3, "rank ear: threads must be a positive integer"),
        ("{threads: 1}", "{cores: 1}", 3, "rank ear has an unknown field; known: device, threads"),
        ("{threads: 1}", "7", 3, "rank ear must be {device, threads}"),
        ("ranks:", "rank:", None, "`ranks` must map names to {device, threads}"),
        ("families:", "family:", 5, "unknown field 'family'; known: ranks, families"),
        ("default: main", "defaults: main", 6, "family toy must be {default, nodes}"),
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


def test_more_threads_than_cores_are_told_in_one_line(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    placement = placement_of({"ranks": {"ear": {"threads": 1}, "main": {"threads": 2}}})
    assert placement.crowded(3) is None
    assert (placement.crowded(2) or "").startswith("3 threads (ear 1, main 2) on 2 cores")
    monkeypatch.setattr("server.serve.asyncio.run", lambda serving: serving.close())
    for cores, lines in ((2, 1), (4, 0)):
        caplog.clear()
        monkeypatch.setattr("server.serve.os.sched_getaffinity", lambda _, n=cores: set(range(n)))
        with caplog.at_level(logging.WARNING, "mstar.server"):
            assert serve.run(Settings(families=("toy",)), {}, {}, placement) == 0
        assert len(caplog.messages) == lines
        assert all("3 threads (ear 1, main 2) on 2 cores" in message for message in caplog.messages)
