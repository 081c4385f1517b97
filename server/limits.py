"""Bounds on what one client, and all together, may ask for."""

from __future__ import annotations

import asyncio
import math
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType

from mstar.errors import Rejected

FRAME_BYTES = 32 * 1024 * 1024
"""Longest WebSocket frame; 15 MiB of sound in base64 are 20 MiB."""
APPEND_BYTES = 15 * 1024 * 1024
"""Most sound in one `input_audio_buffer.append`."""
BODY_BYTES = 1024 * 1024
"""Longest body of an HTTP request."""
ERRORS_PER_MINUTE = 120
"""A client with more than this is not one."""


class ErrorBudget:
    """Counts a client's mistakes over the last minute."""

    def __init__(self, most: int = ERRORS_PER_MINUTE) -> None:
        self._most = most
        self._times: deque[float] = deque(maxlen=most + 1)

    def spend(self, now: float) -> bool:
        """One more mistake at `now` seconds → whether that is still tolerated."""
        self._times.append(now)
        return len(self._times) <= self._most or now - self._times[0] > 60


class Full(Exception):
    """No session is free."""


class Admission:
    """How many sessions there may be at once; none while the server drains."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.held = 0
        self.draining = False
        self._empty = asyncio.Event()
        self._empty.set()

    def enter(self, account: Account | None = None) -> Seat:
        """A seat, on an account that has let it begin. Raises Full."""
        if self.draining or self.held >= self.most:
            raise Full
        self.held += 1
        self._empty.clear()
        return Seat(self, account)

    def give_back(self) -> None:
        """A session has ended."""
        self.held -= 1
        if not self.held:
            self._empty.set()

    async def empty(self, seconds: float) -> bool:
        """Wait until no session is left → whether that was within `seconds`."""
        try:
            async with asyncio.timeout(seconds):
                await self._empty.wait()
        except TimeoutError:
            return False
        return True


class Seat:
    """One session's place; left once."""

    def __init__(self, admission: Admission, account: Account | None = None) -> None:
        self._admission: Admission | None = admission
        self._account = account

    def leave(self) -> None:
        if self._admission is not None:
            self._admission.give_back()
            self._admission = None
            if self._account is not None:
                self._account.end()

    def __enter__(self) -> Seat:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.leave()


# ---------------------------------------------------------------------------------------------------- of one key

MOST_ACCOUNTS = 10_000
"""Keys and addresses that are remembered; of those without a session the longest unseen are forgotten."""


class Limited(Rejected):
    """A key has used up what it may; `retry_after` seconds from now it has some again."""

    def __init__(self, what: str, retry_after: float) -> None:
        super().__init__(f"Rate limit reached: {what}.", code="rate_limit_exceeded")
        self.retry_after = max(1, math.ceil(retry_after))


@dataclass(frozen=True, slots=True)
class Allowance:
    """What one key may use; 0 = as much as it likes. All but `sessions` are a minute's."""

    sessions: int = 0
    """At once."""
    requests: int = 0
    """Sessions and HTTP requests that begin."""
    characters: int = 0
    """Of text that is to be spoken or answered."""
    seconds: float = 0.0
    """Of sound that is to be heard."""


class Meter:
    """Up to `amount` a minute, which comes back evenly. A larger use needs all of it, and overdraws it."""

    def __init__(self, amount: float, now: float) -> None:
        self._amount = amount
        self._left = amount
        self._at = now

    def spend(self, n: float, now: float) -> float:
        """Use n → 0, or, where too little is left, seconds until there is enough."""
        self._left = min(self._amount, self._left + (now - self._at) * self._amount / 60)
        self._at = now
        lacking = min(n, self._amount) - self._left
        if lacking > 0:
            return lacking * 60 / self._amount
        self._left -= n
        return 0.0


class Account:
    """What one key uses. `clock` gives monotonic seconds. Everything raises Limited."""

    def __init__(self, allowance: Allowance, clock: Callable[[], float]) -> None:
        self.held = 0
        """Sessions open."""
        self._allowance = allowance
        self._clock = clock
        now = clock()
        self._requests = Meter(allowance.requests, now) if allowance.requests else None
        self._characters = Meter(allowance.characters, now) if allowance.characters else None
        self._seconds = Meter(allowance.seconds, now) if allowance.seconds else None

    def begin(self) -> None:
        """One session more, until `end`."""
        most = self._allowance.sessions
        if most and self.held >= most:
            raise Limited(f"{most} sessions at once", 1)
        self._spend(self._requests, 1, f"{self._allowance.requests} requests a minute")
        self.held += 1

    def end(self) -> None:
        self.held -= 1

    def write(self, characters: int) -> None:
        """Text to be spoken or answered."""
        self._spend(self._characters, characters, f"{self._allowance.characters} characters a minute")

    def hear(self, seconds: float) -> None:
        """Sound to be heard."""
        self._spend(self._seconds, seconds, f"{self._allowance.seconds:g} seconds of sound a minute")

    def _spend(self, meter: Meter | None, n: float, what: str) -> None:
        wait = meter.spend(n, self._clock()) if meter is not None and n else 0.0
        if wait:
            raise Limited(what, wait)


class Accounts:
    """By name: a key's digest, or, where no keys are asked for, a client's address."""

    def __init__(self, allowance: Allowance, clock: Callable[[], float]) -> None:
        self._allowance = allowance
        self._clock = clock
        self._accounts: OrderedDict[str, Account] = OrderedDict()

    def of(self, name: str) -> Account:
        found = self._accounts.get(name)
        if found is None:
            found = self._accounts[name] = Account(self._allowance, self._clock)
            if len(self._accounts) > MOST_ACCOUNTS:
                self._forget_one()
        self._accounts.move_to_end(name)
        return found

    def __len__(self) -> int:
        return len(self._accounts)

    def _forget_one(self) -> None:
        oldest = next((name for name, account in self._accounts.items() if not account.held), None)
        if oldest is not None:
            del self._accounts[oldest]
