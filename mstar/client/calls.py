"""What the owner of a session asks of it, in a form that can be kept and asked again."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from mstar.bus.wire import Envelope, decode, encode
from mstar.client.session import Request, Session
from mstar.errors import Rejected
from mstar.messages import Commit, Credit, Feed, Interrupt, StartRequest

__all__ = ["Call", "Feed", "Interrupt", "packed", "repeat", "unpacked"]

Call: TypeAlias = StartRequest | Feed | Commit | Credit | Interrupt


def packed(call: Call) -> bytes:
    """Raises TypeError for a value that can not travel."""
    return encode(Envelope("", 0, call))


def unpacked(raw: bytes) -> Call:
    """Raises ValueError for what is no call."""
    try:
        call = decode(raw).body
    except (msgspec.MsgspecError, ValueError, TypeError, IndexError) as wrong:
        raise ValueError(f"not a call: {wrong}") from None
    if not isinstance(call, StartRequest | Feed | Commit | Credit | Interrupt):
        raise ValueError(f"a {type(call).__name__} is not a call")
    return call


def repeat(session: Session, call: Call) -> Request | None:
    """Ask again → the request, where one is begun. Raises ValueError where it does not fit the session."""
    try:
        match call:
            case StartRequest(task=task, inputs=inputs, settings=settings, positions=positions):
                return session.start(task, inputs, settings, positions)
            case Feed(request=request, stream=stream, index=index, value=value, rows=rows, cut=cut):
                session.feed(stream, index, value, rows=rows, cut=cut, request=request)
            case Commit(request=request, stream=stream, upto=upto):
                session.commit(stream, upto, request=request)
            case Credit():
                session.credit(call)
            case Interrupt(request=name, heard=heard):
                found = session.requests.get(name)
                if found is not None:
                    found.interrupt(heard)
    except Rejected as why:
        raise ValueError(why.message) from None
    return None
