"""What a recording holds: how a session began, and then every step of its core, in order.

A file is a line of text, `mstar-record VERSION`, and entries behind it: length and CRC-32 of the body, four bytes each,
little endian, then the body in msgpack.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from mstar.errors import Rejected

VERSION = 1
MAGIC = b"mstar-record "
_HEAD = struct.Struct("<II")
MOST_BYTES = 256 * 1024 * 1024
"""Of one entry; longer ones are taken for damage."""


class Began(msgspec.Struct, frozen=True, tag="began"):
    """How the session was opened. `at` is on the clock of all entries (seconds), `unix` the wall clock then."""

    session: str
    protocol: str
    family: str
    family_settings: Mapping[str, Any]
    session_settings: Mapping[str, Any]
    model: str
    options: Mapping[str, Any]
    patch: bytes | None
    """JSON of the settings that a client secret was made with."""
    ids: str
    """Seed of the ids."""
    at: float
    unix: int
    out: int
    """Here and below: checksum of the commands that the step gave."""


class Opened(msgspec.Struct, frozen=True, tag="opened"):
    """A session without a conversation: speech, recognition, robots. What is kept of it are the runtime's calls."""

    session: str
    protocol: str
    family: str
    family_settings: Mapping[str, Any]
    session_settings: Mapping[str, Any]
    at: float


class Called(msgspec.Struct, frozen=True, tag="called"):
    """Something that was asked of the runtime's session, as `mstar.client.calls` packs it."""

    at: float
    call: bytes


class Weights(msgspec.Struct, frozen=True, tag="weights"):
    """SHA-256 of the files that the family was loaded from, as far as they are known."""

    sums: Mapping[str, str]


class Said(msgspec.Struct, frozen=True, tag="said"):
    """A client event, as JSON."""

    at: float
    event: bytes
    out: int


class Mistook(msgspec.Struct, frozen=True, tag="mistook"):
    """Something of the client that was no event, or sound that was none."""

    message: str
    code: str
    param: str | None
    event_id: str | None
    out: int


class Heard(msgspec.Struct, frozen=True, tag="heard"):
    """Sound of the user: float32 from sample `position` of the session's microphone on."""

    at: float
    position: int
    pcm: bytes
    out: int


class Emitted(msgspec.Struct, frozen=True, tag="emitted"):
    """Task `key` gave the `index`-th value of an output: its checksum, and the value itself where it is short."""

    at: float
    key: int
    output: str
    index: int
    sum: int
    shown: str
    out: int


class TaskEnded(msgspec.Struct, frozen=True, tag="ended"):
    at: float
    key: int
    status: str
    code: str
    cause: str
    out: int


class Played(msgspec.Struct, frozen=True, tag="played"):
    """A listener whose playout the server counts has heard so many samples of a response."""

    at: float
    response: str
    samples: int
    out: int


class Congested(msgspec.Struct, frozen=True, tag="congested"):
    at: float
    congested: bool
    out: int


class Ticked(msgspec.Struct, frozen=True, tag="ticked"):
    at: float
    out: int


class Closed(msgspec.Struct, frozen=True, tag="closed"):
    """The session is over; the last entry of a whole recording."""

    at: float


Step: TypeAlias = Called | Said | Mistook | Heard | Emitted | TaskEnded | Played | Congested | Ticked
Entry: TypeAlias = Began | Opened | Weights | Step | Closed

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Entry] = msgspec.msgpack.Decoder(Entry)


def first_line() -> bytes:
    """What a file begins with."""
    return MAGIC + str(VERSION).encode() + b"\n"


def packed(entry: Entry) -> bytes:
    """An entry as it stands in the file."""
    body = _encoder.encode(entry)
    return _HEAD.pack(len(body), zlib.crc32(body)) + body


@dataclass(frozen=True, slots=True)
class Recording:
    """`whole`: the session's end is in it; else the file is cut off behind the last entry."""

    began: Began | Opened
    weights: Mapping[str, str]
    steps: tuple[Entry, ...]
    whole: bool


def read(path: Path) -> Recording:
    """Raises Rejected, one line, for what is no recording, of another version, or damaged; OSError."""
    raw = path.read_bytes()
    line, _, rest = raw.partition(b"\n")
    if not line.startswith(MAGIC):
        raise Rejected(f"{path}: not a recording")
    version = line.removeprefix(MAGIC).decode(errors="replace")
    if version != str(VERSION):
        raise Rejected(f"{path}: a recording of version {version[:20]!r}, this program reads version {VERSION}")
    entries, good = _entries(rest)
    if not entries or not isinstance(entries[0], Began | Opened):
        raise Rejected(f"{path}: cut off before the session began")
    if good < len(rest) and not _cut(rest[good:]):
        raise Rejected(f"{path}: damaged at byte {len(line) + 1 + good}, behind {len(entries)} entries")
    weights = next((entry.sums for entry in entries if isinstance(entry, Weights)), {})
    steps = tuple(entry for entry in entries[1:] if not isinstance(entry, Weights | Closed | Began | Opened))
    whole = good == len(rest) and isinstance(entries[-1], Closed)
    return Recording(entries[0], weights, steps, whole)


def _entries(rest: bytes) -> tuple[list[Entry], int]:
    """Entries up to the first that is not whole and right, and how many bytes they take."""
    found: list[Entry] = []
    at = 0
    while at + _HEAD.size <= len(rest):
        length, crc = _HEAD.unpack_from(rest, at)
        body = rest[at + _HEAD.size : at + _HEAD.size + length]
        if length > MOST_BYTES or len(body) < length or zlib.crc32(body) != crc:
            break
        try:
            found.append(_decoder.decode(body))
        except (msgspec.DecodeError, UnicodeDecodeError):
            break
        at += _HEAD.size + length
    return found, at


def _cut(rest: bytes) -> bool:
    """Whether this is the beginning of an entry of which the end is missing."""
    if len(rest) < _HEAD.size:
        return True
    length, _ = _HEAD.unpack_from(rest)
    return bool(length <= MOST_BYTES and len(rest) < _HEAD.size + length)
