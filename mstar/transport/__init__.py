"""How arrays get from one worker to another.

By reference in one process, through shared memory or from device to device on one host, over TCP.

The workers see `Transport` (`mstar.transport.api`) only. It packs the values of a message and unpacks them again, bit
for bit and of the same kind (numpy, torch, or torch on a device).
"""
