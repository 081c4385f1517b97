"""An answer that was talked over holds the words that were heard, and so does the next prompt. Real weights."""

from __future__ import annotations

import re
from pathlib import Path

from models.llama.checkpoint import open_checkpoint
from models.llama.prompt import read_chat_template
from tests.clients.conftest import Serving
from tests.system.voice_client import RATE, Caller, Event, Pcm, calling, pcm16, said, silence, speech

NUMBERS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
COUNT = f"Please repeat after me: {', '.join(NUMBERS)}."
HEARD = {"transcription": {"model": "whisper-1"}}


def counted(text: str) -> list[str]:
    """Its words, lower case; numbers in figures are spelled."""
    words = re.findall(r"[a-z]+|\d+", text.lower())
    return [NUMBERS[int(word) - 1] if word.isdigit() and 0 < int(word) <= 12 else word for word in words]


async def kept(caller: Caller, item: str, heard_ms: int) -> str:
    """Tell how much of an item was heard → what is kept of it."""
    await caller.send("conversation.item.truncate", item_id=item, content_index=0, audio_end_ms=heard_ms)
    await caller.until("conversation.item.truncated")
    await caller.send("conversation.item.retrieve", item_id=item)
    content = (await caller.until("conversation.item.retrieved"))["item"]["content"]
    return str(content[0]["transcript"])


async def recognised(server: Serving, sound: Pcm) -> str:
    """What the recogniser hears in a sound."""
    detection = {"input": {**HEARD, "turn_detection": None}}
    async with calling(server, audio=detection) as caller:
        await caller.hear(sound, silence(0.5))
        await caller.send("input_audio_buffer.commit")
        done = await caller.until("conversation.item.input_audio_transcription.completed")
        return str(done["transcript"])


async def test_an_item_ends_with_the_word_that_ends_by_what_was_heard(voice_server: Serving) -> None:
    """What is kept at s is, give or take a word, what is recognised in the sound up to s."""
    async with calling(voice_server) as caller:
        await caller.write(COUNT)
        response = await caller.respond()
        assert counted(said(response)) == list(NUMBERS)
        sound = pcm16(caller.sound())
        item = response["output"][0]["id"]
        lengths = []
        for part in (0.9, 0.7, 0.5, 0.35, 0.2):  # what is cut can be cut again
            samples = round(part * len(sound))
            words = counted(await kept(caller, item, samples * 1000 // RATE))
            heard = [word for word in counted(await recognised(voice_server, sound[:samples])) if word in NUMBERS]
            in_order = [
                word for word, number in zip(heard, NUMBERS, strict=False) if word == number
            ]  # half words puzzle
            assert words == list(NUMBERS[: len(words)])
            assert abs(len(words) - len(in_order)) <= 1, (words, heard)
            lengths.append(len(words))
        assert sorted(set(lengths), reverse=True) == lengths


async def interrupted(caller: Caller, seconds: float) -> Event:
    """Talk over the answer once so much of it has come → the response as it was cancelled."""
    words = speech("Thank you, that is enough.")
    await caller.send("response.create")
    while len(caller.sound()) < 2 * seconds * RATE:
        await caller.until("response.output_audio.delta")
    await caller.hear(silence(0.1), words)
    await caller.until("input_audio_buffer.speech_started")
    response: Event = (await caller.until("response.done"))["response"]
    return response


async def test_the_next_prompt_holds_exactly_the_words_that_were_heard(voice_server: Serving, smollm2: Path) -> None:
    async with calling(voice_server, audio={"input": HEARD}, max_output_tokens=40) as caller:
        await caller.write(COUNT)
        response = await interrupted(caller, 2.5)
        assert (response["status"], response["status_details"]["reason"]) == ("cancelled", "turn_detected")
        cut_off = len(caller.events)
        words = await kept(caller, response["output"][0]["id"], 2000)
        assert 3 <= len(counted(words)) < len(NUMBERS)
        assert counted(words) == list(NUMBERS[: len(counted(words))])
        await caller.hear(silence(1.2))
        answer = (await caller.until("response.done"))["response"]
        heard = caller.transcript()
        assert counted(heard)[-1] == "enough"  # the interrupter's words, from the first on
        assert counted(heard)[0] == "thank"
        late = [e for e in caller.events[cut_off:] if e.get("response_id") == response["id"]]
        assert late == []
        sound = caller.sound(answer["id"])
    history = [("user", COUNT), ("assistant", words), ("user", heard)]
    template = read_chat_template(open_checkpoint(smollm2))
    prompt = template.ids([{"role": role, "content": text} for role, text in history])
    assert answer["usage"]["input_tokens"] == len(prompt)
    async with calling(voice_server, max_output_tokens=40) as fresh:
        for role, text in history:
            await fresh.write(text, role)
        again = await fresh.respond()
        assert again["usage"]["input_tokens"] == len(prompt)
        assert said(again) == said(answer)
        assert fresh.sound() == sound
