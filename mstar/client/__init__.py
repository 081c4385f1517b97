"""The one way in and the one way out of the runtime (torch-free; all that `server/` imports of it)."""

from mstar.client.client import Client, Request, Session
from mstar.messages import Emission, RequestEnded, Slice, Traced
from mstar.trace import Record

__all__ = ["Client", "Emission", "Record", "Request", "RequestEnded", "Session", "Slice", "Traced"]
