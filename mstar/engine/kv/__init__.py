"""Paged K/V memory: pages, sequences, and who holds them."""
