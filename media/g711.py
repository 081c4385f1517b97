"""G.711 µ-law and A-law (ITU-T G.711, 1988), one byte a sample at 8 kHz.

Decoding is the recommendation's table of output values. Encoding compares with its decision values, which at the border
of two segments are not half-way between the outputs; a value on a decision value falls towards zero when negative
(one's complement magnitude, as ITU's G.191 tool does). Every code survives decode → encode but µ-law's negative zero
0x7F: it decodes to 0, which is coded 0xFF.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from media.frames import Pcm16

RATE = 8_000
_MU_BIAS = 132  # 33 of the 14 bit scale
_MU_CLIP = 32635
_Codes = npt.NDArray[np.uint8]


def _mu_decoded() -> Pcm16:
    code = ~np.arange(256, dtype=np.uint8)
    exponent = (code >> 4 & 7).astype(np.int32)
    magnitude = (((code & 15).astype(np.int32) << 3) + _MU_BIAS << exponent) - _MU_BIAS
    return np.where(code & 0x80, -magnitude, magnitude).astype(np.int16)


def _mu_encoded() -> _Codes:
    """[65536] code of each int16 value, indexed by value + 32768."""
    value = np.arange(-32768, 32768, dtype=np.int32)
    magnitude = np.minimum(np.where(value < 0, ~value, value), _MU_CLIP) + _MU_BIAS
    exponent = np.floor(np.log2(magnitude)).astype(np.int32) - 7
    step = magnitude >> exponent + 3 & 15
    sign = np.where(value < 0, 0x80, 0)
    codes: _Codes = (~(sign | exponent << 4 | step) & 0xFF).astype(np.uint8)
    return codes


def _a_decoded() -> Pcm16:
    code = np.arange(256, dtype=np.uint8) ^ 0x55
    exponent = (code >> 4 & 7).astype(np.int32)
    step = (code & 15).astype(np.int32) << 4
    magnitude = np.where(exponent == 0, step + 8, step + 0x108 << np.maximum(exponent - 1, 0))
    return np.where(code & 0x80, magnitude, -magnitude).astype(np.int16)


def _a_encoded() -> _Codes:
    """[65536] code of each int16 value, indexed by value + 32768."""
    value = np.arange(-32768, 32768, dtype=np.int32)
    magnitude = np.where(value < 0, ~value, value)
    exponent = np.maximum(np.floor(np.log2(np.maximum(magnitude, 1))).astype(np.int32) - 7, 0)
    step = magnitude >> np.maximum(exponent + 3, 4) & 15
    sign = np.where(value < 0, 0, 0x80)
    codes: _Codes = ((sign | exponent << 4 | step) ^ 0x55).astype(np.uint8)
    return codes


_MU_DECODED, _MU_ENCODED = _mu_decoded(), _mu_encoded()
_A_DECODED, _A_ENCODED = _a_decoded(), _a_encoded()


def _look_up(table: _Codes, pcm: Pcm16) -> bytes:
    if pcm.dtype != np.int16:
        raise ValueError(f"pcm must be int16, not {pcm.dtype}")
    return table[pcm.astype(np.int32) + 32768].tobytes()


def mulaw_encode(pcm: Pcm16) -> bytes:
    """int16 [n] → n bytes of µ-law (`audio/pcmu`)."""
    return _look_up(_MU_ENCODED, pcm)


def mulaw_decode(codes: bytes | bytearray | memoryview) -> Pcm16:
    """n bytes of µ-law → int16 [n]."""
    return _MU_DECODED[np.frombuffer(codes, dtype=np.uint8)]


def alaw_encode(pcm: Pcm16) -> bytes:
    """int16 [n] → n bytes of A-law (`audio/pcma`)."""
    return _look_up(_A_ENCODED, pcm)


def alaw_decode(codes: bytes | bytearray | memoryview) -> Pcm16:
    """n bytes of A-law → int16 [n]."""
    return _A_DECODED[np.frombuffer(codes, dtype=np.uint8)]
