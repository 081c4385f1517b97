"""Streams whose two ends are on different workers.

Items go straight from the producer's worker to the consumer's, as soon as their node has fired. The consumer's buffer
bounds them: it tells the producer up to which item (absolute) it has room, before half of the room it told is left.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from mstar.bus import Endpoint
from mstar.errors import Rejected
from mstar.messages import Items, Piece, Room
from mstar.submodule import Many, Rows
from mstar.tensors import Output
from mstar.transport.api import Transport
from mstar.worker.ready import Ready
from mstar.worker.state import Outlet, RequestState

Key = tuple[str, str]
"""(stream, partition it ends in)"""


@dataclass(slots=True)
class Outlets:
    """The producers' side."""

    endpoint: Endpoint
    transport: Transport

    def open(self, request: RequestState) -> None:
        """Room at the consumers of all streams that partitions of the request feed from here."""
        family, seating = request.session.family, request.session.seating
        for partition in request.partitions & request.session.here:
            for key in family.feeds[partition]:
                consumer = seating.homes[key[1]]
                if key[1] in request.partitions and consumer != family.worker:
                    request.outlets[key] = Outlet(consumer, family.inlets[key].edge.bound)

    def send(self, request: RequestState, key: Key, values: Sequence[Output]) -> None:
        """Put values into a stream. Raises Rejected for what it can not take, TypeError for what can not travel."""
        outlet = request.outlets[key]
        rows = request.session.family.inlets[key].edge.items == "rows"
        owner = (request.name, request.epoch)
        packed: list[Piece] = []
        first = outlet.produced
        for value in values:
            pieces, count = _pieces(value, rows)
            for piece in pieces:
                wire = self.transport.pack(piece.value, outlet.worker, owner)
                packed.append(Piece(wire, piece.rows, piece.cut, piece.none))
            outlet.produced += count
        self.endpoint.send(outlet.worker, Items(request.name, *key, first, tuple(packed)))

    def end(self, request: RequestState, key: Key) -> None:
        """The stream has all its items; the message carries their number."""
        outlet = request.outlets[key]
        self.endpoint.send(outlet.worker, Items(request.name, *key, outlet.produced, (), outlet.produced))

    def room(self, request: RequestState, message: Room) -> bool:
        """Whether more room is known than before."""
        outlet = request.outlets.get((message.stream, message.partition))
        if outlet is None or message.upto <= outlet.upto:
            return False
        outlet.upto = message.upto
        return True


@dataclass(slots=True)
class Inlets:
    """The consumers' side."""

    endpoint: Endpoint
    transport: Transport
    ready: Ready
    _moved: dict[tuple[str, Key], RequestState] = field(default_factory=dict)

    def arrive(self, request: RequestState, message: Items) -> None:
        """Put items into their buffer. Raises Rejected for what the stream does not take."""
        key = (message.stream, message.partition)
        buffer = request.buffers.get(key)
        if buffer is None:
            return
        index, now = message.index, self.ready.now
        for piece in message.pieces:
            if not piece.none:
                value = self.transport.unpack(piece.value)
                index += buffer.put(index, value, rows=piece.rows, now=now)  # type: ignore[arg-type]
            if piece.cut:
                buffer.cut(index)
        if message.end is not None:
            buffer.end(message.end)
        self.ready.refresh(request, message.partition)
        self.note(request, key)

    def note(self, request: RequestState, key: Key) -> None:
        """Items came, or were taken: `tell` looks whether its producer is to know."""
        if key in request.sources:
            self._moved[(request.name, key)] = request

    def tell(self) -> None:
        """Tell producers that have used half of their room of the new one."""
        if not self._moved:
            return
        moved, self._moved = self._moved, {}
        for (name, key), request in moved.items():
            buffer = request.buffers.get(key)
            if buffer is None or not request.alive:
                continue
            known = request.told.get(key, buffer.bound)
            room = buffer.room
            if room > known and 2 * (known - buffer.items_seen) <= buffer.bound:
                request.told[key] = room
                self.endpoint.send(request.sources[key], Room(name, *key, room))


def _pieces(value: Output, rows: bool) -> tuple[list[Piece], int]:
    """A value as pieces, and the number of its items."""
    match value:
        case Many(items=items, cut=cut):
            pieces = [Piece(item, rows=False) for item in items]
            if cut:
                pieces.append(Piece(None, cut=True, none=True))
            return pieces, len(items)
        case Rows(array=array, cut=cut):
            return [Piece(array, rows=True, cut=cut)], _length(array)
        case _:
            return [Piece(value)], _length(value) if rows else 1


def _length(array: Output) -> int:
    shape = getattr(array, "shape", None)
    if not shape:
        raise Rejected("only an array of at least one dimension has rows that are items", param="value")
    return int(shape[0])


def sources_of(request: RequestState) -> Mapping[Key, str]:
    """Streams that end in a partition here and are fed by one elsewhere → the worker that feeds them."""
    family, seating = request.session.family, request.session.seating
    sources = {}
    for partition in request.partitions:
        if partition not in request.session.here:
            for key in family.feeds[partition]:
                if key in request.buffers:
                    sources[key] = seating.homes[partition]
    return sources
