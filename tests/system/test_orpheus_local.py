"""Orpheus in one process: text in, sound out, through the whole runtime, step by step."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from models.orpheus import model as family_module
from models.orpheus import tiny
from models.orpheus.model import FAMILY, SPEECH
from models.orpheus.nodes.speaking import lm
from models.orpheus.nodes.writing import prompt
from models.orpheus.tokens import levels
from models.registry import family
from models.snac.codec import Snac
from models.snac.noise import SeededNoise
from models.speech.opening import fresh, open_sound
from mstar.client import Emission, Request, RequestEnded, Session
from mstar.engine.api import Completed, Firing
from mstar.engine.kv_engine import KVCacheEngine
from mstar.local import LocalSystem
from mstar.placement import Placement, read_placement
from mstar.submodule import Call, Many, Step
from mstar.tensors import Value
from tests.system.toy import end_of, sound_of, values

Events = list[Emission | RequestEnded]

DATA = Path(__file__).parents[1] / "data" / "orpheus"
TEXT = ("Good morn", "ing. How are", " you? <laugh>")
TINY: Mapping[str, Value] = {"tiny": True}
LIMIT = 45  # tokens of a sentence
ENDLESS = {"temperature": 0, "repetition_penalty": 1.0}  # the tiny model then never ends a sentence itself
SENTENCES = ("Good morning.", "How are you?", "<laugh>")


@pytest.fixture(scope="module")
def system() -> LocalSystem:
    return LocalSystem({"orpheus": FAMILY.graph({})}, settings={"orpheus": TINY})


@pytest.fixture
def session(system: LocalSystem) -> Iterator[Session]:
    """A session of its own; afterwards nothing of it is left."""
    baseline = system.census()
    opened = system.open("orpheus", trace=True)
    yield opened
    system.close(opened)
    assert system.census() == baseline


def say(session: Session, pieces: Sequence[str] = TEXT, task: str = SPEECH.say, **settings: object) -> Request:
    request = session.start(task, {}, {"max_tokens": LIMIT, "seed": 3, **settings})
    request.credit("audio", 10**9)
    for index, piece in enumerate(pieces):
        request.feed(SPEECH.written, index, piece)
    request.commit(SPEECH.written, len(pieces))
    return request


def offline_codes(model: Mapping[str, Value] = TINY, output: str = "code", **settings: Value) -> list[list[int]]:
    """The codes of each sentence, drawn by the language model alone on an engine of its own."""
    engine = KVCacheEngine({"LM": lm(model)})
    writer = prompt(model)
    given: dict[str, Value] = {"max_tokens": LIMIT, **settings}
    found = []
    for spoken in SENTENCES:
        call = Call("r", "speak", {"sentence": {"spoken": spoken, "start": 0, "end": 0}}, settings=given)
        [ids] = writer.forward(writer.collate([call]), Step([call]))["tokens"]
        inputs: dict[str, Any] = {"tokens": ids}
        codes: list[int] = []
        while True:
            firing = Firing("s", "r", "LM", "speak", inputs, settings=given, prompt="tokens" in inputs, seed=3)
            [done] = engine.step([firing])
            assert isinstance(done, Completed)
            if isinstance(code := done.outputs[output], Many):
                codes += list(code.items)  # type: ignore[arg-type]
            if done.stop:
                break
            inputs = {"token": done.outputs["token"]}
        found.append(codes)
    return found


def decoded(codes: Sequence[int], sentence: int) -> np.ndarray:
    """A sentence's codes in one piece."""
    whole = np.array([codes[: len(codes) // 7 * 7]])
    parts = [torch.from_numpy(level) for level in levels(whole)]
    sound: np.ndarray = tiny.codec().decode(parts, [SeededNoise(3, sentence)])[0].numpy()
    return sound


def test_the_stream_is_the_offline_decoding_sample_for_sample(system: LocalSystem, session: Session) -> None:
    request = say(session)
    system.run()
    events = request.drain()
    codes = offline_codes()
    assert end_of(events).status == "done"
    assert [usage["generated"] - (usage["reason"] == "stop") for usage in values(events, "usage")] == [*map(len, codes)]
    pcm = np.concatenate([decoded(each, sentence) for sentence, each in enumerate(codes)])
    wanted, _ = open_sound(fresh(), pcm, SPEECH.rate)
    sound = sound_of(events)
    assert sound.shape == wanted.shape
    np.testing.assert_array_equal(sound, wanted)
    assert np.abs(sound).max() > 0.1


@pytest.mark.parametrize("name", ["split", "prefill"])
def test_every_placement_says_the_same(system: LocalSystem, session: Session, name: str) -> None:
    texts = (TEXT, ("Why not? Because. Because of it.",), ("Well <sigh> no.",))
    placed = LocalSystem({"orpheus": FAMILY.graph({})}, settings={"orpheus": TINY}, placement=placement(name))
    baseline = placed.census()
    opened = [placed.open("orpheus") for _ in texts]
    requests = [say(each, text) for each, text in zip(opened, texts, strict=True)]
    placed.run()
    for text, request in zip(texts, requests, strict=True):
        alone = say(session, text)
        system.run()
        wanted, events = alone.drain(), request.drain()
        assert end_of(events).status == "done"
        assert [u["generated"] for u in values(events, "usage")] == [u["generated"] for u in values(wanted, "usage")]
        np.testing.assert_array_equal(sound_of(events), sound_of(wanted))
    for each in opened:
        placed.close(each)
    assert placed.census() == baseline


def placement(name: str) -> Placement:
    return read_placement(Path(family_module.__file__).with_name(f"placement-{name}.yaml"))


def test_pieces_of_any_size_are_said_as_the_whole(system: LocalSystem, session: Session) -> None:
    sounds = []
    for pieces in (TEXT, ["".join(TEXT)], list("".join(TEXT))):
        request = say(session, pieces)
        system.run()
        sounds.append(sound_of(request.drain()))
    np.testing.assert_array_equal(sounds[0], sounds[1])
    np.testing.assert_array_equal(sounds[0], sounds[2])


def test_windows_give_the_middle_of_each_sentence(system: LocalSystem, session: Session) -> None:
    request = say(session, task="say_windowed", noise=0)
    system.run()
    events = request.drain()
    frames = [len(codes) // 7 for codes in offline_codes()]
    assert end_of(events).status == "done"
    assert len(sound_of(events)) == sum(2048 * max(0, n - 3) for n in frames)
    assert {len(value["pcm"]) for value in values(events, "audio")} == {2048}


def test_sound_leaves_after_three_frames_and_while_the_sentence_is_written(
    system: LocalSystem, session: Session
) -> None:
    fired: list[str] = []
    session.on_trace = lambda traced: fired.extend(str(row[3]) for row in traced.records)
    request = say(session, max_tokens=100, **ENDLESS)  # type: ignore[arg-type]
    seen: Events = []

    def sounded() -> bool:
        seen.extend(request.drain())
        return bool(values(seen, "audio"))

    system.run(sounded)
    assert fired.count("LM") <= 3 * 7 + 3
    assert not values(seen, "usage")
    system.run()


def test_a_sentence_is_said_while_the_next_is_not_yet_written(system: LocalSystem, session: Session) -> None:
    request = session.start(SPEECH.say, {}, {"max_tokens": 40, "seed": 3})
    request.credit("audio", 10**9)
    request.feed(SPEECH.written, 0, "First of all, this. And")
    system.run()
    assert len(values(request.drain(), "usage")) == 1
    request.feed(SPEECH.written, 1, " then", cut=True)
    system.run()
    assert len(values(request.drain(), "usage")) == 1
    request.commit(SPEECH.written, 2)
    system.run()
    assert end_of(request.drain()).status == "done"


def test_cancelling_leaves_the_rest_unspoken(system: LocalSystem, session: Session) -> None:
    request = say(session, max_tokens=400, **ENDLESS)  # type: ignore[arg-type]
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
    assert end_of(request.drain()).status == "cancelled"


def test_a_listener_without_credit_stops_the_writing(system: LocalSystem, session: Session) -> None:
    request = session.start(SPEECH.say, {}, {"max_tokens": 1200, **ENDLESS})
    request.feed(SPEECH.written, 0, "On and on and on.")
    request.commit(SPEECH.written, 1)
    system.run()
    sound = sound_of(request.drain())
    assert request.ended is None
    assert 2 * SPEECH.rate <= len(sound) < 2 * SPEECH.rate + 2 * 2048
    request.interrupt()
    system.run()


def test_four_at_once_speak_as_each_alone(system: LocalSystem, session: Session) -> None:
    words = ("Yes.", "A longer sentence, this one. And another!", "Well <sigh> no.", "Why not? Because. Because of it.")

    def run(texts: Sequence[str]) -> tuple[list[np.ndarray], float]:
        batches: list[int] = []
        opened = [system.open("orpheus", trace=True) for _ in texts]
        for each in opened:
            each.on_trace = lambda traced: batches.extend(int(row[5]) for row in traced.records if row[3] == "LM")
        requests = [say(s, [text], max_tokens=40, voice="dan") for s, text in zip(opened, texts, strict=True)]
        system.run()
        sounds = [sound_of(request.drain()) for request in requests]
        for each in opened:
            system.close(each)
        return sounds, len(batches) / sum(1 / size for size in batches)

    together, mean = run(words)
    assert mean > 1.5
    for text, sound in zip(words, together, strict=True):
        [alone], _ = run([text])
        np.testing.assert_array_equal(sound, alone)


@pytest.mark.parametrize(
    ("name", "value", "node"),
    [("voice", "nobody", "prompt"), ("speed", 2.0, "prompt"), ("max_tokens", -1, "LM"), ("noise", -1, "codec")],
)
def test_a_wrong_setting_is_refused_by_its_name(
    system: LocalSystem, session: Session, name: str, value: object, node: str
) -> None:
    request = say(session, TEXT, SPEECH.say, **{name: value})
    system.run()
    events = request.drain()
    end = end_of(events)
    assert (end.status, end.code, end.node) == ("failed", "invalid_value", node)
    assert end.cause.startswith(name)
    assert not values(events, "audio")


def test_nothing_to_say_is_done_without_sound(system: LocalSystem, session: Session) -> None:
    for pieces in ([], ["  …👍 "]):
        request = say(session, pieces)
        system.run()
        events = request.drain()
        assert end_of(events).status == "done"
        assert len(events) == 1


def published(folder: Path) -> Mapping[str, Value]:
    """Settings for the tiny recorded checkpoint, with a vocabulary of the bytes that its ids leave room for."""
    for name in ("config.json", "model.safetensors"):
        shutil.copy(DATA / name, folder)
    special = {"<|begin_of_text|>": 4, "<|eot_id|>": 9, **{f"<custom_token_{i}>": 256 + i for i in range(10)}}
    free = (i for i in range(256) if i not in special.values())
    letters = dict(zip(sorted(pre_tokenizers.ByteLevel.alphabet()), free, strict=False))
    vocabulary = Tokenizer(models.BPE({**letters, **special}, []))
    vocabulary.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    vocabulary.decoder = decoders.ByteLevel()
    vocabulary.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in special])
    vocabulary.save(str(folder / "tokenizer.json"))
    return {"llm": str(folder), "snac": str(DATA / "snac"), "llm_kernel": "float32"}


def test_checkpoints_of_the_published_layout_are_served(tmp_path: Path) -> None:
    settings = published(tmp_path)
    system = LocalSystem({"orpheus": FAMILY.graph({})}, settings={"orpheus": settings})
    request = say(system.open("orpheus"), task="say_windowed", temperature=0, noise=0)
    system.run()
    sound = sound_of(request.drain())
    wanted = []
    snac = Snac.load(DATA / "snac")
    for codes in offline_codes(settings, "window_code", temperature=0):
        for stop in range(28, len(codes) + 1, 7):
            window = [torch.from_numpy(level) for level in levels(np.array([codes[stop - 28 : stop]]))]
            wanted.append(snac.decode(window)[0, 2048:4096].numpy())
    assert len(wanted) > 6
    np.testing.assert_allclose(sound, np.concatenate(wanted), atol=1e-4)


def test_the_card_names_what_the_graph_has() -> None:
    found = family("orpheus")
    assert found.card.speech is SPEECH
    assert found.card.conversation is None
    graph = found.graph({})
    assert SPEECH.say in {task.name for task in graph.tasks}
    assert SPEECH.written in {live.name for live in graph.live}
