"""How a client wants its answer drawn: settings of the family's task; what can not be is refused by name."""

from __future__ import annotations

from typing import Any

from mstar.errors import Rejected
from server.http.answering import MOST_TOKENS
from server.http.chat_wire import ChatRequest, CompletionDetails, CompletionRequest, PromptDetails, Usage
from server.session.responses import Tokens


def unsupported(param: str, why: str) -> Rejected:
    """A field of the API that is not served."""
    return Rejected(f"'{param}' {why}.", code="unsupported_value", param=param)


def check(wanted: ChatRequest | CompletionRequest) -> None:
    """Raises Rejected for what both routes do not serve."""
    if wanted.n not in (None, 1):
        raise unsupported("n", "can only be 1")
    for name in ("frequency_penalty", "presence_penalty"):
        if getattr(wanted, name):
            raise unsupported(name, "is not served; 'repetition_penalty' is")
    if wanted.logit_bias:
        raise unsupported("logit_bias", "is not served")
    if wanted.logprobs:
        raise unsupported("logprobs", "are not served")
    if wanted.stream_options is not None and not wanted.stream:
        raise unsupported("stream_options", "needs 'stream': true")
    if isinstance(wanted.stop, list) and any(not stop for stop in wanted.stop):
        raise Rejected("'stop' holds an empty text.", param="stop")


def settings_of(wanted: ChatRequest | CompletionRequest, max_tokens: int | None) -> dict[str, Any]:
    """Settings of the family's task; absent fields are left to the family."""
    given: dict[str, Any] = {
        "temperature": wanted.temperature,
        "top_p": wanted.top_p,
        "top_k": wanted.top_k,
        "repetition_penalty": wanted.repetition_penalty,
        "seed": wanted.seed,
        "max_tokens": None if max_tokens is None else min(max_tokens, MOST_TOKENS),
    }
    if wanted.top_p == 0:  # no share at all: the likeliest token
        given |= {"top_p": None, "temperature": 0.0}
    return {name: value for name, value in given.items() if value is not None}


def stops_of(wanted: ChatRequest | CompletionRequest) -> tuple[str, ...]:
    """Texts that end the answer."""
    if not wanted.stop:
        return ()
    return (wanted.stop,) if isinstance(wanted.stop, str) else tuple(wanted.stop)


def usage_of(*each: Tokens) -> Usage:
    """Tokens of one or several answers, as the API counts them."""
    prompt, made = sum(one.prompt for one in each), sum(one.generated for one in each)
    cached = PromptDetails(sum(one.reused for one in each))
    return Usage(prompt, made, prompt + made, cached, CompletionDetails())
