"""SentencePiece's `tokenizer.model` of the BPE kind with byte fallback, as Gemma's is (torch-free).

The file is a protobuf: field 1, repeated: a piece {1: text, 2: score as a float, 3: kind}; field 2, the trainer: {3:
1 = unigram, 2 = BPE; 41: id of BOS}; field 3, the normaliser: {3: put a space before the text, 4: drop extra spaces}.
"""

from __future__ import annotations

import heapq
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from mstar.errors import WeightsError

_SPACE = "\u2581"
_NORMAL, _UNKNOWN, _CONTROL, _USER, _BYTE = 1, 2, 3, 4, 6
_BPE = 2


@dataclass(frozen=True, slots=True)
class PieceModel:
    """`scores` of the pieces that merges may give; user pieces are cut out of the text first."""

    ids: Mapping[str, int]
    scores: Mapping[str, float]
    user: Mapping[str, tuple[str, ...]]  # first character → user pieces, longest first
    fixed: frozenset[str]  # all user pieces: nothing merges with them
    bytes_: tuple[int, ...]  # id of each byte
    bos: int
    space_first: bool

    @staticmethod
    def read(path: Path) -> PieceModel:
        """Raises WeightsError: missing, damaged, or of another kind."""
        try:
            return _model(path.read_bytes())
        except OSError as cause:
            raise WeightsError(f"{path}: {cause}") from None
        except (ValueError, IndexError, KeyError, struct.error) as cause:
            raise WeightsError(f"{path}: no SentencePiece BPE model with byte fallback ({cause})") from None

    def encode(self, text: str) -> list[int]:
        """Ids of the text, without BOS."""
        spaced = (_SPACE if self.space_first and text else "") + text.replace(" ", _SPACE)
        found = []
        for piece in _merged(_cut(spaced, self.user), self.scores, self.fixed):
            known = self.ids.get(piece)
            found += [known] if known is not None else [self.bytes_[byte] for byte in piece.encode()]
        return found


def _cut(text: str, user: Mapping[str, tuple[str, ...]]) -> list[str]:
    """User pieces whole, everything else character by character."""
    symbols: list[str] = []
    at = 0
    while at < len(text):
        whole = next((piece for piece in user.get(text[at], ()) if text.startswith(piece, at)), None)
        symbols.append(whole or text[at])
        at += len(symbols[-1])
    return symbols


def _merged(symbols: list[str], scores: Mapping[str, float], fixed: frozenset[str]) -> list[str]:
    """Join neighbours as long as a join is a piece: best score first, leftmost of equals."""
    before = list(range(-1, len(symbols) - 1))
    after = list(range(1, len(symbols) + 1))
    agenda: list[tuple[float, int, int, str]] = []

    def offer(left: int, right: int) -> None:
        if left < 0 or right >= len(symbols) or symbols[left] in fixed or symbols[right] in fixed:
            return
        joined = symbols[left] + symbols[right]
        if joined in scores:
            heapq.heappush(agenda, (-scores[joined], left, right, joined))

    for left in range(len(symbols) - 1):
        offer(left, left + 1)
    while agenda:
        _, left, right, joined = heapq.heappop(agenda)
        if not symbols[left] or not symbols[right] or symbols[left] + symbols[right] != joined or after[left] != right:
            continue
        symbols[left], symbols[right] = joined, ""
        after[left] = after[right]
        if after[right] < len(symbols):
            before[after[right]] = left
        offer(before[left], left)
        offer(left, after[left])
    return [symbol for symbol in symbols if symbol]


def _model(raw: bytes) -> PieceModel:
    ids: dict[str, int] = {}
    scores: dict[str, float] = {}
    user = []
    by_byte: dict[int, int] = {}
    trainer: dict[int, int | bytes] = {}
    normaliser: dict[int, int | bytes] = {}
    count = 0
    for number, value in _fields(raw):
        if number == 1:
            fields = dict(_fields(_blob(value)))
            text, kind = _blob(fields[1]).decode(), fields.get(3, _NORMAL)
            if kind == _NORMAL:
                ids[text], scores[text] = count, struct.unpack("<f", _blob(fields.get(2, bytes(4))))[0]
            elif kind == _USER:
                ids[text] = count
                user.append(text)
            elif kind == _BYTE:
                by_byte[int(text.removeprefix("<0x").removesuffix(">"), 16)] = count
            count += 1
        elif number == 2:
            trainer = dict(_fields(_blob(value)))
        elif number == 3:
            normaliser = dict(_fields(_blob(value)))
    if trainer.get(3) != _BPE or len(by_byte) != 256:
        raise ValueError(f"model type {trainer.get(3)!r}, {len(by_byte)} byte pieces")
    if normaliser.get(4, 1) or normaliser.get(2):
        raise ValueError("its normaliser changes the text")
    bos = trainer.get(41, 1)
    if not isinstance(bos, int):
        raise ValueError("the id of BOS is no number")
    bytes_ = tuple(by_byte[byte] for byte in range(256))
    starts: dict[str, tuple[str, ...]] = {}
    for piece in sorted(user, key=len, reverse=True):
        starts[piece[0]] = (*starts.get(piece[0], ()), piece)
    return PieceModel(ids, scores, starts, frozenset(user), bytes_, bos, bool(normaliser.get(3, 1)))


def _fields(raw: bytes) -> Iterator[tuple[int, int | bytes]]:
    """(number, value) of a protobuf message: varints as numbers, everything else as bytes."""
    at = 0
    while at < len(raw):
        tag, at = _varint(raw, at)
        match tag & 7:
            case 0:
                value, at = _varint(raw, at)
                yield tag >> 3, value
                continue
            case 1:
                size = 8
            case 2:
                size, at = _varint(raw, at)
            case 5:
                size = 4
            case wire:
                raise ValueError(f"wire type {wire} at byte {at}")
        if at + size > len(raw):
            raise ValueError(f"cut short at byte {at}")
        yield tag >> 3, raw[at : at + size]
        at += size


def _varint(raw: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = raw[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at


def _blob(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise ValueError("a number where bytes should be")
    return value
