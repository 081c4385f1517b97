"""Orpheus: a Llama 3.2 that writes speech as tokens, and SNAC, which makes them sound (Canopy Labs 2025)."""
