import io
from pathlib import Path

import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st

from media import decode
from media.codecs import Format, encode, encoder
from media.decode import container_format, decode_any
from media.frames import to_float
from media.resample import resample

TONE = (8000 * np.sin(np.arange(4800) * 0.1)).astype(np.int16)
FILES: dict[Format, bytes] = {form: encode(form, TONE, 24000) for form in ("wav", "flac", "mp3", "opus", "aac")}


def wav_of(pcm: object, rate: int, subtype: str, form: str = "WAV") -> bytes:
    out = io.BytesIO()
    soundfile.write(out, pcm, rate, format=form, subtype=subtype)
    return out.getvalue()


@pytest.mark.parametrize(
    ("form", "name"), [("wav", "wav"), ("flac", "flac"), ("mp3", "mp3"), ("opus", "ogg"), ("aac", "aac")]
)
def test_formats_are_known_by_their_signature(form: Format, name: str) -> None:
    assert container_format(FILES[form]) == name


@pytest.mark.parametrize("subtype", ["PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE", "PCM_U8", "ULAW", "ALAW"])
def test_wav_of_every_sample_type(subtype: str) -> None:
    decoded, rate = decode_any(wav_of(to_float(TONE), 16000, subtype))
    assert rate == 16000
    assert decoded.size == TONE.size
    assert np.abs(decoded - to_float(TONE)).max() < {"PCM_U8": 0.01, "ULAW": 0.01, "ALAW": 0.01}.get(subtype, 1e-6)


@pytest.mark.parametrize("subtype", ["PCM_S8", "PCM_16", "PCM_24"])
def test_flac_of_every_sample_type(subtype: str) -> None:
    decoded, rate = decode_any(wav_of(to_float(TONE), 8000, subtype, "FLAC"))
    assert rate == 8000
    assert decoded.size == TONE.size
    assert np.abs(decoded - to_float(TONE)).max() < (0.01 if subtype == "PCM_S8" else 1e-6)


@pytest.mark.parametrize("form", ["WAV", "FLAC"])
@pytest.mark.parametrize("channels", [2, 6])
def test_many_channels_over_many_blocks(form: str, channels: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode, "BLOCK", 1000)
    sound = np.random.default_rng(0).uniform(-0.9, 0.9, (TONE.size, channels))
    decoded, rate = decode_any(wav_of(sound, 8000, "PCM_24", form))
    assert rate == 8000
    assert np.allclose(decoded, sound.mean(axis=1), atol=1e-6)


def test_wav_with_a_header_of_unknown_length_and_with_extensible_format() -> None:
    streamed = encoder("wav", 8000)
    decoded, rate = decode_any(streamed.feed(TONE) + streamed.finish())
    assert rate == 8000
    assert np.array_equal(decoded, to_float(TONE))
    assert np.array_equal(decode_any(wav_of(TONE, 8000, "PCM_16", "WAVEX"))[0], to_float(TONE))


def test_samples_that_are_no_numbers_are_refused() -> None:
    for wrong in (np.nan, np.inf):
        sound = to_float(TONE)
        sound[100] = wrong
        with pytest.raises(ValueError, match="samples that are no numbers"):
            decode_any(wav_of(sound, 24000, "FLOAT"))


def test_channels_are_averaged() -> None:
    stereo = np.stack((TONE, np.zeros_like(TONE)), axis=1)
    decoded, _ = decode_any(wav_of(stereo, 44100, "PCM_16"))
    assert np.allclose(decoded, to_float(TONE) / 2, atol=1e-6)


def test_vorbis_and_tagged_mp3_are_taken() -> None:
    decoded, rate = decode_any(wav_of(TONE, 24000, "VORBIS", "OGG"))
    assert rate == 24000
    assert TONE.size <= decoded.size < TONE.size + 1024
    tag = b"ID3\x04\x00\x00" + bytes([0, 0, 0, 10]) + bytes(10)
    assert decode_any(tag + FILES["mp3"])[0].size >= TONE.size


def test_what_is_too_large_or_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="at most 100 bytes, got"):
        decode_any(FILES["wav"], max_bytes=100)
    for blob in FILES.values():
        with pytest.raises(ValueError, match=r"at most 0\.1 seconds long"):
            decode_any(blob, max_seconds=0.1)
    monkeypatch.setattr(decode, "MAX_SAMPLES", 2400)
    with pytest.raises(ValueError, match=r"at most 0\.1 seconds long"):
        decode_any(FILES["wav"])


@pytest.mark.parametrize("blob", [b"", b"\xff", b"hello", bytes(100)])
def test_unknown_bytes_are_refused(blob: bytes) -> None:
    with pytest.raises(ValueError, match="no known format"):
        decode_any(blob)


def test_a_playlist_does_not_open_other_files(tmp_path: Path) -> None:
    secret = tmp_path / "secret.wav"
    secret.write_bytes(FILES["wav"])
    playlist = f"#EXTM3U\n#EXTINF:1,\nfile://{secret}\n".encode()
    concat = f"ffconcat version 1.0\nfile '{secret}'\n".encode()
    for blob in (playlist, concat, b"ID3" + playlist, b"RIFF\0\0\0\0WAVE" + concat):
        with pytest.raises(ValueError, match="audio"):
            decode_any(blob)


def test_a_file_without_samples_is_refused() -> None:
    with pytest.raises(ValueError, match="audio"):
        decode_any(encode("wav", TONE[:0], 24000))


@given(st.sampled_from(sorted(FILES)), st.data())
@settings(max_examples=120, deadline=None)
def test_damaged_files_give_sound_or_a_value_error(form: Format, data: st.DataObject) -> None:
    blob = bytearray(FILES[form])
    for _ in range(data.draw(st.integers(1, 8))):
        blob[data.draw(st.integers(0, len(blob) - 1))] = data.draw(st.integers(0, 255))
    del blob[data.draw(st.integers(1, len(blob))) :]
    try:
        decoded, rate = decode_any(bytes(blob), max_seconds=60)
    except ValueError:
        return
    assert decoded.ndim == 1
    assert decoded.dtype == np.float32
    assert rate > 0


def test_a_file_is_resampled_as_it_is_read() -> None:
    whole, rate = decode_any(wav_of(TONE, 24000, "PCM_16"))
    decoded, told = decode_any(wav_of(TONE, 24000, "PCM_16"), rate=16000)
    assert (rate, told) == (24000, 16000)
    assert np.array_equal(decoded, resample(whole, 24000, 16000))
    assert decode_any(wav_of(TONE, 16000, "PCM_16"), rate=16000)[0].size == TONE.size
    with pytest.raises(ValueError, match="source_rate"):
        decode_any(wav_of(TONE, 2000, "PCM_16"), rate=16000)
