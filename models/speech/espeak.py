"""Phonemes by espeak-ng's shared library (GPL-3.0, a separate library reached through ctypes).

The library keeps its voice and its position in the text in globals: it serves one thread at a time, and a lock here
keeps it so.
"""

from __future__ import annotations

import ctypes
import re
import threading
from dataclasses import dataclass
from functools import lru_cache

import espeakng_loader

from mstar.errors import WeightsError

_RETRIEVAL = 2  # espeak_AUDIO_OUTPUT: AUDIO_OUTPUT_SYNCHRONOUS, nothing is played
_DONT_EXIT = 0x8000  # espeakINITIALIZE_DONT_EXIT
_UTF8 = 1  # espeakCHARS_UTF8
_IPA = 2  # phoneme mode: IPA
_SWITCH = re.compile(r"\([a-z]{2,3}(?:-[a-z0-9-]+)?\)")  # "(en)…(fr)": espeak's marks of a change of language
_lock = threading.Lock()


@dataclass(slots=True)
class _Library:
    calls: ctypes.CDLL
    language: str = ""


@lru_cache(maxsize=1)
def _library() -> _Library:
    path, voices = espeakng_loader.get_library_path(), espeakng_loader.get_data_path()
    try:
        calls = ctypes.CDLL(path)
    except OSError as cause:
        raise WeightsError(f"{path}: {cause}") from cause
    calls.espeak_TextToPhonemes.restype = ctypes.c_char_p
    calls.espeak_TextToPhonemes.argtypes = [ctypes.POINTER(ctypes.c_char_p), ctypes.c_int, ctypes.c_int]
    if calls.espeak_Initialize(_RETRIEVAL, 0, voices.encode(), _DONT_EXIT) < 0:
        raise WeightsError(f"{voices}: espeak-ng can not read its voices")
    return _Library(calls)


def ipa(text: str, language: str) -> str:
    """IPA of `text` with stress marks, words joined by single spaces, without punctuation.

    espeak's word borders are its own: "of the" is one word, "42" two. WeightsError if it has no voice `language`.
    """
    if not text:
        return ""
    with _lock:
        library = _library()
        if library.language != language:
            if library.calls.espeak_SetVoiceByName(language.encode()) != 0:
                raise WeightsError(f"espeak-ng has no voice {language!r}")
            library.language = language
        rest = ctypes.c_char_p(text.replace("\0", " ").encode("utf-8", "replace"))
        parts = []
        while rest.value:  # one call a clause, as espeak sees them; the pointer moves and ends as null
            parts.append(library.calls.espeak_TextToPhonemes(ctypes.byref(rest), _UTF8, _IPA).decode("utf-8"))
    return " ".join(_SWITCH.sub("", " ".join(parts)).split())


@lru_cache(maxsize=4096)
def ipa_of_word(word: str, language: str) -> str:
    """`ipa` of a word spoken alone; kept, because the same words come again."""
    return ipa(word, language)
