"""Every message between client, conductor and workers (torch-free).

Media travels directly (client ↔ worker), control through the conductor and always with a position.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import msgspec

from mstar.streaming.chunk import Span

LAUNCHER = "launcher"
"""The party that starts processes and ends them."""

# ---------------------------------------------------------------------------------------------- client → conductor


class OpenSession(msgspec.Struct, frozen=True, tag=True):
    session: str
    family: str
    client: str
    settings: Mapping[str, Any] = {}
    trace: bool = False


class CloseSession(msgspec.Struct, frozen=True, tag=True):
    session: str


class StartRequest(msgspec.Struct, frozen=True, tag=True):
    session: str
    request: str
    task: str
    inputs: Mapping[str, Any] = {}
    settings: Mapping[str, Any] = {}
    positions: Mapping[str, int] = {}  # live stream → first item a standing task listens to


class Interrupt(msgspec.Struct, frozen=True, tag=True):
    """Ends a request's epoch. `heard` = last sample its listener heard, for the trace."""

    request: str
    heard: int | None = None


class ReopenSession(msgspec.Struct, frozen=True, tag=True):
    """The answer to WorkerUp: `first` = where each live stream of the session begins when it is fed to that worker."""

    session: str
    worker: str
    life: int
    first: Mapping[str, int] = {}


# ---------------------------------------------------------------------------------------------- client → worker


class Feed(msgspec.Struct, frozen=True, tag=True):
    """Items [index, index + n) of a live stream; `value` is one item, or with `rows` an array of n items.

    `request` = "" for a stream of the session. `cut` ends the stream's current segment after these items.
    """

    session: str
    request: str
    stream: str
    index: int
    value: Any
    rows: bool = False
    cut: bool = False


class Commit(msgspec.Struct, frozen=True, tag=True):
    """The live stream ends at `upto` items; waits at the consumer until they have come."""

    session: str
    request: str
    stream: str
    upto: int


class Credit(msgspec.Struct, frozen=True, tag=True):
    """The client takes output `output` of a request up to weight `upto` (absolute); it has heard `played` samples."""

    request: str
    output: str
    upto: int
    played: int = 0


# ---------------------------------------------------------------------------------------------- worker → worker


class Piece(msgspec.Struct, frozen=True, array_like=True):
    """Some items of a stream: one, or with `rows` those that are the rows of an array (None = as the stream keeps its
    items). `cut` ends the segment after them. Without items, `none`.
    """

    value: Any
    rows: bool | None = None
    cut: bool = False
    none: bool = False


class Items(msgspec.Struct, frozen=True, tag=True):
    """What one delivery puts into a stream whose consumer is on another worker; `index` is the first item's.

    With `end` the stream has that many items in all.
    """

    request: str
    stream: str
    partition: str
    index: int
    pieces: tuple[Piece, ...] = ()
    end: int | None = None


class Room(msgspec.Struct, frozen=True, tag=True):
    """From a stream's consumer to its producer: `upto` items (absolute) may be sent."""

    request: str
    stream: str
    partition: str
    upto: int


class Fire(msgspec.Struct, frozen=True, tag=True):
    """A firing of a node that runs elsewhere than its partition's home: run it, when image `image` of its component's
    state was taken (0 = none is to come). `left`: inputs that are there already, by the node and output that made them.
    """

    request: str
    number: int
    partition: str
    walk: str
    node: int
    inputs: Any
    spans: Mapping[str, Span] = {}
    iteration: int = 0
    image: int = 0
    left: Mapping[str, tuple[int, str]] = {}


class Fired(msgspec.Struct, frozen=True, tag=True):
    """What firing `number` gave, to its home. One that fails ends its request through the conductor. Outputs in `left`
    stay where they were made: all nodes that read them run there."""

    request: str
    number: int
    outputs: Any
    stop: bool = False
    left: tuple[str, ...] = ()


class Give(msgspec.Struct, frozen=True, tag=True):
    """From a partition's home to the holder of a component's state: send it to worker `to`, as image `number`."""

    request: str
    component: str
    to: str
    number: int


class Image(msgspec.Struct, frozen=True, tag=True):
    """State and K/V of a component, to the worker that goes on with it."""

    request: str
    component: str
    number: int
    image: Any


class Pace(msgspec.Struct, frozen=True, tag=True):
    """How far a request is ahead of its listener, from the worker that sounds to those that work for it.

    `sounded` samples were emitted, `played` were heard; `begun`: something has left.
    """

    request: str
    sounded: int
    played: int
    begun: bool


# ---------------------------------------------------------------------------------------------- conductor → worker


class SessionOpened(msgspec.Struct, frozen=True, tag=True):
    """From the conductor to the workers of the session, and on from each of them (`worker`) to its client.

    So a client feeds only workers that know the session. `live` says which workers take which live stream, `outputs`
    which emit which output. `history`: items of a live stream that its takers may look back on, which is what a client
    keeps for a worker that takes the place of a lost one. To such a worker, `first` says where the streams begin.
    `pins` picks among replicas (`mstar.placement.Placed.seat`).
    """

    session: str
    family: str
    client: str
    workers: tuple[str, ...]
    worker: str = ""
    live: Mapping[str, tuple[str, ...]] = {}
    outputs: Mapping[str, tuple[str, ...]] = {}
    settings: Mapping[str, Any] = {}
    trace: bool = False
    history: Mapping[str, int] = {}
    first: Mapping[str, int] = {}
    pins: tuple[str, ...] = ()


