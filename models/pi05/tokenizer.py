"""From the prompt's text to ids (torch-free)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tokenizers import Tokenizer

from models.pi05.pieces import PieceModel
from mstar.errors import WeightsError

Encode = Callable[[str], list[int]]
"""Text → ids, BOS first."""

_BOS = "<bos>"
TINY_BOS = 2
_TINY_FIRST = 64


def read_tokenizer(folder: Path) -> Encode | None:
    """PaliGemma's tokenizer: `tokenizer.json`, or SentencePiece's `tokenizer.model` or `paligemma_tokenizer.model`.

    None where the folder holds none: policies are published without it. Raises WeightsError for a damaged one.
    """
    file = folder / "tokenizer.json"
    if file.is_file():
        return _from_json(file)
    for name in ("tokenizer.model", "paligemma_tokenizer.model"):
        if (folder / name).is_file():
            pieces = PieceModel.read(folder / name)
            return lambda text: [pieces.bos, *pieces.encode(text)]
    return None


def _from_json(file: Path) -> Encode:
    try:
        tokenizer = Tokenizer.from_file(str(file))
    except Exception as cause:  # noqa: BLE001  tokenizers raises plain Exception for a damaged file
        raise WeightsError(f"{file}: {cause}") from None
    bos = tokenizer.token_to_id(_BOS)
    if bos is None:
        raise WeightsError(f"{file}: has no token {_BOS}")
    return lambda text: [bos, *tokenizer.encode(text, add_special_tokens=False).ids]


def tiny_tokenizer(text: str) -> list[int]:
    """One id a byte, for policies of the tiny size."""
    return [TINY_BOS, *(_TINY_FIRST + byte for byte in text.encode())]
