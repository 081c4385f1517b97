"""Pictures as arrays [height, width, 3] uint8, red first."""

from __future__ import annotations

from typing import TypeAlias

import av
import numpy as np
import numpy.typing as npt
from av.error import FFmpegError

Picture: TypeAlias = npt.NDArray[np.uint8]

MOST_PIXELS = 16 * 1024 * 1024
MOST_SCANS = 64
"""Of one JPEG: each goes over the whole picture again, however few bytes it has. Cameras write one, the web a dozen."""
_SCAN = b"\xff\xda"
_STANDALONE = frozenset({0x01, *range(0xD0, 0xD9)})
_SIZES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}


def raw_rgb(body: bytes, height: int, width: int) -> Picture:
    """Rows of red, green, blue → [height, width, 3]. Raises ValueError when there are more bytes, or fewer."""
    if not height or not width or len(body) != height * width * 3:
        raise ValueError(f"{len(body)} bytes are no raw picture of {width} × {height}, which has {height * width * 3}")
    return np.frombuffer(body, np.uint8).reshape(height, width, 3)


def jpeg_rgb(body: bytes) -> Picture:
    """A JPEG → [height, width, 3]. Raises ValueError for what is none, and before decoding for one that is too big."""
    height, width = jpeg_size(body)
    if not height or not width or height * width > MOST_PIXELS:
        raise ValueError(f"a JPEG of {width} × {height} is not decoded; at most {MOST_PIXELS} pixels are")
    if body.count(_SCAN) > MOST_SCANS:
        raise ValueError(f"a JPEG of {body.count(_SCAN)} scans is not decoded; at most {MOST_SCANS} are")
    codec = av.CodecContext.create("mjpeg", "r")
    assert isinstance(codec, av.VideoCodecContext)
    codec.thread_count = 1
    codec.options = {"max_pixels": str(MOST_PIXELS)}  # a second frame header may say otherwise than the first
    try:
        frames = codec.decode(av.Packet(body)) or codec.decode(None)
    except FFmpegError as wrong:
        raise ValueError(f"the JPEG can not be decoded: {wrong.strerror}") from None
    if not frames:
        raise ValueError("the JPEG holds no picture")
    return np.asarray(frames[0].to_ndarray(format="rgb24", threads=1), np.uint8)


def jpeg_size(body: bytes) -> tuple[int, int]:
    """Height and width from the frame header (ITU-T T.81, B.2.2). Raises ValueError."""
    if body[:2] != b"\xff\xd8":
        raise ValueError("this is no JPEG")
    at = 2
    while at + 9 <= len(body) and body[at] == 0xFF:
        marker = body[at + 1]
        if marker in _SIZES:
            return int.from_bytes(body[at + 5 : at + 7], "big"), int.from_bytes(body[at + 7 : at + 9], "big")
        if marker == 0xFF:
            at += 1
        elif marker in _STANDALONE:
            at += 2
        else:
            at += 2 + max(2, int.from_bytes(body[at + 2 : at + 4], "big"))
    raise ValueError("the JPEG has no frame header")