class SessionClosed(msgspec.Struct, frozen=True, tag=True):
    """To the workers of the session; and from each of them (`worker`) to its client when all of it is freed there."""

    session: str
    worker: str = ""


class BeginRequest(msgspec.Struct, frozen=True, tag=True):
    """To every worker of a request: its task, settings, and the inputs the walks take."""

    session: str
    request: str
    task: str
    epoch: int
    inputs: Mapping[str, Any] = {}
    settings: Mapping[str, Any] = {}
    positions: Mapping[str, int] = {}


class BeginWalk(msgspec.Struct, frozen=True, tag=True):
    request: str
    partition: str
    walk: str


class EndRequest(msgspec.Struct, frozen=True, tag=True):
    """Drop everything of the request; session state stays."""

    request: str


# ---------------------------------------------------------------------------------------------- worker → conductor


class WorkerReady(msgspec.Struct, frozen=True, tag=True):
    """`life` counts the processes that have been this worker, from 1."""

    worker: str
    family: str
    pid: int
    life: int = 1


class Progress(msgspec.Struct, frozen=True, tag=True):
    """Forward progress of a worker: steps begun, and whether its compute thread is at work."""

    worker: str
    steps: int
    busy: bool
    life: int = 1


class WalkDone(msgspec.Struct, frozen=True, tag=True):
    """`stopped`: a verdict outside of any loop said stop, so that no further walk of the partition begins."""

    request: str
    partition: str
    walk: str
    stopped: bool = False
    emitted: Mapping[str, int] = {}  # output → number of emissions so far


class StepFailed(msgspec.Struct, frozen=True, tag=True):
    request: str
    node: str
    cause: str
    code: str = "node_failed"
    param: str = ""


# ---------------------------------------------------------------------------------------------- lost workers


class WorkerExited(msgspec.Struct, frozen=True, tag=True):
    """From the launcher to the conductor: the process that was `life` of the worker has ended."""

    worker: str
    life: int
    cause: str


class ReplaceWorker(msgspec.Struct, frozen=True, tag=True):
    """From the conductor to the launcher: end what there is of the worker and start its process of that `life`."""

    worker: str
    life: int
    cause: str


class GiveUp(msgspec.Struct, frozen=True, tag=True):
    """From the conductor to the launcher: nothing helps."""

    cause: str


class WorkerDown(msgspec.Struct, frozen=True, tag=True):
    """From the conductor to clients and the other workers: what waits for this worker is for nobody."""

    worker: str
    cause: str


class WorkerUp(msgspec.Struct, frozen=True, tag=True):
    """From the conductor to clients and the launcher: the worker is there again, `seconds` after it was lost."""

    worker: str
    life: int
    seconds: float


# ---------------------------------------------------------------------------------------------- → client


class Emission(msgspec.Struct, frozen=True, tag=True):
    """One output on its way to the client, sent by the worker the moment its node has fired."""

    request: str
    output: str
    index: int  # counts the emissions of this output from 0
    value: Any


class RequestEnded(msgspec.Struct, frozen=True, tag=True):
    """The one terminal event of a request. `emitted` counts its emissions per output, so it can not overtake them."""

    request: str
    status: str  # done | cancelled | failed
    node: str = ""
    cause: str = ""
    code: str = ""
    emitted: Mapping[str, int] = {}
    param: str = ""  # the offending field, where the caller was at fault


class Refused(msgspec.Struct, frozen=True, tag=True):
    """An OpenSession or StartRequest was not taken; nothing was changed."""

    session: str
    request: str
    code: str
    message: str
    param: str = ""


class Traced(msgspec.Struct, frozen=True, tag=True):
    """Trace records of a session that asked for them: rows of `mstar.trace.Record` as tuples."""

    session: str
    worker: str
    records: tuple[tuple[Any, ...], ...]


# ---------------------------------------------------------------------------------------------- questions


class Ask(msgspec.Struct, frozen=True, tag=True):
    """`what`: "census" | "counters" | "workers" | "graph" (of `family`); of a worker also "measures" | "trace" (of
    `session`). Answered by the one asked, to `client`.
    """

    what: str
    client: str
    ask: int
    family: str = ""
    session: str = ""


class Answer(msgspec.Struct, frozen=True, tag=True):
    ask: int
    sender: str
    value: Any


class Stop(msgspec.Struct, frozen=True, tag=True):
    """End the process, after the step in flight."""


Message: TypeAlias = (
    OpenSession
    | CloseSession
    | StartRequest
    | Interrupt
    | ReopenSession
    | Feed
    | Commit
    | Credit
    | Items
    | Room
    | Pace
    | Fire
    | Fired
    | Give
    | Image
    | SessionOpened
    | SessionClosed
    | BeginRequest
    | BeginWalk
    | EndRequest
    | WorkerReady
    | Progress
    | WalkDone
    | StepFailed
    | WorkerExited
    | ReplaceWorker
    | GiveUp
    | WorkerDown
    | WorkerUp
    | Emission
    | RequestEnded
    | Refused
    | Traced
    | Ask
    | Answer
    | Stop
)


def session_of(request: str) -> str:
    """The session that a request's name begins with."""
    return request.rpartition(".")[0]
