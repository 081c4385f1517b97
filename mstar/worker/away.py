"""Nodes that are placed elsewhere than their partition's home.

The cursor of a walk is whole at home, so loops, verdicts and skips are what they are on one worker. Home takes each
firing and sends it with its inputs; the other worker runs it as its *guest*, in one batch with its own, and sends the
outcome back. What only nodes there will read stays there. State and K/V of a component lie where it runs. A component
that runs on several workers of a session has them moved: home tells their holder to give them to the next worker, which
waits for them before it runs the firing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from mstar.bus import Endpoint
from mstar.clock import Clock
from mstar.engine.api import Deferred, Engine
from mstar.graph.cursor import Cursor, Taken
from mstar.messages import Fire, Fired, Give, Image, Items
from mstar.streaming.chunk import Span
from mstar.tensors import Output
from mstar.transport.api import Gone, Transport
from mstar.worker.executor import Executor
from mstar.worker.hosted import qualified
from mstar.worker.memory import MemoryQueue
from mstar.worker.ready import Ready
from mstar.worker.state import Elsewhere, Errand, Guest, Left, RequestState, Told


class Away:
    """At home: sends firings out."""

    def __init__(self, endpoint: Endpoint, transport: Transport, guests: Guests, images: Images) -> None:
        self._endpoint = endpoint
        self._transport = transport
        self._guests = guests
        self._images = images
        self.firings = 0

    def may_go(self, request: RequestState, component: str, worker: str) -> bool:
        """Whether a firing may be sent: not while its component's state is in use somewhere else."""
        return not any(errand.component == component and errand.worker != worker for errand in request.errands.values())

    def send(self, request: RequestState, partition: str, cursor: Cursor, node: int, taken: Taken, worker: str) -> None:
        """Send a taken firing to the worker that runs it. Raises TypeError for inputs that can not travel."""
        plan = cursor.plan
        component = plan.component(node)
        image = self._images.claim(request, component, worker)
        request.sent += 1
        request.errands[request.sent] = Errand(partition, cursor, node, component, worker)
        self.firings += 1
        if worker == self._endpoint.name:
            self._guests.receive(request, Guest(plan, partition, node, taken, worker, request.sent, image))
            return
        owner = (request.name, request.epoch)
        given: Mapping[str, Any] = taken.inputs
        there = {name: (at.node, at.output) for name, at in given.items() if isinstance(at, Elsewhere)}
        inputs = {name: value for name, value in given.items() if name not in there}
        self._endpoint.send(
            worker,
            Fire(
                request.name,
                request.sent,
                partition,
                plan.name,
                node,
                self._transport.pack(inputs, worker, owner),
                {name: _span(span) for name, span in taken.spans.items()},
                taken.iteration,
                image,
                there,
            ),
        )


class Guests:
    """Where the firing runs: takes it in, and sends its outcome home."""

    def __init__(self, endpoint: Endpoint, transport: Transport, ready: Ready) -> None:
        self._endpoint = endpoint
        self._transport = transport
        self._ready = ready

    def arrive(self, request: RequestState, message: Fire) -> None:
        """A firing from another worker. Raises Gone if its inputs were freed."""
        plan = request.session.family.walks[(message.partition, message.walk)]
        inputs: Any = self._transport.unpack(message.inputs)
        for name, (node, output) in message.left.items():
            inputs[name] = _read(request, (message.partition, node, output))
        taken = Taken(inputs, message.spans, message.iteration)  # type: ignore[arg-type]
        home = request.session.seating.homes[message.partition]
        self.receive(request, Guest(plan, message.partition, message.node, taken, home, message.number, message.image))

    def receive(self, request: RequestState, guest: Guest) -> None:
        """A firing whose turn comes when the state it needs is here."""
        request.guests[(guest.partition, guest.node)] = guest
        self.admit(request, guest)

    def admit(self, request: RequestState, guest: Guest) -> None:
        """Let the firing be chosen, unless it waits for an image."""
        if request.images.get(guest.plan.component(guest.node), 0) >= guest.image:
            self._ready.admit(request, guest)

    def admit_waiting(self, request: RequestState) -> None:
        """An image was taken."""
        for guest in request.guests.values():
            self.admit(request, guest)

    def leave(self, request: RequestState, guest: Guest, outputs: Mapping[str, Output], stop: bool) -> None:
        """Send what the firing gave to its home. Raises TypeError for what can not travel."""
        owner = (request.name, request.epoch)
        staying = self._staying(request, guest, outputs)
        going = {name: value for name, value in outputs.items() if name not in staying}
        packed = self._transport.pack(going, guest.home, owner)  # type: ignore[arg-type]
        for name, readers in staying.items():
            request.left[(guest.partition, guest.node, name)] = Left(outputs[name], readers)
        self._endpoint.send(guest.home, Fired(request.name, guest.number, packed, stop, tuple(staying)))

    def _staying(self, request: RequestState, guest: Guest, outputs: Mapping[str, Output]) -> dict[str, int]:
        """Outputs that nodes on this worker read in the same pass, and nobody else → how many do."""
        nodes, away = guest.plan.nodes, request.session.seating.away
        made, here = nodes[guest.node], self._endpoint.name
        staying = {}
        for name, route in made.routes.items():
            if outputs.get(name) is None or route.backs or route.out or route.last or route.every:
                continue
            readers = [nodes[slot.node] for slot in route.ahead]
            if readers and all(
                each.around == made.around and away.get((guest.partition, guest.plan.name, each.name)) == here
                for each in readers
            ):
                staying[name] = len(readers)
        return staying


