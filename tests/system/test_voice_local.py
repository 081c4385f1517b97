"""The voice family in one process: real weights through the whole runtime, step by step."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from media.resample import resample
from models.voice.model import CONVERSATION
from mstar.client import Emission, Request, RequestEnded, Session, Slice
from mstar.local import LocalSystem
from server.record.entries import Recording, read
from server.record.replay import Replay
from tests.clients.conftest import Serving
from tests.system.toy import end_of, items, sound_of, text_of, values
from tests.system.voice_client import calling, speech
from tests.system.voice_client import silence as nothing
from tests.system.voice_local import voice_session, voice_system

FRANCE = [{"role": "user", "content": "What is the capital of France?"}]
COLORS = [{"role": "user", "content": "List three colors."}]

Events = list[Emission | RequestEnded]


@pytest.fixture(scope="module")
def system(smollm2: Path, whisper_tiny_en: Path, piper_joe: Path, ear: Path) -> LocalSystem:
    return voice_system(smollm2, whisper_tiny_en, piper_joe, ear)


@pytest.fixture
def session(system: LocalSystem) -> Iterator[Session]:
    with voice_session(system, trace=True) as opened:
        yield opened


def ask(session: Session, history: list[dict[str, str]], **settings: object) -> Request:
    request = session.start("answer_speech", {"history": history, "tools": []}, settings)
    request.credit("audio", 10**9)
    return request


def spoken(system: LocalSystem, session: Session, words: str) -> np.ndarray:
    """The voice itself saying something: microphone items [n, 512]."""
    history = [{"role": "user", "content": words}]
    request = session.start("answer_speech", {"history": history, "tools": []}, {"max_tokens": 24})
    request.credit("audio", 10**9)
    system.run()
    return items(resample(sound_of(request.drain()), CONVERSATION.speech_rate, CONVERSATION.mic_rate))


def test_an_answer_is_the_models_own_and_its_words_have_times(system: LocalSystem, session: Session) -> None:
    request = ask(session, FRANCE)
    system.run()
    events = request.drain()
    text, sound = text_of(events), sound_of(events)
    assert text == "The capital of France is Paris."
    assert end_of(events).status == "done"
    usage = values(events, "usage")
    assert [(each["prompt"], each["generated"], each["reason"]) for each in usage] == [(37, 8, "stop")]
    rows = np.concatenate([value["words"] for value in values(events, "alignment")])
    assert [text[first:last].strip(" .") for first, last, _, _ in rows] == text.strip(".").split()
    trimmed = values(events, "audio")[0]["trimmed"]
    assert rows[0, 2] == 0
    assert (rows[1:, 2] == rows[:-1, 3]).all()
    assert rows[-1, 3] == len(sound) + trimmed


def test_the_first_sound_leaves_while_the_answer_is_written(system: LocalSystem, session: Session) -> None:
    rows: list[tuple[Any, ...]] = []
    session.on_trace = lambda traced: rows.extend(traced.records)
    request = ask(session, COLORS, max_tokens=48)
    system.run()
    events = request.drain()
    fired = [str(row[3]) for row in rows]
    last_token = len(fired) - 1 - fired[::-1].index("LM")
    assert fired.index("decoder") < last_token
    assert next(row[8] for row in rows if row[3] == "decoder") <= 24
    assert 0 < len(values(events, "audio")[0]["pcm"]) <= 24 * 256  # of so many frames
    first_sound = next(place for place, event in enumerate(events) if getattr(event, "output", "") == "audio")
    assert any(getattr(event, "output", "") == "text" for event in events[first_sound:])


def test_what_is_said_is_heard(system: LocalSystem, session: Session) -> None:
    question = spoken(system, session, "What is the capital of France?")
    session.feed("mic", 0, question, rows=True)
    listen = session.start("listen", positions={"mic": 0})
    request = session.start(
        "answer_audio_speech", {"history": [], "tools": [], "audio": Slice("mic", 0, len(question))}
    )
    request.credit("audio", 10**9)
    system.run()
    speech = values(listen.drain(), "speech")
    assert len(speech) == len(question)
    assert np.mean(np.array(speech) > 0.5) > 0.6
    events = request.drain()
    [transcript] = values(events, "transcript")
    assert "capital" in transcript["text"].lower()
    assert transcript["segments"][0]["end"] <= len(question) * 512 / 16_000 + 0.1
    assert end_of(events).status == "done"
    assert text_of(events)
    listen.interrupt()


def test_a_turn_without_words_runs_no_language_model(system: LocalSystem, session: Session) -> None:
    fired: list[object] = []
    session.on_trace = lambda traced: fired.extend(row[3] for row in traced.records)
    session.feed("mic", 0, np.zeros((40, 512), dtype=np.float32), rows=True)
    audio = Slice("mic", 0, 40)
    request = session.start("answer_audio_speech", {"history": COLORS, "tools": [], "audio": audio})
    system.run()
    events = request.drain()
    assert [value["text"] for value in values(events, "transcript")] == [""]
    assert end_of(events).status == "done"
    assert len(events) == 2
    assert "LM" not in fired


def test_a_silent_piece_does_not_end_the_hearing_of_a_long_recording(system: LocalSystem, session: Session) -> None:
    """31 s of silence are a piece without words; the question behind them is in the next one."""
    question = spoken(system, session, "What is the capital of France?")
    silence = np.zeros((31 * CONVERSATION.mic_rate // 512, 512), dtype=np.float32)
    request = session.start("transcribe", {"audio": np.concatenate([silence, question])})
    system.run()
    [transcript] = values(request.drain(), "transcript")
    assert "capital" in transcript["text"].lower()
    assert transcript["segments"][0]["start"] > 20  # in the second piece


def test_cancelling_after_the_first_chunk_leaves_the_rest_uncomputed(system: LocalSystem, session: Session) -> None:
    request = ask(session, COLORS, max_tokens=200)
    seen: Events = []

    def sounded() -> bool:
        seen.extend(request.drain())
        return bool(values(seen, "audio"))

    system.run(sounded)
    request.interrupt()
    [worker] = system.workers.values()
    before = worker.steps
    system.run()
    assert worker.steps - before <= 2
    assert len(values(seen, "usage")) == 0


def test_four_sessions_at_once_answer_as_alone(system: LocalSystem, session: Session) -> None:
    tasks = ("List three colors.", "Tell me a story.", "Explain how rain is made.", "Describe a forest in winter.")
    questions = tuple([{"role": "user", "content": task}] for task in tasks)

    def run(histories: tuple[list[dict[str, str]], ...]) -> tuple[list[tuple[str, np.ndarray]], float]:
        batches: list[int] = []
        opened = [system.open("voice", trace=True) for _ in histories]
        for each in opened:
            each.on_trace = lambda traced: batches.extend(int(row[5]) for row in traced.records if row[3] == "LM")
        requests = [ask(s, history, max_tokens=32, seed=5) for s, history in zip(opened, histories, strict=True)]
        system.run()
        answers = [(text_of(events), sound_of(events)) for events in (request.drain() for request in requests)]
        for each in opened:
            system.close(each)
        steps = sum(1 / size for size in batches)  # each step of a batch of n is recorded n times
        return answers, len(batches) / steps

    together, mean = run(questions)
    assert mean >= 3
    for question, (text, sound) in zip(questions, together, strict=True):
        [(alone_text, alone_sound)], _ = run((question,))
        assert text == alone_text
        assert np.array_equal(sound, alone_sound)


def test_a_turn_prefills_what_is_new_and_answers_as_without_reuse(system: LocalSystem, session: Session) -> None:
    history = list(FRANCE)
    for question in ("And of Italy?", "And of Spain?"):
        request = ask(session, history, max_tokens=16)
        system.run()
        history = [
            *history,
            {"role": "assistant", "content": text_of(request.drain())},
            {"role": "user", "content": question},
        ]
    [worker] = system.workers
    before = system.ask("counters", of=worker)
    warm = ask(session, history, max_tokens=16)
    system.run()
    warm_events = warm.drain()
    after = system.ask("counters", of=worker)
    [usage] = values(warm_events, "usage")
    assert usage["reused"] > usage["prompt"] // 2
    prefilled = after["engine_prefilled_tokens"] - before["engine_prefilled_tokens"]
    assert prefilled == usage["prompt"] - usage["reused"]
    fresh = system.open("voice")
    cold = ask(fresh, history, max_tokens=16)
    system.run()
    cold_events = cold.drain()
    system.close(fresh)
    shared = values(cold_events, "usage")[0]["reused"]
    assert shared % 32 == 0  # what the other session's first prompt computed
    assert shared < usage["reused"]
    assert text_of(cold_events) == text_of(warm_events)


def test_a_prompt_beyond_the_context_is_refused_with_its_code(system: LocalSystem, session: Session) -> None:
    request = ask(session, [{"role": "user", "content": "word " * 3000}])
    system.run()
    end = end_of(request.drain())
    assert (end.status, end.code, end.node) == ("failed", "context_length_exceeded", "prompt")
    assert end.param == "history"


def kept(recordings: Path) -> dict[Path, Recording]:
    """Recordings that are whole."""
    return {path: recording for path in recordings.iterdir() if (recording := read(path)).whole}


async def finished(recordings: Path, known: Mapping[Path, Recording]) -> Recording:
    """The one that is not among the known, when it is whole."""
    while True:
        for path, recording in kept(recordings).items():
            if path not in known:
                return recording
        await asyncio.sleep(0.05)


async def test_a_recorded_conversation_is_said_again_sample_for_sample(
    system: LocalSystem, voice_server: Serving, recordings: Path
) -> None:
    """Two spoken turns, the second one into the first answer, from a server of processes; run again in this one."""
    known = kept(recordings)
    heard = {"input": {"transcription": {"model": "whisper-1"}}}
    async with calling(voice_server, audio=heard, max_output_tokens=40) as caller:
        await caller.hear(nothing(0.3), speech("Tell me a long story about a fox."), nothing(1.2))
        await caller.until("response.output_audio.delta")
        await caller.hear(speech("What is the capital of France?"), nothing(1.2))
        interrupted = (await caller.until("response.done"))["response"]
        assert interrupted["status_details"]["reason"] == "turn_detected"
        assert (await caller.until("response.done"))["response"]["status"] == "completed"
        transcripts = [
            str(each["transcript"]) for each in caller.of("conversation.item.input_audio_transcription.completed")
        ]
    recording = await finished(recordings, known)
    assert {name.partition("/")[0] for name in recording.weights} == {"smollm2", "whisper-tiny-en", "piper-joe", "ear"}
    serving = asyncio.create_task(system.serve())
    outcome = await Replay(recording, CONVERSATION, system.client).run()
    serving.cancel()
    await asyncio.wait({serving})
    assert outcome.difference == ""
    assert outcome.steps == len(recording.steps)
    said = [words for who, words in outcome.lines if who == "user"]
    assert said == transcripts
    samples = {response: outcome.samples(response) for response in outcome.sound}
    assert len(samples) == 2
