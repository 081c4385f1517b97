"""The one way in and the one way out of the runtime (torch-free; all that `server/` imports of it)."""

from mstar.client.client import Client, Request, Session
from mstar.messages import Emission, RequestEnded, Slice, Traced

__all__ = ["Client", "Emission", "Request", "RequestEnded", "Session", "Slice", "Traced"]
