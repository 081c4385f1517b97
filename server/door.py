"""Who gets in: what the handlers share, and the checks that stand before every one of them."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from aiohttp import web
from aiohttp.web_protocol import RequestPayloadError

from models.registry import Card
from mstar.client import Client
from mstar.errors import Rejected
from server.limits import Account, Accounts, Admission, Allowance, Limited
from server.metrics import Metrics
from server.record.calls import TapedCalls
from server.record.recorder import Recorder
from server.security import FULL, OURS, PASSING, RETRY_SECONDS, Grant, Keys, Refusal, check_host, check_origin, key_of
from server.settings import Settings
from server.traces import Traces


class Endable(Protocol):
    """A connection that can be told to end."""

    def end(self, code: int, reason: str) -> None: ...

    def refuse(self, why: Rejected) -> None:
        """Tell the client what is wrong, as its protocol does; not in answer to anything it said."""
        ...


@dataclass(slots=True)
class Server:
    """What the handlers share. `cards` by the name that clients ask for; the first is the default."""

    settings: Settings
    client: Client
    cards: dict[str, Card]
    keys: Keys
    admission: Admission
    accounts: Accounts = field(default_factory=lambda: Accounts(Allowance(), time.monotonic))
    metrics: Metrics = field(default_factory=Metrics)
    live: set[Endable] = field(default_factory=set)
    """Connections that are open."""
    ready: bool = False
    """Whether all workers have loaded."""
    traces: Traces = field(default_factory=Traces)
    recorder: Recorder | None = None
    """Where sessions are recorded, if they are."""
    taped: dict[str, TapedCalls] = field(default_factory=dict)
    """Sessions without a conversation that are being recorded."""
    family_settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """What each family was started with."""
    on_lost: list[Callable[[], Awaitable[None]]] = field(default_factory=list)
    """What has to be let go of when the runtime is lost, besides connections."""

    def __post_init__(self) -> None:
        self.use(self.client)

    def use(self, client: Client) -> None:
        """From now on sessions are opened with this one; those of another one are over."""
        for session in self.traces.open:
            self._over(session)
        self.client = client
        self.client.on_first = self.metrics.came
        self.client.on_freed = self._freed

    def _freed(self, session: str, seconds: float) -> None:
        self.metrics.freed.observe(seconds)
        self._over(session)

    def _over(self, session: str) -> None:
        self.traces.end(session)
        tape = self.taped.pop(session, None)
        if tape is not None:
            tape.close()

    def card(self, model: str | None) -> Card:
        """The family to talk with. Raises Refusal(404)."""
        name = model or next(iter(self.cards))
        card = self.cards.get(name)
        if card is None or card.conversation is None:
            known = ", ".join(each for each, card in self.cards.items() if card.conversation is not None)
            raise Refusal(404, "model_not_found", f"The model '{name:.80}' does not exist; there is: {known}.", "model")
        return card


SERVER: web.AppKey[Server] = web.AppKey("server", Server)
_ACCOUNT: web.RequestKey[str] = web.RequestKey("account", str)
"""Where a request keeps the name of its key's account."""

SHARED = {
    "Vary": "Origin",
    "Access-Control-Allow-Headers": "Authorization, Content-Type, If-Match",
    "Access-Control-Allow-Methods": "GET, POST, PATCH, DELETE, OPTIONS",
    "Access-Control-Expose-Headers": "Location, Retry-After, ETag, Link",
}

HUNG_UP = 499
"""What is logged of a request whose client did not wait."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def refused(why: Refusal) -> web.Response:
    """A refusal as an HTTP answer in the API's own form."""
    kind = "server_error" if why.status >= 500 else "rate_limit_error" if why.status == 429 else "invalid_request_error"
    body = {"error": {"type": kind, "code": why.code, "message": why.message, "param": why.param}}
    headers = {"Retry-After": str(why.retry_after)} if why.retry_after is not None else {}
    if why.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return web.json_response(body, status=why.status, headers=headers)


def refusal(why: Rejected) -> Refusal:
    """What HTTP says of something that can not be: the caller's fault, ours, or what is over soon."""
    if why.code in PASSING or why.code in FULL:
        return Refusal(503, why.code, why.message, why.param, retry_after=RETRY_SECONDS)
    if why.code in OURS:
        return Refusal(500, why.code, why.message, why.param)
    return Refusal(400, why.code, why.message, why.param)


@web.middleware
async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Host and Origin of everything; refusals and rejections as JSON; what pages of allowed origins may see."""
    server = request.app[SERVER]
    origin = request.headers.get("Origin")
    try:
        check_host(request.host, server.settings.hosts)
        check_origin(origin, request.host, server.settings.origins)
        preflight = request.method == "OPTIONS" and "Access-Control-Request-Method" in request.headers
        preflight = preflight and request.match_info.http_exception is not None  # where nobody says more of it
        answer = web.Response(status=204) if preflight else await handler(request)
    except Refusal as why:
        server.metrics.refused.labels(why.code).inc()
        answer = refused(why)
    except Limited as why:
        server.metrics.refused.labels(why.code).inc()
        answer = refused(Refusal(429, why.code, why.message, why.param, why.retry_after))
    except Rejected as why:
        server.metrics.refused.labels(why.code).inc()
        answer = refused(refusal(why))
    except RequestPayloadError:
        server.metrics.refused.labels("invalid_body").inc()
        answer = refused(Refusal(400, "invalid_body", "The body is not encoded as its headers say."))
    except ConnectionError:
        if request.transport is not None:
            raise
        answer = web.Response(status=HUNG_UP)
    finally:
        if request.content.exception() is not None:
            request.content.feed_eof()  # nobody waits for the rest of what can not be read
    if origin in server.settings.origins and not answer.prepared:
        answer.headers.update({"Access-Control-Allow-Origin": origin, **SHARED})
    return answer


def authorised(request: web.Request, *, master: bool = False) -> Grant:
    """What the request's key allows. Raises Refusal(401). `master`: an ephemeral key will not do."""
    return allowed(request, key_of(request.headers), master=master)


def allowed(request: web.Request, key: str | None, *, master: bool = False) -> Grant:
    """As `authorised`, with a key that came in a protocol's own place."""
    grant = request.app[SERVER].keys.check(key, int(time.time()), master=master)
    request[_ACCOUNT] = grant.account
    return grant


def account_of(request: web.Request) -> Account:
    """On whose account a request is: its key's; where no key was asked for its address's."""
    name = request.get(_ACCOUNT)
    return request.app[SERVER].accounts.of(name or f"from {request.remote}")
