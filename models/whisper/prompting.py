"""Text that comes before a piece of sound, as the tokens that Whisper's decoder is conditioned on.

Radford et al. 2022, §2.3: the text stands behind `<|startofprev|>` and before `<|startoftranscript|>`, at most half of
the decoder's positions.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

from tokenizers import Tokenizer

from models.whisper.config import Ids, WhisperConfig
from mstar.errors import WeightsError

Conditioning = Callable[[str], tuple[int, ...]]
"""Text → ids that stand before the prompt; () for no text."""


def conditioning(folder: Path, config: WhisperConfig, ids: Ids) -> Conditioning | None:
    """None where the checkpoint has no `tokenizer.json`. Raises WeightsError for one that can not be read."""
    path = folder / "tokenizer.json"
    if not path.exists():
        return None
    try:
        vocabulary = Tokenizer.from_file(str(path))
    except Exception as cause:  # noqa: BLE001 - tokenizers raises nothing narrower
        raise WeightsError(f"{path}: {cause}") from None
    before = vocabulary.token_to_id("<|startofprev|>")
    if before is None:
        return None
    most = config.max_target_positions // 2 - 1

    @lru_cache(maxsize=64)
    def tokens(text: str) -> tuple[int, ...]:
        text = text.strip()
        spoken = [token for token in vocabulary.encode(" " + text, add_special_tokens=False).ids if token < ids.end]
        return (before, *spoken[-most:]) if text and spoken else ()

    return tokens
