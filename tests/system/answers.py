"""What came of a request, as plain values that are equal only where every bit is."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import numpy as np

from mstar.messages import Emission, RequestEnded
from tests.system.toy import end_of, values

Answer = dict[str, list[Any]]
"""Emissions by output, in order."""


def plain(value: Any, without: Collection[str] = ()) -> Any:
    """The same tree with arrays as type, shape and bytes; fields named in `without` are left out."""
    match value:
        case np.ndarray():
            return (str(value.dtype), value.shape, value.tobytes())
        case dict():
            return {name: plain(each, without) for name, each in value.items() if name not in without}
        case list():
            return [plain(each, without) for each in value]
        case _:
            return value


def told(events: Iterable[Emission | RequestEnded], without: Collection[str] = ()) -> Answer:
    """All emissions so far."""
    emissions = [event for event in events if isinstance(event, Emission)]
    return {name: plain(values(emissions, name), without) for name in sorted({each.output for each in emissions})}


def answer_of(events: Iterable[Emission | RequestEnded], without: Collection[str] = ()) -> Answer:
    """All emissions of a request that went well."""
    events = list(events)
    end = end_of(events)
    assert end.status == "done", end
    return told(events, without)


def begins(part: Answer, whole: Answer) -> bool:
    """Whether `part` is how `whole` begins."""
    return all(rows == whole.get(name, [])[: len(rows)] for name, rows in part.items())
