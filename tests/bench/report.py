"""What a benchmark says: samples, percentiles of them, floors and aims; as a table and as JSON (pure)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

Better = Literal["less", "more"]
Statistic = Literal["p50", "p95", "p99", "mean", "least"]
Sample = Mapping[str, float | int | str]


@dataclass(frozen=True, slots=True)
class Gate:
    """A bound on one statistic of a metric: below `floor` the run fails, `aim` is where it should be."""

    statistic: Statistic
    floor: float
    aim: float | None = None
    better: Better = "less"

    def holds(self, value: float) -> bool:
        """Whether a value is on the right side of the floor."""
        return value <= self.floor if self.better == "less" else value >= self.floor


@dataclass(frozen=True, slots=True)
class Metric:
    """Measured values of one kind, in `unit`; those without a gate are there to be read."""

    name: str
    unit: str
    values: tuple[float, ...]
    gate: Gate | None = None

    def statistic(self, which: Statistic) -> float:
        """Raises ValueError without values."""
        if not self.values:
            raise ValueError(f"{self.name}: nothing was measured")
        match which:
            case "mean":
                return float(np.mean(self.values))
            case "least":
                return min(self.values)
            case _:
                return float(np.percentile(self.values, int(which[1:])))

    @property
    def holds(self) -> bool:
        """False where the floor is missed or nothing was measured."""
        if not self.values:
            return False
        return self.gate is None or self.gate.holds(self.statistic(self.gate.statistic))


@dataclass(frozen=True, slots=True)
class Row:
    """One benchmark's outcome: every sample as it was taken, and the metrics made of them."""

    name: str
    metrics: tuple[Metric, ...]
    samples: tuple[Sample, ...] = ()
    load: tuple[float, float] = (0.0, 0.0)  # load average (1 min) before and after
    others: float = 0.0  # cores that other programs used meanwhile, on average
    seconds: float = 0.0
    notes: tuple[str, ...] = field(default=())

    @property
    def holds(self) -> bool:
        return all(metric.holds for metric in self.metrics)


HEAD = ("metric", "n", "p50", "p95", "p99", "unit", "floor", "aim", "")


def table(rows: Sequence[Row]) -> str:
    """All metrics, one a line, with what their gates want and whether they hold."""
    lines: list[tuple[str, ...]] = [HEAD]
    for row in rows:
        lines += [_line(row.name, metric) for metric in row.metrics]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEAD))]
    return "\n".join(
        "  ".join(cell.ljust(width) if not column else cell.rjust(width) for column, (cell, width) in enumerate(cells))
        for cells in (tuple(zip(line, widths, strict=True)) for line in lines)
    )


def _line(row: str, metric: Metric) -> tuple[str, ...]:
    gate = metric.gate
    name = f"{row}.{metric.name}"
    if not metric.values:
        return (name, "0", "-", "-", "-", metric.unit, "", "", "FAIL: nothing measured")
    shown = tuple(shorten(metric.statistic(which)) for which in ("p50", "p95", "p99"))
    floor = aim = verdict = ""
    if gate is not None:
        sign = "≤" if gate.better == "less" else "≥"
        floor = f"{gate.statistic} {sign} {gate.floor:g}"
        aim = "" if gate.aim is None else f"{gate.aim:g}"
        verdict = "pass" if metric.holds else "FAIL"
    return (name, str(len(metric.values)), *shown, metric.unit, floor, aim, verdict)


def markdown(rows: Sequence[Row]) -> str:
    """The same as a Markdown table, a busy machine marked."""
    lines = ["| metric | n | p50 | p95 | p99 | unit | floor | aim | | others' cores |", "|" + "---|" * 10]
    for row in rows:
        lines += [f"| {' | '.join((*_line(row.name, metric), f'{row.others:.2f}'))} |" for metric in row.metrics]
    return "\n".join(lines)


def shorten(value: float) -> str:
    """A number with three digits that matter."""
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"
