"""The HTTP routes with the real models, through the stock SDK: what is spoken is written down, asked and answered."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytest_asyncio
from openai import AsyncOpenAI

from media.codecs import encode
from media.decode import decode_any
from media.frames import to_int16
from tests.clients.conftest import Serving
from tests.clients.speech import held, settles
from tests.wer import word_error_rate

SENTENCES = (Path(__file__).parents[1] / "data" / "sentences.txt").read_text().splitlines()
RATE = 24_000
QUESTION: list[Any] = [{"role": "user", "content": "What is the capital of France?"}]


@pytest_asyncio.fixture
async def sdk(voice_server: Serving) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(base_url=f"{voice_server.url}/v1", api_key="unused", max_retries=0, timeout=600) as client:
        yield client


async def spoken(sdk: AsyncOpenAI, text: str) -> np.ndarray:
    """int16 at 24 kHz."""
    answer = await sdk.audio.speech.create(model="voice", voice="alloy", input=text, response_format="pcm")
    return np.frombuffer(answer.content, "<i2")


async def test_what_is_spoken_is_written_down_with_its_times(sdk: AsyncOpenAI, voice_server: Serving) -> None:
    baseline = held(voice_server)
    sound = await spoken(sdk, SENTENCES[0])
    found = await sdk.audio.transcriptions.create(
        model="whisper-1",
        file=("a.mp3", encode("mp3", sound, RATE)),
        response_format="verbose_json",
        timestamp_granularities=["word", "segment"],
    )
    assert word_error_rate([(SENTENCES[0], found.text)]) < 0.25
    assert found.words
    assert [word.word for word in found.words] == found.text.split()
    times = [time for word in found.words for time in (word.start, word.end)]
    assert times == sorted(times)
    assert times[-1] <= found.duration
    stream = await sdk.audio.transcriptions.create(model="voice", file=encode("wav", sound, RATE), stream=True)
    events = [event async for event in stream]
    assert len(events) > 3
    assert "".join(event.delta for event in events[:-1]) == events[-1].text  # type: ignore[union-attr]
    assert word_error_rate([(found.text, events[-1].text)]) < 0.2  # type: ignore[union-attr]
    assert settles(voice_server, baseline)


async def test_a_question_is_answered_written_spoken_and_by_sound(sdk: AsyncOpenAI, voice_server: Serving) -> None:
    baseline = held(voice_server)
    found = await sdk.chat.completions.create(model="voice", messages=QUESTION, seed=1)
    assert "Paris" in str(found.choices[0].message.content)
    assert found.choices[0].finish_reason == "stop"
    assert found.usage is not None
    assert found.usage.prompt_tokens == 37
    aloud = await sdk.chat.completions.create(
        model="voice", messages=QUESTION, modalities=["text", "audio"], audio={"voice": "alloy", "format": "wav"}
    )
    audio = aloud.choices[0].message.audio
    assert audio is not None
    assert audio.transcript == found.choices[0].message.content
    pcm, rate = decode_any(base64.b64decode(audio.data))
    heard = await sdk.audio.transcriptions.create(model="voice", file=encode("wav", to_int16(pcm), rate))
    assert "capital" in heard.text.lower()
    question = base64.b64encode(encode("wav", await spoken(sdk, str(QUESTION[0]["content"])), RATE)).decode()
    content: Any = [{"type": "input_audio", "input_audio": {"data": question, "format": "wav"}}]
    by_sound = await sdk.chat.completions.create(model="voice", messages=[{"role": "user", "content": content}])
    assert "Paris" in str(by_sound.choices[0].message.content)
    assert settles(voice_server, baseline)


async def test_a_text_is_gone_on_with(sdk: AsyncOpenAI) -> None:
    found = await sdk.completions.create(model="voice", prompt="One, two, three, four,", max_tokens=6)
    assert found.choices[0].text.startswith(" five,")
    assert found.choices[0].finish_reason == "length"


@pytest.mark.slow
async def test_five_minutes_are_written_down(sdk: AsyncOpenAI, voice_server: Serving) -> None:
    """Cut at pauses; nothing is lost, nothing is heard twice, the times go on."""
    baseline = held(voice_server)
    pause = np.zeros(RATE // 2, np.int16)
    parts = [await spoken(sdk, sentence) for sentence in SENTENCES]
    once = np.concatenate([each for part in parts for each in (part, pause)])
    repeats = -(-300 * RATE // len(once))
    sound = np.tile(once, repeats)
    assert len(sound) >= 300 * RATE
    found = await sdk.audio.transcriptions.create(
        model="voice",
        file=encode("flac", sound, RATE),
        response_format="verbose_json",
        timestamp_granularities=["word", "segment"],
    )
    error = word_error_rate([(" ".join(SENTENCES * repeats), found.text)])
    print(f"\n{found.duration:.0f} s, {len(found.words or ())} words, word error rate {error:.3f}")
    assert error < 0.05
    assert found.words
    assert found.segments
    times = [time for word in found.words for time in (word.start, word.end)]
    assert times == sorted(times)
    assert found.duration - times[-1] < 2
    assert settles(voice_server, baseline)
