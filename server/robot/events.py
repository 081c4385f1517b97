"""JSON events of the live session."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from mstar.errors import Rejected
from server.events.decode import bytes_of, described

FARTHEST = 1e12
"""Seconds that a clock may tell: beyond, they are no finer than a step of control."""
EVENT_BYTES = 256 * 1024
"""Longest event of a client: larger ones would keep everybody else waiting while they are read."""

Seconds = Annotated[float, Meta(ge=-FARTHEST, le=FARTHEST)]
Rate = Annotated[float, Meta(ge=1e-3, le=1e5)]
Milliseconds = Annotated[float, Meta(gt=0, le=1e9)]
Missing: TypeAlias = Literal["mask", "report"]


class Fields(Struct, frozen=True, forbid_unknown_fields=True):
    """What a client may set; what is left out stays."""

    cameras: list[str] | None | UnsetType = UNSET  # wait for these; null = for those that have sent anything
    rate: Rate | UnsetType = UNSET  # control steps per second
    stale_ms: Milliseconds | UnsetType = UNSET  # an older frame is not used
    wait_ms: Milliseconds | UnsetType = UNSET  # longest wait for a camera, or for a set
    sync_ms: Milliseconds | None | UnsetType = UNSET  # pictures of several cameras lie no further apart; null = anyhow
    missing: Missing | UnsetType = UNSET  # a camera that does not come within wait_ms: do without, or fail and say so
    frozen_ms: Milliseconds | None | UnsetType = UNSET  # a camera that is still for so long is told of; null = not
    prompt: str | UnsetType = UNSET
    goal: str | UnsetType = UNSET  # name of a goal that was sent before
    blend: bool | UnsetType = UNSET  # hold a policy's chunks to the ones before
    show: bool | UnsetType = UNSET  # imagine every plan's outcome, for who looks at the session's video
    stop: tuple[str, ...] | UnsetType = UNSET  # words that, when they are heard, end what the robot does


class SessionUpdate(Struct, frozen=True, forbid_unknown_fields=True, tag="session.update"):
    session: Fields


class State(Struct, frozen=True, forbid_unknown_fields=True, tag="state"):
    """The robot's own state at its time `t`: numbers, by key where the model has several."""

    t: Seconds
    values: list[float] | dict[str, list[float]]


class Ask(Struct, frozen=True, forbid_unknown_fields=True, tag="ask"):
    """From the newest frames, a chunk; with `repeat` another whenever there is a newer frame. Supersedes the last."""

    id: str = ""
    repeat: bool = False
    deadline_ms: Milliseconds | None = None
    standing: bool = False  # the robot stands, whatever it was given
    settings: dict[str, Any] = {}


class Stop(Struct, frozen=True, forbid_unknown_fields=True, tag="stop"):
    """No more chunks."""


class Reset(Struct, frozen=True, forbid_unknown_fields=True, tag="reset"):
    """An episode begins."""


class Pong(Struct, frozen=True, forbid_unknown_fields=True, tag="clock.pong"):
    """Sent at once on a ping: the robot's clock, and the wall clock that the reports of its video tell."""

    id: int
    t: Seconds
    wall: Seconds | None = None  # since 1970


ClientEvent: TypeAlias = SessionUpdate | State | Ask | Stop | Reset | Pong


class Shown(Struct, frozen=True):
    """The session as it is."""

    id: str
    epoch: int
    resume: str  # opens the session again after the connection was lost
    offer: dict[str, Any]
    cameras: list[str] | None
    rate: float
    stale_ms: float
    wait_ms: float
    prompt: str
    goal: str
    blend: bool
    sync_ms: float | None = None
    missing: Missing = "mask"
    frozen_ms: float | None = None
    show: bool = False
    stop: tuple[str, ...] = ("stop", "halt", "freeze", "abort")


class SessionCreated(Struct, frozen=True, tag="session.created"):
    session: Shown


class SessionResumed(Struct, frozen=True, tag="session.resumed"):
    session: Shown


class SessionUpdated(Struct, frozen=True, tag="session.updated"):
    session: Shown


class SessionReset(Struct, frozen=True, tag="session.reset"):
    epoch: int


class SessionStopped(Struct, frozen=True, tag="session.stopped"):
    """Somebody said so: what the robot was given before is not for acting any more."""

    epoch: int
    said: str


class Heard(Struct, frozen=True, tag="heard"):
    """What somebody said to the robot."""

    text: str


class CameraFrozen(Struct, frozen=True, tag="camera.frozen"):
    """Nothing has come of it for `frozen_ms`."""

    camera: str


class CameraBack(Struct, frozen=True, tag="camera.back"):
    """It was told to be frozen, and sends again."""

    camera: str


class Ping(Struct, frozen=True, tag="clock.ping"):
    id: int


class Chunk(Struct, frozen=True, tag="chunk"):
    """Row k of `actions` is for the robot's time `t_valid_from + k · dt`; rows before `first` are over."""

    ask: str
    number: int
    epoch: int
    obs_seq: dict[str, int]
    t_capture: dict[str, Seconds]
    t_state: Seconds
    age_ms: float  # of the oldest frame, when this leaves
    spread_ms: float  # between the first capture and the last
    t_valid_from: Seconds
    dt: Seconds
    first: int
    deadline_hit: bool
    missing: list[str]  # cameras that there was no fresh frame of
    frozen: int  # leading rows that are those of the chunk before
    infer_ms: float
    plan: dict[str, Any] | None
    actions: list[list[float]]


class ChunkLate(Struct, frozen=True, tag="chunk.late"):
    """All rows were over before it could leave: there is nothing to act."""

    ask: str
    number: int
    epoch: int
    obs_seq: dict[str, int]
    age_ms: float
    late_ms: float


class AskEnded(Struct, frozen=True, tag="ask.ended"):
    """The one end of an ask: done, failed, superseded, stopped or reset."""

    ask: str
    reason: str


class Fault(Struct, frozen=True, tag="error"):
    code: str
    message: str
    param: str | None = None


ServerEvent: TypeAlias = (
    SessionCreated
    | SessionResumed
    | SessionUpdated
    | SessionReset
    | SessionStopped
    | Heard
    | CameraFrozen
    | CameraBack
    | Ping
    | Chunk
    | ChunkLate
    | AskEnded
    | Fault
)

_decoder = msgspec.json.Decoder(ClientEvent)
_encoder = msgspec.json.Encoder()


def decode(frame: str | bytes) -> ClientEvent:
    """Raises Rejected, naming the field."""
    try:
        length = bytes_of(frame)
        if length > EVENT_BYTES:
            raise Rejected(f"an event of {length} bytes: at most {EVENT_BYTES} are read", code="event_too_long")
        return _decoder.decode(frame)
    except msgspec.ValidationError as wrong:
        bad = described(str(wrong))
        raise Rejected(bad.message, code=bad.code, param=bad.param) from None
    except (msgspec.DecodeError, UnicodeError, RecursionError) as wrong:
        raise Rejected(f"the frame is no JSON: {wrong}", code="invalid_json") from None


def encode(event: ServerEvent) -> bytes:
    """As it travels."""
    return _encoder.encode(event)
