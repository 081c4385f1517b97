"""A trace is a file of the Trace Event Format: tracks, slices, marks, and arrows that begin and end inside slices."""

from __future__ import annotations

import json
from typing import Any

from models.toy.model import FAMILY
from mstar.client import Record, Session
from mstar.graph.describe import describe
from server.events.server import Mark
from server.perfetto import Story, Turn, chrome_trace
from server.traces import ENDED, Traces

GRAPH = describe(FAMILY.graph({}))
OPENED = 100.0


def record(at: float, request: str, node: str, walk: str, ms: float = 4.0, **given: Any) -> Record:
    fields = {"batch": 1, "iteration": 0, "new": -1, "first": -1, "component": node, "worker": "worker.main", **given}
    return Record(at=OPENED + at, request=request, walk=walk, node=node, ms=ms, **fields)


RECORDS = (
    record(0.010, "s.0", "vad", "listen", worker="worker.ear", new=1, first=0),
    record(0.020, "s.1", "prompt", "prefill"),
    record(0.030, "s.1", "LM", "prefill"),
    record(0.040, "s.1", "LM", "decode"),
    record(0.050, "s.1", "LM", "decode", iteration=1),
    record(0.060, "s.1", "words", "words", new=2, first=0),
    record(0.070, "s.1", "tone", "tone"),
    record(0.080, "s.1", "vocoder", "vocoder"),
    record(0.090, "s.2", "LM", "prefill"),
)
TURN = Turn("resp_1", "item_1", {"speech_end": Mark(5.0, 80), "first_token": Mark(30.0), "heard": Mark(90.0)})


def events(**given: Any) -> list[dict[str, Any]]:
    story = Story(
        **{
            "name": "sess_1",
            "family": "toy",
            "opened": OPENED,
            "turns": (TURN,),
            "records": RECORDS,
            "graph": GRAPH,
            **given,
        }
    )
    tree = json.loads(chrome_trace(story))
    assert set(tree) == {"traceEvents", "displayTimeUnit", "otherData"}
    for event in tree["traceEvents"]:
        assert event["ph"] in "XMisf"
        assert isinstance(event["pid"], int)
        assert isinstance(event["tid"], int)
        assert event["name"]
        if event["ph"] != "M":
            assert isinstance(event["ts"], (int, float))
        if event["ph"] == "X":
            assert event["dur"] >= 0
    return list(tree["traceEvents"])


def named(found: list[dict[str, Any]], kind: str) -> dict[tuple[int, int], str]:
    return {(e["pid"], e["tid"]): e["args"]["name"] for e in found if e["ph"] == "M" and e["name"] == kind}


def test_one_track_for_each_component_on_each_rank() -> None:
    found = events()
    processes = {pid: name for (pid, _), name in named(found, "process_name").items()}
    threads = {(processes[pid], name) for (pid, _), name in named(found, "thread_name").items()}
    assert set(processes.values()) == {"turns", "worker.ear", "worker.main"}
    assert threads == {("worker.ear", "vad")} | {
        ("worker.main", name) for name in ("prompt", "LM", "words", "tone", "vocoder")
    }
    slices = [event for event in found if event["ph"] == "X" and processes[event["pid"]] != "turns"]
    assert len(slices) == len(RECORDS)
    first = slices[0]
    assert (first["name"], first["ts"], first["dur"]) == ("vad", 10_000, 4_000)  # microseconds since the session opened
    assert first["args"] == {
        "request": "s.0",
        "walk": "listen",
        "batch": 1,
        "iteration": 0,
        "new items": 1,
        "first item": 0,
    }


def test_turns_are_slices_with_their_moments() -> None:
    found = [event for event in events() if event["pid"] == 1 and event["ph"] != "M"]
    whole, *parts = [event for event in found if event["ph"] == "X"]
    assert (whole["name"], whole["ts"], whole["dur"], whole["args"]["response"]) == ("turn", 5000, 85_000, "resp_1")
    assert [(each["ts"], each["dur"]) for each in parts] == [(5000, 25_000), (30_000, 60_000)]
    marks = [event for event in found if event["ph"] == "i"]
    assert [event["name"] for event in marks] == ["speech_end", "first_token", "heard"]
    assert marks[0]["args"] == {"sample": 80}


def test_arrows_join_the_stages_of_a_request_in_time_and_inside_slices() -> None:
    found = events()
    slices = [event for event in found if event["ph"] == "X"]

    def slice_at(arrow: dict[str, Any]) -> str:
        [name] = {
            each["name"]
            for each in slices
            if (each["pid"], each["tid"]) == (arrow["pid"], arrow["tid"])
            and each["ts"] <= arrow["ts"] <= each["ts"] + each["dur"]
        }
        return str(name)

    starts = {event["id"]: event for event in found if event["ph"] == "s"}
    ends = {event["id"]: event for event in found if event["ph"] == "f"}
    assert starts.keys() == ends.keys()
    assert all(starts[number]["ts"] <= ends[number]["ts"] for number in starts)
    assert all(event["bp"] == "e" for event in ends.values())
    joined = [(slice_at(starts[number]), slice_at(ends[number])) for number in starts]
    assert set(joined) == {
        ("prompt", "LM"),
        ("LM", "LM"),
        ("LM", "words"),
        ("words", "tone"),
        ("tone", "vocoder"),
    }


def test_a_trace_without_graph_or_turns_is_a_file_too() -> None:
    assert len([event for event in events(graph={}, turns=()) if event["ph"] == "X"]) == len(RECORDS)
    assert [event["ph"] for event in events(records=(), turns=())] == ["M"]


def test_ended_sessions_are_known_for_a_while() -> None:
    traces = Traces()
    first = Session(None, "first", "toy")  # type: ignore[arg-type]
    traces.begin(first, 0.0)
    traces.of(first).call("sess_first")
    traces.end("first")
    for number in range(ENDED - 1):
        traces.begin(Session(None, str(number), "toy"), 0.0)  # type: ignore[arg-type]
        traces.end(str(number))
        traces.end(str(number))
    assert traces.find("sess_first") is traces.find("first") is not None
    traces.begin(Session(None, "open", "toy"), 0.0)  # type: ignore[arg-type]
    traces.begin(Session(None, "last", "toy"), 0.0)  # type: ignore[arg-type]
    traces.end("last")
    assert traces.find("sess_first") is traces.find("first") is None
    assert traces.find("open") is not None
    assert traces.open == ["open"]
    assert len(list(traces.known)) == ENDED + 1
