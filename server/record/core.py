"""A session core that keeps what goes into it."""

from __future__ import annotations

import random
from collections.abc import Callable

import msgspec
import numpy as np
import numpy.typing as npt

from models.registry import Conversation as Offer
from mstar.errors import Rejected
from mstar.tensors import Value
from server.events.client import AnyClientEvent
from server.events.session import SessionPatch
from server.record.entries import (
    Began,
    Closed,
    Congested,
    Emitted,
    Entry,
    Heard,
    Mistook,
    Played,
    Said,
    TaskEnded,
    Ticked,
)
from server.record.sums import shown, sum_of, sum_of_commands
from server.session.commands import Command
from server.session.core import SessionCore
from server.session.options import Options
from server.session.outbox import Ids
from server.session.tasks import Ended

Keep = Callable[[Entry], None]


def seeded(seed: str) -> Ids:
    """Ids that are the same for the same seed, and as hard to guess as it."""
    source = random.Random(seed)  # noqa: S311 - the seed is a secret; equal runs need equal ids

    def new_id(kind: str) -> str:
        return f"{kind}_{source.randbytes(10).hex()}"

    return new_id


class TapedCore(SessionCore):
    """`keep` takes every step as an entry; `began` says how the core is made (its `out` is filled in by `open`)."""

    def __init__(self, offer: Offer, options: Options, began: Began, keep: Keep) -> None:
        super().__init__(offer, began.model, options, seeded(began.ids), began.at, began.unix)
        self._began = began
        self._keep = keep
        self._position = 0

    def open(self, patch: SessionPatch | None = None) -> list[Command]:
        commands = super().open(patch)
        raw = None if patch is None else msgspec.json.encode(patch)
        self._keep(msgspec.structs.replace(self._began, patch=raw, out=sum_of_commands(commands)))
        return commands

    def client(self, event: AnyClientEvent, now: float) -> list[Command]:
        commands = super().client(event, now)
        self._keep(Said(now, msgspec.json.encode(event), sum_of_commands(commands)))
        return commands

    def refuse(self, why: Rejected, event_id: str | None) -> list[Command]:
        commands = super().refuse(why, event_id)
        self._keep(Mistook(why.message, why.code, why.param, event_id, sum_of_commands(commands)))
        return commands

    def hear(self, pcm: npt.NDArray[np.float32], now: float) -> list[Command]:
        commands = super().hear(pcm, now)
        self._keep(Heard(now, self._position, np.ascontiguousarray(pcm).tobytes(), sum_of_commands(commands)))
        self._position += pcm.size
        return commands

    def emission(self, key: int, output: str, index: int, value: Value, now: float) -> list[Command]:
        commands = super().emission(key, output, index, value, now)
        given = (sum_of(value), shown(value))
        self._keep(Emitted(now, key, output, index, *given, sum_of_commands(commands)))
        return commands

    def ended(self, key: int, end: Ended, now: float) -> list[Command]:
        commands = super().ended(key, end, now)
        self._keep(TaskEnded(now, key, end.status, end.code, end.cause, sum_of_commands(commands)))
        return commands

    def played(self, response_id: str, samples: int, now: float) -> list[Command]:
        commands = super().played(response_id, samples, now)
        self._keep(Played(now, response_id, samples, sum_of_commands(commands)))
        return commands

    def congested(self, congested: bool, now: float) -> list[Command]:
        commands = super().congested(congested, now)
        self._keep(Congested(now, congested, sum_of_commands(commands)))
        return commands

    def tick(self, now: float) -> list[Command]:
        commands = super().tick(now)
        self._keep(Ticked(now, sum_of_commands(commands)))
        return commands

    def close(self, now: float) -> None:
        """The session is over."""
        self._keep(Closed(now))
