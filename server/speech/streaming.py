"""Sound in an HTTP answer, sent as it is made."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping

from aiohttp import web

from mstar.errors import Rejected
from server.sessions import bound_sending


async def stream_pieces(
    request: web.Request, headers: Mapping[str, str], first: bytes, pieces: AsyncIterator[bytes]
) -> web.StreamResponse:
    """Answer with `first` and the pieces behind it. Where they fail the connection is cut, not ended."""
    answer = web.StreamResponse(headers=headers)
    await answer.prepare(request)
    bound_sending(request)
    await answer.write(first)
    try:
        async for piece in pieces:
            await answer.write(piece)
    except Rejected:
        if request.transport is not None:  # half a sound must not look like a whole one
            request.transport.abort()
        return answer
    await answer.write_eof()
    return answer
