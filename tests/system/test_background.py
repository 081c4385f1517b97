"""Work in the background waits for everybody who listens."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from models.toy.model import FAMILY
from mstar.client import Slice
from mstar.local import LocalSystem
from tests.system.toy import end_of, items, tones, values


@pytest.mark.parametrize("background", [False, True])
def test_a_pass_in_the_background_goes_behind_first_sounds(background: bool) -> None:
    system = LocalSystem({"toy": FAMILY.graph({})})
    session = system.open("toy", trace=True)
    rows: list[tuple[Any, ...]] = []
    session.on_trace = lambda traced: rows.extend(traced.records)
    sound = items(tones("hello weather"))
    session.feed("mic", 0, sound, rows=True)
    settings = {"background": True} if background else {}
    passes = [session.start("transcribe", {"audio": Slice("mic", 0, len(sound))}, settings) for _ in range(3)]
    speaking = session.start("speak")
    speaking.credit("audio", 10**9)
    speaking.feed("written", 0, "hello yes", cut=True)
    speaking.commit("written", 1)
    system.run()
    fired = [str(row[3]) for row in rows]
    heard, sounded = fired.index("hear"), fired.index("vocoder")
    assert (heard > sounded) == background
    assert [values(each.drain(), "transcript")[0]["text"] for each in passes] == ["hello weather"] * 3
    assert end_of(speaking.drain()).status == "done"
    system.close(session)
    assert np.sum([count for name, count in system.census().items() if name in ("sessions", "requests")]) == 0
