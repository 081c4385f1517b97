"""What all addresses that take offers share: their type of content, and what pages of other origins may see."""

from __future__ import annotations

from aiohttp import web

from server.http.reading import body_of
from server.security import Refusal

SDP = "application/sdp"
OFFER_BYTES = 256 * 1024
"""Longest description, or list of addresses, of a peer."""
EXPOSED = "Location, ETag, Link"


def cross_origin(request: web.Request) -> dict[str, str]:
    """Headers for a page of another origin; whether that one may come in was decided at the door."""
    origin = request.headers.get("Origin")
    if origin is None:
        return {}
    return {"Access-Control-Allow-Origin": origin, "Vary": "Origin", "Access-Control-Expose-Headers": EXPOSED}


async def preflight(request: web.Request) -> web.Response:
    """What a browser asks before a page of another origin may call; what is posted here."""
    return web.Response(
        status=204,
        headers={
            **cross_origin(request),
            "Access-Control-Allow-Methods": "POST, PATCH, DELETE, OPTIONS",
            "Access-Control-Allow-Headers": "Authorization, Content-Type, If-Match",
            "Access-Control-Max-Age": "600",
            "Accept-Post": SDP,
        },
    )


async def offer_of(request: web.Request) -> str:
    """The SDP of a request. Raises Refusal(408, 413, 415)."""
    if request.content_type != SDP:
        raise Refusal(415, "unsupported_media_type", f"Expected {SDP}.")
    return await text_of(request)


async def text_of(request: web.Request) -> str:
    """SDP is UTF-8, whatever the request says of it (RFC 8866, 4.6); what is not is taken for characters unknown.

    Raises Refusal(408, 413).
    """
    return (await body_of(request, OFFER_BYTES)).decode(errors="replace")


def answered(request: web.Request, sdp: str, location: str, *, status: int = 201, **headers: str) -> web.Response:
    """A description of ours, and where what it opened is found."""
    return web.Response(
        status=status,
        text=sdp,
        content_type=SDP,
        headers={
            "Location": location,
            "Access-Control-Expose-Headers": EXPOSED,
            **cross_origin(request),
            **headers,
        },
    )
