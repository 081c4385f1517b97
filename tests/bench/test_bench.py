"""The benchmark's own arithmetic: percentiles and gates, what a listener hears, parts of a turn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.bench.__main__ import ROWS
from tests.bench.playout import Delta, heard_at, starved
from tests.bench.report import Gate, Metric, Row, table
from tests.bench.sound import RATE, first_loud, from_wire, to_wire, trimmed
from tests.bench.turns import parts


def tone(seconds: float, level: float = 0.5) -> np.ndarray:
    return np.full(round(seconds * RATE), level, np.float32)


@pytest.mark.parametrize(
    ("gate", "holds"),
    [
        (None, True),
        (Gate("p50", 3.0), True),
        (Gate("p50", 2.9), False),
        (Gate("p95", 4.0), False),
        (Gate("mean", 3.0), True),
        (Gate("least", 1.0, better="more"), True),
        (Gate("least", 1.1, better="more"), False),
    ],
)
def test_a_gate_holds_its_statistic_to_the_floor(gate: Gate | None, holds: bool) -> None:
    metric = Metric("m", "ms", (1.0, 2.0, 3.0, 4.0, 5.0), gate)
    assert metric.holds is holds
    assert Row("r", (metric,)).holds is holds
    assert ("FAIL" in table([Row("r", (metric,))])) is not holds


def test_what_was_not_measured_does_not_hold() -> None:
    assert not Metric("m", "ms", ()).holds
    assert "nothing measured" in table([Row("r", (Metric("m", "ms", ()),))])


def test_speech_is_what_lies_between_the_first_and_the_last_loud_sample() -> None:
    quiet = tone(0.1, 0.005)  # −46 dBFS
    sound = np.concatenate((quiet, tone(0.2), quiet, tone(0.1, -0.5), quiet))
    assert first_loud(sound) == len(quiet)
    assert len(trimmed(sound)) == round(0.4 * RATE)
    assert first_loud(quiet) is None
    with pytest.raises(ValueError, match="silence"):
        trimmed(quiet)
    assert np.abs(from_wire(to_wire(sound)) - sound).max() < 1e-4


def test_the_first_loud_sample_is_heard_behind_the_silence_before_it() -> None:
    silent = Delta(10.0, tone(0.1, 0.0))
    mixed = np.concatenate((tone(0.05, 0.0), tone(0.05)))
    assert heard_at([silent, Delta(10.02, mixed)]) == pytest.approx(10.15)
    assert heard_at([silent, Delta(10.5, mixed)]) == pytest.approx(10.55)
    assert heard_at([silent]) is None


def test_a_player_starves_when_sound_comes_later_than_its_cushion_and_what_it_has() -> None:
    assert starved([Delta(0.0, tone(1.0)), Delta(1.05, tone(1.0))], cushion=0.08) == (0.0, 2.0)
    gaps, total = starved([Delta(0.0, tone(1.0)), Delta(1.5, tone(1.0)), Delta(2.5, tone(0.5))], cushion=0.1)
    assert gaps == pytest.approx(0.4)
    assert total == 2.5
    assert starved([]) == (0.0, 0.0)


def test_parts_of_a_turn_count_from_the_end_of_speech_to_the_first_sample() -> None:
    marks = {"speech_end": {"ms": 100.0}, "endpoint": {"ms": 600.0}, "first_sample": {"ms": 800.0}}
    rows = [(at, "worker.main", "r", "LM", "decode", 1, 10.0, 0, -1, -1) for at in (90.0, 700.0, 720.0, 810.0)]
    events: list[dict[str, Any]] = [{"type": "mstar.trace", "records": rows}, {"type": "mstar.turn", "marks": marks}]
    assert parts(events) == {
        "endpoint_ms": 500.0,
        "first_sample_ms": 700.0,
        "in_LM.decode_ms": 20.0,
        "steps_LM.decode": 2,
    }
    assert parts([]) == {}


def test_every_row_can_be_asked_for_and_is_described() -> None:
    there = {path.stem.removeprefix("row_") for path in Path(__file__).parent.glob("row_*.py")}
    assert set(ROWS) == there
    described = (Path(__file__).parents[2] / "docs" / "bench.md").read_text(encoding="utf-8")
    assert {row for row in ROWS if f"`{row}." not in described} == set()