def _read(request: RequestState, key: tuple[str, int, str]) -> Any:
    """What has stayed here for a firing. Raises Gone."""
    left = request.left.get(key)
    if left is None:
        raise Gone(f"{key} is not here")
    left.readers -= 1
    if not left.readers:
        del request.left[key]
    return left.value


@dataclass(slots=True)
class _Parked:
    """An image for which there was no memory."""

    request: RequestState
    message: Image
    image: Any


class Images:
    """State and K/V of components on their way from worker to worker."""

    def __init__(
        self,
        endpoint: Endpoint,
        transport: Transport,
        executor: Executor,
        engines: Mapping[str, Engine],
        memory: MemoryQueue,
        clock: Clock,
        taken: Callable[[RequestState], None],
    ) -> None:
        self._endpoint = endpoint
        self._transport = transport
        self._executor = executor
        self._engines = engines
        self._memory = memory
        self._clock = clock
        self._taken = taken
        self._parked: list[_Parked] = []
        self.moves = 0

    def __len__(self) -> int:
        return len(self._parked)

    def claim(self, request: RequestState, component: str, worker: str) -> int:
        """At home: the component's next firing is on `worker` → number of the image it has to wait for, 0 = none."""
        if component not in request.session.seating.moving:
            return 0
        holder = request.holders.get(component)
        request.holders[component] = worker
        if holder in {None, worker}:
            return request.moves.get(component, 0)
        number = request.moves[component] = request.moves.get(component, 0) + 1
        give = Give(request.name, component, worker, number)
        if holder == self._endpoint.name:
            self.give(request, give)
        else:
            self._endpoint.send(holder or "", give)
        return number

    def give(self, request: RequestState, message: Give) -> None:
        """Where the state is: send it on, behind the step in flight."""
        key = qualified(request.session.family.name, message.component)
        engine = self._engines[key]
        self.moves += 1

        def given(image: Any) -> None:
            if request.alive:
                packed = self._transport.pack(image, message.to, (request.name, request.epoch))
                self._endpoint.send(message.to, Image(request.name, message.component, message.number, packed))

        self._executor.submit(lambda: engine.give(request.name, key), given)

    def arrive(self, request: RequestState, message: Image) -> None:
        """Where it is to be. Raises Gone if it was freed."""
        self._take(_Parked(request, message, self._transport.unpack(message.image)))

    def retry(self) -> None:
        """Memory may have become free."""
        if not self._parked:
            return
        parked, self._parked = self._parked, []
        for each in parked:
            if not each.request.alive:
                continue
            if each.request.deferred:
                self._parked.append(each)
            else:
                self._take(each)

    def _take(self, parked: _Parked) -> None:
        request, message = parked.request, parked.message
        key = qualified(request.session.family.name, message.component)
        engine = self._engines[key]

        def settled(deferred: Deferred | None) -> None:
            if not request.alive:
                return
            if deferred is not None:
                self._memory.wait(request, key, deferred, self._clock.now())
                self._parked.append(parked)
                return
            self._memory.served(request)
            request.images[message.component] = message.number
            self._taken(request)

        self._executor.submit(lambda: engine.take(request.name, key, parked.image), settled)


def _span(chunk: Span) -> Span:
    """The span alone: a chunk's items travel among the inputs."""
    return Span(
        chunk.stream,
        chunk.first,
        chunk.n_context,
        chunk.n_new,
        chunk.segment,
        chunk.segment_final,
        chunk.final,
    )


def cargo(message: Told) -> Any:
    """What a transport has packed into a message."""
    match message:
        case Items(pieces=pieces):
            return [piece.value for piece in pieces if not piece.none]
        case Fire(inputs=inputs):
            return inputs
        case Fired(outputs=outputs):
            return outputs
        case Image(image=image):
            return image
        case _:
            return None
