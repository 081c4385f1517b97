"""Who may come in: API keys, ephemeral keys, Host and Origin. The same for HTTP, WebSocket and WebRTC."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from server.events.session import SessionPatch

PROTOCOL = "realtime"
KEY_PROTOCOL = "openai-insecure-api-key."
EPHEMERAL = "ek_"
MOST_SECRETS = 10_000
PASSING = frozenset({"worker_lost", "runtime_lost", "not_ready"})
"""Codes of failures that are over when a process of the runtime has been replaced."""
FULL = frozenset({"out_of_memory"})
"""Codes of failures that end when others do."""
OURS = frozenset({"node_failed", "session_closed", "server_error"})
"""Codes of failures that are neither the caller's fault nor over by themselves."""
RETRY_SECONDS = 5
"""After which a client that was refused for such a thing may come again."""


@dataclass(eq=False)
class Refusal(Exception):  # not frozen: context managers write an exception's traceback
    """An HTTP answer with a status and an error a client can read."""

    status: int
    code: str
    message: str
    param: str | None = None
    retry_after: int | None = None


@dataclass(frozen=True, slots=True)
class Grant:
    """What a key is good for: with an ephemeral one, the session it was made for."""

    model: str | None = None
    session: SessionPatch | None = None
    account: str = ""
    """Whose key it is: a digest; "" where no keys are asked for."""


@dataclass(frozen=True, slots=True)
class ClientSecret:
    value: str
    expires_at: int
    grant: Grant


class Keys:
    """API keys of the settings, and the ephemeral ones that were made with them. Times are unix seconds."""

    def __init__(self, api_keys: Iterable[str]) -> None:
        self._keys = tuple(key.encode() for key in api_keys)
        self._secrets: dict[str, ClientSecret] = {}

    def mint(self, grant: Grant, now: int, seconds: int) -> ClientSecret:
        """A key for a browser; it may open sessions until it expires."""
        self._secrets = {name: secret for name, secret in self._secrets.items() if secret.expires_at > now}
        if len(self._secrets) >= MOST_SECRETS:
            raise Refusal(429, "rate_limit_exceeded", "Too many client secrets are in use.", retry_after=10)
        value = EPHEMERAL + secrets.token_urlsafe(32)
        self._secrets[value] = secret = ClientSecret(value, now + seconds, grant)
        return secret

    def check(self, key: str | None, now: int, *, master: bool = False) -> Grant:
        """What the key allows. Raises Refusal(401). `master`: an ephemeral key will not do."""
        if key is not None and key.startswith(EPHEMERAL):
            secret = self._secrets.get(key)
            if secret is None or secret.expires_at <= now or master:
                raise Refusal(401, "invalid_api_key", "The client secret is unknown or has expired.")
            return secret.grant
        if not self._keys:
            return Grant()
        given = (key or "").encode()
        matches = [hmac.compare_digest(given, known) for known in self._keys]  # all of them: equal time for each
        if not any(matches):
            raise Refusal(401, "invalid_api_key", "Incorrect API key provided.")
        return Grant(account=hashlib.sha256(given).hexdigest()[:16])


def key_of(headers: Mapping[str, str]) -> str | None:
    """The key of a request: a bearer token (openpi's clients say Api-Key), or the subprotocol that browsers use for
    want of headers.
    """
    scheme, _, token = headers.get("Authorization", "").partition(" ")
    if scheme.lower() in {"bearer", "api-key"} and token.strip():
        return token.strip()
    for protocol in headers.get("Sec-WebSocket-Protocol", "").split(","):
        if protocol.strip().startswith(KEY_PROTOCOL):
            return protocol.strip().removeprefix(KEY_PROTOCOL)
    return None


def check_host(host: str, allowed: Iterable[str]) -> None:
    """A name that is not this server's may have been pointed here by somebody else's page. Raises Refusal(403)."""
    name = _name(f"//{host}")
    if name in {"localhost", *(each.lower() for each in allowed)} or name.endswith(".localhost"):
        return
    try:
        ipaddress.ip_address(name)
    except ValueError:
        raise Refusal(403, "invalid_host", f"Host {name!r} is not served here; see --allow-host.") from None


def _name(url: str) -> str:
    """The host of a URL without its port; "" where it has none, or brackets that hold no address."""
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def check_origin(origin: str | None, host: str, allowed: Iterable[str]) -> None:
    """Pages of other origins may not use this server, unless they were allowed. Raises Refusal(403)."""
    if origin is None or origin in allowed:
        return
    scheme, _, netloc = origin.partition("://")
    if scheme in ("http", "https") and netloc.lower() == host.lower():
        return
    raise Refusal(403, "invalid_origin", f"Origin {origin!r} is not allowed here; see --allow-origin.")
