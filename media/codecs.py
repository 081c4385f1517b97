"""Streaming encoders: int16 sound of one channel in, bytes of a wire or file format out as early as they can be."""

from __future__ import annotations

import struct
from collections.abc import Callable
from fractions import Fraction
from io import BytesIO
from typing import Literal, Protocol, get_args

import av
import numpy as np
import soundfile
from av.audio.frame import AudioFrame
from av.audio.stream import AudioStream

from media.framer import Framer
from media.frames import Pcm16, fade_out, to_bytes, to_float, to_int16
from media.g711 import alaw_encode, mulaw_encode
from media.resample import Resampler

Format = Literal["pcm", "pcmu", "pcma", "wav", "flac", "mp3", "opus", "aac"]
FORMATS: tuple[Format, ...] = get_args(Format)

CONTENT_TYPES: dict[Format, str] = {
    "pcm": "audio/pcm",
    "pcmu": "audio/pcmu",
    "pcma": "audio/pcma",
    "wav": "audio/wav",
    "flac": "audio/flac",
    "mp3": "audio/mpeg",
    "opus": "audio/ogg",
    "aac": "audio/aac",
}
UNKNOWN_LENGTH = 0xFFFFFFFF
BIT_RATE = 64_000
"""Of mp3, opus and aac where the caller names none: speech of one channel."""


class Encoder(Protocol):
    """One sound on its way out: `feed` any number of times, `finish` once."""

    def feed(self, pcm: Pcm16) -> bytes:
        """int16 [n] at the encoder's rate → the bytes that are ready (often none)."""
        ...

    def finish(self) -> bytes:
        """The remaining bytes; the encoder is used up."""
        ...

    def cut(self, then: Pcm16) -> bytes:
        """The remaining bytes of a sound that is cut off; the encoder is used up.

        What was fed and is in no frame yet, and `then` behind it, falls to silence within `len(then)` samples.
        """
        ...


def wav_header(rate: int) -> bytes:
    """44 bytes before 16 bit mono PCM whose length is not known yet (0xFFFFFFFF, as streamed files have it)."""
    form = struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, 1, rate, 2 * rate, 2, 16)
    return struct.pack("<4sI4s", b"RIFF", UNKNOWN_LENGTH, b"WAVE") + form + struct.pack("<4sI", b"data", UNKNOWN_LENGTH)


class _Raw:
    """Formats without state: every sample becomes bytes at once, after an optional header."""

    def __init__(self, encode: Callable[[Pcm16], bytes], header: bytes = b"") -> None:
        self._encode = encode
        self._header = header

    def feed(self, pcm: Pcm16) -> bytes:
        header, self._header = self._header, b""
        return header + self._encode(pcm)

    def finish(self) -> bytes:
        header, self._header = self._header, b""
        return header

    def cut(self, then: Pcm16) -> bytes:
        return self._encode(fade_out(then, then.size))


class _Sink:
    """Where the muxer writes; it can not seek, so the muxer never goes back to patch a header."""

    def __init__(self) -> None:
        self._written = bytearray()

    def write(self, raw: bytes) -> int:
        self._written += raw
        return len(raw)

    def drain(self) -> bytes:
        out = bytes(self._written)
        self._written.clear()
        return out


_MP3_RATES = (8000, 11025, 12000, 16000, 22050, 24000, 32000, 44100, 48000)
_AAC_RATES = (*_MP3_RATES, 64000, 88200, 96000)
_OPUS_RATES = (8000, 12000, 16000, 24000, 48000)


