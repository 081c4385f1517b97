"""Who is near a robot is listened to: a session of another family that hears, beside the robot's own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec
import numpy as np
import numpy.typing as npt

from models.registry import Conversation
from mstar.errors import Rejected
from server.door import Server
from server.events.server import Error, ServerEvent, TranscriptionCompleted
from server.events.session import SessionPatch
from server.limits import Account
from server.pump import Pump
from server.robot.live import Live
from server.security import Refusal
from server.session.commands import PlayAudio
from server.sessions import opened, options_of
from server.watch import watching

AHEAD_SECONDS = 5.0
"""Sound that is kept while the family's session opens."""

WORDS = msgspec.convert({"type": "transcription", "audio": {"input": {"transcription": {}}}}, SessionPatch)
"""What a session is asked for that is to tell words."""

PcmF = npt.NDArray[np.float32]


class Ears:
    """`hear` takes sound at any time; `run` listens until it is cancelled. `said` is called with what was said, `wrong`
    with what goes wrong: the account may have no more sound to be heard.
    """

    def __init__(self, server: Server, model: str, offer: Conversation, account: Account) -> None:
        self.rate = offer.mic_rate
        self.said: Callable[[str], None] = lambda _: None
        self.wrong: Callable[[Rejected], None] = lambda _: None
        self._account = account
        self._server = server
        self._model = model
        self._offer = offer
        self._pump: Pump | None = None
        self._early: list[PcmF] = []

    def hear(self, pcm: PcmF) -> None:
        """Float32 [n] at `rate`."""
        if self._pump is None:
            self._early.append(pcm)
            while sum(each.size for each in self._early) > AHEAD_SECONDS * self.rate:
                del self._early[0]
        elif not self._pump.core.saturated:
            self._pump.hear(pcm)

    async def run(self) -> None:
        """Raises Refusal if the family's session can not be opened."""
        runtime = await opened(self._server, self._model, trace=False)
        now = asyncio.get_running_loop().time
        watch = watching(self._server, runtime, "robot")
        options = options_of(self._server, counted=True, transcribing=True)
        try:
            core = watch.core(self._offer, self._model, options, now())
            async with asyncio.TaskGroup() as group:
                self._pump = Pump(core, runtime, self, group, now, watch, self._hears)
                try:
                    self._pump.start(core.open(WORDS))
                    for pcm in self._early:
                        self._pump.hear(pcm)
                    self._early.clear()
                    await asyncio.Event().wait()
                finally:
                    self._pump.stop()
                    self._pump = None
        finally:
            watch.end(now())
            await runtime.close()

    def _hears(self, samples: int) -> None:
        self._account.hear(samples / self.rate)

    # ------------------------------------------------------------------------------------------- Transport

    def send(self, event: ServerEvent) -> None:
        match event:
            case TranscriptionCompleted(transcript=text) if text.strip():
                self.said(text.strip())
            case Error(error=error):
                self.wrong(Rejected(f"Nobody listens: {error.message}", code=error.code or "ears_unavailable"))
            case _:
                pass

    def play(self, sound: PlayAudio) -> None:
        """It never answers."""

    def clear(self, response_id: str) -> None:
        """It never answers."""

    def end(self, code: int, reason: str) -> None:
        """Its time is that of the robot's session."""


async def attend(ears: Ears, live: Live) -> None:
    """Tell a robot's session what is said near it, until this is cancelled, or nobody can listen."""
    ears.said, ears.wrong = live.heard, live.refuse
    try:
        await ears.run()
    except Refusal as why:
        live.refuse(Rejected(f"Nobody listens: {why.message}", code="ears_unavailable"))


def ears_of(server: Server, account: Account) -> Ears | None:
    """Ears of the first family that one can talk with, on an account; None if there is none."""
    for name, card in server.cards.items():
        if card.conversation is not None:
            return Ears(server, name, card.conversation, account)
    return None
