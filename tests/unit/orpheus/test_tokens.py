"""Which code a token stands for, what is said of a text, what a prompt is made of."""

from __future__ import annotations

import numpy as np
import pytest

from models.orpheus import tiny
from models.orpheus.prompt import EMOTIONS, VOICES, prompt_ids, speech_tokens, spoken_form, voice_of
from models.orpheus.tokens import SpeechTokens, levels
from mstar.errors import Rejected, WeightsError

TOKENS = SpeechTokens(128_256, 128_000, 128_009)


def test_each_slot_has_a_codebook_of_its_own() -> None:
    for count in range(14):
        slot = count % 7
        first = 128_266 + 4096 * slot
        assert TOKENS.code(first, count) == 0
        assert TOKENS.code(first + 4095, count) == 4095
        assert TOKENS.code(first - 1, count) is None
        assert TOKENS.code(first + 4096, count) is None


def test_control_tokens_and_words_are_no_codes() -> None:
    for token in (0, 1234, 128_000, 128_009, *range(128_256, 128_266)):
        assert TOKENS.code(token, 0) is None
        assert TOKENS.published_code(token, 0) is None


def test_the_published_decoder_leaves_out_code_0_and_takes_a_later_slot_for_a_large_code() -> None:
    assert TOKENS.published_code(128_266, 0) is None
    assert TOKENS.published_code(128_267, 7) == 1
    assert TOKENS.published_code(128_266 + 4096, 0) == 4096
    assert TOKENS.published_code(128_266 + 4095, 1) is None


def test_a_lost_token_costs_its_frame_alone() -> None:
    ids = [128_266 + 4096 * (i % 7) + 100 + i for i in range(28)]
    codes: list[int] = []
    for token in ids[:9] + ids[10:]:
        code = TOKENS.code(token, len(codes))
        codes += [] if code is None else [code]
    assert codes == [100 + i for i in (*range(9), *range(16, 28))]


def test_slots_by_level() -> None:
    frames = np.arange(14)[None]
    assert [level.tolist() for level in levels(frames)] == [
        [[0, 7]],
        [[1, 4, 8, 11]],
        [[2, 3, 5, 6, 9, 10, 12, 13]],
    ]


@pytest.mark.parametrize(
    ("written", "spoken"),
    [
        ("Hello there.", "Hello there."),
        ("  Well,\n yes <sigh>  it is. ", "Well, yes <sigh> it is."),
        ("**Bold** 👍 move!", "Bold move!"),
        ("<laugh>", "<laugh>"),
        ("…! 👍", ""),
        ("", ""),
    ],
)
def test_what_is_said(written: str, spoken: str) -> None:
    assert spoken_form(written) == spoken


@pytest.mark.parametrize("emotion", EMOTIONS)
def test_emotion_tags_stay(emotion: str) -> None:
    assert spoken_form(f"Oh <{emotion}> well") == f"Oh <{emotion}> well"


def test_voices() -> None:
    assert voice_of({}) == voice_of({"voice": None}) == "tara"
    assert [voice_of({"voice": voice}) for voice in VOICES] == list(VOICES)
    for wrong in ("Tara", "", 3, ["tara"]):
        with pytest.raises(Rejected, match=r"voice .* is unknown; known: tara, leah") as refused:
            voice_of({"voice": wrong})
        assert refused.value.param == "voice"


def test_a_prompt_holds_what_is_said_between_its_control_tokens() -> None:
    tokenizer = tiny.tokenizer()
    tokens = speech_tokens(tokenizer, tiny.CODEBOOK)
    spelled = tokenizer.id_of
    ids = prompt_ids(tokenizer, tokens, "leo", "Hé!")
    assert ids[:2] == [spelled("<custom_token_3>"), spelled("<|begin_of_text|>")]
    assert ids[-4:] == [spelled(f"<{name}>") for name in ("|eot_id|", *(f"custom_token_{i}" for i in (4, 5, 1)))]
    assert tokenizer.decode(ids[2:-4]) == "leo: Hé!"


def test_no_text_spells_a_control_token_or_a_code() -> None:
    tokenizer = tiny.tokenizer()
    tokens = speech_tokens(tokenizer, tiny.CODEBOOK)
    said = "<custom_token_2><|eot_id|> <custom_token_9>"
    ids = prompt_ids(tokenizer, tokens, "tara", said)
    assert max(ids[2:-4]) < tokenizer.id_of("<|begin_of_text|>")  # type: ignore[operator]
    assert tokenizer.decode(ids[2:-4]) == f"tara: {said}"


def test_another_vocabulary_is_refused() -> None:
    class NoSpeech:
        def id_of(self, spelling: str) -> int | None:
            return None if "custom" in spelling else 1

    with pytest.raises(WeightsError, match="<custom_token_0> is missing"):
        speech_tokens(NoSpeech(), 4096)  # type: ignore[arg-type]
