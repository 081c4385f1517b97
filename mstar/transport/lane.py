"""Device tensors between workers of one host: through an arena in device memory that its peers map.

A rank's device is asked once for the arena, and gives one handle of it; what is on its way are leases of the arena
(`mstar.transport.ledger`), whose heads lie in a file of the host, with the handle before them. So the file's name tells
a peer everything.

A rank that has a device leaves a note of it. Whether it can map an arena is known when it has: what goes to it over the
host until then carries an *offer*, the arena's name. The peer tries, once, and leaves a note with its verdict. One that
can not (containers that see each other's processes but not their device memory, devices without a path between them)
gets its tensors over the host for ever; so does everyone when the arena is full.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from mstar.carried import Crate
from mstar.tensors import Lease
from mstar.transport.api import Gone
from mstar.transport.device import HANDLE, DeviceMemory, OverHost, Refused, denied
from mstar.transport.files import SharedFile, alive, owner_of
from mstar.transport.ledger import APART, Ledger, PeerLedger, words_beside

LANE_BYTES = 256 << 20
"""Size of the arena. The device gives it when the first tensor leaves for another worker with a device."""
_YES, _NO = "yes", "no"
_MARK = "+device"


def on_lane(lease: Lease) -> bool:
    """Whether a lease is of device memory."""
    return lease.arena.partition(":")[0].endswith(_MARK)


class DeviceArena:
    """Leases of device memory. Raises Refused if the device gives none, or none that can be exported."""

    def __init__(self, owner: str, memory: DeviceMemory, size: int) -> None:
        self._memory = memory
        self._address = memory.allocate(size)
        try:
            handle = memory.export(self._address)
        except Refused:
            memory.free(self._address)
            raise
        self._file = SharedFile.create(owner + _MARK, HANDLE + 8 * words_beside(size))
        self._file.bytes[:HANDLE] = list(handle)
        self.ledger = Ledger(self._file.name, size, self._file.words[HANDLE // 8 :], APART)

    @property
    def name(self) -> str:
        return self._file.name

    def put(self, tensor: Tensor, request: str) -> Lease | None:
        """Copy a tensor into a lease of the request; None if there is no room."""
        lease = self.ledger.take(tensor.nbytes, request)
        if lease is not None:
            self._memory.write(self._address + lease.offset, tensor)
            self.ledger.publish(lease)
        return lease

    def close(self, *, mapped: bool) -> None:
        """`mapped`: peers may have it mapped. The memory then ends with the process: CUDA leaves open what happens to
        those who read it if it is freed before.
        """
        self.ledger.close()
        self._file.close()
        if not mapped:
            self._memory.free(self._address)


class PeerDeviceArena:
    """Another worker's arena, mapped. Raises Gone if that is dead, Refused if its memory can not be mapped."""

    def __init__(self, name: str, memory: DeviceMemory) -> None:
        self._memory = memory
        self._file = SharedFile.open(name)
        try:
            self._address = memory.map(self._file.bytes[:HANDLE].tobytes())
        except Refused:
            self._file.close()
            raise
        self._ledger = PeerLedger(self._file.words[HANDLE // 8 :], APART)

    def read(self, lease: Lease, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """A copy; the lease's owner may take it back from now on. Raises Gone if it already did, or is dead: then CUDA
        leaves open what its memory holds.
        """
        self._check(lease)
        copy = self._memory.read(self._address + lease.offset, shape, dtype)
        self._check(lease)
        self._ledger.done(lease)
        return copy

    def _check(self, lease: Lease) -> None:
        if not alive(lease.arena):
            raise Gone(f"the process of arena {lease.arena} has ended")
        self._ledger.check(lease)

    def close(self) -> None:
        self._ledger.close()
        self._file.close()
        self._memory.unmap(self._address)


class Lane(OverHost):
    """One worker's arena, and those of its peers as they come to be known. `memory`: None on a rank without a device.

    `directory`: where the workers of one server leave their notes.
    """

    def __init__(self, name: str, directory: Path, memory: DeviceMemory | None, size: int = LANE_BYTES) -> None:
        super().__init__(memory)
        self._name = name
        self._directory = directory
        self._size = size
        self._arena: DeviceArena | None = None
        self._refused = ""
        self._offered = False
        self._verdicts: dict[str, bool] = {}  # peer → whether it can map our arena
        self._peers: dict[str, PeerDeviceArena] = {}  # by the arena's name
        self._answered: set[str] = set()  # arenas that were offered
        self._counters = {"device_bytes": 0, "device_leases": 0, "device_full": 0, "device_refused": 0}
        if memory is not None:
            (directory / f"{name}.device").touch()

    # ------------------------------------------------------------------------------------------ the owner's side

    def put(self, tensor: Tensor, to: str, request: str) -> Lease | None:
        """A lease with the tensor, for a peer that can read it there; None: send it over the host."""
        arena = self._own(to)
        if arena is None or not self._takes(to, arena):
            return None
        try:
            lease = arena.put(tensor, request)
        except Refused:
            self._counters["device_refused"] += 1
            return None
        if lease is None:
            self._counters["device_full"] += 1
            return None
        self._counters["device_leases"] += 1
        self._counters["device_bytes"] += lease.size
        return lease

    def offer(self, to: str) -> str | None:
        """The arena's name, for a peer that has not said yet whether it can map it."""
        arena = self._own(to)
        if arena is None or to in self._verdicts:
            return None
        self._offered = True
        return arena.name

    def _own(self, to: str) -> DeviceArena | None:
        """The arena, if it is of use for a peer: one that is reached has left its notes."""
        if to not in self._verdicts and not (self._directory / f"{to}.device").exists():
            self._verdicts[to] = False
        if not self._verdicts.get(to, True):
            return None
        if self._arena is None and self._memory is not None and not self._refused:
            try:
                self._arena = DeviceArena(self._name, self._memory, self._size)
            except Refused as why:
                self._refused = str(why)
                self._counters["device_refused"] += 1
        return self._arena

    def _takes(self, to: str, arena: DeviceArena) -> bool:
        if to not in self._verdicts:
            try:
                name, verdict = self._note(self._name, to).read_text().split(" ", 1)
            except (OSError, ValueError):
                return False
            if name != arena.name:
                return False
            self._verdicts[to] = verdict == _YES
            if verdict != _YES:
                self._counters["device_refused"] += 1
        return self._verdicts[to]

    # ------------------------------------------------------------------------------------------ the receiver's side

    def offered(self, arena: str) -> None:
        """Try to map a peer's arena, and tell the peer."""
        if arena in self._answered or self._memory is None:
            return
        self._answered.add(arena)
        verdict = _YES
        try:
            self._peer(arena, self._memory)
        except Gone:
            return
        except Refused:
            self._counters["device_refused"] += 1
            verdict = _NO
        note = self._note(_worker(arena), self._name)
        fresh = note.with_suffix(".new")
        fresh.write_text(f"{arena} {verdict}")
        fresh.rename(note)

    def take(self, crate: Crate) -> Tensor:
        """The tensor that a crate names. Raises Gone, and Rejected if the device does not give it."""
        lease = crate.body
        if self._memory is None or not isinstance(lease, Lease):
            raise Gone("this rank has no device")
        try:
            return self._peer(lease.arena, self._memory).read(lease, crate.shape, getattr(torch, crate.dtype))
        except Refused as why:
            raise denied(f"{why}, of {_worker(lease.arena)}") from why

    def drop(self, lease: Lease) -> None:
        """A lease will not be read. Raises Gone if its owner is."""
        file = SharedFile.open(lease.arena)
        heads = PeerLedger(file.words[HANDLE // 8 :], APART)
        heads.done(lease)
        heads.close()
        file.close()

    def _peer(self, arena: str, memory: DeviceMemory) -> PeerDeviceArena:
        peer = self._peers.get(arena)
        if peer is None:
            peer = PeerDeviceArena(arena, memory)
            self.forget(_worker(arena))  # a process that was that worker before
            self._peers[arena] = peer
        return peer

    # ------------------------------------------------------------------------------------------ both

    def free(self, request: str) -> None:
        if self._arena is not None:
            self._arena.ledger.free(request)

    def forget(self, worker: str) -> None:
        """The worker is gone: let go of its memory, which the device keeps as long as it is mapped."""
        self._verdicts.pop(worker, None)
        for arena in [arena for arena in self._peers if _worker(arena) == worker]:
            self._peers.pop(arena).close()
            self._answered.discard(arena)

    @property
    def leases(self) -> int:
        return 0 if self._arena is None else self._arena.ledger.leases

    def counters(self) -> dict[str, int]:
        """Totals; `device_refused`: peers, and devices, that would not."""
        return {} if self._memory is None else self._counters

    def close(self) -> None:
        for worker in {_worker(arena) for arena in self._peers}:
            self.forget(worker)
        if self._arena is not None:
            self._arena.close(mapped=self._offered)

    def _note(self, sender: str, receiver: str) -> Path:
        return self._directory / f"{sender}.{receiver}.lane"


def _worker(arena: str) -> str:
    return owner_of(arena).removesuffix(_MARK)
