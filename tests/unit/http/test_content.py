"""Parts of messages: what they become, and which a model takes."""

from __future__ import annotations

import base64

import msgspec
import numpy as np
import pytest

from media.codecs import encode
from mstar.errors import Rejected
from server.http.content import MODALITY, AnyPart, Sound, Text, characters, parts_of

TONE = (8000 * np.sin(np.arange(4800) * 0.1)).astype(np.int16)


def parts(*given: dict[str, object]) -> list[AnyPart]:
    return msgspec.convert(list(given), list[AnyPart])


def sound() -> dict[str, object]:
    data = base64.b64encode(encode("flac", TONE, 24_000)).decode()
    return {"type": "input_audio", "input_audio": {"data": data, "format": "mp3"}}


def test_text_and_sound_in_their_order() -> None:
    given = parts({"type": "text", "text": "a"}, sound(), {"type": "refusal", "refusal": "no"})
    first, second, third = parts_of(given, "p", ("text", "audio"), 16_000, spoken=True)
    assert (first, third) == (Text("a"), Text("no"))
    assert isinstance(second, Sound)
    assert second.pcm.shape == (3200,)
    assert characters(given) == 1
    assert parts_of("hello", "p", (), 0, spoken=False) == [Text("hello")]
    assert parts_of(None, "p", (), 0, spoken=False) == []


@pytest.mark.parametrize(
    ("given", "takes", "spoken", "param"),
    [
        ({"type": "image_url", "image_url": {"url": "x"}}, ("text", "audio"), True, "p[0].type"),
        ({"type": "video_url", "video_url": {"url": "x"}}, ("text",), True, "p[0].type"),
        ({"type": "file", "file": {}}, ("text",), True, "p[0].type"),
        (sound(), ("text",), True, "p[0].type"),
        (sound(), ("text", "audio"), False, "p[0].type"),
        (
            {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
            ("text", "audio"),
            True,
            "p[0].input_audio.data",
        ),
    ],
)
def test_other_parts_are_refused_by_name(
    given: dict[str, object], takes: tuple[str, ...], spoken: bool, param: str
) -> None:
    with pytest.raises(Rejected) as why:
        parts_of(parts(given), "p", takes, 16_000, spoken=spoken)
    assert why.value.param == param


def test_every_kind_of_part_has_its_modality() -> None:
    assert set(MODALITY) == set(AnyPart.__args__)
