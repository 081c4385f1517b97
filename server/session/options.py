"""What a session core is told once, when it is made."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Options:
    """`counted`: the server counts what is played (WebRTC); else the client does (WebSocket)."""

    counted: bool = False
    transcribing: bool = False  # a session of type `transcription`: listens and never answers
    strict_truncate: bool = False  # refuse a truncation beyond the end instead of clamping it
    seconds: float = 3600.0  # how long a session may last
    answer_tokens: int = 256  # kept free for an answer whose length is not bounded
    most_items: int = 10_000  # of one conversation
