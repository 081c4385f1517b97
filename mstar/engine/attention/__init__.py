"""Attention over paged K/V: the protocol of a backend, and the torch one."""
