"""Sound files of clients → samples. The bytes are hostile until decoded."""

from __future__ import annotations

from collections.abc import Iterator
from io import BytesIO

import av
import numpy as np
from av.audio.frame import AudioFrame
from av.container import InputContainer

from media.frames import PcmF

MAX_BYTES = 25 * 1024 * 1024
MAX_SECONDS = 30 * 60.0
MAX_SAMPLES = 30 * 60 * 48_000
"""Whatever the rate: bounds the memory that a small file can blow up to."""


def container_format(blob: bytes) -> str:
    """The demuxer for these bytes by their signature; ValueError if it is none of the formats taken.

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


def decode_any(blob: bytes, *, max_bytes: int = MAX_BYTES, max_seconds: float = MAX_SECONDS) -> tuple[PcmF, int]:
    """A wav, flac, mp3, ogg, aac, webm or mp4 file → (float32 mono [n], its rate in Hz); channels are averaged.

    ValueError (one sentence) if it is too large, too long, of another format, damaged, or has no sound.
    """
    if len(blob) > max_bytes:
        raise ValueError(f"audio must be at most {max_bytes} bytes, got {len(blob)}")
    name = container_format(blob)
    try:
        with av.open(
            BytesIO(blob), "r", format=name, options={"protocol_whitelist": ""}, metadata_errors="ignore"
        ) as container:
            return _decoded(container, max_seconds)
    except av.FFmpegError as error:
        raise ValueError(f"audio could not be decoded as {name}: {error.strerror}") from error


def _decoded(container: InputContainer, max_seconds: float) -> tuple[PcmF, int]:
    if not container.streams.audio:
        raise ValueError("audio file has no sound stream")
    rate = 0
    parts: list[PcmF] = []
    samples = 0
    for frame in _planar(container):
        rate = frame.sample_rate
        samples += frame.samples
        limit = min(max_seconds * rate, MAX_SAMPLES)
        if samples > limit:
            raise ValueError(f"audio must be at most {limit / rate:g} seconds long")
        parts.append(frame.to_ndarray().mean(axis=0, dtype=np.float32))
    if not samples:
        raise ValueError("audio file holds no samples")
    return np.concatenate(parts), rate


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
