"""Sound files of clients → samples. The bytes are hostile until decoded."""

from __future__ import annotations

from collections.abc import Iterator
from io import BytesIO

import av
import numpy as np
import soundfile
from av.audio.frame import AudioFrame
from av.container import InputContainer

from media.frames import PcmF
from media.resample import Resampler

MAX_BYTES = 25 * 1024 * 1024
MAX_SECONDS = 30 * 60.0
MAX_SAMPLES = 30 * 60 * 48_000
"""Whatever the rate: bounds the memory that a small file can blow up to."""
BLOCK = 1 << 16
"""Samples, over all channels, of a wav or flac file that are read at once."""


def container_format(blob: bytes) -> str:
    """What these bytes are by their signature, in FFmpeg's words; ValueError if it is none of the formats taken.

    Naming the demuxer keeps FFmpeg from trying the ones that open further files or addresses (playlists).
    """
    match blob[:4]:
        case b"RIFF" | b"RF64" if blob[8:12] == b"WAVE":
            return "wav"
        case b"fLaC":
            return "flac"
        case b"OggS":
            return "ogg"
        case b"\x1a\x45\xdf\xa3":
            return "matroska"
    if blob[4:8] == b"ftyp":
        return "mov"
    if blob[:3] == b"ID3":
        return "mp3"
    if len(blob) > 1 and blob[0] == 0xFF and blob[1] & 0xE0 == 0xE0:  # frame sync; layer bits 0 = ADTS
        return "aac" if blob[1] & 0x06 == 0 else "mp3"
    raise ValueError("audio is of no known format (wav, flac, mp3, ogg, aac, webm, mp4)")


def decode_any(
    blob: bytes, *, max_bytes: int = MAX_BYTES, max_seconds: float = MAX_SECONDS, rate: int | None = None
) -> tuple[PcmF, int]:
    """A wav, flac, mp3, ogg, aac, webm or mp4 file → (float32 mono [n], its rate in Hz); channels are averaged.

    With `rate` the sound is resampled to it as it is decoded, so that no more is held than that.
    ValueError (one sentence) if it is too large, too long, of another format, damaged, or has no sound.
    """
    if len(blob) > max_bytes:
        raise ValueError(f"audio must be at most {max_bytes} bytes, got {len(blob)}")
    name = container_format(blob)
    if name == "wav" or (name == "flac" and _states_length(blob)):
        return _read(blob, name, max_seconds, rate)
    try:
        with av.open(
            BytesIO(blob), "r", format=name, options={"protocol_whitelist": ""}, metadata_errors="ignore"
        ) as container:
            return _decoded(container, max_seconds, rate)
    except av.FFmpegError as error:
        raise ValueError(f"audio could not be decoded as {name}: {error.strerror}") from error


def _states_length(flac: bytes) -> bool:
    """Whether STREAMINFO (RFC 9639, section 8.2) counts the samples; libsndfile fails at the end of a file without."""
    return bool(int.from_bytes(flac[21:26]) & 0xFFFFFFFFF)


def _read(blob: bytes, name: str, max_seconds: float, rate: int | None) -> tuple[PcmF, int]:
    """Uncompressed and lossless files, by libsndfile: in blocks, since a header may promise more than there is."""
    try:
        with soundfile.SoundFile(BytesIO(blob)) as file:
            sound = _Sound(file.samplerate, max_seconds, rate)
            while True:
                block = file.read(max(1, BLOCK // file.channels), dtype="float32", always_2d=True)
                if not len(block):
                    return sound.whole()
                sound.add(block.mean(axis=1, dtype=np.float32))
    except soundfile.SoundFileRuntimeError as error:
        raise ValueError(f"audio could not be decoded as {name}: {error}") from error


def _decoded(container: InputContainer, max_seconds: float, rate: int | None) -> tuple[PcmF, int]:
    if not container.streams.audio:
        raise ValueError("audio file has no sound stream")
    sound: _Sound | None = None
    for frame in _planar(container):
        sound = sound or _Sound(frame.sample_rate, max_seconds, rate)
        sound.add(frame.to_ndarray().mean(axis=0, dtype=np.float32))
    if sound is None:
        raise ValueError("audio file holds no samples")
    return sound.whole()


class _Sound:
    """Samples as they come, up to the limits; resampled to `wanted`. ValueError for a rate that can not be."""

    def __init__(self, rate: int, max_seconds: float, wanted: int | None) -> None:
        self.rate = rate
        self._resampler = None if wanted in (None, rate) else Resampler(rate, wanted or rate)
        self._limit = min(max_seconds * rate, MAX_SAMPLES)
        self._samples = 0
        self._parts: list[PcmF] = []

    def add(self, pcm: PcmF) -> None:
        self._samples += pcm.size
        if self._samples > self._limit:
            raise ValueError(f"audio must be at most {self._limit / self.rate:g} seconds long")
        if not np.isfinite(pcm).all():
            raise ValueError("audio file holds samples that are no numbers")
        self._parts.append(pcm if self._resampler is None else self._resampler.feed(pcm))

    def whole(self) -> tuple[PcmF, int]:
        if not self._samples:
            raise ValueError("audio file holds no samples")
        if self._resampler is None:
            return np.concatenate(self._parts), self.rate
        return np.concatenate((*self._parts, self._resampler.flush())), self._resampler.target_rate


def _planar(container: InputContainer) -> Iterator[AudioFrame]:
    """The frames as float32 planes [channels, n] of one rate and layout."""
    converter = av.AudioResampler(format="fltp")
    for frame in container.decode(audio=0):
        frame.pts = None
        try:
            yield from converter.resample(frame)
        except ValueError as error:
            raise ValueError("audio changes its rate or channels midway") from error
    yield from converter.resample(None)
