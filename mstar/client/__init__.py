"""The one way in and the one way out of the runtime (torch-free; all that `server/` imports of it)."""

from mstar.bus.patience import Patience
from mstar.carried import Slice
from mstar.client.client import Client, Request, Session
from mstar.messages import Emission, RequestEnded, Traced, WorkerUp
from mstar.trace import Record

__all__ = [
    "Client",
    "Emission",
    "Patience",
    "Record",
    "Request",
    "RequestEnded",
    "Session",
    "Slice",
    "Traced",
    "WorkerUp",
]
