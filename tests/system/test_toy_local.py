"""The whole runtime in one process on a manual clock, with the toy family."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from models.toy.language import NUMBERS
from models.toy.model import FAMILY, FRAME, SPEECH_WINDOW, WORD_FRAMES
from mstar.client import Session, Slice
from mstar.local import LocalSystem
from tests.system.shapes import shape
from tests.system.toy import end_of, items, sound_of, text_of, tones, values


@pytest.fixture(params=["one rank", "partitions", "apart"])
def system(request: pytest.FixtureRequest) -> LocalSystem:
    return LocalSystem({"toy": FAMILY.graph({})}, placement=shape(request.param))


def ask(text: str, *before: tuple[str, str]) -> dict[str, object]:
    history = [{"role": role, "content": content} for role, content in (*before, ("user", text))]
    return {"history": history, "tools": []}


def hear(session: Session, sound: np.ndarray, at: int = 0) -> int:
    """Feed spoken words; returns the index after them."""
    rows = items(sound)
    session.feed("mic", at, rows, rows=True)
    return at + len(rows)


def test_text_answer(system: LocalSystem) -> None:
    session = system.open("toy")
    request = session.start("answer_text", ask("hello there"))
    system.run()
    events = request.drain()
    assert text_of(events) == "you said hello there"
    assert values(events, "audio") == []
    assert end_of(events).status == "done"
    usage = values(events, "usage")[-1]
    assert usage["generated"] == len("you said hello there")
    assert usage["reason"] == "stop"


def test_spoken_answer_is_whole_and_aligned(system: LocalSystem) -> None:
    session = system.open("toy")
    request = session.start("answer_speech", ask("hello"))
    request.credit("audio", 10**9)
    system.run()
    events = request.drain()
    text = text_of(events)
    words = np.concatenate([value["words"] for value in values(events, "alignment")])
    assert [text[first:last].strip() for first, last, _, _ in words] == text.split()
    assert len(sound_of(events)) == words[-1, 3] == len(text.split()) * WORD_FRAMES * FRAME
    assert end_of(events).status == "done"


def test_chunks_grow_and_their_borders_are_not_heard(system: LocalSystem) -> None:
    session = system.open("toy", trace=True)
    rows: list[tuple[object, ...]] = []
    session.on_trace = lambda traced: rows.extend(traced.records)
    request = session.start("answer_speech", ask("count"))
    request.credit("audio", 10**9)
    system.run()
    sound = sound_of(request.drain())
    fresh = [row[8] for row in rows if row[3] == "vocoder"]
    assert fresh[:3] == [5, 10, 10]  # the third ends with the word
    assert np.abs(np.diff(sound)).max() < 0.3
    lm = [place for place, row in enumerate(rows) if row[3] == "LM"]
    assert next(place for place, row in enumerate(rows) if row[3] == "vocoder") < lm[-1]


def test_the_microphone_is_heard_as_it_comes(system: LocalSystem) -> None:
    session = system.open("toy")
    listen = session.start("listen", positions={"mic": 0})
    rows = items(np.concatenate([np.zeros(1024, dtype=np.float32), tones("hello")]))
    for index, row in enumerate(rows):
        session.feed("mic", index, row)
        system.run()
        assert len(values(listen.drain(), "speech")) == 1
    session.feed("mic", len(rows), np.zeros((3, 512), dtype=np.float32), rows=True)
    system.run()
    assert values(listen.drain(), "speech") == [0.0, 0.0, 0.0]


def test_a_slice_waits_for_its_last_item(system: LocalSystem) -> None:
    session = system.open("toy")
    rows = items(tones("hello weather"))
    session.feed("mic", 0, rows[:5], rows=True)
    request = session.start("transcribe", {"audio": Slice("mic", 0, len(rows))})
    system.run()
    assert request.drain() == []
    session.feed("mic", 5, rows[5:], rows=True)
    system.run()
    events = request.drain()
    assert values(events, "transcript")[0]["text"] == "hello weather"
    assert end_of(events).status == "done"


def test_a_spoken_question_is_answered(system: LocalSystem) -> None:
    session = system.open("toy")
    stop = hear(session, tones("hello name"))
    request = session.start("answer_audio_speech", {"history": [], "tools": [], "audio": Slice("mic", 0, stop)})
    request.credit("audio", 10**9)
    system.run()
    events = request.drain()
    assert values(events, "transcript")[0]["text"] == "hello name"
    assert text_of(events) == "you said hello name"
    assert len(sound_of(events)) == 4 * WORD_FRAMES * FRAME


@pytest.mark.parametrize("task", ["answer_audio_speech", "answer_audio_text"])
def test_a_noise_without_words_costs_no_language_model(system: LocalSystem, task: str) -> None:
    session = system.open("toy", trace=True)
    fired: list[object] = []
    session.on_trace = lambda traced: fired.extend(row[3] for row in traced.records)
    rows = items(np.random.default_rng(0).normal(0, 0.3, 16_000).astype(np.float32))
    session.feed("mic", 0, rows, rows=True)
    inputs = {"history": [], "tools": [], "audio": Slice("mic", 0, len(rows))}
    request = session.start(task, inputs)
    system.run()
    events = request.drain()
    assert [value["text"] for value in values(events, "transcript")] == [""]
    assert len(events) == 2
    assert end_of(events).status == "done"
    assert fired == ["hear", "prompt"]
    insisting = session.start(task, inputs, {"answer_silence": True})
    system.run()
    assert text_of(insisting.drain()) == "hello"
    system.close(session)


def test_a_function_call_is_an_emission_and_not_spoken(system: LocalSystem) -> None:
    session = system.open("toy")
    question = ask("please call weather")
    question["tools"] = [{"name": "get_weather"}]
    request = session.start("answer_speech", question)
    system.run()
    events = request.drain()
    assert values(events, "call") == [{"name": "get_weather", "arguments": '{"city": "Paris"}'}]
    assert text_of(events) == ""
    assert sound_of(events).size == 0


def test_without_credit_the_producer_stands_still_and_loses_nothing(system: LocalSystem) -> None:
    session = system.open("toy")
    request = session.start("answer_speech", ask("long"))
    system.run()
    held = request.drain()
    sent = len(sound_of(held))
    assert SPEECH_WINDOW <= sent < SPEECH_WINDOW + 40 * FRAME
    steps = {name: worker.steps for name, worker in system.workers.items()}
    system.run()
    assert {name: worker.steps for name, worker in system.workers.items()} == steps
    text_so_far = text_of(held)
    assert len(text_so_far) < len(" ".join(NUMBERS * 20))  # back-pressure reaches the language model
    events = list(held)
    while not request.ended:
        sent = len(sound_of(events))
        request.credit("audio", sent + 4800, played=sent)
        system.run()
        events += request.drain()
        assert len(sound_of(events)) < sent + 4800 + 40 * FRAME
    assert text_of(events) == " ".join(NUMBERS * 20)
    assert len(sound_of(events)) == 240 * WORD_FRAMES * FRAME


def test_interrupt_leaves_the_rest_uncomputed_and_nothing_behind(system: LocalSystem) -> None:
    session = system.open("toy")
    baseline = system.census()
    request = session.start("answer_speech", ask("long"))
    request.credit("audio", 10**9)
    system.run(lambda: bool(request._events and values(list(request._events), "audio")))
    request.interrupt(heard=100)
    before = sum(worker.steps for worker in system.workers.values())
    system.run()
    assert sum(worker.steps for worker in system.workers.values()) - before <= 6
    events = request.drain()
    assert [type(event).__name__ for event in events] == ["RequestEnded"]
    assert end_of(events).status == "cancelled"
    cached = system.census()
    assert cached.pop("engine_idle_sequences") == 1  # the session's cache
    assert cached.pop("engine_pages_held") > baseline.pop("engine_pages_held")
    assert {**cached, "engine_idle_sequences": 0, "engine_pages_free": baseline["engine_pages_free"]} == baseline


def test_the_next_turn_reuses_the_common_prefix(system: LocalSystem) -> None:
    session = system.open("toy")
    first = session.start("answer_text", ask("hello"))
    system.run()
    answer = text_of(first.drain())
    second = session.start("answer_text", ask("again", ("user", "hello"), ("assistant", answer)))
    system.run()
    events = second.drain()
    assert text_of(events) == f"again {answer}"
    usage = values(events, "usage")[-1]
    assert usage["reused"] >= len("tools:\x1duser:hello\x1dassistant:") + len(answer) - 1
    fresh = system.open("toy")
    alone = fresh.start("answer_text", ask("again", ("user", "hello"), ("assistant", answer)))
    system.run()
    cold = alone.drain()
    assert values(cold, "usage")[-1]["reused"] == 0
    assert text_of(cold) == text_of(events)


def test_a_long_prompt_is_read_in_pieces_and_others_are_served_between_them(system: LocalSystem) -> None:
    talker, reader = system.open("toy"), system.open("toy", trace=True)
    speaking = talker.start("answer_speech", ask("long"))
    system.run(lambda: bool(values(list(speaking._events), "audio")))
    rows: list[tuple[Any, ...]] = []
    reader.on_trace = lambda traced: rows.extend(traced.records)
    prompt = "word " * 400
    reading = reader.start("answer_text", ask(prompt + "hello"))
    served = []
    while not values(list(reading._events), "text"):
        before = len(values(list(speaking._events), "audio"))
        sent = len(sound_of(list(speaking._events)))
        speaking.credit("audio", sent + 4800, played=sent)  # the listener has heard all of it: it runs short
        system.turn()
        served.append(len(values(list(speaking._events), "audio")) > before)
    pieces = [row for row in rows if row[3] == "LM" and row[4] == "prefill"]
    assert len(pieces) == -(-len(f"tools:\x1duser:{prompt}hello\x1dassistant:") // 64)
    assert sum(served) > len(pieces) // 4
    system.run()
    events = reading.drain()
    assert text_of(events) == f"you said {prompt}hello"
    usage = values(events, "usage")[-1]
    assert (usage["reused"], usage["prompt"]) == (0, len(f"tools:\x1duser:{prompt}hello\x1dassistant:"))
    again = reader.start("answer_text", ask(prompt + "there"))
    system.run()
    assert values(again.drain(), "usage")[-1]["reused"] == len(f"tools:\x1duser:{prompt}")


def test_two_answers_of_one_session_at_once_do_not_disturb_each_other(system: LocalSystem) -> None:
    session = system.open("toy")
    requests = [session.start("answer_text", ask(f"hello number {word}")) for word in NUMBERS]
    system.run()
    for word, request in zip(NUMBERS, requests, strict=True):
        assert text_of(request.drain()) == f"you said hello number {word}"


def test_one_failing_request_does_not_touch_its_batch(system: LocalSystem) -> None:
    session = system.open("toy")
    good = [session.start("answer_text", ask(f"hello {word}")) for word in NUMBERS[:3]]
    bad = session.start("answer_text", ask("fail"))
    good += [session.start("answer_text", ask(f"hello {word}")) for word in NUMBERS[3:6]]
    system.run()
    end = end_of(bad.drain())
    assert (end.status, end.node) == ("failed", "LM")
    assert "told to fail" in end.cause
    assert [text_of(request.drain()) for request in good] == [f"you said hello {word}" for word in NUMBERS[:6]]


@pytest.mark.parametrize(
    ("task", "inputs", "code"),
    [
        ("dance", {}, "unknown_task"),
        ("answer_text", {"history": []}, "missing_input"),
        ("answer_text", {"history": [], "tools": [], "colour": 1}, "unknown_input"),
    ],
)
def test_a_wrong_request_is_refused_by_name(
    system: LocalSystem, task: str, inputs: dict[str, object], code: str
) -> None:
    session = system.open("toy")
    request = session.start(task, inputs)
    system.run()
    end = end_of(request.drain())
    assert (end.status, end.code) == ("failed", code)
    assert system.census()["requests"] == 0


def test_a_slice_outside_the_window_fails_its_request_only(system: LocalSystem) -> None:
    session = system.open("toy")
    hear(session, tones("hello"))
    request = session.start("transcribe", {"audio": Slice("camera", 0, 3)})
    system.run()
    assert end_of(request.drain()).status == "failed"
    again = session.start("transcribe", {"audio": Slice("mic", 0, 5)})
    system.run()
    assert end_of(again.drain()).status == "done"


@pytest.mark.parametrize(("value", "rows"), [("loud", False), (3, False), (None, True), (np.float32(1.0), True)])
def test_items_that_are_no_arrays_end_who_listens_to_them_and_nothing_else(
    system: LocalSystem, value: object, rows: bool
) -> None:
    session = system.open("toy")
    listen = session.start("listen", positions={"mic": 0})
    other = session.start("say")
    system.run()
    session.feed("mic", 0, value, rows=rows)  # type: ignore[arg-type]
    other.feed("word", 0, value, rows=rows)  # type: ignore[arg-type]
    system.run()
    assert end_of(listen.drain()).status == "failed"
    assert end_of(other.drain()).status == "failed"
    hear(session, tones("hello"))
    again = session.start("transcribe", {"audio": Slice("mic", 0, 5)})
    system.run()
    assert end_of(again.drain()).status == "done"


def test_text_fed_piece_by_piece_is_spoken(system: LocalSystem) -> None:
    session = system.open("toy")
    request = session.start("say")
    request.credit("audio", 10**9)
    request.feed("word", 0, {"text": "one", "from": 0, "to": 4})
    system.run()
    first = request.drain()
    assert len(sound_of(first)) == WORD_FRAMES * FRAME
    request.feed("word", 1, {"text": "two", "from": 4, "to": 7})
    request.commit("word", 2)
    system.run()
    events = [*first, *request.drain()]
    assert len(sound_of(events)) == 2 * WORD_FRAMES * FRAME
    assert end_of(events).status == "done"


def test_rollout_loops(system: LocalSystem) -> None:
    """state_{k+1} = three refinements of latent ← (2·latent + state + latent − 1) / 2, latent_0 = state + 1."""
    session = system.open("toy")
    request = session.start("roll", {"state": np.array([1.0, 2.0])}, {"horizon": 3})
    system.run()
    events = request.drain()
    state, path = np.array([1.0, 2.0]), []
    for _ in range(3):
        path.append(state)
        latent = state + 1
        for _ in range(3):
            latent = (2 * latent + state + latent - 1) / 2
        state = latent
    assert np.allclose(values(events, "imagined"), path)
    picture = values(events, "picture")
    assert len(picture) == 1
    assert np.allclose(picture[0]["latent"], state)
    assert np.allclose(picture[0]["path"], path)


def test_no_conductor_message_per_token_or_chunk(system: LocalSystem) -> None:
    session = system.open("toy")

    def messages(text: str) -> int:
        before = system.conductor.counters["messages"]
        request = session.start("answer_speech", ask(text))
        request.credit("audio", 10**9)
        system.run()
        request.drain()
        return system.conductor.counters["messages"] - before

    assert messages("hello") == messages("long")


def test_late_messages_leave_nothing(system: LocalSystem) -> None:
    baseline = system.census()
    session = system.open("toy")
    request = session.start("answer_speech", ask("long"))
    system.run()
    system.close(session)
    request.credit("audio", 10**9)
    session.feed("mic", 0, np.zeros((3, 512), dtype=np.float32), rows=True)
    request.feed("word", 0, {"text": "one", "from": 0, "to": 3})
    system.run()
    assert system.census() == baseline


def test_random_disconnects_and_interrupts_leave_the_census_at_its_baseline(system: LocalSystem) -> None:
    random_ = random.Random(7)
    baseline = system.census()
    for _ in range(200):
        session = system.open("toy")
        session.start("listen", positions={"mic": 0})
        position = hear(session, tones(random_.choice(("hello", "count", "long", "again"))))
        requests = [
            session.start("answer_audio_speech", {"history": [], "tools": [], "audio": Slice("mic", 0, position)}),
            session.start("answer_speech", ask(random_.choice(("hello", "count", "fail", "long")))),
        ]
        for _ in range(random_.randrange(1, 4)):
            for _ in range(random_.randrange(0, 60)):
                system.turn()
            request = random_.choice(requests)
            match random_.randrange(3):
                case 0:
                    request.interrupt()
                case 1:
                    request.credit("audio", 10**6)
        if random_.random() < 0.5:
            position = hear(session, tones("stop"), position)
        system.client.close_session(session)
        for _ in range(random_.randrange(0, 5)):
            system.turn()
    assert system.census() == baseline
