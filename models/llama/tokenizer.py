"""Text ↔ token ids, and token ids → text piece by piece (torch-free)."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Vocabulary

from models.llama.checkpoint import Checkpoint, HubFolder
from models.llama.gguf_file import GgufFile
from mstar.errors import WeightsError

_INERT = "\ue000"  # private-use character that keeps a control token's spelling in user text from being one
_CONTROL, _USER_DEFINED = 3, 4  # GGUF token types

_QWEN2_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_LLAMA3_SPLIT = _QWEN2_SPLIT.replace(r"|\p{N}|", r"|\p{N}{1,3}|", 1)


class Tokenizer:
    """A byte-level BPE vocabulary. Every ordinary token stands for bytes, control tokens for none."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        vocabulary.no_truncation()
        vocabulary.no_padding()
        vocabulary.encode_special_tokens = True  # encode() finds control tokens itself, in text meant to hold them
        self._vocabulary = vocabulary
        added = vocabulary.get_added_tokens_decoder()
        self._control = {token.content: i for i, token in added.items() if token.special}
        self._plain = {i: token.content.encode() for i, token in added.items() if not token.special}
        spellings = sorted(self._control, key=len, reverse=True)
        self._split = re.compile("(" + "|".join(map(re.escape, spellings)) + ")") if spellings else None

    def encode(self, text: str) -> list[int]:
        """Ids of a text in which control tokens may be spelled out; those inside `inert` text are ordinary characters.

        Nothing is put before or after the text.
        """
        ids: list[int] = []
        for piece in self._split.split(text) if self._split else [text]:
            if piece in self._control:
                ids.append(self._control[piece])
            elif piece:
                ids += self._vocabulary.encode(piece.replace(_INERT, ""), add_special_tokens=False).ids
        return ids

    def inert(self, text: str) -> str:
        """Text from outside, so marked that no part of it is taken for a control token."""
        text = text.replace(_INERT, "")
        return self._split.sub(lambda found: found[0][:1] + _INERT + found[0][1:], text) if self._split else text

    def is_control(self, token: int) -> bool:
        return self._control.get(self._vocabulary.id_to_token(token) or "") == token

    def id_of(self, spelling: str) -> int | None:
        """Id of a token by its spelling in the vocabulary."""
        found: int | None = self._vocabulary.token_to_id(spelling)
        return found

    def bytes_of(self, token: int) -> bytes:
        """UTF-8 bytes of one token (part of a character, possibly); b"" for a control or unknown one."""
        if token in self._plain:
            return self._plain[token]
        spelling = self._vocabulary.id_to_token(token)
        if spelling is None or self.is_control(token):
            return b""
        table = _byte_of_character()
        if not table.keys() >= set(spelling):  # an entry outside the byte alphabet stands for its own spelling
            return spelling.encode()
        return bytes(table[character] for character in spelling)

    def push(self, pending: bytes, token: int) -> tuple[str, bytes]:
        """One more token after `pending` bytes → (text that is complete now, bytes that wait for more).

        Bytes that can not become a character are given as U+FFFD at once.
        """
        decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        text = decoder.decode(pending + self.bytes_of(token))
        return text, decoder.getstate()[0]

    def flush(self, pending: bytes) -> str:
        """Text of the bytes that still wait when no token follows."""
        return pending.decode("utf-8", errors="replace")

    def decode(self, tokens: Sequence[int]) -> str:
        """Text of all tokens; control tokens are left out."""
        return b"".join(map(self.bytes_of, tokens)).decode("utf-8", errors="replace")


@cache
def _byte_of_character() -> Mapping[str, int]:
    """The 256 printable stand-ins of byte-level BPE: printable Latin-1 bytes are themselves, others follow from 256."""
    table: dict[str, int] = {}
    others = 0
    for byte in range(256):
        if 33 <= byte <= 126 or 161 <= byte <= 172 or 174 <= byte <= 255:
            table[chr(byte)] = byte
        else:
            table[chr(256 + others)] = byte
            others += 1
    return table


def read_tokenizer(checkpoint: Checkpoint) -> Tokenizer:
    """Raises WeightsError: missing, damaged, or not byte-level."""
    match checkpoint:
        case HubFolder(path):
            file = path / "tokenizer.json"
            try:
                text = file.read_text(encoding="utf-8")
                vocabulary = Vocabulary.from_str(text)
            except FileNotFoundError:
                raise WeightsError(f"{file}: missing") from None
            except Exception as cause:  # noqa: BLE001 - tokenizers raises nothing narrower
                raise WeightsError(f"{file}: {cause}") from None
            if "ByteLevel" not in _types(json.loads(text).get("decoder")):
                raise WeightsError(f"{file}: decoder is not ByteLevel; other kinds are not supported")
            return Tokenizer(vocabulary)
        case GgufFile():
            return Tokenizer(_from_gguf(checkpoint))


def _types(decoder: Any) -> set[str]:
    if not isinstance(decoder, dict):
        return set()
    return {str(decoder.get("type"))}.union(*(_types(part) for part in decoder.get("decoders", ())))


def _from_gguf(file: GgufFile) -> Vocabulary:
    if file.text("tokenizer.ggml.model") != "gpt2":
        raise WeightsError(f"{file.path}: tokenizer.ggml.model {file.text('tokenizer.ggml.model')!r} is not gpt2")
    tokens, kinds, merges = (
        _column(file, f"tokenizer.ggml.{name}", kind)
        for name, kind in (("tokens", str), ("token_type", int), ("merges", str))
    )
    pairs = []
    for merge in merges:
        left, _, right = merge.partition(" ")
        pairs.append((left, right))
    try:
        vocabulary = Vocabulary(models.BPE({token: i for i, token in enumerate(tokens)}, pairs))
    except Exception as cause:  # noqa: BLE001 - tokenizers raises nothing narrower
        raise WeightsError(f"{file.path}: tokenizer.ggml.merges: {cause}") from None
    _split_as(vocabulary, file)
    vocabulary.decoder = decoders.ByteLevel()
    added = [(token, kind) for token, kind in zip(tokens, kinds, strict=True) if kind in (_CONTROL, _USER_DEFINED)]
    vocabulary.add_special_tokens([AddedToken(t, special=True, normalized=False) for t, k in added if k == _CONTROL])
    vocabulary.add_tokens([AddedToken(t, normalized=False) for t, k in added if k == _USER_DEFINED])
    return vocabulary


def _split_as(vocabulary: Vocabulary, file: GgufFile) -> None:
    """Set the rule by which text is cut into words before merging."""
    pre = file.fields.get("tokenizer.ggml.pre", "default")
    whole = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    gpt2 = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    match pre:
        case "smollm":
            vocabulary.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), gpt2])
        case "gpt-2" | "default":
            vocabulary.pre_tokenizer = gpt2
        case "qwen2" | "llama-bpe":
            split = _QWEN2_SPLIT if pre == "qwen2" else _LLAMA3_SPLIT
            vocabulary.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(split), "isolated"), whole])
            if pre == "qwen2":
                vocabulary.normalizer = normalizers.NFC()
        case _:
            raise WeightsError(
                f"{file.path}: tokenizer.ggml.pre {pre!r} is not supported (smollm, gpt-2, qwen2, llama-bpe)"
            )


def _column(file: GgufFile, field: str, kind: type) -> list[Any]:
    values = file.fields.get(field)
    if not isinstance(values, list) or not values or not isinstance(values[0], kind):
        raise WeightsError(f"{file.path}: GGUF field {field} is missing or no list of {kind.__name__}")
    return values