class _Muxed:
    """A codec of FFmpeg in its container; a rate that the codec does not know is resampled to the next that it does."""

    def __init__(self, form: Format, rate: int, bit_rate: int | None, sink: _Sink) -> None:
        container, codec, sample_format, rates, options = {
            "flac": ("flac", "flac", "s16", (rate,), {}),
            "mp3": ("mp3", "libmp3lame", "s16p", _MP3_RATES, {"write_xing": "0", "id3v2_version": "0"}),
            "aac": ("adts", "aac", "fltp", _AAC_RATES, {}),
            "opus": ("ogg", "libopus", "s16", _OPUS_RATES, {"page_duration": "100000"}),  # µs
        }[form]
        self._rate = min((r for r in rates if r >= rate), default=max(rates))
        self._sample_format = sample_format
        self._resampler = None if self._rate == rate else Resampler(rate, self._rate)
        self._sink = sink
        self._container = av.open(
            self._sink, "w", format=container, container_options={**options, "flush_packets": "1"}
        )
        stream = self._container.add_stream(codec, rate=self._rate, layout="mono", format=sample_format)
        assert isinstance(stream, AudioStream)
        self._stream = stream
        if form != "flac":
            self._stream.bit_rate = bit_rate or BIT_RATE
        self._framer: Framer[np.int16] | None = None
        self._pts = 0

    def feed(self, pcm: Pcm16) -> bytes:
        pcm = to_int16(self._resampler.feed(pcm)) if self._resampler else pcm
        for item in self._framed().feed(pcm):
            self._encode(item.pcm)
        return self._sink.drain()

    def finish(self) -> bytes:
        framer = self._framed()
        rest = [item.pcm for item in framer.feed(to_int16(self._resampler.flush()))] if self._resampler else []
        last = framer.flush(pad=False)
        for pcm in rest + ([last.pcm] if last else []):
            self._encode(pcm)
        self._container.mux(self._stream.encode(None))
        self._container.close()
        return self._sink.drain()

    def cut(self, then: Pcm16) -> bytes:
        if self._resampler:
            then = to_int16(self._resampler.feed(then))
        size, held = then.size, self._framed().flush(pad=False)
        falling = fade_out(np.concatenate((held.pcm, then) if held else (then,))[:size], size)
        self._encode(np.ascontiguousarray(falling))
        self._container.mux(self._stream.encode(None))
        self._container.close()
        return self._sink.drain()

    def _framed(self) -> Framer[np.int16]:
        if self._framer is None:
            context = self._stream.codec_context
            context.open(strict=False)
            self._framer = Framer(context.frame_size or 1024, np.int16)
        return self._framer

    def _encode(self, pcm: Pcm16) -> None:
        plane = to_float(pcm) if self._sample_format == "fltp" else pcm
        frame = AudioFrame.from_ndarray(plane[None, :], format=self._sample_format, layout="mono")
        frame.sample_rate = self._rate
        frame.time_base = Fraction(1, self._rate)
        frame.pts = self._pts
        self._pts += pcm.size
        self._container.mux(self._stream.encode(frame))


def encoder(form: Format, rate: int, *, bit_rate: int | None = None) -> Encoder:
    """An encoder for sound at `rate` Hz. `bit_rate` in bit/s (mp3, opus, aac; default `BIT_RATE`).

    pcm is signed 16 bit little-endian; pcmu and pcma take 8000 Hz only; wav states an unknown length; opus comes in
    Ogg with pages of 100 ms; flac, too, states no length. ValueError on an unknown format or a rate it can not have.
    """
    match form:
        case "pcm":
            return _Raw(to_bytes)
        case "wav":
            return _Raw(to_bytes, wav_header(rate))
        case "pcmu" | "pcma":
            if rate != 8000:
                raise ValueError(f"rate of {form} must be 8000 Hz, not {rate}")
            return _Raw(mulaw_encode if form == "pcmu" else alaw_encode)
        case "flac" | "mp3" | "opus" | "aac":
            return _Muxed(form, rate, bit_rate, _Sink())
        case _:
            raise ValueError(f"format must be one of {', '.join(FORMATS)}, not {form!r}")


def encode(form: Format, pcm: Pcm16, rate: int, *, bit_rate: int | None = None) -> bytes:
    """A whole sound at once; int16 [n]. wav and flac state their true length. ValueError as in `encoder`."""
    if form == "wav" or (form == "flac" and pcm.size):  # libsndfile writes no flac file before its first sample
        return _written(form, pcm, rate)
    stream = encoder(form, rate, bit_rate=bit_rate)
    return stream.feed(pcm) + stream.finish()


def _written(form: Literal["wav", "flac"], pcm: Pcm16, rate: int) -> bytes:
    file = BytesIO()
    try:
        soundfile.write(file, pcm, rate, format=form.upper(), subtype="PCM_16")
    except soundfile.LibsndfileError as error:
        raise ValueError(f"rate of {form} can not be {rate} Hz: {error.error_string}") from error
    return file.getvalue()
