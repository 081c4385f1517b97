"""Where the time of a turn goes, out of what the server tells clients that ask for it (pure)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

MARKS = ("prepared", "endpoint", "transcript", "first_token", "first_clause", "first_sample", "heard")
COMPONENTS = ("encoder", "ASR", "LM", "phonemes", "acoustic", "flow", "decoder")


def parts(events: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Milliseconds of the last turn that `mstar.turn` tells of: each mark behind the end of speech, and for every
    component what its steps took between that and the first sample (`in_…`), with how many there were (`steps_…`).
    """
    turns = [event["marks"] for event in events if event["type"] == "mstar.turn"]
    if not turns or "speech_end" not in turns[-1]:
        return {}
    marks = turns[-1]
    start = float(marks["speech_end"]["ms"])
    found = {f"{name}_ms": float(marks[name]["ms"]) - start for name in MARKS if name in marks}
    last = float(marks["first_sample"]["ms"]) if "first_sample" in marks else float("inf")
    records = [row for event in events if event["type"] == "mstar.trace" for row in event["records"]]
    inside = [row for row in records if start <= row[0] < last]
    for component in COMPONENTS:
        for walk in dict.fromkeys(row[4] for row in inside if row[3] == component):
            steps = [row for row in inside if row[3] == component and row[4] == walk]
            found[f"in_{component}.{walk}_ms"] = sum(float(row[6]) for row in steps)
            found[f"steps_{component}.{walk}"] = len(steps)
    return found
