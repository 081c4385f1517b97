"""What a client is told of a request of the runtime that failed."""

from __future__ import annotations

from mstar.client import RequestEnded
from mstar.errors import Rejected
from server.security import FULL, PASSING, RETRY_SECONDS, Refusal

NAMES = {"history": "messages", "audio": "messages", "settings.temperature": "temperature", "settings.top_p": "top_p"}
"""Names that the runtime gives to what clients call otherwise."""
CALLERS = frozenset({"context_length_exceeded", "invalid_value", "empty_prompt"})


def failure(end: RequestEnded) -> Rejected | Refusal:
    """The caller's fault as what is wrong with the request; ours as a 500, or a 503 where asking again may help."""
    if end.param or end.code in CALLERS:
        param = NAMES.get(end.param, end.param) or None
        return Rejected(end.cause or "The request can not be answered.", code=end.code or "invalid_value", param=param)
    if end.code in PASSING or end.code in FULL:
        text = end.cause or "The model can not answer now."
        return Refusal(503, end.code, text, retry_after=RETRY_SECONDS if end.code in PASSING else 1)
    return Refusal(500, end.code or "server_error", "The model failed.")
