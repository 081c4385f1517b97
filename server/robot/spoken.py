"""Words that stop a robot, in what was heard (pure)."""

from __future__ import annotations

import re
from collections.abc import Sequence


def says(text: str, words: Sequence[str]) -> str:
    """The first of `words` (each may be several words) that the text holds, whole and in any case; "" if none."""
    heard = " ".join(re.findall(r"\w+", text.lower()))
    for word in words:
        wanted = " ".join(re.findall(r"\w+", word.lower()))
        if wanted and f" {wanted} " in f" {heard} ":
            return word
    return ""
