"""The voice family with each stage on a rank of its own answers as on one rank, token for token, sample for sample."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from media.resample import resample
from models.voice import model
from models.voice.model import CONVERSATION, FAMILY
from mstar.client import Slice
from mstar.local import LocalSystem
from mstar.placement import Placement, one_rank, placement_of, read_placement
from mstar.transport.inline import InlineTransport
from tests.system.answers import Answer, told
from tests.system.toy import end_of, items, sound_of

GRAPH = FAMILY.graph({})


def answers(
    settings: dict[str, str], placement: Placement, *, wire: bool = False
) -> tuple[list[Answer], dict[str, int], dict[str, int]]:
    """A question that is spoken by the voice itself, then heard and answered aloud; what was left, who computed."""
    transport = (lambda _: InlineTransport()) if wire else None
    system = LocalSystem({"voice": GRAPH}, settings={"voice": settings}, placement=placement, transport=transport)
    baseline = system.census()
    session = system.open("voice")
    asked = [{"role": "user", "content": "What is the capital of France?"}]
    first = session.start("answer_speech", {"history": asked, "tools": []}, {"max_tokens": 12, "seed": 3})
    first.credit("audio", 10**9)
    system.run()
    events = [first.drain()]
    question = items(resample(sound_of(events[0]), CONVERSATION.speech_rate, CONVERSATION.mic_rate))
    session.feed("mic", 0, question, rows=True)
    listen = session.start("listen", positions={"mic": 0})
    heard = {"history": asked, "tools": [], "audio": Slice("mic", 0, len(question))}
    second = session.start("answer_audio_speech", heard, {"max_tokens": 10, "seed": 3, "temperature": 0.7})
    second.credit("audio", 10**9)
    system.run()
    events += [second.drain(), listen.drain()]
    assert [end_of(each).status for each in events[:2]] == ["done", "done"]
    system.close(session)
    assert system.census() == baseline
    messages = {f"{sender} to {to}": count for (sender, to), count in system.bus.sent_to.items()}
    return [told(each) for each in events], messages, {name: worker.steps for name, worker in system.workers.items()}


@pytest.fixture(scope="module")
def settings(smollm2: Path, whisper_tiny_en: Path, piper_joe: Path, ear: Path) -> dict[str, str]:
    return {"llm": str(smollm2), "asr": str(whisper_tiny_en), "voice": str(piper_joe), "ear": str(ear)}


@pytest.fixture(scope="module")
def together(settings: dict[str, str]) -> list[Answer]:
    told, messages, _ = answers(settings, one_rank())
    assert not any(pair.startswith("worker.main to worker.") for pair in messages)
    return told


def test_every_stage_apart_says_the_same(settings: dict[str, str], together: list[Answer]) -> None:
    wide = read_placement(Path(model.__file__).with_name("placement-wide.yaml"))
    apart, messages, steps = answers(settings, wide)
    assert apart == together
    assert all(steps[f"worker.{rank}"] > 0 for rank in ("ear", "asr", "lm", "speech"))
    assert messages["worker.asr to worker.lm"] > 0
    assert messages["worker.lm to worker.speech"] > 0


@pytest.mark.slow
def test_prompts_read_elsewhere_and_every_component_by_itself_say_the_same_over_the_wire(
    settings: dict[str, str], together: list[Answer]
) -> None:
    names = [component.name for component in GRAPH.components]
    nodes: dict[str, Any] = {name: name for name in names}
    nodes |= {"ASR_begin": "begins", "LM": {"prefill": "reads", "prefill_heard": "reads", "decode": "writes"}}
    ranks: dict[str, dict[str, int]] = {name: {} for name in (*names, "begins", "reads", "writes")}
    tree = {"ranks": ranks, "families": {"voice": {"default": "LM", "nodes": nodes}}, "oversubscribe": True}
    apart, messages, steps = answers(settings, placement_of(tree), wire=True)
    assert apart == together
    assert all(steps[f"worker.{rank}"] > 0 for rank in ("begins", "ASR", "reads", "writes", "flow", "decoder"))
    assert messages["worker.reads to worker.writes"] >= 2  # the sequences of two answers
    assert messages["worker.begins to worker.ASR"] >= 1
