"""How arrays get from one worker to another: by reference in one process, through shared memory on one host, over TCP.

The workers see `Transport` (`mstar.transport.api`) only. It packs the values of a message and unpacks them again, bit
for bit and of the same kind (numpy or torch).
"""
