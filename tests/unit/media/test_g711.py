from typing import Literal

import av
import numpy as np
import pytest
from av.audio.codeccontext import AudioCodecContext
from av.audio.frame import AudioFrame

from media import g711
from media.frames import Pcm16

EVERY_VALUE = np.arange(-32768, 32768).astype(np.int16)
EVERY_CODE = bytes(range(256))
LAWS = [
    ("pcm_mulaw", g711.mulaw_encode, g711.mulaw_decode),
    ("pcm_alaw", g711.alaw_encode, g711.alaw_decode),
]


def context(name: str, mode: Literal["r", "w"]) -> AudioCodecContext:
    made = av.CodecContext.create(name, mode)
    assert isinstance(made, AudioCodecContext)
    made.sample_rate, made.layout, made.format = 8000, "mono", "s16"
    return made


def ffmpeg_decode(name: str, codes: bytes) -> Pcm16:
    frames = context(name, "r").decode(av.Packet(codes))
    return np.concatenate([frame.to_ndarray()[0] for frame in frames]).astype(np.int16)


def ffmpeg_encode(name: str, pcm: Pcm16) -> bytes:
    frame = AudioFrame.from_ndarray(pcm[None, :], format="s16", layout="mono")
    frame.sample_rate = 8000
    return b"".join(bytes(packet) for packet in context(name, "w").encode(frame))


def decision_values(law: str) -> list[int]:
    """Upper ends of the 128 positive steps on the int16 scale, from the tables 1a and 2a of the recommendation."""
    if law == "pcm_mulaw":  # 14 bit scale: 16 steps of 2 << segment, the first of them half as wide
        ends = [1]
        for segment in range(8):
            for _ in range(15 if segment == 0 else 16):
                ends.append(ends[-1] + (2 << segment))
        return [4 * end for end in ends]
    ends = [0]  # 13 bit scale: 32 steps of 2 (in units of 1/4096), then 16 steps of twice the width a segment
    for segment in range(8):
        for _ in range(16):
            ends.append(ends[-1] + (2 << max(segment - 1, 0)))
    return [8 * end for end in ends[1:]]


@pytest.mark.parametrize(("name", "encode", "decode"), LAWS)
def test_decoding_is_ffmpegs(name: str, encode: object, decode: object) -> None:
    assert callable(decode)
    assert np.array_equal(decode(EVERY_CODE), ffmpeg_decode(name, EVERY_CODE))


def test_every_code_survives() -> None:
    assert g711.alaw_encode(g711.alaw_decode(EVERY_CODE)) == EVERY_CODE
    expected = bytearray(EVERY_CODE)
    expected[0x7F] = 0xFF  # negative zero
    assert g711.mulaw_encode(g711.mulaw_decode(EVERY_CODE)) == bytes(expected)


@pytest.mark.parametrize(("name", "inverted"), [("pcm_mulaw", 0xFF), ("pcm_alaw", 0xD5)])
def test_encoding_follows_the_decision_values(name: str, inverted: int) -> None:
    encode = g711.mulaw_encode if name == "pcm_mulaw" else g711.alaw_encode
    ends = np.array(decision_values(name))
    assert len(ends) == 128
    positive = np.arange(32768)
    step = np.minimum(np.searchsorted(ends, positive, side="right"), 127)  # number of the step, counted from zero
    assert np.array_equal(
        np.frombuffer(encode(positive.astype(np.int16)), np.uint8), (step ^ inverted).astype(np.uint8)
    )
    negative = np.frombuffer(encode((-1 - positive).astype(np.int16)), np.uint8)
    assert np.array_equal(negative, (step ^ inverted ^ 0x80).astype(np.uint8))


@pytest.mark.parametrize(("name", "encode", "decode"), LAWS)
def test_ffmpegs_encoder_differs_only_at_step_borders(name: str, encode: object, decode: object) -> None:
    assert callable(encode)
    ours = np.frombuffer(encode(EVERY_VALUE), np.uint8).astype(int)
    theirs = np.frombuffer(ffmpeg_encode(name, EVERY_VALUE), np.uint8).astype(int)
    different = ours != theirs
    assert different.mean() < 0.02
    undo = 0xFF if name == "pcm_mulaw" else 0x55
    assert np.abs((ours ^ undo) - (theirs ^ undo))[different].max() == 1  # the neighbouring step


def test_a_wrong_type_is_refused() -> None:
    with pytest.raises(ValueError, match="pcm must be int16"):
        g711.mulaw_encode(np.zeros(3, dtype=np.float32))
