from __future__ import annotations

import pytest

from models.registry import Card, Conversation, Speech
from mstar.errors import Rejected
from server.speech.offers import OPENAI_VOICES, asked_aligned, settings_of, speaking, voice_of

FIRST = Speech(24_000, ("tara", "leo"), aligned=False, speeds=(1.0, 1.0))
SECOND = Speech(22_050, ("joe",))
CARDS = {
    "talk": Card("talk", Conversation()),
    "orpheus": Card("orpheus", speech=FIRST),
    "voice": Card("voice", speech=SECOND),
}


@pytest.mark.parametrize("model", [None, "", "tts-1-hd", "gpt-4o-mini-tts", "eleven_v3", "sonic-3", "aura-2-thalia-en"])
def test_vendors_models_mean_the_first_family_that_speaks(model: str | None) -> None:
    assert speaking(CARDS, model).family == "orpheus"


def test_a_served_family_is_found_by_its_name_and_others_are_not() -> None:
    assert speaking(CARDS, "voice").offer == SECOND
    for model in ("talk", "none"):
        with pytest.raises(Rejected) as refused:
            speaking(CARDS, model, "model_id")
        assert (refused.value.code, refused.value.param) == ("model_not_found", "model_id")


def test_openai_voices_stand_for_the_familys_own_in_turn() -> None:
    assert {voice_of(FIRST, name) for name in OPENAI_VOICES} == {"tara", "leo"}
    assert voice_of(FIRST, "leo") == "leo"
    assert voice_of(FIRST, None) == "tara"


def test_settings_are_checked_under_the_protocols_own_names() -> None:
    assert settings_of(SECOND, voice="alloy", speed=2.0, seed=3) == {"voice": "joe", "speed": 2.0, "seed": 3}
    for given, param in (({"voice": "?"}, "v"), ({"speed": 5.0}, "s"), ({"speed": float("nan")}, "s")):
        with pytest.raises(Rejected) as refused:
            settings_of(SECOND, **given, voice_param="v", speed_param="s")
        assert refused.value.param == param
    with pytest.raises(Rejected):
        asked_aligned(FIRST, "add_timestamps")
