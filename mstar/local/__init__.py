"""The whole system in one process on a clock that is turned by hand: for tests and tools.

system = LocalSystem({"toy": graph}, clock=ManualClock())
session = system.open("toy")
request = session.start("answer_text", {...})
system.run()
events = request.drain()
"""

from mstar.local.system import LocalSystem

__all__ = ["LocalSystem"]
