import io
import itertools

import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st

from media.codecs import CONTENT_TYPES, FORMATS, Format, encode, encoder, wav_header
from media.decode import decode_any
from media.frames import Pcm16, PcmF, from_bytes, to_float
from media.g711 import alaw_decode, mulaw_decode

SPEECH_RATE = 24000
NOTHING: Pcm16 = np.zeros(0, np.int16)
COMPRESSED: list[Format] = ["flac", "mp3", "opus", "aac"]


def chirp(rate: int, seconds: float) -> Pcm16:
    """A tone that rises from 200 to 2000 Hz, so that a shift in time shows."""
    t = np.arange(int(rate * seconds)) / rate
    return (9000 * np.sin(2 * np.pi * (200 * t + 900 / seconds * t * t))).astype(np.int16)


def streamed(form: Format, pcm: Pcm16, rate: int, chunk: int) -> list[bytes]:
    stream = encoder(form, rate)
    return [stream.feed(pcm[i : i + chunk]) for i in range(0, pcm.size, chunk)] + [stream.finish()]


def best_match(decoded: PcmF, original: PcmF) -> float:
    """Normalised correlation of the original's middle half at the shift that fits best (codecs shift by priming)."""
    middle = original[original.size // 4 : -original.size // 4]
    at = int(np.argmax(np.correlate(decoded, middle, "valid")))
    found = decoded[at : at + middle.size]
    return float(np.dot(found, middle) / (np.linalg.norm(found) * np.linalg.norm(middle)))


def test_every_format_has_a_content_type() -> None:
    assert set(CONTENT_TYPES) == set(FORMATS)


@pytest.mark.parametrize("rate", [8000, 22050, 24000, 48000])
@pytest.mark.parametrize("form", COMPRESSED)
def test_streamed_sound_decodes_to_what_went_in(form: Format, rate: int) -> None:
    pcm = chirp(rate, 0.6)
    decoded, decoded_rate = decode_any(b"".join(streamed(form, pcm, rate, 333)))
    assert decoded_rate == (48000 if form == "opus" else rate)  # opus files are always played at 48 kHz
    seconds = decoded.size / decoded_rate
    assert 0.6 - 1e-3 <= seconds <= 0.6 + 2400 / rate
    original = chirp(decoded_rate, 0.6)
    assert best_match(decoded, to_float(original)) > 0.98


def test_flac_is_exact() -> None:
    pcm = np.random.default_rng(0).integers(-32768, 32768, 10000).astype(np.int16)
    blob = encode("flac", pcm, SPEECH_RATE)
    read, rate = soundfile.read(io.BytesIO(blob), dtype="int16")
    assert rate == SPEECH_RATE
    assert np.array_equal(read, pcm)
    decoded, _ = decode_any(blob)
    assert np.array_equal(decoded, to_float(pcm))


@pytest.mark.parametrize("form", COMPRESSED)
def test_bytes_come_while_the_sound_goes_in(form: Format) -> None:
    parts = streamed(form, chirp(SPEECH_RATE, 2.0), SPEECH_RATE, 480)
    before_the_end = sum(map(len, parts[:-1]))
    assert before_the_end > 0.75 * sum(map(len, parts))
    assert sum(1 for part in parts if part) >= 8


@given(st.lists(st.integers(1, 3000), min_size=1, max_size=8))
@settings(max_examples=15, deadline=None)
def test_the_cut_of_the_input_does_not_matter(sizes: list[int]) -> None:
    pcm = chirp(SPEECH_RATE, 0.4)
    whole = encode("mp3", pcm, SPEECH_RATE)
    stream = encoder("mp3", SPEECH_RATE)
    edges = [0, *[e for e in np.cumsum(sizes).tolist() if e < pcm.size], pcm.size]
    parts = [stream.feed(pcm[a:b]) for a, b in itertools.pairwise(edges)]
    assert b"".join(parts) + stream.finish() == whole


def test_raw_formats_are_immediate_and_exact() -> None:
    pcm = chirp(8000, 0.1)
    assert np.array_equal(from_bytes(encoder("pcm", 8000).feed(pcm)), pcm)
    for form, decode in (("pcmu", mulaw_decode), ("pcma", alaw_decode)):
        raw = encoder(form, 8000).feed(pcm)  # type: ignore[arg-type]
        assert len(raw) == pcm.size
        assert np.abs(decode(raw).astype(int) - pcm).max() <= 256


def test_whole_wav_is_read_by_others() -> None:
    pcm = chirp(SPEECH_RATE, 0.1)
    read, rate = soundfile.read(io.BytesIO(encode("wav", pcm, SPEECH_RATE)), dtype="int16")
    assert rate == SPEECH_RATE
    assert np.array_equal(read, pcm)


def test_streamed_wav_states_an_unknown_length_and_is_readable() -> None:
    pcm = chirp(SPEECH_RATE, 0.3)
    blob = b"".join(streamed("wav", pcm, SPEECH_RATE, 100))
    assert blob[:44] == wav_header(SPEECH_RATE)
    assert blob[4:8] == blob[40:44] == b"\xff\xff\xff\xff"
    decoded, rate = decode_any(blob)
    assert rate == SPEECH_RATE
    assert np.array_equal(decoded, to_float(pcm))


def test_no_sound_at_all_still_makes_a_file() -> None:
    assert encoder("wav", SPEECH_RATE).finish() == wav_header(SPEECH_RATE)
    assert encoder("flac", SPEECH_RATE).finish()[:4] == b"fLaC"
    assert encode("flac", NOTHING, SPEECH_RATE)[:4] == b"fLaC"
    assert soundfile.info(io.BytesIO(encode("wav", NOTHING, SPEECH_RATE))).frames == 0


def test_wrong_wishes_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match="rate of pcmu must be 8000 Hz, not 24000"):
        encoder("pcmu", 24000)
    with pytest.raises(ValueError, match=r"format must be one of .*, not 'midi'"):
        encoder("midi", 24000)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="rate of flac can not be 700000 Hz"):
        encode("flac", chirp(8000, 0.1), 700_000)
