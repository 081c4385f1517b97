"""Binary frames of the live session: a header of 20 bytes, a name, a picture (pure).

Little-endian: version (1), kind, encoding and length of the name (one byte each); sequence number (uint32); capture
time (float64, seconds of the robot's monotonic clock); width and height (uint16 each; 0 for JPEG).

Robots send pictures of cameras and goals, and what is said near them: samples of 16 bits, whose rate in Hz is in the
place of the width. What a plan leads to comes back the same way: the name is the chunk's
number, the sequence number counts the rows acted by then, the time is in seconds after the chunk's first row began.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

import numpy as np

from media.frames import Pcm16
from media.pictures import Picture, jpeg_rgb, raw_rgb
from mstar.errors import Rejected
from server.robot.events import FARTHEST

HEADER = struct.Struct("<BBBBIdHH")
VERSION = 1


class Kind(IntEnum):
    CAMERA = 0
    GOAL = 1


class Encoding(IntEnum):
    JPEG = 0
    RGB = 1


class Undeveloped(Protocol):
    """A picture as it came."""

    @property
    def size(self) -> int:
        """Bytes of memory."""
        ...

    def decoded(self, name: str) -> Picture:
        """[height, width, 3] uint8; takes milliseconds. Raises Rejected naming the camera, or the goal."""
        ...


@dataclass(frozen=True, slots=True)
class Shot:
    """A picture of a binary frame."""

    encoding: Encoding
    width: int
    height: int
    body: bytes

    @property
    def size(self) -> int:
        """Bytes of memory."""
        return len(self.body)

    def decoded(self, name: str) -> Picture:
        """[height, width, 3] uint8. Raises Rejected naming the camera, or the goal."""
        try:
            if self.encoding is Encoding.JPEG:
                return jpeg_rgb(self.body)
            return raw_rgb(self.body, self.height, self.width)
        except ValueError as wrong:
            raise Rejected(f"{name}: {wrong}", code="invalid_picture", param=name) from None


@dataclass(frozen=True, slots=True)
class Frame:
    """`name` of the camera or the goal; `seq` counts the frames of a camera; `t_capture` on the robot's clock."""

    kind: Kind
    name: str
    seq: int
    t_capture: float
    shot: Undeveloped


def pack_frame(frame: Frame) -> bytes:
    """As it travels. Raises TypeError for a picture of a video."""
    name, shot = frame.name.encode(), frame.shot
    if not isinstance(shot, Shot):
        raise TypeError("a picture of a video does not travel as a binary frame")
    head = (VERSION, frame.kind, shot.encoding, len(name), frame.seq, frame.t_capture, shot.width, shot.height)
    return HEADER.pack(*head) + name + shot.body


IMAGINED, SOUND = 2, 3
"""The kinds of a picture that comes back, and of sound."""
LEAST_HZ = 8000


def pack_imagined(chunk: int, row: int, dt: float, picture: Picture) -> bytes:
    """What is imagined after `row` rows of a chunk, as it travels."""
    height, width, _ = picture.shape
    name = str(chunk).encode()
    head = HEADER.pack(VERSION, IMAGINED, Encoding.RGB, len(name), row, row * dt, width, height)
    return head + name + picture.tobytes()


@dataclass(frozen=True, slots=True)
class Sound:
    """What a microphone near the robot heard: `rate` in Hz, int16 [n]."""

    rate: int
    pcm: Pcm16


def pack_sound(sound: Sound) -> bytes:
    """As it travels."""
    return HEADER.pack(VERSION, SOUND, 0, 0, 0, 0.0, sound.rate, 0) + sound.pcm.astype("<i2").tobytes()


def read_binary(data: bytes) -> Frame | Sound:
    """Raises Rejected for what is neither."""
    if len(data) < HEADER.size or data[1] != SOUND:
        return read_frame(data)
    version, rate, length = data[0], HEADER.unpack_from(data)[6], len(data) - HEADER.size
    if version != VERSION or rate < LEAST_HZ or length % 2:
        text = f"version {version}, {rate} Hz, {length} bytes: sound is of version {VERSION}, whole samples of 16 bits"
        raise Rejected(f"{text} at {LEAST_HZ} Hz or more", code="invalid_frame", param="width")
    return Sound(rate, np.frombuffer(data, "<i2", offset=HEADER.size).astype(np.int16))


def read_frame(data: bytes) -> Frame:
    """Raises Rejected for what is no frame."""
    if len(data) < HEADER.size:
        raise Rejected(f"a binary frame has a header of {HEADER.size} bytes", code="invalid_frame")
    version, kind, encoding, length, seq, t_capture, width, height = HEADER.unpack_from(data)
    if version != VERSION:
        raise Rejected(f"version of a binary frame is {version}, not {VERSION}", code="invalid_frame", param="version")
    if kind not in set(Kind) or encoding not in set(Encoding):
        raise Rejected(f"kind {kind} with encoding {encoding} is not known", code="invalid_frame", param="kind")
    if not abs(t_capture) <= FARTHEST:
        text = f"t_capture is {t_capture}: a clock tells at most {FARTHEST:g} s"
        raise Rejected(text, code="invalid_frame", param="t_capture")
    try:
        name = data[HEADER.size : HEADER.size + length].decode()
    except UnicodeDecodeError:
        raise Rejected("the name of a binary frame is not UTF-8", code="invalid_frame", param="name") from None
    shot = Shot(Encoding(encoding), width, height, data[HEADER.size + length :])
    return Frame(Kind(kind), name, seq, t_capture, shot)
